"""What can be asked of the image's objects: by path, by id, over time."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

import ZODB
from persistent import Persistent
from persistent.timestamp import TimeStamp
from ZODB.POSException import POSKeyError, Unsupported

from batos.errors import ImageError, MessageTooLarge, UnknownTarget
from batos.image.ledger import ledger_of
from batos.objects import Intent, Method, Primitive, SlotDict, SlotList, SlotSet, UvmObject

_OID = re.compile(r"(?:oid:|0x)([0-9a-fA-F]{1,16})\Z")
WHOLE_BYTES = 512 * 1024  # of a result as JSON: half of the largest message
_NESTING = 60  # levels more than a value that is only shown
_TEXT = 2000  # characters of one value that `plain` shows


def resolve(root: Any, target: str) -> UvmObject:
    """The object under a path of slots from the lobby (`robin`, `psm.IDLE`), an oid (`oid:1f`), or a mission id.

    :raises UnknownTarget: naming the part that was not found, and what is there.
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
        return root["lobby"]  # type: ignore[no-any-return]
    current: UvmObject = root["lobby"]
    for part in re.split(r"[./]", target):
        found = current._slots.get(part)
        if not isinstance(found, UvmObject):
            # Only now: ids are chosen by clients, and none may take the place of an object that has a path.
            mission = ledger_of(root).missions.get(target)
            if mission is not None:
                return mission  # type: ignore[no-any-return]
            names = ", ".join(sorted(name for name, value in current._slots.items() if isinstance(value, UvmObject) and name[-1] != "*"))
            raise UnknownTarget(f"no object {part!r} on the path {target!r}; there are: {names}")
        current = found
    return current


def show(obj: UvmObject) -> dict[str, Any]:
    """An object as plain values: its id, its own slots, its parents, when and by which transaction it was written."""
    slots = {name: plain(value) for name, value in obj._slots.items()}
    return {"oid": oid_of(obj), "slots": slots, "tid": obj._p_serial.hex() if obj._p_oid else None}


def revisions(db: ZODB.DB, oid: bytes, limit: int) -> list[dict[str, Any]]:
    """The revisions of an object, newest first: time (UTC), mission, note, size in bytes.

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
            "time": TimeStamp(entry["tid"]).timeTime(),
            "mission": _text(entry["user_name"]),
            "note": _text(entry["description"]),
            "size": entry["size"],
        }
        for entry in found
    ]


def oid_of(obj: Persistent) -> str | None:
    """An object's id as the wire shows it; None for one that is not stored yet."""
    return f"oid:{int.from_bytes(obj._p_oid, 'big'):x}" if obj._p_oid else None


def whole(value: Any) -> Any:
    """As `plain`, but with nothing cut off: for results, which are kept.

    :raises MessageTooLarge: for a value of more than `WHOLE_BYTES` as JSON, or nested too deep.
    """
    try:
        shown = plain(value, -_NESTING, text=WHOLE_BYTES)
        size = len(json.dumps(shown))
    except RecursionError:
        raise MessageTooLarge("the answer is nested too deep to be a result") from None
    if size > WHOLE_BYTES:
        raise MessageTooLarge(f"the answer takes {size} bytes; a result takes at most {WHOLE_BYTES}")
    return shown


def plain(value: Any, depth: int = 0, *, text: int = _TEXT) -> Any:
    """A value for the wire: JSON types; other objects as `{"oid": …}`, never followed. Long texts and deep values are cut."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)  # JSON has no infinity and no NaN
    if isinstance(value, str):
        return value if len(value) <= text else value[:text] + "…"
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value[:text]).decode("ascii")}
    if isinstance(value, Primitive | Intent):
        return {type(value).__name__.lower(): value.text}
    if isinstance(value, Method):
        return {"method": value.selector, "version": value.version, "source": value.source, "oid": oid_of(value)}
    if depth < 4:
        if isinstance(value, SlotDict | dict):
            return {str(key): plain(item, depth + 1, text=text) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset | SlotList | SlotSet):
            return [plain(item, depth + 1, text=text) for item in value]
    if isinstance(value, Persistent):
        return {"oid": oid_of(value), "class": type(value).__name__}
    return repr(value)[:_TEXT]


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
