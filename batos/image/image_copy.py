"""Copy of an image from one storage to another: from a file to a server, and back.

ZODB's own copying takes each transaction over with its id, its metadata, its records and their blobs. The copy is then read back and
compared with the original. A target that is a file gets its name once it is whole. On a server a mark (`batos.image.copy_mark`) tells a
daemon that the copy is not whole. A copy that was killed goes on where it was, or begins anew.

What may act on the world goes over to the copy at the end (`batos.image.identity`), so that pending missions go on there, and only there.
All functions block: no daemon uses either image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import structlog
import ZODB
from ZODB.interfaces import IBlobStorage, IBlobStorageRestoreable
from ZODB.POSException import POSKeyError
from ZODB.utils import load_current, p64, u64, z64

from batos import private_files
from batos.errors import ConfigError, ImageError
from batos.image import blobs, copy_mark, identity, ledger, server
from batos.image.checksummed_storage import CheckedStorage, base_of, reading
from batos.image.copy_mark import CopyMark
from batos.image.storage import check_format, disk_full_error, file_path, open_storage, resolve, shown_uri, sync_to_disk
from batos.image.unit_of_work import snapshot

log = structlog.get_logger("batos.image")
PART = ".copying"
"""Suffix of a copy's file until it is whole."""


class CopyFacts(NamedTuple):
    """Figures of a copy that is whole, the same as of its original."""

    transactions: int
    """those that were copied; 0 where the copy keeps no history, and none was compared"""
    records: int
    """current records"""
    digest: str
    """SHA-256 over the ids, transactions and data of all current records, in hexadecimal"""
    history: str
    """the same over all transactions and their metadata; empty where the copy keeps no history"""
    blob_bytes: int
    pending: int
    """missions that have not ended"""
    resumed: bool
    """True if an unfinished copy was ended"""
    suspended: str
    """why the copy may not act; empty if it may"""


class CopyProgress:
    """Progress of a copy, written by its thread and read by others."""

    step = "opening both"
    done = total = 0
    """transactions, or records; a total of 0 is not known"""

    def begin(self, step: str, total: int = 0) -> None:
        """Note that a step begins."""
        self.step, self.done, self.total = step, 0, total

    def told(self) -> str:
        """Return the step, and how far it is, in words."""
        of = f" of {self.total:,}" if self.total else ""
        return f"{self.step}{f', {self.done:,}{of}' if self.done else ''}"


class _Source:
    """Original of a copy, as ZODB's and RelStorage's copying read it: the transactions of a stretch, each counted."""

    def __init__(self, storage: CheckedStorage, start: bytes | None, until: bytes, progress: CopyProgress) -> None:
        self._storage, self._start, self._until, self._progress = storage, start, until, progress
        progress.begin("counting transactions")
        self._total = sum(1 for _ in _transactions(storage, start, until))
        progress.begin("copying transactions", self._total)

    def iterator(self) -> _Source:
        """Begin from the start of the stretch."""
        self._following = _transactions(self._storage, self._start, self._until)
        return self

    def __len__(self) -> int:
        return self._total

    def __iter__(self) -> _Source:
        return self

    def __next__(self) -> Any:
        found = next(self._following)
        self._progress.done += 1
        return found

    def loadBlob(self, oid: bytes, tid: bytes) -> str:
        """Return the name of a blob's file.

        :raises ImageError: if it is damaged.
        """
        name = str(self._storage.loadBlob(oid, tid))
        if problem := blobs.problem_of(name):
            raise ImageError(f"the image was not copied: oid:{u64(oid):x}, {problem}; restore a backup (`batos restore`)")
        return name

    def openCommittedBlobFile(self, oid: bytes, tid: bytes) -> BinaryIO:
        """Return a blob's file, open.

        :raises ImageError: if it is damaged.
        """
        return open(self.loadBlob(oid, tid), "rb")


def copy_image(source: str, target: str, data: pathlib.Path, progress: CopyProgress | None = None) -> CopyFacts:
    """Copy an image to a storage that holds none, compare both, and hand the right to act over to the copy.

    :param source: URI of the image; `target` is that of the copy.
    :param data: the data folder, which has the file of the identity of an image on a server.
    :raises ConfigError: for a URI that no storage answers to, or twice the same.
    :raises ImageLocked: if a daemon uses one of them.
    :raises ImageError: if there is no image at the source, one at the target, no room, or a difference. A daemon does not accept what was
        copied until then as an image.
    """
    progress = progress or CopyProgress()
    _check_uris(source, target)
    try:
        with contextlib.ExitStack() as stack:
            original = _Original(stack, source, data)
            into = _into_server if file_path(target) is None else _into_file
            return into(original, target, progress)
    except ImageError:
        raise
    except Exception as e:
        raise _not_copied(target, e) from e


