"""Undo and redo of a mission's transaction, by a three-way merge, in a transaction of its own.

Nothing is rolled back. A part (a slot, an item, a member) that the mission wrote gets its value from before, if it still has the mission's
value. Changes of others to other parts stay. Later work that depends on the mission is a named *conflict*. One kind is a part that was
changed again. The other is an object that the mission made and that was changed since, or that something else refers to by now.

Objects that the mission made stay in the file, out of reach, until a pack. So no reference ever leads nowhere, and everything can be
redone. Left out are the mission's own record and thought, its journal and failures, and what other layers take care of themselves.

A *state* is a dict of parts: the slots of an object, the items of a dict, the members of a set. A value without parts is one part, `WHOLE`.
The change lies between `base` and `mine`. A part that it touched must now be as in `base` (or as in `mine` already), else it *clashes*.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ZODB
from persistent import Persistent
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf
from ZODB.utils import p64, u64, z64

from batos.errors import HistoryGone, InvalidInput
from batos.image import ledger
from batos.image.history import require_history, when
from batos.objects import Method, Root, SlotDict, SlotList, SlotSet, UvmObject

State = dict[Any, Any]
WHOLE = "(all of it)"
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()


def parts_of_state(kind: type, raw: Any) -> State:
    """Return the parts of a stored state (`__getstate__`) of an object of that class."""
    if issubclass(kind, UvmObject):
        return {name.decode("utf-8", "surrogatepass") if isinstance(name, bytes) else name: value for name, value in raw.items()}
    if issubclass(kind, SlotDict):
        return dict(raw["data"])
    if issubclass(kind, SlotSet):
        return dict.fromkeys(raw["data"], True)
    return {WHOLE: raw}


def put_part(obj: Persistent, was: State, now: State) -> None:
    """Change an object from one state to the other, in its open transaction."""
    changed = [part for part in {**was, **now} if not same_value(was.get(part, MISSING), now.get(part, MISSING))]
    if isinstance(obj, SlotSet):
        for item in changed:
            (obj.add if item in now else obj.discard)(item)
    elif isinstance(obj, UvmObject | SlotDict):
        held: Any = obj._slots if isinstance(obj, UvmObject) else obj
        for name in changed:
            if name in now:
                held[name] = now[name]
            else:
                del held[name]
    elif changed:
        obj.__setstate__(now[WHOLE])
        obj._p_changed = True


def merge_part(base: State, mine: State, theirs: State) -> tuple[State, list[Any]]:
    """Return `theirs` with the change from `base` to `mine`, and the parts that clash, which stay as they are."""
    found, clashes = dict(theirs), []
    for part in {**base, **mine}:
        was, wanted, now = (state.get(part, MISSING) for state in (base, mine, theirs))
        if same_value(was, wanted) or same_value(now, wanted):
            continue
        if not same_value(now, was):
            clashes.append(part)
        elif wanted is MISSING:
            del found[part]
        else:
            found[part] = wanted
    return found, clashes


def same_value(a: Any, b: Any) -> bool:
    """Return True if two values are the same, type for type: 1 is not True. Other objects are the same if they are
    identical."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, Persistent):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_value(value, b[key]) for key, value in a.items())
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def references(value: Any) -> Iterator[Persistent]:
    """Yield the persistent objects that a value holds."""
    if isinstance(value, Persistent):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from references(key)
            yield from references(item)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from references(item)


COMPLETE_NOTE = "COMPLETE by "
"""Beginning of the note of a cycle's commit."""
UNDO, REDO = "undo:", "redo:"
"""Annotations of the transactions of an undo and a redo, before the mission's id."""
Theirs = Callable[[UvmObject], Collection[str]]
"""Returns the slots of an object that another layer takes care of; none if the object is not of its kind."""
_REVISIONS = 1_000_000  # of one object that are looked through
_MERGED = (UvmObject, SlotDict, SlotList, SlotSet)


class Conflict(NamedTuple):
    """Later work that depends on a mission."""

    oid: bytes
    part: str
    why: str
    mission: str
    """Mission that did the later work; empty if no mission did that could be undone."""
    writer: str
    """Annotation of the transaction of the later work."""


class TransactionChange(NamedTuple):
    """Change that a mission's transaction made."""

    mission: str
    tid: bytes
    before: dict[bytes, State]
    """States before, of each object that it changed; an object of `at` that is not in here was made by it."""
    at: dict[bytes, State]
    since: bytes
    """Transaction since which the change holds: its own, or the last redo."""
    others: tuple[bytes, ...]
    """Records that are not merged by parts: trees, counters, indexes."""


class UndoPlan:
    """Writes of an undo, computed on one view of the image; see `plan_undo`."""

    def __init__(self) -> None:
        self.work: dict[bytes, State] = {}
        self.was: dict[bytes, State] = {}
        self.conflicts: list[Conflict] = []

    def touched(self) -> list[tuple[bytes, list[Any]]]:
        """Return the objects that change, and the parts of each."""
        found = []
        for oid, now in self.work.items():
            was = self.was[oid]
            if changed := [part for part in {**was, **now} if not same_value(was.get(part, MISSING), now.get(part, MISSING))]:
                found.append((oid, changed))
        return found


