"""Backups and forks of an image in a file, made beside the running daemon.

A backup is full or incremental; repozo writes it, and restoring it proves it. A fork is the whole image as of a
moment, as a file of its own for another daemon. A file of transactions is only ever appended to. So the image as of a moment is the part
before the first transaction after that moment, with history, seals and checksums.

All functions block for seconds: call them in a thread. They read the image's file and never write to it.
`UpkeepProgress` is written by that thread and read by the loop's thread.
"""

from __future__ import annotations

import calendar
import contextlib
import errno
import functools
import io
import os
import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSError

from batos import private_files
from batos.concurrency import LoopTurns
from batos.errors import Busy, HistoryGone, ImageDamaged, ImageError, InvalidInput
from batos.image import blobs, checksums, identity, ledger, zodb_patches
from batos.image.blobs import copy, folder_of
from batos.image.checksummed_storage import base_of
from batos.image.history import Moment, seconds_of, tid_of, when
from batos.image.scrubber import Walk
from batos.image.storage import check_format, damaged, open_database, sync_to_disk
from batos.image.unit_of_work import snapshot
from batos.objects import Method
from batos.objects.json_form import oid_of


class UpkeepProgress:
    """Progress of a piece of upkeep: the step under way, and the bytes of it that are done."""

    def __init__(self) -> None:
        self._now: tuple[str, int, Callable[[], int]] = ("", 0, int)

    def begin(self, step: str, total: int = 0, done: Callable[[], int] = int) -> None:
        """Note that a step begins.

        :param total: bytes of the whole step; 0 if that is not known.
        :param done: returns the bytes that are done; called from another thread.
        """
        self._now = (step, total, done)

    def facts(self) -> dict[str, Any]:
        """Return `step`, and `done` of `total` bytes if they are known."""
        step, total, done = self._now
        return {"step": step, **({"done": min(done(), total), "total": total} if total else {})}


def size_of(path: pathlib.Path) -> int:
    """Return the size of a file in bytes, 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def growing_size(path: pathlib.Path) -> Callable[[], int]:
    """Return a function that returns the size of a file that is being written."""
    return lambda: size_of(path)


BLOBS = "blobs"
"""The folder of blobs in a folder of backups. They stay as long as the folder does: earlier backups in it need them."""
_METHOD = b"batos.objects\nMethod\n"  # how a record of a Method names its class, in pickle's protocol 3
_VERIFY = ".verify-"  # folders in which a backup is restored to be proved
_PART = "tmp.tmp"  # what repozo writes a file as, before it gets its name
_CHUNK = 1 << 20


def _opened(path: str, mode: str = "r") -> IO[Any]:
    """Open a file for repozo, which would overwrite any file of that name, or the target of a link. So all files but its lists must be
    new."""
    if mode == "a":
        return io.TextIOWrapper(private_files.extend(path))
    if "w" in mode:
        file = private_files.create(path)
        return file if "b" in mode else io.TextIOWrapper(file)
    return open(path, mode)


@functools.cache
def _repozo() -> Any:
    """Return repozo, which from then on opens files with `_opened`."""
    from ZODB.scripts import repozo  # late: most daemons write no backup

    vars(repozo)["open"] = _opened
    return repozo


@dataclass
class _Options:
    """Options of repozo's functions, in place of a command line."""

    repository: str
    file: str | None = None
    output: str | None = None
    full: bool = False
    quick: bool = False  # not: the bytes of the last increment alone would vouch for all before it
    gzip: bool = False
    killold: bool = False
    withverify: bool = True
    date: str | None = None
    test_now: tuple[int, ...] = ()


