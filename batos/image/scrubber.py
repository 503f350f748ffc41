"""Scrubber: it searches the image for damage, a little at a time, before a mission meets it.

Two walks go round for ever. `Walk` reads the current records in the order of their ids: each must be readable, its
references must exist, and its own digest must fit. `FileWalk`, for an image in a file, reads the file's bytes: every
transaction against its seal, every record against the index. It sees what a load never looks at: headers, the missions' ids in them, and
old revisions. It also sees an index entry that names an older revision than the last.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any, BinaryIO, NamedTuple

import ZODB
from persistent import Persistent
from ZODB._compat import PersistentUnpickler
from ZODB.POSException import POSKeyError, ReadConflictError
from ZODB.utils import z64

from batos.concurrency import LoopTurns
from batos.errors import ImageDamaged
from batos.image import blobs, checksums, zodb_patches
from batos.image.checksummed_storage import base_of, reading
from batos.image.journal import JournalEntry
from batos.image.server import away_error
from batos.objects import Method

_FIRST = 4  # bytes before the first transaction
_BUFFER = 1 << 18
BYTE = "byte "  # what the name of a place in the file begins with


class _Lost(Exception):
    """Signal that the beginning of the next transaction is not known."""


class FileWalk:
    """Walk over the file of a FileStorage, round after round. Not for two threads at once."""

    def __init__(self, storage: Any, note: Callable[[str, str], None], wrong_index: Callable[[str], None]) -> None:
        """
        :param storage: the CheckedStorage.
        :param note: receives damage: its place, and a description.
        :param wrong_index: receives a description of a wrong index entry.
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
            self._file = stack.enter_context(zodb_patches.open_committed(self._storage, _BUFFER)[0])
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
        """Check all transactions; yield the bytes checked since the last time."""
        position, before = _FIRST, z64
        self._seen, self._all_seen = _Oids(), True
        try:
            while position < self._end():
                head = self._head(position, before)
                yield from self._transaction(position, head)
                position += head.length + checksums.LENGTH.size
                before = head.tid
        except _Lost as e:
            self._note(f"{BYTE}{position}", f"{e}; what follows it was not reached")

    def _end(self) -> int:
        """Return the end of the last whole transaction; of a file that a pack has just replaced, its former end."""
        end = zodb_patches.committed_end(self._storage, self._inode)
        if end is not None:
            self._whole = end
        return self._whole

    def _head(self, position: int, before: bytes) -> checksums.Head:
        if position >= self._whole_to:  # what was read ahead then may have been half a transaction
            self._whole_to = self._end()
            self._file.seek(0, os.SEEK_END)  # this, and no other seek, lets go of the buffer
        try:
            head = checksums.read_head(self._file, position)
        except checksums.Mismatch as e:
            raise _Lost(str(e)) from None
        end = position + head.length
        if head.length < head.size or end + checksums.LENGTH.size > self._end():
            raise _Lost("the length of the transaction makes no sense")
        if self._at(end, checksums.LENGTH.size) != checksums.LENGTH.pack(head.length):
            raise _Lost("the two lengths of the transaction differ")
        if head.tid <= before:
            self._note(f"{BYTE}{position}", "the transaction is not later than the one before it")
        return head

    def _transaction(self, position: int, head: checksums.Head) -> Iterator[int]:
        found: dict[bytes, int] = {}
        weight = 0
        at, end = position + head.size, position + head.length
        try:
            seal = self._seal(head)
            while at < end:
                self._file.seek(at)  # another step may have another file object
                oid, size = self._record(position, at, end, head)
                weight += 0 if oid in found else checksums.seal_weight((oid,))
                found[oid] = at
                at += size
                yield size
            if seal is not None and seal != head.crc(weight):
                raise checksums.Mismatch("its checksum is wrong")
        except checksums.Mismatch as e:
            self._note(f"{BYTE}{position}", f"the transaction {head.tid.hex()} is damaged: {e}")
            self._all_seen = False
            yield head.size + end + checksums.LENGTH.size - at
            return
        for oid, at in found.items():
            self._seen.add(oid)
            if head.status != b"u":
                self._look_up(oid, at)
            yield 0
        yield head.size + checksums.LENGTH.size

    def _seal(self, head: checksums.Head) -> int | None:
        seal = checksums.seal_of(head.extension)
        if seal is None:
            if self._required(head.tid):
                raise checksums.Mismatch("it has no seal")
            if head.status not in b" pu":
                raise checksums.Mismatch("its status makes no sense")
        return seal

    def _required(self, tid: bytes) -> bool:
        return self._checked.required_after is not None and tid > self._checked.required_after

    def _record(self, position: int, at: int, end: int, head: checksums.Head) -> tuple[bytes, int]:
        """Check the record at which the file stands; return its id and size."""
        raw = self._file.read(checksums.RECORD.size)
        oid, tid, previous, back, version, length = (
            checksums.RECORD.unpack(raw) if len(raw) == checksums.RECORD.size else (b"", b"", 0, 0, 0, 0)
        )
        size = checksums.RECORD.size + (length or checksums.POINTER)
        if at + size > end or tid != head.tid or back != position or version:
            raise checksums.Mismatch(f"the header of the record at byte {at} makes no sense")
        data = self._file.read(length or checksums.POINTER)
        if length:
            checksums.without_sum(data, required=self._required(tid))
        elif data != z64:
            self._points_to(oid, at, checksums.LENGTH.unpack(data)[0])
        if self._all_seen and head.status == b" " and bool(previous) != (oid in self._seen):  # a pack leaves no previous revisions
            raise checksums.Mismatch(f"the record at byte {at} does not lead to the revision before it")
        if previous:
            self._points_to(oid, at, previous)
        return oid, size

    def _points_to(self, oid: bytes, at: int, there: int) -> None:
        if not (_FIRST <= there < at and self._at(there, len(oid)) == oid):
            raise checksums.Mismatch(f"the record at byte {at} refers to one that is not there")

    def _at(self, position: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, position)

    def _look_up(self, oid: bytes, at: int) -> None:
        """Check that the index knows this revision, or a later one."""
        if zodb_patches.index_position(self._storage, oid) >= at:
            return
        if zodb_patches.index_is_behind(self._storage, oid, at, self._inode):
            self._wrong_index(f"it does not know the revision of oid:{int.from_bytes(oid, 'big'):x} at byte {at}")


