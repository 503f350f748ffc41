"""Looking for damage in the image, a little at a time, before anybody meets it.

Two walks that go round for ever. One goes through the current records in the order of their ids: can each be read, is what it
refers to there, is it by its own digest what it was? The other, of an image in a file, goes through the file's bytes
(`batos.image.filewalk`).
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import ZODB
from persistent import Persistent
from transaction import TransactionManager
from ZODB._compat import PersistentUnpickler
from ZODB.POSException import POSKeyError, ReadConflictError

from batos.errors import ImageDamaged
from batos.image import blobs
from batos.image.checked import base_of
from batos.image.filewalk import BYTE, FileWalk
from batos.image.journal import JournalEntry
from batos.image.turns import Turns
from batos.objects import Method

_CLASSES = 1000  # objects in the walk's own cache before it is emptied
_REFERENCES = 20  # that are looked up in the time that a record takes
_LARGE = 16 * 1024  # bytes; a record of more is not made an object of, only its references are looked up
_DIGESTED = (b"batos.objects\nMethod\n", b"batos.image\nJournalEntry\n")  # how a record names a class that has a digest of its own
_LAST = b"\xff" * 8
_SHOWN = 100  # places that `info` names: a reply has its limit
INDEX = "the index"


class Damage(NamedTuple):
    """One damaged record, or place in the file."""

    record: str
    what: str


class Walk:
    """Both walks of one image. Not for two threads at once."""

    def __init__(self, db: ZODB.DB) -> None:
        self._db = db
        self._turns = Turns()
        self._connection: Any = None
        self._going = self._round()
        self._found: list[Damage] = []
        self.checked = 0
        """Records, over all rounds."""
        self.rounds = 0
        self.damaged: dict[str, str] = {}
        """What is wrong where, as it was when the walk last came by."""
        storage = db.storage
        self.file = FileWalk(storage, self._note_in_file, self._index_is_wrong) if getattr(storage, "sealing", False) else None
        self._in_file: set[str] = set()

    def step(self, records: int, file_bytes: int = 0) -> list[Damage]:
        """Check about as many more records, and bytes of the file; the damage found. At the end of a round each ends its part.

        A record with many references counts as several, and may be gone on with in the next step.
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
        """What `info` says of it: records and bytes checked, rounds gone, and what is damaged."""
        damaged = dict(self.damaged)  # a copy: the walk goes on in another thread
        shown = dict(itertools.islice(damaged.items(), _SHOWN))
        facts: dict[str, Any] = {"checked": self.checked, "rounds": self.rounds, "damaged": shown, "damages": len(damaged)}
        if self.file is not None:
            facts |= {"checked_bytes": self.file.checked, "file_rounds": self.file.rounds}
        return facts

    def _records(self, limit: int) -> None:
        tm = TransactionManager(explicit=True)
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
        """All current records; yields between two of them, and between two stretches of one's references."""
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
        following = None
        while hasattr(base_of(self._db.storage), "record_iternext"):
            try:
                oid, _, _, following = self._db.storage.record_iternext(following)
            except Exception as e:  # nothing behind it can be reached in this round
                self._note("the order of records", f"{type(e).__name__}: {e}")
                return
            yield oid
            if following is None:
                return

    def _record(self, oid: bytes) -> Generator[bool, None, str]:
        """What is wrong with a record; "" if nothing is."""
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
            return oid in base_of(self._db.storage)._index
        try:
            self._connection._storage.load(oid)
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
        """At the end of a round over the file: what it did not find again is mended."""
        for place in [place for place in self.damaged if place == INDEX or place.startswith(BYTE)]:
            if place not in self._in_file:
                del self.damaged[place]
        self._in_file = set()


def _references(data: bytes, turns: Turns) -> list[bytes]:
    """The ids that a record refers to, as ZODB's `referencesf`; others have their turns meanwhile."""
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
    """What is wrong with an object that could be loaded, by its own digest; "" if nothing is, or if it has none."""
    if isinstance(found, Method) and not found.intact():
        return f"the source of the method {found.selector!r} is not what was audited"
    if isinstance(found, JournalEntry) and not found.intact():
        return "the inference is not what the model answered"
    return ""