def backup(
    path: pathlib.Path, folder: pathlib.Path, *, full: bool, before: bytes, progress: UpkeepProgress | None = None
) -> dict[str, Any]:
    """Add a backup of the image to a folder, then prove it.

    :param full: True for a whole backup, False for the part that was appended since the last one. After a pack it is
        whole in any case.
    :param before: id of a transaction that was committed before the call and must be in it.
    :returns: `folder`, `kind` (full, incremental, unchanged), `file`, `bytes` (added), and the findings of the proof. They are
        `total_bytes`, `blob_bytes`, `objects`, `methods`, `damaged` and `tid`. `damaged` has methods that differ from what was audited, and
        transactions that differ from what was written. The image itself has the same damage.
    :raises ImageError: if it cannot be written, its proof fails, or others may write into the folder; a bad backup is
        removed again.
    """
    progress = progress or UpkeepProgress()
    if folder.exists() and not folder.is_dir():
        raise ImageError(f"no backup in {folder}: it is a file, not a folder; name another")
    images = blobs.folder_of(path).resolve()
    if images in (folder.resolve(), *folder.resolve().parents):
        raise ImageError(f"no backup in {folder}: it lies within {images}, where the image keeps its blobs; name another folder")
    try:
        place = private_files.folder(folder)
        private_files.check_within(place)
        _sweep(place)
        old = set(place.iterdir())
        progress.begin("writing")
        try:
            with _without_blanks(place) as repository:
                _repozo().do_backup(_Options(repository, str(path), full=full, test_now=_next_second(place)))
        finally:
            (place / _PART).unlink(missing_ok=True)  # on a full disk it would keep the last bytes
        new = sorted(set(place.iterdir()) - old)
        try:
            for made in new:
                sync_to_disk(made)
            found = _prove(path, place, before, progress)
        except BaseException:
            _remove(new, place)
            raise
    except (_repozo().RepozoError, OSError) as e:
        raise ImageError(f"no backup in {folder}: {_reason(e)}") from e
    data = next((file for file in new if file.suffix in (".fs", ".deltafs")), None)
    kind = "unchanged" if data is None else {".fs": "full", ".deltafs": "incremental"}[data.suffix]
    return {"folder": str(folder), "kind": kind, "file": data and data.name, "bytes": data.stat().st_size if data else 0, **found}


def restore(folder: pathlib.Path, path: pathlib.Path, progress: UpkeepProgress | None = None) -> dict[str, Any]:
    """Make the image at `path` from the newest backup in a folder.

    :returns: `total_bytes`, `blob_bytes`, `objects`, `methods`, `damaged`, `tid`.
    :raises ImageError: if there is an image already, no backup, or an incomplete one; nothing is left at `path` then.
    """
    for taken in (path, path.with_name(path.name + ".old"), path.with_name(path.name + ".pack")):
        if private_files.taken(taken):
            raise ImageError(f"{taken} exists; a restore overwrites nothing: move it away, or name another folder with --data")
    if not folder.is_dir():
        raise ImageError(f"the folder {folder} does not exist; name the folder that `batos backup` wrote to")
    if not any(file.suffix == ".dat" or _repozo().is_data_file(file.name) for file in folder.iterdir()):
        raise ImageError(f"there is no backup in {folder}; name the folder that `batos backup` wrote to")
    try:
        target = private_files.folder(path.parent) / path.name
        with _restored(folder, target.parent, progress or UpkeepProgress()) as file:
            found = _examine(file, folder / BLOBS, blobs.folder_of(target))
            with identity.marked_copied(target, "a restored backup"):
                _place(file, target)
    except (_repozo().RepozoError, OSError) as e:
        raise ImageError(f"the backup in {folder} was not restored: {_reason(e)}") from e
    return found


@contextlib.contextmanager
def _restored(folder: pathlib.Path, beside: pathlib.Path, progress: UpkeepProgress) -> Iterator[pathlib.Path]:
    """Yield the newest backup as a file of its own, checked against repozo's sums, for the length of the block."""
    with tempfile.TemporaryDirectory(prefix=_VERIFY, dir=beside) as scratch:
        file = pathlib.Path(scratch) / "image.fs"
        progress.begin("restoring", _newest_bytes(folder), growing_size(file))
        try:
            newest = max((name for name in _listed(folder) if (folder / name).exists()), default="9999")
            _repozo().do_recover(_Options(str(folder), output=str(file), date=newest.partition(".")[0]))
        except KeyError as e:
            raise _repozo().VerificationFail(f"the list of sums does not name {e}") from None
        except ValueError as e:  # out of a line that is not of the form
            raise _repozo().VerificationFail(f"its list of sums ({folder}, *.dat) cannot be read: {e}") from None
        file.with_name(file.name + ".index").unlink(missing_ok=True)  # opened without it, every transaction is read
        progress.begin("reading it through")
        yield file


