"""Storing a record in a FileStorage: as it does it, to the byte, without asking its file about what was written a moment ago.

Before it takes a new revision of an object, FileStorage reads the transaction of the last one from its file, to see whether that is what
was changed. That is three calls to the system, each of which lets go of the interpreter's lock: with a loop that waits for it, the
committer's thread and the loop's changed places for each object. Which transaction wrote at which place is known here for the
newest of them; whatever is not as usual is left to FileStorage.
"""

from __future__ import annotations

import bisect
from typing import Any

from batos.image.seals import RECORD

_KNOWN = 4096  # transactions


class Storing:
    """Stores the records of transactions under way in a FileStorage. To be told of the beginning of each."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._file: Any = None
        self._begun: tuple[int, bytes] | None = None
        """Where the transaction begun last is to begin, and its id; None where its records may have other ids."""
        self._starts: list[int] = []
        self._tids: list[bytes] = []
        self._end = 0
        """Between the first start and this, the places of the file are known: they belong to the transactions in a row."""

    def begin(self, *, usual: bool) -> None:
        """After the storage's `tpc_begin`.

        :param usual: whether the transaction has an id of its own, which all of its records have.
        """
        storage = self._storage
        if storage._file is not self._file:  # a pack moves all, and puts another file in the place of the one before
            self._file = storage._file
            self._forget()
        elif self._begun is not None and storage._ltid == self._begun[1]:  # the one before was finished
            if self._begun[0] != self._end or len(self._starts) >= _KNOWN:
                self._forget()
            self._starts.append(self._begun[0])
            self._tids.append(self._begun[1])
            self._end = storage._pos
        self._begun = (storage._pos, storage._tid) if usual else None

    def leave_out(self) -> None:
        """The transaction under way has records with ids of other transactions."""
        self._begun = None

    def _forget(self) -> None:
        self._starts.clear()
        self._tids.clear()
        self._end = 0

    def store(self, oid: bytes, serial: bytes, data: bytes, transaction: Any) -> Any:
        """As `FileStorage.store`."""
        storage = self._storage
        with storage._lock:
            old = storage._index_get(oid, 0)
            fits = transaction is storage._transaction and oid <= storage._oid and storage._quota is None
            if not fits or (old and self._transaction_at(old) != serial):
                return storage.store(oid, serial, data, "", transaction)
            start, file = storage._pos, storage._tfile
            storage._tindex[oid] = start + file.tell() + storage._thl
            file.write(RECORD.pack(oid, storage._tid, old, start, 0, len(data)))
            file.write(data)
        return None

    def _transaction_at(self, place: int) -> bytes | None:
        """The transaction that wrote the record at a place of the file; None where that is not known."""
        if place >= self._end or place < self._starts[0]:
            return None
        return self._tids[bisect.bisect_right(self._starts, place) - 1]