class _Original:
    """Image that is copied, open and in exclusive use until the stack closes."""

    def __init__(self, stack: contextlib.ExitStack, uri: str, data: pathlib.Path) -> None:
        path = file_path(uri)
        if path is not None and not path.exists():
            raise ImageError(f"there is no image at {path}; name one with --from")
        self.uri, self.data = uri, data
        self.storage = open_storage(uri)
        stack.callback(self.storage.close)
        if path is None:
            copy_mark.refuse_unfinished(self.storage, shown_uri(uri))
        if _is_empty(self.storage):
            raise ImageError(f"there is no image at {path or shown_uri(uri)}; name one with --from")
        use = server.lock_session(self.storage, shown_uri(uri), _lost)
        if use is not None:
            stack.callback(use.release)
        db = ZODB.DB(self.storage, cache_size=400)
        stack.callback(db.close)
        with snapshot(db) as root:
            check_format(root, uri)
            if root.get("lobby") is None or root.get("ledger") is None:
                raise ImageError(f"{shown_uri(uri)} holds no image of BAT OS; name one with --from")
            self.known, self._epochs = identity.identity_of(root), identity.epochs(root)
            self.pending = len(ledger.unfinished(root))
            self.pictures = root["ledger"].pictures is not None
        if path is None and use is None:
            server.refuse_used(db, shown_uri(uri))
        self.until = self.storage.lastTransaction()
        self.file = identity.epoch_path(uri, data)

    def why_suspended(self, copy: str) -> str:
        """Return why the image may not act, and so its copy may not either; empty if it may."""
        if self.file is None or identity.is_handed_over(self.file, copy):
            return ""
        return identity.why_suspended(self._epochs, identity.read_file(self.file), self.file)

    def check_unchanged(self) -> None:
        """Refuse a copy of an image that was written to meanwhile: a daemon of ZEO, say, which no lock keeps off."""
        if self.storage.lastTransaction() != self.until:
            raise ImageError(
                f"the image {shown_uri(self.uri)} was changed while it was copied: a daemon was started on it; stop it, empty the target, "
                "and copy again"
            )

    def hand_over(self, target: str) -> str:
        """Let the copy act, if the original may; return why not."""
        copy, file = shown_uri(target), identity.epoch_path(target, self.data)
        assert file is not None
        private_files.folder(file.parent)
        if why := self.why_suspended(copy):
            identity.mark_copied(file, f"a copy of {shown_uri(self.uri)}, which may not act itself")
            return why
        if self.known is not None and self.file is not None:
            identity.hand_over(self.known, self.file, copy, file)
        return ""


def _into_server(original: _Original, target: str, progress: CopyProgress) -> CopyFacts:
    with contextlib.ExitStack() as stack:
        storage = open_storage(target)
        stack.callback(storage.close)
        if (use := server.lock_session(storage, shown_uri(target), _lost)) is not None:
            stack.callback(use.release)
        _check_blobs(original, storage, target)
        mark = CopyMark("" if original.known is None else original.known.id, original.until.hex())
        resumed = _prepare(storage, mark, original, target)
        last = storage.lastTransaction() if resumed else z64
        start = None if last <= copy_mark.FIRST else p64(u64(last) + 1)
        if not copy_mark.keeps_history(storage):
            start = None  # what is there tells nothing of what was: all is written once more
        _copy(original, storage, start, progress)
        facts = _compared(original, storage, resumed, progress)
        original.check_unchanged()
        facts = facts._replace(suspended=original.hand_over(target))
        copy_mark.clear_mark(storage)
        return facts