def commit_of(db: ZODB.DB, root: Root, id: str) -> bytes:
    """Return the transaction in which a mission was completed.

    :raises UnknownMission: if there is no mission of that id.
    :raises InvalidInput: for one that has not ended, or is FAILED: nothing of it is in the image.
    :raises HistoryGone: if it is from before the last pack.
    :raises ImageError: for a storage without history.
    """
    require_history(db)
    mission = ledger.mission_of(root, id)
    if mission.state == ledger.FAILED:
        raise InvalidInput(f"mission {id!r} FAILED: it changed nothing in the image, so there is nothing to undo")
    if mission.state != ledger.COMPLETE:
        raise InvalidInput(f"mission {id!r} has not ended; `batos cancel {id}` takes it back")
    return annotated(db, mission._p_oid, id, COMPLETE_NOTE)


def annotated(db: ZODB.DB, oid: bytes, name: str, note: str) -> bytes:
    """Return the last transaction that wrote an object, was annotated with a name, and has a note that begins with
    `note`.

    :raises HistoryGone: if there is none any more.
    """
    for entry in db.history(oid, _REVISIONS):
        if _text(entry["user_name"]) == name and _text(entry["description"]).startswith(note):
            return bytes(entry["tid"])
    raise HistoryGone(f"the change of {name!r} is no longer known: history goes back to the last pack")


def change_of(db: ZODB.DB, root: Root, id: str, theirs: Theirs) -> TransactionChange:
    """Return the change that a mission made."""
    change = change_in(db, root, id, commit_of(db, root, id), theirs)
    again = (one["tid"] for one in db.history(ledger.mission_of(root, id)._p_oid, _REVISIONS) if _text(one["user_name"]) == REDO + id)
    return change._replace(since=next(again, change.tid))


def no_change(id: str) -> TransactionChange:
    """Return the empty change of a FAILED mission."""
    return TransactionChange(id, z64, {}, {}, z64, ())


def change_in(
    db: ZODB.DB, root: Root, id: str, tid: bytes, theirs: Theirs, left_out: Callable[[UvmObject], bool] = lambda obj: False
) -> TransactionChange:
    """Return the change that a transaction made. The root's own connection reads all states, so that their references
    can be used.

    :param id: name of the change.
    :param left_out: returns True for objects that do not belong to the change.
    """
    connection = root._p_jar
    before: dict[bytes, State] = {}
    at: dict[bytes, State] = {}
    others = []
    for oid in _written(db, tid):
        obj = connection.get(oid)
        if not isinstance(obj, (*_MERGED, Method)):
            others.append(oid)
        elif not (isinstance(obj, UvmObject) and (_is_mission(obj) or left_out(obj))):
            names, earlier = theirs(obj) if isinstance(obj, UvmObject) else (), _before(db, oid, tid)
            if names and earlier is None:
                continue  # it was made as that layer makes them
            at[oid] = _without(names, parts_of_state(type(obj), connection.oldstate(obj, tid)))
            if earlier is not None:
                before[oid] = _without(names, parts_of_state(type(obj), connection.oldstate(obj, earlier)))
    _written(db, tid)  # packed meanwhile, what it changed would have looked like what it made
    return TransactionChange(id, tid, before, at, tid, tuple(others))


def plan_undo(db: ZODB.DB, root: Root, changes: Sequence[TransactionChange], *, redo: bool = False) -> UndoPlan:
    """Return the writes that undo these changes in the order given; with `redo`, that redo them."""
    plan = UndoPlan()
    for change in changes:
        lost: set[bytes] = set()
        for oid, before in change.before.items():
            base, mine = (before, change.at[oid]) if redo else (change.at[oid], before)
            theirs = _working(plan, root, oid)
            plan.work[oid], clashes = merge_part(base, mine, theirs)
            plan.conflicts += [_clash(db, root, oid, part, theirs.get(part, MISSING)) for part in clashes]
            lost |= _refs(base) - _refs(mine)
        if not redo:
            _depends(db, root, change, plan, lost)
    return plan


def write_undo(root: Root, plan: UndoPlan) -> None:
    """Write a plan in the transaction that is open.

    :raises HistoryGone: if an object that is to be there again was packed away.
    """
    for oid, _ in plan.touched():
        obj = root._p_jar.get(oid)
        for reference in {id(one): one for one in references(plan.work[oid])}.values():
            try:
                reference._p_activate()
            except POSKeyError:
                raise HistoryGone(f"{oid_name(reference._p_oid)}, which is to be there again, was packed away") from None
        put_part(obj, plan.was[oid], plan.work[oid])


# --- trees in slots


class TreeMerge(NamedTuple):
    """Result of merging a tree."""

    differed: bool
    """True if the change touched this tree."""
    clashes: list[Any]
    """Keys that were changed since; they stay as they are."""


