"""Storing a record in a FileStorage: as it does it, to the byte, without asking its file about what was written a moment ago.

Before it takes a new revision of an object, FileStorage reads the transaction of the last one from its file, to see whether that
is what was changed; and so of each node of a tree by whose way something changed. That is three calls to the system each time,
every one of which lets go of the interpreter's lock: with a loop that waits for it, the committer's thread and the loop's changed
places for each object. What stands at a place of a file does not change as long as it is that file, so it is remembered here;
whatever is not as usual is left to FileStorage.
"""

from __future__ import annotations

import struct
from typing import Any

from batos.image import sums
from batos.image.seals import RECORD

_ID = struct.Struct(">Q")
_KNOWN = 8192  # places


class Storing:
    """Stores the records of the transaction under way in a FileStorage. To be told of the beginning of each."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._file: Any = None
        self._begun = b""
        self._tids: dict[int, bytes] = {}
        """The transaction of the record at a place of the file."""

    def begin(self) -> None:
        """After the storage's `tpc_begin`."""
        storage = self._storage
        aborted = storage._ltid != self._begun  # another takes the places of what it wrote
        if storage._file is not self._file or aborted or len(self._tids) >= _KNOWN:  # the first: a pack moves all, into another file
            self._tids.clear()
        self._file, self._begun = storage._file, storage._tid

    def new_oid(self) -> bytes:
        """As `FileStorage.new_oid`."""
        storage = self._storage
        with storage._lock:
            storage._oid = oid = _ID.pack(_ID.unpack(storage._oid)[0] + 1)
        return oid

    def store(self, oid: bytes, serial: bytes, data: bytes, version: str, transaction: Any) -> Any:
        """As `FileStorage.store`, of data with its checksum behind it."""
        storage, data = self._storage, sums.summed(data)
        with storage._lock:
            fits = transaction is storage._transaction and oid <= storage._oid and storage._quota is None
            old = storage._index_get(oid, 0) if fits else 0  # one of another transaction is not looked at
            if not fits or (old and self._tids.get(old) != serial):
                return storage.store(oid, serial, data, version, transaction)
            start, file = storage._pos, storage._tfile
            place = storage._tindex[oid] = start + file.tell() + storage._thl
            if len(self._tids) < _KNOWN:
                self._tids[place] = storage._tid
            file.write(RECORD.pack(oid, storage._tid, old, start, 0, len(data)))
            file.write(data)
        return None

    def check(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        """As `FileStorage.checkCurrentSerialInTransaction`: that nothing was committed to an object since it was read."""
        storage = self._storage
        with storage._lock:
            place = storage._index_get(oid, 0) if transaction is storage._transaction else 0
            if place and self._tids.get(place) == serial:
                return
            storage.checkCurrentSerialInTransaction(oid, serial, transaction)
            self._tids[place] = serial  # else it had raised