def _prepare(storage: CheckedStorage, mark: CopyMark, original: _Original, target: str) -> bool:
    """Mark a server's storage as a copy that is under way; return True if it is one already, of the image as it is."""
    found = copy_mark.read_mark(storage)
    if found is None and not _is_empty(storage) and not _is_whole(storage, mark):
        raise ImageError(f"{shown_uri(target)} holds an image already; a copy overwrites nothing: name an empty database or storage")
    if found == mark or (found is None and not _is_empty(storage)):
        return True
    if found is not None:
        zap = getattr(base_of(storage), "zap_all", None)
        if zap is None:
            raise ImageError(
                f"{shown_uri(target)} holds an unfinished copy of another image, or of this one as it was; name an empty storage"
            )
        log.info("copy_begun_anew", target=shown_uri(target), why="the unfinished one is of another image, or of this one as it was")
        zap()
    copy_mark.set_mark(storage, mark)
    return False


def _is_whole(storage: CheckedStorage, mark: CopyMark) -> bool:
    """Return True for a copy of this very image on a storage whose mark stays (ZEO), which was killed before it was handed over."""
    if server.postgres_of(storage) is not None or not copy_mark.keeps_history(storage):
        return False
    first = next(iter(base_of(storage).iterator(copy_mark.FIRST, copy_mark.FIRST)), None)
    return first is not None and storage.lastTransaction().hex() == mark.until


def _into_file(original: _Original, target: str, progress: CopyProgress) -> CopyFacts:
    path = file_path(target)
    assert path is not None
    part = path.with_name(path.name + PART)
    for taken in (path, path.with_name(path.name + ".old"), path.with_name(path.name + ".pack")):
        if private_files.taken(taken):
            raise ImageError(f"{taken} exists; a copy overwrites nothing: move it away, or name another file with --to")
    begun = private_files.taken(part)
    if private_files.taken(blobs.folder_of(path)) and not begun:
        raise ImageError(f"there are blobs of another image at {blobs.folder_of(path)}; a copy overwrites nothing: name another file")
    private_files.folder(path.parent)
    _drop(part, path)
    storage = open_storage(f"file://{part}")
    try:
        _copy(original, storage, None, progress)
        facts = _compared(original, storage, False, progress)
    finally:
        storage.close()
    original.check_unchanged()
    sync_to_disk(part)
    if (held := blobs.folder_of(part)).exists():
        blobs.sync_tree(held)
        held.rename(blobs.folder_of(path))
    facts = facts._replace(suspended=original.hand_over(target))
    _place(part, path)
    _drop(part, None)
    return facts


def _drop(part: pathlib.Path, path: pathlib.Path | None) -> None:
    """Remove an unfinished copy to a file, the file itself last: it says whose the rest is."""
    shutil.rmtree(blobs.folder_of(part), ignore_errors=True)
    if path is not None and private_files.taken(part):
        shutil.rmtree(blobs.folder_of(path), ignore_errors=True)
    for ending in (".index", ".index.index_tmp", ".lock", ".tmp", ""):
        part.with_name(part.name + ending).unlink(missing_ok=True)


def _place(part: pathlib.Path, path: pathlib.Path) -> None:
    try:
        os.link(part, path)  # unlike a rename it never replaces what has come there meanwhile
    except FileExistsError:
        raise
    except OSError:  # no hard links on this file system
        part.rename(path)
    sync_to_disk(path)


def _copy(original: _Original, storage: CheckedStorage, start: bytes | None, progress: CopyProgress) -> None:
    if start is not None and start > original.until:
        return
    if original.pictures and storage.sealing:
        private_files.make(pathlib.Path(storage.fshelper.base_dir))
        storage.fshelper.create()
    storage.copyTransactionsFrom(_Source(original.storage, start, original.until, progress))


# --- comparison


def _compared(original: _Original, storage: CheckedStorage, resumed: bool, progress: CopyProgress) -> CopyFacts:
    """Read the copy back, and compare it with its original.

    :raises ImageError: if they differ.
    """
    progress.begin("comparing all records")
    ours, theirs = (_digest_of_records(one, progress) for one in (original.storage, storage))
    if ours != theirs:
        raise _differs(f"{ours[0]} current records with the digest {ours[1]}", f"{theirs[0]} with {theirs[1]}")
    transactions, history = 0, ""
    if copy_mark.keeps_history(original.storage) and copy_mark.keeps_history(storage):
        progress.begin("comparing all transactions")
        whole, copied = (_digest_of_history(one, original.until, progress) for one in (original.storage, storage))
        if whole != copied:
            raise _differs(f"{whole[0]} transactions with the digest {whole[1]}", f"{copied[0]} with {copied[1]}")
        transactions, history = whole
    return CopyFacts(transactions, *ours[:2], history, ours[2], original.pending, resumed, "")


