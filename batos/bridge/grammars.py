"""JSON schemas as Ollama can make grammars of them.

llama.cpp's converter knows a part of JSON Schema, and has no mercy with the rest: of a pattern with `\\d`, or one that repeats something
more than 2,000 times, Ollama's runner dies, and with it whatever else that runner had in hand; of others it says that the schema is none;
with `[^x]` or `.` in a pattern, or a quote in a property's name, its grammar writes what is no JSON. So what is not known to be safe is
left out of what is sent. Who asked checks the answer against all of the schema. Tried on 0.17.4 and 0.21.0 (`tests/contract`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MOST = 2000  # repetitions: MAX_REPETITION_THRESHOLD of llama.cpp
LARGEST = 2**53  # of a bound: beyond it the converter's integers end
_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
_FORMATS = frozenset(("date", "time", "date-time", "uuid"))
_COUNTS = frozenset(("minLength", "maxLength", "minItems", "maxItems"))
_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
_CHOICES = frozenset(("anyOf", "oneOf", "allOf"))
_NAMED = frozenset(("$defs", "definitions"))
_NOTES = frozenset(("title", "description"))
_NAME = re.compile(r'[^"\\\x00-\x1f\x7f\ud800-\udfff]+')
"""Names of properties that the converter writes as they are."""
_REF = re.compile(r"#/[A-Za-z0-9_$./-]+")
_SHORT = {"d": "0-9", "w": "A-Za-z0-9_"}
_LITERAL = r"""[^\\^$.|?*+()\[\]{}"\x00-\x1f\x7f\ud800-\udfff]"""
_CLASS = rf"""\[(?:{_LITERAL}|[.|?*+(){{}}$]|\\[dw.\-+*?|/])+\]"""
_TOKEN = re.compile(rf"""(?P<class>{_CLASS})|\\(?P<short>[dw])|\\(?P<plain>[.\-+*?|/(){{}}$:@_])
    |(?P<open>\((?:\?:)?)|(?P<as_is>{_LITERAL}|[|)])
    |(?P<times>[?*+]|\{{(?P<least>\d+)(?:,(?P<most>\d*))?\}})(?![?+*{{])""", re.VERBOSE | re.DOTALL)  # fmt: skip
"""A part of a pattern that the converter understands as JSON Schema does."""


def taken(schema: Any) -> Any:
    """The schema, or a copy without what no grammar can be made of; None where there is none."""
    return dict(_kept(schema)) if isinstance(schema, dict) else schema if schema is None else {}


def _kept(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    odd = {name for name in _names(schema.get("properties")) if not _NAME.fullmatch(name)}
    if odd:  # an object of any names: a grammar without those would forbid them
        yield "type", "object"
        return
    for name, value in schema.items():
        if (kept := _keyword(name, value, schema)) is not _LEFT:
            yield name, kept


_LEFT = object()


def _keyword(name: str, value: Any, schema: dict[str, Any]) -> Any:
    """What is sent of a keyword's value; `_LEFT` where nothing is."""
    keeps = False
    if name == "properties" or name in _NAMED:
        return {key: taken(one) for key, one in value.items()} if isinstance(value, dict) else _LEFT
    if name in _CHOICES:
        return [taken(one) for one in value] if isinstance(value, list) and value and all(isinstance(one, dict) for one in value) else _LEFT
    if name == "prefixItems":
        return [taken(one) for one in value] if isinstance(value, list) and value else _LEFT
    if name == "items":
        return taken(value) if isinstance(value, dict) and "prefixItems" not in schema else _LEFT
    if name == "additionalProperties":
        return value if isinstance(value, bool) else taken(value) if isinstance(value, dict) else _LEFT
    if name == "pattern":
        return _LEFT if not isinstance(value, str) or (safe := pattern(value)) is None else safe
    if name == "type":
        types = value if isinstance(value, list) else [value]
        keeps = bool(types) and all(isinstance(one, str) and one in _TYPES for one in types)
    elif name == "required":
        keeps = isinstance(value, list) and all(isinstance(one, str) and one in _names(schema.get("properties")) for one in value)
    elif name == "enum":
        keeps = isinstance(value, list) and bool(value)
    elif name in _COUNTS:
        keeps = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST
    elif name in _BOUNDS:
        keeps = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
    elif name == "format":
        keeps = value in _FORMATS
    elif name == "$ref":
        keeps = isinstance(value, str) and _REF.fullmatch(value) is not None
    else:
        keeps = name == "const" or (name in _NOTES and isinstance(value, str))
    return value if keeps else _LEFT


def _names(properties: Any) -> list[str]:
    return list(properties) if isinstance(properties, dict) else []


def pattern(text: str) -> str | None:
    """A pattern in the words of the converter; None where it has none for it, or would take them for something else."""
    if len(text) < 3 or not (text.startswith("^") and text.endswith("$")):
        return None
    body, made, at = text[1:-1], ["^"], 0
    groups: list[bool] = []  # open ones: whether something in it is repeated
    countable = repeated = False  # what stands before: whether it can be repeated, and whether something in it is
    while at < len(body):
        token = _TOKEN.match(body, at)
        if token is None:
            return None
        at, found, before = token.end(), token.groupdict(), countable
        countable = True
        if found["class"] is not None:
            made.append(_in_class(found["class"]))
        elif found["short"] is not None:
            made.append(f"[{_SHORT[found['short']]}]")
        elif found["plain"] is not None:
            made.append(f"[{found['plain']}]")
        elif found["open"] is not None:
            made.append("(")
            groups.append(False)
            countable = False
        elif found["times"] is not None:
            most = [int(times) for times in (found["least"], found["most"]) if times]
            nested = repeated and made[-1] == ")" and found["times"] != "?"  # more ways to read one text than there is time for
            if not before or nested or any(times > MOST for times in most) or (len(most) == 2 and most[0] > most[1]):
                return None
            made.append(found["times"])
            countable, groups = False, [True] * len(groups)
        elif found["as_is"] in (")", "|"):
            if not groups or made[-1] in ("(", "|"):
                return None
            repeated = groups.pop() if found["as_is"] == ")" else repeated
            made.append(found["as_is"])
            countable = found["as_is"] == ")"
        else:
            made.append(found["as_is"])
    return "".join((*made, "$")) if not groups else None


def _in_class(text: str) -> str:
    """The characters of a class, with `-` at its end, where it is no range."""
    inner = re.sub(r"\\([dw])", lambda found: _SHORT[found[1]], text[1:-1]).replace(r"\-", "\0")
    inner = re.sub(r"\\(.)", r"\1", inner)
    if inner.startswith("-") or (inner.endswith("-") and len(inner) > 1):
        inner = inner.strip("-") + "\0"
    return f"[{inner.replace(chr(0), '')}{'-' if chr(0) in inner else ''}]"
