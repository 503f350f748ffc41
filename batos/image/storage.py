"""Opening of the storage behind the image, by URI; every refusal names the remedy.

Storages come from zodburi (`file://`, `zeo://`, `postgres://`, ...). This module knows their pitfalls, not their
contents.

`check_tail` tells a torn tail from damage before FileStorage opens the file. FileStorage truncates a file at the
first transaction whose length makes no sense. That is right for a transaction that a crash tore. After one flipped
byte in an older header it would drop everything acknowledged since.

`drop_unwritten` cleans up after a full disk. A file object keeps in its buffer what it could not write. FileStorage
then truncates its file, which writes the buffer first and fails again. So the rest of a failed transaction would be
written with a later one, behind its end, or fail the closing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import pickle
import random
import struct
import time
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import structlog
import ZODB
import zodbpickle.pickle
from zc.lockfile import LockError, LockFile
from ZODB import POSException
from ZODB.FileStorage.format import CorruptedError
from ZODB.interfaces import IBlobStorage

from batos import private_files
from batos.errors import ConfigError, ImageDamaged, ImageError, ImageLocked, ImageTooNew
from batos.image import blobs, checksums, copy_mark, kernels, record_pickler, server, zodb_patches
from batos.image.checksummed_storage import REMEDY, CheckedStorage
from batos.image.checksums import HEADER, LENGTH
from batos.image.zodb_patches import filestorage
from batos.objects import Root

T = TypeVar("T")
_MAGIC = 4  # bytes before the first transaction
_FIRST = 1024  # bytes; more than the first transaction of an image, which a crash may tear as any other


def check_tail(path: pathlib.Path) -> None:
    """Walk over the transactions since the index was written, by their lengths.

    :raises CorruptedError: if whole transactions follow the place at which FileStorage would truncate.
    """
    size = path.stat().st_size
    if size < _MAGIC + HEADER.size:
        return
    with path.open("rb") as file:
        position = _walk(file, _indexed(file, path, size), size)
        if position == size:
            return
        if position == _MAGIC and size > _FIRST:
            raise CorruptedError("not one transaction of it can be read")
        (length,) = LENGTH.unpack(_read(file, size - LENGTH.size, LENGTH.size))
        start = size - LENGTH.size - length
        if start < position or length < HEADER.size:
            return  # no whole transaction at the end: torn
        _, declared, status, *_ = HEADER.unpack(_read(file, start, HEADER.size))
        unfinished = start == position and declared == length and status == b"c"  # written, never committed
        if not unfinished and (start == position or declared == length):
            raise CorruptedError(
                f"a transaction at byte {position} of {size} has a header that makes no sense, and is not the torn last one"
            )


def _walk(file: BinaryIO, position: int, size: int) -> int:
    """Return the end of the last whole transaction that is reached from `position`."""
    while position + HEADER.size <= size:
        _, length, status, *texts = HEADER.unpack(_read(file, position, HEADER.size))
        end = position + length
        if end + LENGTH.size > size or status == b"c" or length < HEADER.size + sum(texts):
            break
        if LENGTH.unpack(_read(file, end, LENGTH.size)) != (length,):
            break
        position = end + LENGTH.size
    return position


def _indexed(file: BinaryIO, path: pathlib.Path, size: int) -> int:
    """Return the position up to which the index covers the file, if a transaction ends there; else the beginning."""
    known = checksums.index_position(path.with_name(path.name + ".index"))
    if known is not None and _MAGIC + HEADER.size < known <= size:
        (length,) = LENGTH.unpack(_read(file, known - LENGTH.size, LENGTH.size))
        start = known - LENGTH.size - length
        if start >= _MAGIC and _walk(file, start, known) == known:
            return known
    return _MAGIC


def _read(file: BinaryIO, position: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, position)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_full_error(failure: BaseException) -> ImageError | None:
    """Return the error, with its remedy, for a commit that found no room on the disk; None for another failure."""
    if not isinstance(failure, OSError) or failure.errno not in _FULL:
        return None
    return ImageError(f"the image could not be written: {os.strerror(failure.errno)}; make room on its disk", cause="disk_full")


def drop_unwritten(storage: Any, failure: BaseException) -> None:
    """Drop the unwritten buffer after a failed commit, and truncate the file, if the failure was that it could not be
    written.

    Call it on the committing thread, between two transactions.
    """
    if not isinstance(failure, OSError) or not isinstance(storage, filestorage.FileStorage):
        return
    zodb_patches.truncate_unwritten(storage)


log = structlog.get_logger("batos.image")

POOL_TIMEOUT_S = 60  # an idle connection collects the ids of all that is committed, for ever
COMPANIONS = ("", ".index", ".index.index_tmp", ".lock", ".tmp", ".old", ".pack", ".epoch")
"""Suffixes of the image's file and of the files beside it: those of FileStorage, and that of `batos.image.identity`."""
# Of the image's root; a higher number means a newer BAT OS wrote it. 2: checksums; 3: names as bytes; 4: journals made late; 5: missions
# are folded, and the memory's counts are kept: an earlier version would not know the ids, and not count; 6: Primitives have stable names;
# 7: texts of inferences are compressed, and an earlier version would pay for them again.
FORMAT = 7
CHECKED_AFTER = "checked_after"  # key in the root: every record written after this transaction has a checksum
_DAMAGE = (
    CorruptedError,
    POSException.POSError,
    pickle.PickleError,
    zodbpickle.pickle.PickleError,
    ValueError,
    ArithmeticError,
    ImportError,
    MemoryError,
    LookupError,
    EOFError,
    AttributeError,
    TypeError,
    struct.error,
)  # what reading a damaged file comes to, before anything with a checksum is read
_RECOVER = f"{REMEDY}, or salvage the intact records with `python -m ZODB.fsrecover DAMAGED NEW`; the file was not changed"


