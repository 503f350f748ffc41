"""Inspection of the image's objects: by path, by id, and over time.

A moment is a number (seconds since the epoch) or the id of a transaction (16 hex digits, as `history` lists them);
both are included. History goes back to the last pack.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import ZODB
from persistent import Persistent
from persistent.timestamp import TimeStamp
from ZODB.POSException import POSKeyError, Unsupported
from ZODB.utils import p64, u64

from batos.config import nearest
from batos.errors import HistoryGone, ImageError, InvalidInput, MessageTooLarge, UnknownTarget
from batos.image.ledger import ledger_of, line_of, mission_of
from batos.objects import Intent, Method, Primitive, Root, SlotDict, SlotList, SlotSet, UvmObject
from batos.objects.json_form import WHOLE_BYTES as WHOLE_BYTES
from batos.objects.json_form import in_list as in_list
from batos.objects.json_form import oid_of as oid_of
from batos.objects.json_form import plain as plain
from batos.objects.json_form import uncut as uncut

Moment = float | str
_NEAR = 256  # ids, 14 ns each: further off than a datetime's microseconds are
_LAST_YEAR = 9900  # an id counts minutes since 1900 in 32 bits: soon after, it would begin again from there
Snapshot = Callable[..., contextlib.AbstractContextManager[Root]]
"""`LivingImage.snapshot`, or its substitute where no daemon runs."""


def require_history(db: ZODB.DB) -> None:
    """
    :raises ImageError: for a storage that keeps no history, which would answer with the present.
    """
    if not db.supportsUndo():
        raise ImageError("this storage keeps no history; use file://, or postgres:// with keep_history=1")


def tid_of(db: ZODB.DB, moment: Moment) -> bytes:
    """Return the transaction id up to which a moment sees.

    :raises InvalidInput: for a value that is not a valid moment.
    """
    try:
        tid = bytes.fromhex(moment) if isinstance(moment, str) else stamp(moment)
    except (ValueError, OverflowError, OSError):  # the last, of nanoseconds: no year that the system knows
        tid = b""
    if len(tid) != 8:
        raise InvalidInput(f"{moment!r} is not a valid moment: give seconds since the epoch, or the id of a transaction (16 hex digits)")
    return min(tid, bytes(db.lastTransaction()))


@contextlib.contextmanager
def looking_at(db: ZODB.DB, snapshot: Snapshot, moment: Moment | None) -> Iterator[Root]:
    """Yield the root as of a moment, for reading; None: as of now.

    :raises HistoryGone: for a moment before the last pack, or before the image existed.
    :raises ImageError: for a storage that keeps no history.
    """
    if moment is None:
        with snapshot() as root:
            yield root
        return
    require_history(db)
    tid = tid_of(db, moment)
    try:
        with snapshot(at=tid) as root:
            if "lobby" not in root:
                raise HistoryGone(f"the image did not exist yet at {when(tid)}")
            yield root
    except POSKeyError:
        raise _gone(db, tid) from None


def _gone(db: ZODB.DB, tid: bytes) -> HistoryGone:
    """Return the error for a moment that cannot be seen: the image is younger, or the moment was packed."""
    with contextlib.closing(db.storage.iterator()) as transactions:
        first = next(iter(transactions), None)
    if first is None or first.status == "p":
        return HistoryGone(
            f"the image as of {when(tid)} is not kept, or did not exist yet: history goes back to the last pack (`image.history_days`)"
        )
    if tid < first.tid:
        return HistoryGone(f"the image did not exist yet at {when(tid)}; it began at {when(first.tid)}")
    return HistoryGone(f"the image as of {when(tid)} is not whole: history goes back to the last pack (`image.history_days`)")


def seconds_of(tid: bytes) -> float:
    """Return the time of a transaction's commit, in seconds since the epoch."""
    return float(TimeStamp(tid).timeTime())