class _Oids:
    """Set of ids that are added in order; one bit each."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def __contains__(self, oid: bytes) -> bool:
        page = self._pages.get(int.from_bytes(oid[:6], "big"))
        return page is not None and bool(page[oid[6] << 5 | oid[7] >> 3] >> (oid[7] & 7) & 1)

    def add(self, oid: bytes) -> None:
        page = self._pages.setdefault(int.from_bytes(oid[:6], "big"), bytearray(1 << 13))
        page[oid[6] << 5 | oid[7] >> 3] |= 1 << (oid[7] & 7)


_CLASSES = 1000  # objects in the walk's own cache before it is emptied
_REFERENCES = 20  # that are looked up in the time that a record takes
_LARGE = 16 * 1024  # bytes; a record of more is not made an object of, only its references are looked up
_DIGESTED = (b"batos.objects\nMethod\n", b"batos.image\nJournalEntry\n")  # how a record names a class that has a digest of its own
_LAST = b"\xff" * 8
_STRETCH = 1000  # records of a server whose ids are read at once

warnings.filterwarnings("ignore", r"There is no defined value for the \*next\* parameter")  # RelStorage, of an id to begin with
_SHOWN = 100  # places that `info` names: a reply has its limit
INDEX = "the index"


class Damage(NamedTuple):
    """Damaged record, or place in the file."""

    record: str
    what: str


class Walk:
    """Both walks of one image. Not for two threads at once."""

    def __init__(self, db: ZODB.DB) -> None:
        self._db = db
        self._turns = LoopTurns()
        self._connection: Any = None
        self._going = self._round()
        self._found: list[Damage] = []
        self.checked = 0
        """Records, over all rounds."""
        self.rounds = 0
        self.damaged: dict[str, str] = {}
        """Damage by place, as the walk last found it."""
        storage = db.storage
        self.file = FileWalk(storage, self._note_in_file, self._index_is_wrong) if getattr(storage, "sealing", False) else None
        self._in_file: set[str] = set()

    def step(self, records: int, file_bytes: int = 0) -> list[Damage]:
        """Check about as many more records, and bytes of the file; return the damage. At the end of a round each ends
        its part.

        A record with many references counts as several, and may be continued in the next step.
        """
        self._found = []
        self._records(records)
        if self.file is not None and file_bytes:
            before = self.file.rounds
            self.file.step(file_bytes, self._turns.take)
            if self.file.rounds > before:
                self._forget_what_is_mended()
        return self._found

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info`: records and bytes checked, rounds completed, and damage."""
        damaged = dict(self.damaged)  # a copy: the walk goes on in another thread
        shown = dict(itertools.islice(damaged.items(), _SHOWN))
        facts: dict[str, Any] = {"checked": self.checked, "rounds": self.rounds, "damaged": shown, "damages": len(damaged)}
        if self.file is not None:
            facts |= {"checked_bytes": self.file.checked, "file_rounds": self.file.rounds}
        return facts

    def _records(self, limit: int) -> None:
        tm = zodb_patches.Transactions()
        self._connection = self._db.open(transaction_manager=tm)
        try:
            tm.begin()
            for count in range(1, limit + 1):
                if next(self._going, None) is None:
                    self.rounds += 1
                    self._going = self._round()
                    return
                if count % _CLASSES == 0:
                    self._connection.cacheMinimize()
                self._turns.take()
        finally:
            tm.abort()
            self._connection.cacheMinimize()
            self._connection.close()
            self._connection = None

    def _round(self) -> Iterator[bool]:
        """Check all current records; yield between two of them, and between two stretches of one's references."""
        for oid in self._oids():
            record = f"oid:{int.from_bytes(oid, 'big'):x}"
            problem = yield from self._record(oid)
            if problem:
                self._note(record, problem)
            else:
                self.damaged.pop(record, None)
            self.checked += 1
            yield True

    def _oids(self) -> Iterator[bytes]:
        if self.file is not None:
            index, following = base_of(self._db.storage)._index, None
            while True:
                try:
                    oid = index.minKey(following)
                except ValueError:  # there is none
                    return
                yield oid
                if oid == _LAST:
                    return
                following = (int.from_bytes(oid, "big") + 1).to_bytes(8, "big")
        first: bytes | None = None
        while hasattr(base_of(self._db.storage), "record_iternext"):
            try:
                with reading(self._db.storage) as storage:
                    found = list(_stretch(storage, first))
            except Exception as e:  # nothing behind it can be reached in this round
                if away_error(e) is None:
                    self._note("the order of records", f"{type(e).__name__}: {e}")
                return
            yield from found
            if len(found) < _STRETCH or found[-1] == _LAST:
                return
            first = (int.from_bytes(found[-1], "big") + 1).to_bytes(8, "big")

    def _record(self, oid: bytes) -> Generator[bool, None, str]:
        """Return the damage of a record in words; empty if it is intact."""
        try:
            data, _ = self._db.storage.load(oid)
            for count, reference in enumerate(_references(data, self._turns), 1):
                if not self._is_there(reference):
                    if self._db.storage.load(oid)[0] != data:
                        return ""  # it was changed or packed meanwhile; the next round comes by
                    return f"it refers to oid:{int.from_bytes(reference, 'big'):x}, which is not there"
                if count % _REFERENCES == 0:
                    yield True
            if blobs.is_record(data):
                return self._blob(oid)
            return self._content(oid) if len(data) <= _LARGE or any(name in data[:64] for name in _DIGESTED) else ""
        except (POSKeyError, ReadConflictError):  # it is no more, or came after this step began
            return ""
        except ImageDamaged as e:
            return e.message
        except Exception as e:  # noise where a pickle should be raises anything
            return f"it cannot be read: {type(e).__name__}: {e}"

    def _is_there(self, oid: bytes) -> bool:
        if self.file is not None:
            return zodb_patches.index_position(base_of(self._db.storage), oid) > 0
        try:
            zodb_patches.load_record(self._connection, oid)
        except POSKeyError:
            return False
        return True

    def _content(self, oid: bytes) -> str:
        found = self._connection.get(oid)
        found._p_activate()
        return problem_of(found)

    def _blob(self, oid: bytes) -> str:
        _, tid = self._db.storage.load(oid)
        return blobs.problem_of(self._db.storage.base.fshelper.getBlobFilename(oid, tid)) if self.file is not None else ""

    # --- what is found

    def _note(self, record: str, what: str) -> None:
        self.damaged[record] = what
        self._found.append(Damage(record, what))

    def _note_in_file(self, place: str, what: str) -> None:
        self._in_file.add(place)
        self._note(place, what)

    def _index_is_wrong(self, what: str) -> None:
        self._db.storage.drop_index(what)
        self._note_in_file(INDEX, f"{what}; it was dropped, and is built anew when the daemon is started again")

    def _forget_what_is_mended(self) -> None:
        """Drop damage that a round over the file did not find again: it is mended."""
        for place in [place for place in self.damaged if place == INDEX or place.startswith(BYTE)]:
            if place not in self._in_file:
                del self.damaged[place]
        self._in_file = set()


