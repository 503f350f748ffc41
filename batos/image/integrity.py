"""Looking for damage in the image, a few records at a time.

FileStorage has no checksums: a flipped byte in a record is read back as it is. What is found here are records that
cannot be read, references that lead nowhere, and methods and inferences that are not what their digest says.
docs/reliability.md counts what that leaves unseen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ZODB
from persistent import Persistent
from transaction import TransactionManager
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf

from batos.image.journal import JournalEntry
from batos.objects import Method

_CLASSES = 1000  # objects in the walk's own cache before it is emptied


class Damage(NamedTuple):
    """One damaged record."""

    oid: str
    what: str


class Walk:
    """Goes through the records of an image in the order of their ids, round after round. Not for two threads at once."""

    def __init__(self, db: ZODB.DB) -> None:
        self._db = db
        self._next: bytes | None = None
        self.checked = 0
        self.rounds = 0
        self.damaged: dict[str, str] = {}
        """What is wrong with which record, as it was when the walk last came by."""

    def step(self, records: int) -> list[Damage]:
        """Check the next `records` records; the damage found in them. A round ends at the last record, and the step with it."""
        tm = TransactionManager(explicit=True)
        connection = self._db.open(transaction_manager=tm)
        found: list[Damage] = []
        try:
            tm.begin()
            for count in range(1, records + 1):
                try:
                    oid, _, data, self._next = self._db.storage.record_iternext(self._next)
                except Exception as e:  # whatever reading a damaged file comes to; nothing behind it can be reached in this round
                    found.append(self._note("the order of records", f"{type(e).__name__}: {e}"))
                    self._next = None
                else:
                    if problem := _problem(connection, oid, data):
                        found.append(self._note(f"oid:{int.from_bytes(oid, 'big'):x}", problem))
                    else:
                        self.damaged.pop(f"oid:{int.from_bytes(oid, 'big'):x}", None)
                    self.checked += 1
                if self._next is None:
                    self.rounds += 1
                    break
                if count % _CLASSES == 0:
                    connection.cacheMinimize()
        finally:
            tm.abort()
            connection.cacheMinimize()
            connection.close()
        return found

    def _note(self, oid: str, what: str) -> Damage:
        self.damaged[oid] = what
        return Damage(oid, what)


def _problem(connection: Any, oid: bytes, data: bytes) -> str:
    """What is wrong with a record; "" if nothing is."""
    try:
        for reference in referencesf(data):
            connection._storage.load(reference)
        found = connection.get(oid)
        found._p_activate()
        return problem_of(found)
    except POSKeyError as e:
        return f"it refers to an object that is not there: {e}"
    except Exception as e:  # noise where a pickle should be raises anything
        return f"it cannot be read: {type(e).__name__}: {e}"


def problem_of(found: Persistent) -> str:
    """What is wrong with an object that could be loaded, by its own digest; "" if nothing is, or if it has none."""
    if isinstance(found, Method) and not found.intact():
        return f"the source of the method {found.selector!r} is not what was audited"
    if isinstance(found, JournalEntry) and not found.intact():
        return "the inference is not what the model answered"
    return ""