def _differs(original: str, copy: str) -> ImageError:
    return ImageError(f"the copy differs from its original, which has {original}, the copy {copy}; empty the target, and copy again")


def _digest_of_records(storage: CheckedStorage, progress: CopyProgress) -> tuple[int, str, int]:
    """Return the number of current records, the digest over them, and the bytes of their blobs, which are read through."""
    digest, count, size = hashlib.sha256(), 0, 0
    with reading(storage) as instance:
        for oid, tid, data in _current(instance):
            digest.update(oid + tid + hashlib.sha256(data).digest())
            if blobs.is_record(data) and IBlobStorage.providedBy(storage.base):
                name = instance.loadBlob(oid, tid)
                if problem := blobs.problem_of(name):
                    raise ImageError(f"oid:{u64(oid):x}, {problem}; it was not copied")
                size += os.path.getsize(name)
            count += 1
            progress.done += 1
    return count, digest.hexdigest(), size


def _current(storage: Any) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield id, transaction and data of all current records, in the order of their ids."""
    following: Any = None
    while True:
        try:
            oid, tid, data, following = storage.record_iternext(following)
        except POSKeyError as e:  # its creation was undone
            following = p64(u64(e.args[0]) + 1)
            continue
        except (ValueError, StopIteration):  # there is none from there on
            return
        if data is not None:
            yield oid, tid, bytes(data)
        if following is None:
            return


def _digest_of_history(storage: CheckedStorage, until: bytes, progress: CopyProgress) -> tuple[int, str]:
    """Return the number of transactions, and the digest over their metadata and records."""
    digest, count = hashlib.sha256(), 0
    for transaction in _transactions(storage, None, until):
        records = sorted((record.oid, record.data) for record in transaction)
        if not records:
            continue
        about = json.dumps(transaction.extension, sort_keys=True, default=repr)
        digest.update(b"\0".join((transaction.tid, _bytes(transaction.user), _bytes(transaction.description), about.encode())))
        for oid, data in records:
            digest.update(oid + (b"" if data is None else hashlib.sha256(data).digest()))
        count += 1
        progress.done += 1
    return count, digest.hexdigest()


def _bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def _transactions(storage: CheckedStorage, start: bytes | None, until: bytes) -> Iterator[Any]:
    """Yield the transactions of a stretch, without the mark of a copy that is whole."""
    for transaction in storage.iterator(start, until):
        if transaction.tid != copy_mark.FIRST:
            yield transaction


# --- what may be copied to what


def _is_empty(storage: CheckedStorage) -> bool:
    try:
        load_current(storage, z64)
    except KeyError:
        return True
    return False


def _check_uris(source: str, target: str) -> None:
    for uri in (source, target):
        resolve(uri)
        if uri.startswith(("memory:", "demo:")):
            raise ConfigError(f"{uri} ends with its process, and is nothing to copy; name a file://, zeo:// or postgres://")
    ours, theirs = file_path(source), file_path(target)
    if source == target or (ours is not None and theirs is not None and os.path.realpath(ours) == os.path.realpath(theirs)):
        raise ConfigError(f"an image cannot be copied onto itself ({shown_uri(source)}); name another with --to")


def _check_blobs(original: _Original, storage: CheckedStorage, target: str) -> None:
    if original.pictures and not IBlobStorageRestoreable.providedBy(storage.base):
        raise ImageError(
            f"the image keeps pictures, and {shown_uri(target)} takes none: a postgres:// does with blob_dir=FOLDER&shared_blob_dir=0; "
            "for ZEO copy to a file, and serve that"
        )


def _not_copied(target: str, failure: Exception) -> ImageError:
    if (full := disk_full_error(failure)) is not None:
        return full
    said = " ".join(str(failure).split())[:300]
    if away := server.away_error(failure):
        said = away.message
    hint = "make room at its server" if server.no_room(failure) else "look at the target, and copy again"
    return ImageError(f"the copy to {shown_uri(target)} is not whole ({type(failure).__name__}: {said}); {hint}: it goes on where it was")


def _lost(failure: BaseException) -> None:
    log.warning("copy_use_lost", error=str(failure), hint="the comparison at the end shows whether another wrote")