def when(tid: bytes) -> str:
    """Return the time of a transaction for messages, in UTC."""
    return datetime.datetime.fromtimestamp(seconds_of(tid), datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def stamp(seconds: float) -> bytes:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    if moment.year > _LAST_YEAR:
        return b"\xff" * 8
    stamp = TimeStamp(moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second + moment.microsecond / 1e6)
    found = max(0, u64(stamp.raw()) - _NEAR)
    for step in (1 << bit for bit in reversed(range(_NEAR.bit_length()))):  # the last whose time is told as this one, or earlier
        if seconds_of(p64(found + step)) <= seconds:
            found += step
    return p64(found)  # type: ignore[no-any-return]


_OID = re.compile(r"(?:oid:|0x)([0-9a-fA-F]{1,16})\Z")
_DIFF_TEXT = 20_000  # and of one side of a difference: sources of methods are told in whole
_ABOUT = 120
_REVISIONS = 1_000_000  # that are looked through for one


def resolve(root: Root, target: str) -> UvmObject:
    """Return the object under a path of slots from the lobby (`robin`, `psm.IDLE`), an oid (`oid:1f`), or a mission
    id.

    :raises UnknownTarget: naming the part that was not found, and the names that exist.
    :raises MissionFolded: for a folded mission.
    """
    if match := _OID.match(target):
        try:
            found = root._p_jar.get(int(match[1], 16).to_bytes(8, "big"))
        except (POSKeyError, KeyError):
            found = None
        if isinstance(found, UvmObject):
            return found
        raise UnknownTarget(f"no object with the id {target!r} in this image")
    if target == "lobby":
        return root["lobby"]
    current: UvmObject = root["lobby"]
    for part in re.split(r"[./]", target):
        found = current._slots.get(part)
        if not isinstance(found, UvmObject):
            # Only now: ids are chosen by clients, and none may take the place of an object that has a path.
            mission = ledger_of(root).missions.get(target)
            if mission is not None or line_of(root, target) is not None:
                return mission_of(root, target)
            raise _no_object(part, target, current)
        current = found
    return current


def _no_object(part: str, target: str, holder: UvmObject) -> UnknownTarget:
    """Return the error for a path that leads to a value instead of an object, with the objects that exist."""
    names = sorted(name for name, value in holder._slots.items() if isinstance(value, UvmObject) and name[-1] != "*")
    kinds = {Intent: "an intent", Method: "a method", Primitive: "a primitive"}
    instead = f": it is {kinds.get(type(holder._slots[part]), 'data')}" if part in holder._slots else nearest(part, names)
    there = f"there are: {', '.join(names)}" if names else "there are none"
    lobby = holder._p_jar.root()["lobby"]
    tools = lobby._slots.get("tools")
    if holder is lobby and isinstance(tools, UvmObject) and isinstance(tools._slots.get(part), UvmObject):
        instead = f"; that connection is tools.{part}"
    if holder is tools:
        there = f"`batos tools add {part or 'NAME'}` connects one; {there}"
    return UnknownTarget(f"no object {part!r} on the path {target!r}{instead}; {there}")


def show(obj: UvmObject) -> dict[str, Any]:
    """Return an object as plain values: its id, its own slots, its parents, and the transaction that wrote it."""
    slots = {name: plain(value) for name, value in obj._slots.items()}
    return {"oid": oid_of(obj), "slots": slots, "tid": obj._p_serial.hex() if obj._p_oid else None}


def revisions(db: ZODB.DB, oid: bytes, limit: int) -> list[dict[str, Any]]:
    """Return the revisions of an object, newest first: time (UTC), mission, note, size in bytes.

    They reach back to the last pack.

    :raises ImageError: for a storage that keeps no history.
    :raises UnknownTarget: if the image has no such object.
    """
    try:
        found = db.history(oid, limit)
    except POSKeyError:
        raise UnknownTarget(f"no object with the id 'oid:{int.from_bytes(oid, 'big'):x}' in this image") from None
    except (Unsupported, AttributeError, NotImplementedError):
        raise ImageError("this storage keeps no history; use file://, or postgres:// with keep_history=1") from None
    return [
        {
            "tid": entry["tid"].hex(),
            "time": seconds_of(entry["tid"]),
            "mission": _text(entry["user_name"]),
            "note": _text(entry["description"]),
            "size": entry["size"],
        }
        for entry in found
    ]


def revision(db: ZODB.DB, obj: Persistent) -> dict[str, Any]:
    """Return the transaction that wrote an object as it is seen here: `tid`, `time`, `mission`, `note`."""
    obj._p_activate()  # a ghost does not know its transaction
    found = next((one for one in db.history(obj._p_oid, _REVISIONS) if one["tid"] == obj._p_serial), None)
    told = {"mission": _text(found["user_name"]), "note": _text(found["description"])} if found else {"mission": "", "note": ""}
    return {"tid": obj._p_serial.hex(), "time": seconds_of(obj._p_serial), **told}


def changes(before: UvmObject | None, after: UvmObject | None) -> list[dict[str, Any]]:
    """Return the differences between two views of one object: for each slot that differs, `before`, `after`, or one
    of them.

    Containers are shown with their contents, other objects by their ids.
    """
    was, now = ({} if one is None else {name: uncut(value) for name, value in one._slots.items()} for one in (before, after))
    found = []
    for name in sorted(was.keys() | now.keys()):
        if name not in was or name not in now or json.dumps(was[name]) != json.dumps(now[name]):
            sides = (("before", before, was), ("after", after, now))
            found.append({"slot": name, **{side: uncut(one._slots[name], _DIFF_TEXT) for side, one, held in sides if one and name in held}})
    return found


def entries(obj: UvmObject) -> list[dict[str, Any]]:
    """Return the slots of an object. Each has its name, its `kind` (object, parent, method, intent, primitive, tree, data), its `oid` if it
    has one, and a summary in `about`."""
    return [{"name": name, **_entry(name, value)} for name, value in sorted(obj._slots.items())]


def _entry(name: str, value: Any) -> dict[str, Any]:
    kind = "data"
    if name[-1] == "*":
        kind = "parent"
    elif isinstance(value, UvmObject):
        kind = "object"
    elif isinstance(value, Method | Intent | Primitive):
        kind = type(value).__name__.lower()
    elif isinstance(value, Persistent) and not isinstance(value, SlotDict | SlotList | SlotSet):
        kind = "tree"
    oid = {"oid": oid_of(value)} if isinstance(value, Persistent) and value._p_oid else {}
    return {"kind": kind, **oid, "about": _about(value)}


def _about(value: Any) -> str:
    if isinstance(value, UvmObject):
        known = (value._slots.get(name) for name in ("comment", "name", "brief", "title"))
        return next((text[:_ABOUT] for text in known if isinstance(text, str) and text), "")
    if isinstance(value, Method):
        return f"version {value.version}"
    shown = plain(value, text=_ABOUT)
    return (shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False))[:_ABOUT]


def whole(value: Any) -> Any:
    """Return a value as `plain` does, but uncut: for results, which are kept.

    :raises MessageTooLarge: for a value of more than `WHOLE_BYTES` as JSON, or nested too deep.
    """
    try:
        shown = uncut(value)
        size = len(json.dumps(shown))
    except RecursionError:
        raise MessageTooLarge("the answer is nested too deep to be a result") from None
    if size > WHOLE_BYTES:
        raise MessageTooLarge(f"the answer takes {size} bytes; a result takes at most {WHOLE_BYTES}")
    return shown


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