def merge_tree(now: Any, base: State, mine: State) -> TreeMerge:
    """Apply the change from one state of a tree's items to another to the tree as it is."""
    theirs = dict(now.items())
    found, clashes = merge_part(base, mine, theirs)
    for key in {**theirs, **found}:
        if key not in found:
            del now[key]
        elif key not in theirs or not same_value(theirs[key], found[key]):
            now[key] = found[key]
    return TreeMerge(any(not same_value(base.get(key, MISSING), mine.get(key, MISSING)) for key in {**base, **mine}), clashes)


# --- inside


def _depends(db: ZODB.DB, root: Root, change: TransactionChange, plan: UndoPlan, lost: set[bytes]) -> None:
    """Note later work that depends on objects which the change made and which are out of reach without it."""
    connection = root._p_jar
    made = change.at.keys() - change.before.keys()
    out: set[bytes] = set()
    more = lost & made
    while more:
        out |= more
        more = set().union(*(_refs(change.at[oid]) for oid in more)) & made - out
    for oid in out:
        now = _working(plan, root, oid)
        connection.readCurrent(connection.get(oid))  # so that no other transaction changes it until this commit
        for part in {**change.at[oid], **now}:
            if not same_value(change.at[oid].get(part, MISSING), now.get(part, MISSING)):
                plan.conflicts.append(_clash(db, root, oid, part, now.get(part, MISSING)))
    if not out:
        return
    for oid in _referring(db, change.tid, out) - out:
        obj = connection.get(oid)
        if not isinstance(obj, _MERGED) or _is_mission(obj):
            continue
        for part, value in _working(plan, root, oid).items():
            if found := {one._p_oid for one in references(value)} & out:
                why = f"refers to {oid_name(min(found))}, which {change.mission!r} made"
                plan.conflicts.append(_clash(db, root, oid, part, value, why))


def _working(plan: UndoPlan, root: Root, oid: bytes) -> State:
    """Return the state of an object with the plan so far."""
    if oid not in plan.work:
        obj = root._p_jar.get(oid)
        plan.was[oid] = plan.work[oid] = parts_of_state(type(obj), obj.__getstate__())
    return plan.work[oid]


def _clash(db: ZODB.DB, root: Root, oid: bytes, part: Any, value: Any, why: str = "was changed since") -> Conflict:
    """Return the conflict about a part with that value, and the mission that set it."""
    connection = root._p_jar
    obj = connection.get(oid)
    entry, writer = None, ""
    for revision in db.history(oid, _REVISIONS):  # the first of those in a row that gave it the value; an undo only gave it back
        if same_value(parts_of_state(type(obj), connection.oldstate(obj, revision["tid"])).get(part, MISSING), value):
            entry, writer = revision, _text(revision["user_name"])
        elif entry is not None and not writer.startswith(UNDO):
            break
    mission = writer.removeprefix(REDO)
    cycles = entry is not None and (writer != mission or _text(entry["description"]).startswith(COMPLETE_NOTE))
    return Conflict(oid, str(part), why, mission if cycles and mission in ledger.ledger_of(root).missions else "", writer)


def _written(db: ZODB.DB, tid: bytes) -> list[bytes]:
    """Return the ids of all records of a transaction.

    :raises HistoryGone: if it was packed: then it is not known which of them it made.
    """
    with contextlib.closing(db.storage.iterator(tid, tid)) as transactions:
        for transaction in transactions:
            if transaction.status != "p":
                return list(dict.fromkeys(record.oid for record in transaction))
    raise HistoryGone(f"the transaction of {when(tid)} was packed; history goes back to the last pack")


def _before(db: ZODB.DB, oid: bytes, tid: bytes) -> bytes | None:
    """Return the revision of an object before a transaction; None if there was none."""
    try:
        found = db.storage.loadBefore(oid, tid)
    except POSKeyError:
        return None
    return None if found is None else found[1]


def _referring(db: ZODB.DB, tid: bytes, wanted: set[bytes]) -> set[bytes]:
    """Return the objects written after a transaction that referred to one of these then."""
    found: set[bytes] = set()
    last = db.lastTransaction()  # a stop: what is being written just now would be called truncated
    with contextlib.closing(db.storage.iterator(p64(u64(tid) + 1), last)) as transactions:
        for transaction in transactions:
            found |= {record.oid for record in transaction if record.data and not wanted.isdisjoint(referencesf(record.data))}
    return found


def _without(names: Collection[str], state: State) -> State:
    return {part: value for part, value in state.items() if part not in names}


def _refs(values: State) -> set[bytes]:
    return {one._p_oid for one in references(values) if one._p_oid}


def _is_mission(obj: Persistent) -> bool:
    return isinstance(obj, UvmObject) and "brief" in obj._slots and "journal" in obj._slots


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def oid_name(oid: bytes) -> str:
    """Return an id as the wire shows it."""
    return f"oid:{u64(oid):x}"
