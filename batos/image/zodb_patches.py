"""Two changes to FileStorage: one fsync for many commits, and an iterator that runs beside commits.

FileStorage syncs at each commit, while it holds its lock: each unit of work costs an fsync of its own, and a thread
that begins a transaction or loads an object meanwhile waits for the disk. On the committer's thread its syncs are
left out; `Syncer.sync` makes up for them once a round, outside the lock, before any commit is acknowledged. A commit
is visible before it is durable, for the length of one fsync. That is harmless inside (a later commit lies behind it
in the same file and is synced with it or after it); replies to the outside wait (`Committer.barrier`).

`CommittedTransactions` iterates over the complete transactions of a file to which others commit. ZODB's own iterator
looks for the last transaction at the end of the file. If one is being written there, it fails: with a ValueError in a
file of more than 1 MiB, with an AttributeError (`_scan_foreward`) in a smaller one.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

from ZODB.FileStorage.FileStorage import FileIterator

filestorage = importlib.import_module("ZODB.FileStorage.FileStorage")  # the module, in which a commit looks up its `fsync`

_thread = threading.local()


def _fsync(fd: int) -> None:
    if not getattr(_thread, "left_out", False):
        os.fsync(fd)


assert callable(vars(filestorage)["fsync"]), "this ZODB syncs in another way"
vars(filestorage)["fsync"] = _fsync


def leave_out_syncs() -> None:
    """Leave out FileStorage's own syncs on the calling thread, which must make its commits durable itself."""
    _thread.left_out = True


class Syncer:
    """Group fsync: makes everything durable that was committed to a storage since the last time."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._grouped = isinstance(storage, filestorage.FileStorage)  # others are durable when a commit returns
        self._synced = self._last()

    def _last(self) -> bytes:
        return self._storage.lastTransaction() if self._grouped else b""

    @property
    def behind(self) -> bool:
        """Return True if a commit is visible that is not durable yet."""
        return self._last() != self._synced

    def sync(self) -> bool:
        """Sync, and return True if there was something to make durable.

        :raises OSError: after closing the storage, as FileStorage does. Never try it again: the kernel may have
            dropped what it could not write (fsyncgate, 2018).
        """
        last = self._last()
        if last == self._synced:
            return False
        try:
            with self._storage._lock:  # a pack closes the file for a moment, and opens another one in its place
                fd = os.dup(self._storage._file.fileno())
            try:
                os.fsync(fd)  # should it be the one from before a pack by now: the pack has synced what it copied
            finally:
                os.close(fd)
        except (OSError, ValueError):  # ValueError: it closed itself before
            if not self._storage._file.closed:
                self._storage.close()
            raise
        self._synced = last
        return True


_FIRST = 4  # bytes before the first transaction


class CommittedTransactions(FileIterator):
    """Iterator over the transactions that were committed by now, from one to another, both included."""

    def __init__(self, storage: Any, start: bytes | None = None, stop: bytes | None = None) -> None:
        """
        :param storage: a FileStorage.
        """
        self._file_name, self._pos, self._start, self._stop = storage._file_name, _FIRST, start, stop
        with storage._lock:  # the file and its end belong together: a pack puts another in its place
            self._file, self._file_size = open(storage._file_name, "rb"), int(storage._pos)  # noqa: SIM115  closed by `close`
        try:
            if start and self._file_size > _FIRST:
                self._skip_to_start(start)
        except BaseException:
            self.close()
            raise

    def __next__(self) -> Any:
        if self._pos >= self._file_size:  # what is behind it is not a transaction yet
            raise StopIteration
        return super().__next__()