def _listed(folder: pathlib.Path) -> set[str]:
    """Return the files that the lists of sums name: repozo writes a file, then its line."""
    lines = [line for sums in folder.glob("*.dat") for line in sums.read_text(errors="replace").splitlines()]
    return {pathlib.Path(line.rsplit(maxsplit=3)[0]).name for line in lines if line.strip()}


def _sweep(folder: pathlib.Path) -> None:
    """Remove the remains of a killed daemon or a full disk: scratch folders, an unfinished line, and files that no
    list names. The next backup would fail on them."""
    for left in folder.glob(_VERIFY + "*"):
        shutil.rmtree(left)
    (folder / _PART).unlink(missing_ok=True)
    for sums in folder.glob("*.dat"):
        whole = sums.read_bytes()
        if not whole.endswith(b"\n"):
            os.truncate(sums, whole.rfind(b"\n") + 1)
    listed = _listed(folder)
    for file in list(folder.iterdir()):
        if _repozo().is_data_file(file.name) and file.name not in listed:
            file.unlink()
            file.with_suffix(".index").unlink(missing_ok=True)


def _newest_bytes(folder: pathlib.Path) -> int:
    """Return the size of the image in the newest backup: the last whole one and its increments."""
    files = sorted(file for file in folder.iterdir() if _repozo().is_data_file(file.name))
    whole = max((number for number, file in enumerate(files) if file.suffix == ".fs"), default=0)
    return sum(size_of(file) for file in files[whole:])


@contextlib.contextmanager
def _without_blanks(folder: pathlib.Path) -> Iterator[str]:
    """Yield a path to the folder without blanks, since repozo's list of sums cannot hold one."""
    if len(str(folder).split()) == 1:
        yield str(folder)
        return
    with tempfile.TemporaryDirectory(prefix="batos-") as scratch:
        link = pathlib.Path(scratch) / "backups"
        link.symlink_to(folder.absolute())
        yield str(link)


def _place(file: pathlib.Path, path: pathlib.Path) -> None:
    try:
        os.link(file, path)  # unlike a rename it never replaces what has come there meanwhile
    except FileExistsError:
        raise
    except OSError:  # no hard links on this file system
        file.rename(path)
    sync_to_disk(path)


def _prove(path: pathlib.Path, folder: pathlib.Path, before: bytes, progress: UpkeepProgress) -> dict[str, Any]:
    with _restored(folder, folder, progress) as file:
        if not _begins_with(path, file):
            raise _repozo().VerificationFail("what was written differs from the image; check the disk")
        found = _examine(file, blobs.folder_of(path), folder / BLOBS)
        if bytes.fromhex(found["tid"]) < before:
            raise _repozo().VerificationFail(f"it ends at the transaction {found['tid']}, before {before.hex()}")
        return found


def _examine(file: pathlib.Path, source: pathlib.Path, target: pathlib.Path) -> dict[str, Any]:
    """Open an image as the daemon would, read all of it, check every checksum and every method's digest, and copy its
    blobs.

    :param source: folder of the blobs; `target` is the folder that they are copied into.
    """
    db = open_database(f"file://{file}", cache_size=400, pool_size=7, read_only=True)
    try:
        with db.transaction() as connection:
            root = connection.root()
            check_format(root, f"file://{file}")
            if root.get("lobby") is None or root.get("ledger") is None:
                raise ImageDamaged(f"{file} is not an image of BAT OS: it has no lobby")
            methods = [connection.get(oid) for oid in _methods(db)]
            damaged = [named for method in methods if (named := _damage(method))]
            walk = Walk(db)
            walk.step(0, db.getSize())
            blob_bytes, missing = blobs.copy(db, source, target)
        return {
            "total_bytes": db.getSize(),
            "objects": len(db.storage),
            "methods": len(methods),
            "blob_bytes": blob_bytes,
            "damaged": damaged + [f"{place}: {what}" for place, what in walk.damaged.items()] + missing,
            "tid": db.lastTransaction().hex(),
        }
    finally:
        db.close()


