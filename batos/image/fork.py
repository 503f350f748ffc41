"""Forks: the whole image as of a moment, as a file of its own for another daemon.

A file of transactions is only ever added to, so the image as of a moment is what stands before the first transaction after it:
with history, seals and checksums. It is copied beside the daemon, which goes on committing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
import threading
from typing import IO, Any, BinaryIO

import ZODB

from batos import private_files
from batos.errors import Busy, HistoryGone, ImageDamaged, ImageError, InvalidInput
from batos.image import ledger, seals, sums
from batos.image.blobs import copy, folder_of
from batos.image.checked import base_of
from batos.image.moments import Moment, seconds_of, tid_of, when
from batos.image.storage import check_format, damaged, open_database, sync_to_disk
from batos.image.turns import Turns
from batos.image.unit import snapshot

NAME = "live_image.fs"
PART = NAME + ".part"  # while it is being copied
"""What a daemon looks for in its data folder."""
_FIRST = 4  # bytes before the first transaction
_CHUNK = 8 * 1024 * 1024  # bytes copied between two looks at whether to stop
_PLAIN = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)  # the system cannot copy from file to file itself


def fork(db: ZODB.DB, path: pathlib.Path, folder: pathlib.Path, at: Moment | None, stop: threading.Event) -> dict[str, Any]:
    """Copy the image behind `db` as of a moment (None: as it is) into a folder, and prove that it opens. In a thread of its own.

    :param path: of the image.
    :param stop: gives up when it is set.
    :returns: `image` (the new file), `bytes`, `objects`, `tid` and `time` of its last transaction, `unfinished` missions in it.
    :raises HistoryGone: for a moment before the last pack, or before there was an image.
    :raises InvalidInput: for a folder that is not given by an absolute path.
    :raises ImageError: if an image, or the blobs of one, is there already, others may write into the folder, or it cannot be written;
        nothing is left of it.
    """
    if not folder.is_absolute():
        raise InvalidInput(f"{str(folder)!r} is no absolute path; the daemon does not know which folder you are in")
    try:
        place = private_files.fit(folder)
    except OSError as e:
        raise _not_written(folder / NAME, e) from e
    target = place / NAME
    if private_files.taken(target):
        raise ImageError(f"there is an image at {target} already; nothing is overwritten, name another folder")
    if place.exists() and not place.is_dir():
        raise ImageError(f"{folder} is a file, not a folder; name another")
    part, blobs = target.with_name(PART), folder_of(target)
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
            with storage._lock:  # the file and its end belong together: a pack puts another in its place
                source, end = stack.enter_context(path.open("rb")), int(storage._pos)
            cut = _cut(source, end, until)
            with private_files.renew(part) as copy:
                _copy(source, copy, cut, stop)
        sync_to_disk(part)
        found = _proved(part, path, blobs)
        part.rename(target)
        sync_to_disk(target)
    except sums.Mismatch as e:
        raise damaged(f"file://{path}", e) from e
    except OSError as e:
        raise _not_written(target, e) from e
    finally:
        if not private_files.taken(target):
            shutil.rmtree(blobs, ignore_errors=True)
        with contextlib.suppress(OSError):  # why, is on its way already
            part.unlink(missing_ok=True)  # last: it says whose the blobs are
    return {"image": str(folder / NAME), **found}


def _not_written(target: pathlib.Path, error: OSError) -> ImageError:
    return ImageError(f"the fork {target} cannot be written: {error.strerror or error}")


def _cut(file: BinaryIO, end: int, until: bytes | None) -> int:
    """Where the first transaction after a moment begins; from the end backwards, since most moments are not long ago.

    :raises HistoryGone: if that was packed, so that what stands before it is not whole; or there is nothing before it.
    """
    cut, status, turns = end, b" ", Turns()
    while cut > _FIRST:
        file.seek(cut - seals.LENGTH.size)
        (length,) = seals.LENGTH.unpack(file.read(seals.LENGTH.size))
        begin = cut - seals.LENGTH.size - length
        if begin < _FIRST:
            raise sums.Mismatch(f"the length before byte {cut} makes no sense")
        head = seals.read_head(file, begin)
        if until is None or head.tid <= until:
            break
        cut, status = begin, head.status
        turns.take()
    if until is not None and (cut == _FIRST or status == b"p"):
        raise HistoryGone(f"the image as of {when(until)} is not kept any more, or there was none: history goes back to the last pack")
    return cut


def _copy(source: BinaryIO, target: IO[bytes], length: int, stop: threading.Event) -> None:
    """Copy the first bytes of a file, by the system itself where it can.

    :raises Busy: if `stop` was set.
    """
    position, by_system = 0, hasattr(os, "copy_file_range")
    while position < length:
        if stop.is_set():
            raise Busy("the daemon is stopping")
        size = min(_CHUNK, length - position)
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
    """Open the fork, and give it its blobs: the same files, where the system can have one in two folders."""
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
