"""Plain values of calls: their kinds, the names of arguments after them, and their equality."""

from __future__ import annotations

import contextlib
import keyword
import math
from collections.abc import Mapping, Sequence
from typing import Any

_BY_TYPE = {str: "text", bool: "flag", int: "number", float: "number", list: "items", dict: "record"}
KINDS = frozenset(_BY_TYPE.values())
"""What arguments are called, and so what a parameter is for that is called so."""


def signature(selector: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the first line of a method for such a message: `def add_(self, number, number2):`."""
    return f"def {selector}({', '.join(('self', *arguments(args, kwargs)))}):"


def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a message by the names of the parameters. Keyword arguments that are no Python names are left out."""
    found: dict[str, Any] = {}
    for value in args:
        name = kind_of(value)
        found[name if name not in found else f"{name}{sum(known.rstrip('0123456789') == name for known in found) + 1}"] = value
    return found | {name: value for name, value in kwargs.items() if name.isidentifier() and not keyword.iskeyword(name)}


def kind_of(value: Any) -> str:
    """Return the kind of an argument, by its type."""
    return _BY_TYPE.get(type(value), "other")


def parameters(selector: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the kinds of a method's parameters behind `self`: `number` also for `number2`."""
    return [name.rstrip("0123456789") for name in arguments(args, kwargs)]


def is_plain(value: Any) -> bool:
    """Return True for a JSON value without references to objects."""
    if isinstance(value, dict):
        return "oid" not in value and all(isinstance(key, str) for key in value) and all(map(is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def same(one: Any, other: Any) -> bool:
    """Return True if two values are equal as JSON. Numbers are compared to nine digits; 1 is not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        with contextlib.suppress(OverflowError):  # a whole number that no float is as large as
            return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {*map(str, one)} == {*map(str, other)} and all(same(value, _by_text(other, key)) for key, value in one.items())
    return bool(one == other)


def _by_text(mapping: Mapping[Any, Any], key: Any) -> Any:
    return next(value for name, value in mapping.items() if str(name) == str(key))