Prepare = Callable[[Any], None]
"""Prepares a storage before it is used."""


def file_path(uri: str) -> pathlib.Path | None:
    """Return the path of a `file://` image; None for other storages."""
    if not uri.startswith("file://"):
        return None
    return pathlib.Path(os.path.normpath(uri[len("file://") :].split("?", 1)[0]))


def shown_uri(uri: str) -> str:
    """Return a URI as messages and logs show it: without its password."""
    try:
        password = urlsplit(uri).password
    except ValueError:
        return uri
    return uri.replace(f":{password}@", ":…@", 1) if password else uri


def open_database(
    uri: str, *, cache_size: int, pool_size: int, read_only: bool = False, prepare: Prepare = server.bound_sessions
) -> ZODB.DB:
    """Open the database behind `uri`.

    :param cache_size: objects that a connection keeps loaded (a loaded object takes about 1 KiB a connection).
    :param pool_size: connections open at once; ZODB only warns above it.
    :param prepare: prepares the storage before it is used.
    :raises ImageError: one of its kinds, naming file, cause and remedy. A damaged file is never changed.
    :raises ConfigError: for a URI that no storage answers to.
    """

    def database(storage: CheckedStorage, options: dict[str, Any]) -> ZODB.DB:
        if file_path(uri) is None:
            copy_mark.refuse_unfinished(storage, shown_uri(uri))
        return ZODB.DB(storage, **{**options, "cache_size": cache_size, "pool_size": pool_size, "pool_timeout": POOL_TIMEOUT_S})

    return _opened(uri, database, read_only=read_only, prepare=prepare)


def open_storage(uri: str) -> CheckedStorage:
    """Open the storage behind `uri` without a database, which would make a first object where there is none.

    :raises ImageError: as `open_database`.
    """
    return _opened(uri, lambda storage, options: storage)


def _opened(
    uri: str,
    use: Callable[[CheckedStorage, dict[str, Any]], T],
    *,
    read_only: bool = False,
    prepare: Prepare = server.bound_sessions,
) -> T:
    path = file_path(uri)
    if path and read_only:
        uri = f"file://{path}?read_only=1"
    if path and not read_only:
        _make_folder(path.parent)
    factory, options = resolve(uri)
    try:
        if path and not read_only:
            _check_links(path)
            _settle_interrupted_pack(path)
            if path.exists():
                check_tail(path)
            elif not private_files.taken(path):  # a link to nothing, of this user's, says where it is to be
                private_files.create(path).close()
        return _open(factory, lambda storage: use(storage, options), str(path or shown_uri(uri)), path, prepare)
    except LockError:
        raise ImageLocked(
            f"the image {path} is open in another process{_holder(path)}; stop that daemon, or give this one another --data or --image"
        ) from None
    except FileNotFoundError:
        raise ImageError(f"there is no image at {path or shown_uri(uri)}; `batos run` makes one") from None
    except POSException.ReadOnlyError:
        if read_only:  # it would be made one
            raise ImageError(f"the database {path or shown_uri(uri)} is empty and holds no image yet; `batos run` makes one") from None
        raise ImageError(f"the image {path or shown_uri(uri)} can only be read; give the daemon a folder it may write to") from None
    except _DAMAGE as e:
        if path:
            raise damaged(uri, e) from e
        raise _unreachable(uri, e) from e
    except OSError as e:
        raise not_writable(uri, e) from e
    except ImageError:
        raise
    except Exception as e:  # whatever the driver of a server raises
        if path:
            raise
        raise _unreachable(uri, e) from e


