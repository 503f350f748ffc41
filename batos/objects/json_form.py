"""Plain forms of slot values: JSON for the wire, results and comparison, and examples of a message.

Other objects become `{"oid": …}` and are never followed. `plain` cuts what is long or deep, `uncut` keeps it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Collection
from typing import Any, NamedTuple

from persistent import Persistent

from batos.objects.slot_values import Intent, Method, Primitive, SlotDict, SlotList, SlotSet

WHOLE_BYTES = 512 * 1024
"""Largest size of a result as JSON, in bytes: half of the largest message."""
_NESTING = 60  # levels that `uncut` follows beyond those of `plain`
_TEXT = 2000  # characters of one value that `plain` shows
_LISTED = 500  # characters of one value in a list of up to a thousand


def oid_of(obj: Persistent) -> str | None:
    """Return the id of an object as the wire shows it, `oid:1f`. Return None for an object that is not stored yet."""
    return f"oid:{int.from_bytes(obj._p_oid, 'big'):x}" if obj._p_oid else None


def uncut(value: Any, text: int = WHOLE_BYTES) -> Any:
    """Return a value as `plain` does, without a cut.

    :param text: characters after which a text is cut all the same.
    """
    return plain(value, -_NESTING, text=text)


def plain(value: Any, depth: int = 0, *, text: int = _TEXT) -> Any:
    """Return a value in JSON types. Other objects become `{"oid": …}`. Long texts and deep values are cut.

    :param depth: the level of the value. Values at level 4 and below are shown as text.
    :param text: characters after which a text is cut.
    """
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
        reaches = dict(value.contract).get("reaches")
        told = {"method": value.selector, "version": value.version, "source": value.source, "oid": oid_of(value)}
        return {**told, "reaches": list(reaches)} if reaches else told
    if depth < 4:
        if isinstance(value, SlotDict | dict):
            return dict(zip(_names(value), (plain(item, depth + 1, text=text) for item in value.values()), strict=True))
        if isinstance(value, list | tuple | SlotList):
            return [plain(item, depth + 1, text=text) for item in value]
        if isinstance(value, set | frozenset | SlotSet):
            return _in_order([plain(item, depth + 1, text=text) for item in value])
    if isinstance(value, Persistent):
        return {"oid": oid_of(value), "class": type(value).__name__}
    return repr(value)[:_TEXT]


def in_list(text: str) -> str:
    """Return the beginning of a text, as lists of up to a thousand entries show it."""
    return str(plain(text, text=_LISTED))


def _names(keys: Collection[Any]) -> list[str]:
    """Return the keys of a mapping as JSON names. A key that would collide gets its class beside it: `1` next to `"1"`."""
    taken, names = {key for key in keys if isinstance(key, str)}, []
    for key in keys:
        name = str(key)
        while not isinstance(key, str) and name in taken:
            name = f"{name} ({type(key).__name__})"
        taken.add(name)
        names.append(name)
    return names


def _in_order(items: list[Any]) -> list[Any]:
    """Return the elements of a set in an order that every process agrees on: their own, or else that of their JSON."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=json.dumps)


class Example(NamedTuple):
    """One example: the arguments, the answer, and the receiver's slots before and after the call.

    :ivar slots: slots that the receiver has before the call. Where the example says none, the receiver's own count.
    :ivar after: slots that the receiver must have after the call.
    """

    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    result: Any = None
    slots: tuple[tuple[str, Any], ...] = ()
    after: tuple[tuple[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the example as a JSON object. Empty fields are left out, but never the result."""
        told = {"args": list(self.args), "kwargs": dict(self.kwargs), "slots": dict(self.slots), "after": dict(self.after)}
        return {**{name: value for name, value in told.items() if value}, "result": self.result}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Example:
        """Return the example that `to_json` described."""
        pairs = {name: tuple((told.get(name) or {}).items()) for name in ("kwargs", "slots", "after")}
        return cls(args=tuple(told.get("args") or ()), result=told.get("result"), **pairs)
