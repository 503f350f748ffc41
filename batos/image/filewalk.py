"""The walk over a file's bytes: every transaction against its seal, every record in it against the index.

What a load never looks at is looked at here: headers, the missions' ids in them, old revisions, and whether the index names the
last revision of each object and no older one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from ZODB.utils import z64

from batos.image import seals, sums

_FIRST = 4  # bytes before the first transaction
_BUFFER = 1 << 18
BYTE = "byte "  # what the name of a place in the file begins with


class _Lost(Exception):
    """It is not known where the next transaction begins."""


class FileWalk:
    """Goes through the file of a FileStorage, round after round. Not for two threads at once."""

    def __init__(self, storage: Any, note: Callable[[str, str], None], wrong_index: Callable[[str], None]) -> None:
        """
        :param storage: the CheckedStorage.
        :param note: hears of damage: where, and what.
        :param wrong_index: hears what the index has wrong.
        """
        self._checked, self._storage = storage, storage.base
        self._note, self._wrong_index = note, wrong_index
        self._file: BinaryIO
        self._inode = 0
        self._whole = 0  # up to where there were whole transactions in it
        self._whole_to = 0  # up to where what the file object has read ahead was written in whole
        self._going = self._round()
        self.checked = 0
        """Bytes, over all rounds."""
        self.rounds = 0

    def step(self, limit: int, pause: Callable[[], None]) -> None:
        """Check about `limit` more bytes, or up to the end of the file, where a round ends.

        :param pause: called between two records.
        """
        with contextlib.ExitStack() as stack:
            with self._storage._lock:  # a pack puts another in its place: for a moment there is none
                self._file = stack.enter_context(open(self._storage._file_name, "rb", buffering=_BUFFER))
            self._whole_to = 0
            inode = os.fstat(self._file.fileno()).st_ino
            if inode != self._inode:  # packed meanwhile: nothing is where it was
                self._inode, self._whole, self._going = inode, 0, self._round()
            upto = self.checked + limit
            while self.checked < upto:
                size = next(self._going, None)
                if size is None:
                    self.rounds += 1
                    self._going = self._round()
                    return
                self.checked += size
                pause()

    def _round(self) -> Iterator[int]:
        """All transactions; yields the bytes checked since the last time."""
        position, before = _FIRST, z64
        self._seen, self._all_seen = _Oids(), True
        try:
            while position < self._end():
                head = self._head(position, before)
                yield from self._transaction(position, head)
                position += head.length + seals.LENGTH.size
                before = head.tid
        except _Lost as e:
            self._note(f"{BYTE}{position}", f"{e}; what follows it was not reached")

    def _end(self) -> int:
        """Up to where there are whole transactions; or were, in a file that a pack has put another in the place of just now."""
        with self._storage._lock:
            if os.stat(self._storage._file_name).st_ino == self._inode:
                self._whole = int(self._storage._pos)
        return self._whole

    def _head(self, position: int, before: bytes) -> seals.Head:
        if position >= self._whole_to:  # what was read ahead then may have been half a transaction
            self._whole_to = self._end()
            self._file.seek(0, os.SEEK_END)  # this, and no other seek, lets go of the buffer
        try:
            head = seals.read_head(self._file, position)
        except sums.Mismatch as e:
            raise _Lost(str(e)) from None
        end = position + head.length
        if head.length < head.size or end + seals.LENGTH.size > self._end():
            raise _Lost("the length of the transaction makes no sense")
        if self._at(end, seals.LENGTH.size) != seals.LENGTH.pack(head.length):
            raise _Lost("the two lengths of the transaction differ")
        if head.tid <= before:
            self._note(f"{BYTE}{position}", "the transaction is not later than the one before it")
        return head

    def _transaction(self, position: int, head: seals.Head) -> Iterator[int]:
        found: dict[bytes, int] = {}
        weight = 0
        at, end = position + head.size, position + head.length
        try:
            seal = self._seal(head)
            while at < end:
                self._file.seek(at)  # another step may have another file object
                oid, size = self._record(position, at, end, head)
                weight += 0 if oid in found else seals.weight((oid,))
                found[oid] = at
                at += size
                yield size
            if seal is not None and seal != head.crc(weight):
                raise sums.Mismatch("its checksum is wrong")
        except sums.Mismatch as e:
            self._note(f"{BYTE}{position}", f"the transaction {head.tid.hex()} is damaged: {e}")
            self._all_seen = False
            yield head.size + end + seals.LENGTH.size - at
            return
        for oid, at in found.items():
            self._seen.add(oid)
            if head.status != b"u":
                self._look_up(oid, at)
            yield 0
        yield head.size + seals.LENGTH.size

    def _seal(self, head: seals.Head) -> int | None:
        seal = sums.seal_of(head.extension)
        if seal is None:
            if self._required(head.tid):
                raise sums.Mismatch("it has no seal")
            if head.status not in b" pu":
                raise sums.Mismatch("its status makes no sense")
        return seal

    def _required(self, tid: bytes) -> bool:
        return self._checked.required_after is not None and tid > self._checked.required_after

    def _record(self, position: int, at: int, end: int, head: seals.Head) -> tuple[bytes, int]:
        """Check the record at which the file stands; its id and size."""
        raw = self._file.read(seals.RECORD.size)
        oid, tid, previous, back, version, length = seals.RECORD.unpack(raw) if len(raw) == seals.RECORD.size else (b"", b"", 0, 0, 0, 0)
        size = seals.RECORD.size + (length or seals.POINTER)
        if at + size > end or tid != head.tid or back != position or version:
            raise sums.Mismatch(f"the header of the record at byte {at} makes no sense")
        data = self._file.read(length or seals.POINTER)
        if length:
            sums.plain(data, required=self._required(tid))
        elif data != z64:
            self._points_to(oid, at, seals.LENGTH.unpack(data)[0])
        if self._all_seen and head.status == b" " and bool(previous) != (oid in self._seen):  # a pack leaves no previous revisions
            raise sums.Mismatch(f"the record at byte {at} does not lead to the revision before it")
        if previous:
            self._points_to(oid, at, previous)
        return oid, size

    def _points_to(self, oid: bytes, at: int, there: int) -> None:
        if not (_FIRST <= there < at and self._at(there, len(oid)) == oid):
            raise sums.Mismatch(f"the record at byte {at} refers to one that is not there")

    def _at(self, position: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, position)

    def _look_up(self, oid: bytes, at: int) -> None:
        """Whether the index knows of this revision, or of a later one."""
        if self._storage._index.get(oid, 0) >= at:
            return
        with self._storage._lock:
            if os.stat(self._storage._file_name).st_ino == self._inode and self._storage._index.get(oid, 0) < at:
                self._wrong_index(f"it does not know the revision of oid:{int.from_bytes(oid, 'big'):x} at byte {at}")


class _Oids:
    """A set of ids, which are given in order: a bit each."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def __contains__(self, oid: bytes) -> bool:
        page = self._pages.get(int.from_bytes(oid[:6], "big"))
        return page is not None and bool(page[oid[6] << 5 | oid[7] >> 3] >> (oid[7] & 7) & 1)

    def add(self, oid: bytes) -> None:
        page = self._pages.setdefault(int.from_bytes(oid[:6], "big"), bytearray(1 << 13))
        page[oid[6] << 5 | oid[7] >> 3] |= 1 << (oid[7] & 7)
