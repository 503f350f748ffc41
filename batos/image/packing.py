"""Packing a file while it is served, and making sure that no moment of it can lose the image.

FileStorage copies what is kept into `.pack`, renames the image to `.old` and the copy to the image. Nothing of that is
synced to disk; here it is. A process that is killed between the two renames leaves no image at all: opening puts it
back (`batos.image.storage`).
"""

from __future__ import annotations

import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

import ZODB
from persistent.timestamp import TimeStamp
from ZODB.FileStorage.fspack import FileStoragePacker

from batos.image.storage import sync_to_disk

_TURN_S = 0.0005  # of Python code between two turns of the loop
_MARGIN_S = 1e-5  # so that rounding a time never gets past the transaction it was taken from


class Stopped(OSError):
    """The daemon stops: the pack ends without a trace. An OSError, for which FileStorage cleans up and lets go of its lock."""


class _Packer(FileStoragePacker):
    """Syncs the copy before it becomes the image, and can be stopped."""

    turns: _Turns

    def copyToPacktime(self) -> tuple[int, int]:
        found: tuple[int, int] = super().copyToPacktime()
        self._sync()  # most of it, while commits still go on
        return found

    def copyOne(self, position: int) -> int:
        self.turns.take()
        return super().copyOne(position)  # type: ignore[no-any-return]

    def pack(self) -> int | None:
        position: int | None = super().pack()
        if position is not None:
            try:
                self._sync()
                os.fsync(self._storage._file.fileno())  # the committer syncs once a round: it may be that the last commits are not, here
                # it is of the file as it was: after a crash before the new one is written, none is better than the wrong one
                pathlib.Path(self._name + ".index").unlink(missing_ok=True)
            except BaseException:
                self._commit_lock.release()  # it was taken by super().pack(), for the renames that do not come now
                raise
        return position

    def _sync(self) -> None:
        if not self._tfile.closed:
            self._tfile.flush()
        fd = os.open(self._name + ".pack", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class _Turns:
    """What a pack does between two objects: ends if it is to stop, and now and then gives the loop its turn.

    Otherwise each read of the loop waits out the interpreter's switch interval (5 ms), some ten times a mission.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._next = time.perf_counter()

    def take(self) -> None:
        now = time.perf_counter()
        if now >= self._next:
            time.sleep(0)
            self._next = time.perf_counter() + _TURN_S
        if self._stop.is_set():
            raise Stopped("the daemon stops; the image is as it was")


def pack_time(days: float, oldest_view: bytes | None, now: Callable[[], float] = time.time) -> float:
    """The moment up to which history may go, in seconds since the epoch.

    :param days: of history to keep.
    :param oldest_view: the first transaction id that the oldest open unit does not see; None if there is none.
    """
    moment = now() - days * 86400
    if oldest_view is not None:
        moment = min(moment, TimeStamp(oldest_view).timeTime() - _MARGIN_S)
    return moment


def pack(db: ZODB.DB, path: pathlib.Path, moment: float, stop: threading.Event) -> None:
    """Drop what no transaction since `moment` sees. Takes seconds; commits go on. To be called in a thread of its own.

    :raises Stopped: if `stop` was set before the image was replaced.
    :raises OSError: for a full disk, say; the image is as it was.
    """

    turns = _Turns(stop)

    def packer(storage: Any, references: Any, until: bytes, gc: bool) -> tuple[int, Any] | None:
        def checked(*args: Any) -> Any:
            turns.take()
            return references(*args)

        packer = _Packer(storage, checked, until, gc)
        packer.turns = turns
        try:
            position = packer.pack()
            return None if position is None else (position, packer.index)
        finally:
            packer.close()

    storage = db.storage

    def replaced(*indexes: Any) -> None:
        """Called under the storage's locks, when the renames are done: before anything is committed to the new file."""
        del storage._initIndex
        storage._initIndex(*indexes)
        try:
            sync_to_disk(path)
        except OSError:
            storage.close()  # whether the new file or the old one will be found is not known: as after a failed fsync
            raise

    storage.packer, storage._initIndex = packer, replaced
    try:
        db.pack(moment)
    finally:
        vars(storage).pop("_initIndex", None)  # nothing was there to drop
    sync_to_disk(path)
    path.with_name(path.name + ".old").unlink(missing_ok=True)  # only now is the new file sure to be found after a power cut