def _unreachable(uri: str, cause: Exception) -> ImageError:
    """Return the error for an image whose server refuses it, or does not answer."""
    said = " ".join(str(cause).split())[:300]
    return ImageError(
        f"the image {shown_uri(uri)} cannot be opened ({type(cause).__name__}: {said}); check that its server runs, the address, the "
        "name of the database, and who may connect"
    )


def damaged(uri: str, cause: Exception) -> ImageDamaged:
    """Return the error for an image that cannot be read."""
    return ImageDamaged(f"the image {file_path(uri) or shown_uri(uri)} is damaged ({type(cause).__name__}: {cause}); {_RECOVER}")


def not_writable(uri: str, cause: OSError) -> ImageError:
    """Return the error for an image that the system does not let the daemon open or write."""
    what = os.strerror(cause.errno) if cause.errno else str(cause)
    return ImageError(f"the image {file_path(uri) or shown_uri(uri)} cannot be opened: {what}; check owner, permissions and free space")


def check_format(root: Root, uri: str) -> None:
    """Refuse an image that a newer BAT OS wrote.

    :raises ImageTooNew: and nothing was changed.
    :raises ImageDamaged: if the root's record cannot be read.
    """
    try:
        found = root.get("format")
    except _DAMAGE as e:
        raise damaged(uri, e) from e
    if found is not None and (not isinstance(found, int) or found > FORMAT):
        raise ImageTooNew(
            f"the image {shown_uri(uri)} has format {found}, this BAT OS knows formats up to {FORMAT}; upgrade BAT OS, it is untouched"
        )
    require_checksums(root)


def require_checksums(root: Root) -> None:
    """Treat a record without a checksum as damaged from now on, unless it was written before there were any.

    Only for files: on a server, others may write.
    """
    connection = getattr(root, "_p_jar", None)
    storage = connection and connection.db().storage
    if isinstance(storage, CheckedStorage) and storage.sealing:
        storage.required_after = root.get(CHECKED_AFTER)


def probe(uri: str) -> dict[str, Any]:
    """Look at an image without changing it, also beside a running daemon (a file's view is frozen at this moment).

    :returns: `format`, `objects`, `bytes`, `locked` (a daemon has it open), `exists`, `kernels` (names of those that serve it).
    :raises ImageError: as `open_database`.
    """
    path = file_path(uri)
    if path and not path.exists():
        return {"exists": False, "locked": False, "objects": 0, "bytes": 0, "format": FORMAT, "kernels": []}
    locked = path is not None and _is_locked(path)
    db = open_database(uri, cache_size=400, pool_size=7, read_only=True)
    try:
        with db.transaction() as connection:
            root = connection.root()
            check_format(root, uri)
            return {
                "exists": True,
                "locked": locked,
                "objects": len(db.storage),
                "bytes": db.getSize(),
                "format": root.get("format", FORMAT),
                "kernels": [one.name for one in kernels.listed(root) if not one.gone],
            }
    finally:
        db.close()


def sync_to_disk(path: pathlib.Path) -> None:
    """Sync a file and its folder. ZODB never syncs the folder, so a new file's name could be lost in a power cut."""
    for target, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | os.O_DIRECTORY)):
        fd = os.open(target, flags)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def is_broken(db: ZODB.DB) -> bool:
    """Return True if the storage closed itself: FileStorage does so after an error past the point of no return."""
    return zodb_patches.is_closed(db.storage)


