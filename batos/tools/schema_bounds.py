"""Bounds of schemas: which types and values one allows, and whether another allows fewer of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_CHOICES = ("anyOf", "oneOf")
_DEEPEST = 6
_VALUES = 5  # that are told
_VALUE_CHARS = 40
_WIDE = frozenset({"int64", "float", "double", "password"})
"""Formats that allow what a value without a format is in practice."""
_WIDER = {("int32", "int64"), ("float", "double")}
_COUNTED = {"Length": "characters", "Items": "elements", "Properties": "fields"}
_KINDS: Sequence[tuple[str, tuple[type, ...]]] = (
    ("boolean", (bool,)), ("integer", (int,)), ("number", (float,)), ("string", (str,)), ("array", (list,)), ("object", (dict,)),
)  # fmt: skip


def types_of(schema: Any, depth: int = 0) -> set[str]:
    """Return the types that a schema allows, those of its alternatives and values included; none where it does not say."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return set()
    said = schema.get("type")
    own = {str(one) for one in said} if isinstance(said, list) else {said} if isinstance(said, str) else set()
    if not own and (values := _values(schema)) is not None:
        own = {_kind(one) for one in values}
    for word in _CHOICES:
        parts = schema.get(word)
        each = [types_of(part, depth + 1) for part in parts] if isinstance(parts, list) else []
        if each and all(each):
            found = set[str]().union(*each)
            own = own & found or own if own else found
    return own


def names_in(value: Any) -> list[str]:
    """Return the names of a list; none of what is not a list."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def narrowed(before: Mapping[str, Any], after: Mapping[str, Any], what: str) -> str:
    """Return in which way a later schema allows fewer values than an earlier one; "" if it does not, as far as keywords of bounds tell.

    Both are of the same type and without alternatives.

    :param what: the words that the reason begins with.
    """
    had, has = _values(before), _values(after)
    if had is not None:
        lost = [one for one in had if (has is not None and not _among(one, has)) or not _within(one, after)]
        return f"{what} is not {_told(lost)} any more" if lost else ""
    if has is not None:
        return "" if before.get("type") == "boolean" and {True, False} <= set(map(_plain, has)) else f"{what} is {_told(has)} now"
    for least in (True, False):
        old, new = _limit(before, least), _limit(after, least)
        if new.tighter(old, least):
            was = f", and was {old.told(least)}" if math.isfinite(old.value) else ""
            return f"{what} is {new.told(least)} now{was}"
    for kind, many in _COUNTED.items():
        for word, side, none in (("min", "at least", 0), ("max", "at most", math.inf)):
            old_count, new_count = _number(before, word + kind, none), _number(after, word + kind, none)
            if new_count > old_count if word == "min" else new_count < old_count:
                was = f", and had {side} {old_count:.15g}" if old_count != none else ""
                return f"{what} has {side} {new_count:.15g} {many if new_count != 1 else many[:-1]} now{was}"
    return _otherwise(before, after, what)


def _otherwise(before: Mapping[str, Any], after: Mapping[str, Any], what: str) -> str:
    """Return which pattern, format, step or uniqueness is new: such a thing cannot be compared with another one."""
    for word, said in (("pattern", "follows the pattern"), ("format", "has the format")):
        old, new = before.get(word), after.get(word)
        if not isinstance(new, str) or new == old or (word == "format" and ((new in _WIDE and old is None) or (old, new) in _WIDER)):
            continue
        was = f", and {'had' if word == 'format' else 'followed'} {old[:_VALUE_CHARS]}" if isinstance(old, str) else ""
        return f"{what} {said} {new[:_VALUE_CHARS]} now{was}"
    step, former = _number(after, "multipleOf", 0), _number(before, "multipleOf", 0)
    if step > 0 and not (former > 0 and math.isclose(former / step, round(former / step))) and not (step == 1 and _whole(before)):
        return f"{what} is a multiple of {step:.15g} now"
    if after.get("uniqueItems") is True and before.get("uniqueItems") is not True:
        return f"{what} has no element twice now"
    return ""


class _Limit(NamedTuple):
    """The least or the greatest number that a schema allows; not itself, if it is open."""

    value: float
    open: bool

    def tighter(self, other: _Limit, least: bool) -> bool:
        beyond = self.value > other.value if least else self.value < other.value
        return beyond or (self.value == other.value and self.open and not other.open)

    def told(self, least: bool) -> str:
        words = ("above" if least else "below") if self.open else "at least" if least else "at most"
        return f"{words} {self.value:.15g}"


def _limit(schema: Mapping[str, Any], least: bool) -> _Limit:
    none, word, without = (-math.inf, "minimum", "exclusiveMinimum") if least else (math.inf, "maximum", "exclusiveMaximum")
    closed = _Limit(_number(schema, word, none), schema.get(without) is True)
    opened = _Limit(_number(schema, without, none), True)
    found = opened if math.isfinite(opened.value) and opened.tighter(closed, least) else closed
    if found.open and math.isfinite(found.value) and _whole(schema):  # above 0 is at least 1
        return _Limit(math.floor(found.value) + 1 if least else math.ceil(found.value) - 1, False)
    return found


def _whole(schema: Mapping[str, Any]) -> bool:
    return types_of(schema) - {"null"} == {"integer"}


def _number(schema: Mapping[str, Any], word: str, none: float) -> float:
    value = schema.get(word)
    try:
        return none if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) else float(value)
    except OverflowError:
        return none


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that a schema lists; None where it does not."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) and listed else None


def _within(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return True if a value that an earlier schema lists is within the bounds of a later one; patterns and formats are not looked at."""
    if isinstance(value, str):
        return _number(schema, "minLength", 0) <= len(value) <= _number(schema, "maxLength", math.inf)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    least, most = _limit(schema, True), _limit(schema, False)
    return (value > least.value if least.open else value >= least.value) and (value < most.value if most.open else value <= most.value)


def _plain(value: Any) -> str | bool:
    """Return a value so that equal JSON values are equal: 1 is 1.0, and is not true."""
    if isinstance(value, bool):
        return value
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value, sort_keys=True)


def _among(value: Any, values: Sequence[Any]) -> bool:
    return _plain(value) in map(_plain, values)


def _kind(value: Any) -> str:
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    return next((name for name, types in _KINDS if isinstance(value, types)), "null")


def _told(values: Sequence[Any]) -> str:
    told = [json.dumps(one, ensure_ascii=False)[:_VALUE_CHARS] for one in values[:_VALUES]]
    return " or ".join([*told, "…"] if len(values) > _VALUES else told)