def _stretch(storage: Any, first: bytes | None) -> Iterator[bytes]:
    """Yield up to `_STRETCH` ids of records, from `first` on.

    RelStorage reads them by a cursor of its session, which ends with the session's next look at the present. So the whole stretch is read
    at once, and the walk over its records comes afterwards.
    """
    following: Any = first
    for _ in range(_STRETCH):
        try:
            oid, _, _, following = storage.record_iternext(following)
        except (StopIteration, ValueError):  # there is none from that id on
            return
        yield oid
        if following is None:
            return


def _references(data: bytes, turns: LoopTurns) -> list[bytes]:
    """Return the ids that a record refers to, as ZODB's `referencesf`, and yield to other threads meanwhile."""
    found: list[bytes] = []

    def note(reference: Any) -> None:
        turns.take()
        if isinstance(reference, tuple):
            found.append(reference[0])
        elif isinstance(reference, bytes):
            found.append(reference)
        # a list is a weak reference, or one to another database

    unpickler = PersistentUnpickler(None, note, io.BytesIO(data))
    unpickler.noload()
    unpickler.noload()
    return found


def problem_of(found: Persistent) -> str:
    """Return the damage of a loaded object by its own digest; empty if it is intact, or has no digest."""
    if isinstance(found, Method) and not found.intact():
        return f"the source of the method {found.selector!r} is not what was audited"
    if isinstance(found, JournalEntry) and not found.intact():
        return "the inference is not what the model answered"
    return ""