def _damage(method: Method) -> str | None:
    """Return the name of a method that differs from what was audited; None if it is intact."""
    try:
        return None if method.intact() else f"{method.selector} ({oid_of(method)})"
    except (ImageDamaged, POSError, AttributeError, TypeError, ValueError):  # not even its record can be read
        return f"({oid_of(method)})"


def _methods(db: ZODB.DB) -> list[bytes]:
    found: list[bytes] = []
    storage: FileStorage = base_of(db.storage)  # past the checksums: they are looked at once, in the order of the file
    following: bytes | None = None
    while len(storage):
        oid, _, data, following = storage.record_iternext(following)
        if _METHOD in data[:64]:
            found.append(oid)
        if following is None:
            break
    return found


def _begins_with(path: pathlib.Path, file: pathlib.Path) -> bool:
    with path.open("rb") as image, file.open("rb") as copy:
        while chunk := copy.read(_CHUNK):
            if image.read(len(chunk)) != chunk:
                return False
    return True


def _next_second(folder: pathlib.Path) -> tuple[int, ...]:
    """Return the time that names the next backup: now, or the second after the newest one. Repozo orders backups by it."""
    moment = time.time()
    if newest := max((file.name[:19] for file in folder.iterdir() if _repozo().is_data_file(file.name)), default=""):
        moment = max(moment, calendar.timegm(time.strptime(newest, "%Y-%m-%d-%H-%M-%S")) + 1)  # also after a clock was ahead, by years say
    return tuple(time.gmtime(moment)[:6])


def _remove(made: list[pathlib.Path], folder: pathlib.Path) -> None:
    """Remove a bad backup, also from the list of sums that an increment was added to."""
    names = {file.name for file in made}
    for file in made:
        file.unlink(missing_ok=True)
    for sums in folder.glob("*.dat"):
        lines = sums.read_text().splitlines(keepends=True)
        kept = [line for line in lines if pathlib.Path(line.rsplit(maxsplit=3)[0]).name not in names]
        if kept != lines:
            private_files.write(sums, "".join(kept))


def _reason(error: Exception) -> str:
    if isinstance(error, private_files.Exposed):
        return error.why
    if isinstance(error, OSError) and error.errno:
        hint = "; make room, or name another folder" if error.errno == errno.ENOSPC else ""
        return f"{os.strerror(error.errno)}{f' ({error.filename})' if error.filename else ''}{hint}"
    return str(error) or type(error).__name__


FORK_NAME = "live_image.fs"
FORK_PART = FORK_NAME + ".part"  # while it is being copied
"""Name of an unfinished fork, which a daemon looks for in its data folder."""
_FIRST = 4  # bytes before the first transaction
_CHUNK_FORK = 8 * 1024 * 1024  # bytes copied between two looks at whether to stop
_PLAIN = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)  # the system cannot copy from file to file itself