def _settle_interrupted_pack(path: pathlib.Path) -> None:
    """Put an image back that a crash left between the two renames of a pack; remove an unfinished copy."""
    copy, old = (path.with_name(path.name + ending) for ending in (".pack", ".old"))
    if not copy.exists():
        return
    with contextlib.closing(LockFile(f"{path}.lock")):  # it may be another process that packs, right now
        if not path.exists() and old.exists():
            old.rename(path)  # it has every commit: none can come between the renames
            sync_to_disk(path)
            log.warning("interrupted_pack_undone", path=str(path))
        if path.exists():
            copy.unlink(missing_ok=True)


def resolve(uri: str) -> tuple[Any, dict[str, Any]]:
    """Return the factory and the database options of the storage that answers to a URI, not yet opened.

    :raises ConfigError: if no storage answers to it.
    """
    zodburi = zodb_patches.uri_resolvers()
    scheme = uri.split("://", 1)[0] if "://" in uri else ""
    path = file_path(uri)
    if path is not None and not path.name:
        raise ConfigError(f"image {shown_uri(uri)!r} does not name a file; use file:///path/to/live_image.fs")
    if not scheme:
        raise ConfigError(f"image {shown_uri(uri)!r} is not a valid URI; use file:///path/to/live_image.fs, zeo:// or postgres://")
    try:
        return zodburi.resolve_uri(uri)  # type: ignore[no-any-return]
    except zodburi.UnknownDatabaseKeywords as e:
        raise ConfigError(f"image {shown_uri(uri)!r}: unknown options {', '.join(e.kw)}") from None
    except KeyError:
        raise ConfigError(
            f"no storage answers to {scheme}:// (image {shown_uri(uri)!r}); file:// is built in, zeo:// and postgres:// are extras"
        ) from None
    except ValueError as e:
        raise ConfigError(f"image {shown_uri(uri)!r}: {e}") from None


_OPENINGS = 5  # tries to open one image
_SCHEMA_RACES = ("UniqueViolation", "DuplicateTable", "DuplicateObject", "InternalError_")  # of PostgreSQL


def _open(
    factory: Any, use: Callable[[CheckedStorage], T], name: str, path: pathlib.Path | None, prepare: Prepare, tries: int = _OPENINGS
) -> T:
    record_pickler.use_record_writer()
    storage = None
    try:
        storage = factory()
        if path and not IBlobStorage.providedBy(storage):
            blobs.attach(storage, path, read_only=storage.isReadOnly())
        prepare(storage)
        return use(CheckedStorage(storage, name))
    except BaseException as e:
        if storage is not None:
            drop_unwritten(storage, e)
            storage.close()
        # Of a file: a zero-filled tail after a power cut; FileStorage cut it off but kept transaction id 0, and another open is right.
        # Of a server: another daemon makes the tables or the first objects of the same empty database at this moment.
        if tries > 1 and (isinstance(e, POSException.ConflictError) or type(e).__name__ in _SCHEMA_RACES):
            if path is None:
                time.sleep(random.uniform(0.05, 0.3))
            return _open(factory, use, name, path, prepare, tries - 1 if path is None else 1)
        raise


def _make_folder(folder: pathlib.Path) -> None:
    try:
        private_files.make(folder)
    except OSError as e:
        raise ImageError(f"the folder {folder} of the image cannot be made: {e.strerror}; name another with --data") from None


def _check_links(path: pathlib.Path) -> None:
    """Check the names that FileStorage opens and writes to, links or not; it deletes the contents of the last.

    :raises ImageError: if one of them, or a folder on the way, is another user's link.
    """
    try:
        for beside in (*(path.with_name(path.name + ending) for ending in COMPANIONS), blobs.folder_of(path) / "tmp"):
            private_files.check_links(beside)
    except private_files.Exposed as e:
        raise ImageError(f"the image {path} is not opened: {e.why}") from e


def _is_locked(path: pathlib.Path) -> bool:
    import zc.lockfile

    lock = path.with_name(path.name + ".lock")
    if not lock.exists():
        return False
    try:
        zc.lockfile.SimpleLockFile(str(lock)).close()
    except LockError:
        return True
    except OSError as e:
        return e.errno in (errno.EACCES, errno.EROFS)
    return False


def _holder(path: pathlib.Path | None) -> str:
    try:
        pid = path.with_name(path.name + ".lock").read_text().strip() if path else ""
    except OSError:
        pid = ""
    return f" (process {pid})" if pid.isdigit() else ""
