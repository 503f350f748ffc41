"""JSON as the wire accepts it: stricter than `json.loads`, and never a Python error that is not ours.

Refused: bytes that are not strict UTF-8, anything but one object, duplicate keys, NaN and infinities (also `1e999`), lone
surrogates, integers of more digits than Python converts, and nesting deeper than the limit.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from batos.errors import MalformedMessage

# An escape of a surrogate half; only a text with one can hold a lone surrogate, since strict UTF-8 has none.
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def decode(payload: bytes, *, depth: int) -> dict[str, Any]:
    """The JSON object in `payload`.

    :param depth: deepest nesting of objects and arrays; the outermost object is level 1.
    :raises MalformedMessage: saying what is wrong with it, and where if that is known.
    """
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as e:
        raise MalformedMessage(f"not UTF-8: {e.reason} at byte {e.start}") from None
    try:
        value, end = _STRICT.raw_decode(text) if text[:1] == "{" else (None, -1)
        if end != len(text):  # blanks around it, or no JSON
            value = _STRICT.decode(text)
    except json.JSONDecodeError as e:
        raise MalformedMessage(f"no JSON: {e.msg} at character {e.pos}") from None
    except RecursionError:
        raise MalformedMessage(f"nested deeper than {depth} levels") from None
    except ValueError:
        raise MalformedMessage("a number has more digits than can be read") from None
    if not isinstance(value, dict):
        raise MalformedMessage("a message is one JSON object")
    if payload.count(b"{") + payload.count(b"[") > depth:  # fewer brackets than levels cannot be too deep
        _check_depth(value, depth)
    if "\\u" in text and _SURROGATE_ESCAPE.search(text):
        _check_surrogates(value)
    return value


def decode_leniently(payload: bytes) -> dict[str, Any]:
    """What can be read of a message that `decode` refused; empty if nothing can. Only for saying which request was refused."""
    try:
        value = _LENIENT.decode(payload.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def encode(message: dict[str, Any]) -> bytes:
    """`message` as it goes over the wire. A lone surrogate becomes `?`: a reply must not be lost for one character.

    :raises ValueError: for NaN, infinities, circular references and integers of too many digits.
    :raises TypeError: for values that JSON does not have.
    :raises RecursionError: for values nested too deep.
    """
    return _ENCODER.encode(message).encode("utf-8", "replace")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedMessage(f"the key {twice[:64]!r} is there twice")
    return made


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise MalformedMessage(f"the number {literal[:32]} is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedMessage(f"{name} is no JSON")


def _int_or_zero(literal: str) -> int:
    return int(literal) if len(literal) < 32 else 0


def _check_depth(value: Any, depth: int) -> None:
    level = [value]
    for _ in range(depth):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise MalformedMessage(f"nested deeper than {depth} levels")


def _check_surrogates(value: Any) -> None:
    try:
        _ENCODER.encode(value).encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedMessage("a lone surrogate is no character") from None


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder(parse_int=_int_or_zero)