def fork(db: ZODB.DB, path: pathlib.Path, folder: pathlib.Path, at: Moment | None, stop: threading.Event) -> dict[str, Any]:
    """Copy the image behind `db` as of a moment (None: as it is) into a folder, and prove that it opens. Call it in a
    thread.

    :param path: path of the image.
    :param stop: ends the copy when it is set.
    :returns: `image` (the new file), `bytes`, `objects`, `tid` and `time` of its last transaction, `unfinished`
        missions in it.
    :raises HistoryGone: for a moment before the last pack, or before the image existed.
    :raises InvalidInput: for a folder that is not an absolute path.
    :raises ImageError: if the folder has an image or its blobs already, others may write into it, or it cannot be written. Nothing is left
        of the fork.
    """
    if not folder.is_absolute():
        raise InvalidInput(f"{str(folder)!r} is not an absolute path; the daemon does not know which folder you are in")
    try:
        place = private_files.fit(folder)
    except OSError as e:
        raise _not_written(folder / FORK_NAME, e) from e
    target = place / FORK_NAME
    if private_files.taken(target):
        raise ImageError(f"an image exists at {target} already, and nothing is overwritten; name another folder")
    if place.exists() and not place.is_dir():
        raise ImageError(f"{folder} is a file, not a folder; name another")
    part, blobs = target.with_name(FORK_PART), folder_of(target)
    if private_files.taken(blobs) and not private_files.taken(part):  # with one, both are of a fork that was killed
        raise ImageError(
            f"there are blobs of another image at {blobs}, and that image is not there; nothing is overwritten, name another folder"
        )
    until = None if at is None else tid_of(db, at)
    storage = base_of(db.storage)
    try:
        private_files.folder(place)
        if private_files.taken(blobs):
            shutil.rmtree(blobs)
    except OSError as e:
        raise _not_written(target, e) from e
    try:
        with contextlib.ExitStack() as stack:
            source, end = zodb_patches.open_committed(storage)
            stack.enter_context(source)
            cut = _cut(source, end, until)
            with private_files.renew(part) as copy:
                _copy(source, copy, cut, stop)
        sync_to_disk(part)
        found = _proved(part, path, blobs)
        with identity.marked_copied(target, f"a fork of {path}"):
            part.rename(target)
        sync_to_disk(target)
    except checksums.Mismatch as e:
        raise damaged(f"file://{path}", e) from e
    except OSError as e:
        raise _not_written(target, e) from e
    finally:
        if not private_files.taken(target):
            shutil.rmtree(blobs, ignore_errors=True)
        with contextlib.suppress(OSError):  # why, is on its way already
            part.unlink(missing_ok=True)  # last: it says whose the blobs are
    return {"image": str(folder / FORK_NAME), **found}


def _not_written(target: pathlib.Path, error: OSError) -> ImageError:
    return ImageError(f"the fork {target} cannot be written: {error.strerror or error}")


def _cut(file: BinaryIO, end: int, until: bytes | None) -> int:
    """Return the position of the first transaction after a moment. The search goes backwards, since most moments are
    not long ago.

    :raises HistoryGone: if that transaction was packed, so that the part before it is incomplete; or if there is
        nothing before it.
    """
    cut, status, turns = end, b" ", LoopTurns()
    while cut > _FIRST:
        file.seek(cut - checksums.LENGTH.size)
        (length,) = checksums.LENGTH.unpack(file.read(checksums.LENGTH.size))
        begin = cut - checksums.LENGTH.size - length
        if begin < _FIRST:
            raise checksums.Mismatch(f"the length before byte {cut} makes no sense")
        head = checksums.read_head(file, begin)
        if until is None or head.tid <= until:
            break
        cut, status = begin, head.status
        turns.take()
    if until is not None and (cut == _FIRST or status == b"p"):
        raise HistoryGone(f"the image as of {when(until)} is no longer kept, or did not exist yet: history goes back to the last pack")
    return cut


def _copy(source: BinaryIO, target: IO[bytes], length: int, stop: threading.Event) -> None:
    """Copy the first bytes of a file, by the operating system where it can.

    :raises Busy: if `stop` was set.
    """
    position, by_system = 0, hasattr(os, "copy_file_range")
    while position < length:
        if stop.is_set():
            raise Busy("the daemon is stopping")
        size = min(_CHUNK_FORK, length - position)
        if by_system:
            try:
                position += os.copy_file_range(source.fileno(), target.fileno(), size, position, position)
                continue
            except OSError as e:
                if e.errno not in _PLAIN:
                    raise
                by_system = False
        os.pwrite(target.fileno(), os.pread(source.fileno(), size, position), position)
        position += size


def _proved(path: pathlib.Path, origin: pathlib.Path, blobs: pathlib.Path) -> dict[str, Any]:
    """Open the fork, and give it its blobs: hard links where the file system allows them."""
    uri = f"file://{path}"
    db = open_database(uri, cache_size=2000, pool_size=2, read_only=True)
    try:
        with snapshot(db) as root:
            check_format(root, uri)
            unfinished = len(ledger.unfinished(root))
        if missing := copy(db, folder_of(origin), blobs, link=True)[1]:
            raise ImageDamaged(f"the image {origin} was not forked: {missing[0]}; restore a backup (`batos restore`)")
        tid = db.lastTransaction()
        return {"bytes": db.getSize(), "objects": len(db.storage), "tid": tid.hex(), "time": seconds_of(tid), "unfinished": unfinished}
    finally:
        db.close()
