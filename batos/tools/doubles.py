"""Doubles of tools: an answer made of a tool's result schema, the same for the same call. A method can be tried on it before any call that
acts. And the shape of a schema in a few words, for a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NODES = 500
_DEEPEST = 12
_SHAPE_CHARS = 240
_NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "array": "list", "object": "dict"}
_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z", "date": "2026-01-01", "time": "00:00:00Z", "email": "someone@example.com",
    "uri": "https://example.com/", "uuid": "00000000-0000-4000-8000-000000000000",
}  # fmt: skip
_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,)
}  # fmt: skip


class NoDouble(Exception):
    """A schema leaves open what an answer holds, or is too large."""


def double(schema: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> Any:
    """Return an answer that fits a result schema. All properties are there, lists have two elements, and what has the name and the type of
    an argument has its value.

    :raises NoDouble: if the schema does not say what an answer holds.
    """
    return _Double(arguments).value(schema, "", 0)


class _Double:
    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._given, self._left = arguments, _NODES

    def value(self, schema: Any, name: str, depth: int) -> Any:
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0 or depth > _DEEPEST:
            raise NoDouble
        schema = _chosen(schema)
        kind = _kind(schema)
        if "const" in schema:
            return schema["const"]
        given = self._given.get(name)
        if kind in _KINDS and isinstance(given, _KINDS[kind]) and isinstance(given, bool) is (kind == "boolean"):
            return given
        for word in ("enum", "examples"):
            if isinstance(schema.get(word), list) and schema[word]:
                return schema[word][0]
        if "default" in schema:
            return schema["default"]
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return [self.value(schema.get("items"), name, depth + 1) for _ in range(2)]
        return _plain(schema, kind, name)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        parts, more = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(parts, Mapping):
            return {str(name): self.value(part, str(name), depth + 1) for name, part in parts.items()}
        return {"key": self.value(more, "key", depth + 1)}


def _chosen(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first alternative of a schema that is not null, with what all of them have."""
    for _ in range(_DEEPEST):
        choices = next((schema[word] for word in ("anyOf", "oneOf") if isinstance(schema.get(word), list)), None)
        if choices is None:
            break
        parts = [one for one in choices if isinstance(one, Mapping) and _kind(one) != "null"]
        if not parts:
            raise NoDouble
        schema = {**{name: value for name, value in schema.items() if name not in ("anyOf", "oneOf")}, **parts[0]}
    return schema


def _kind(schema: Mapping[str, Any]) -> str:
    said = schema.get("type")
    kinds = [one for one in said if one != "null"] if isinstance(said, list) else [said]
    if kinds and isinstance(kinds[0], str):
        return kinds[0]
    return "object" if isinstance(schema.get("properties"), Mapping) else "array" if isinstance(schema.get("items"), Mapping) else ""


def _plain(schema: Mapping[str, Any], kind: str, name: str) -> Any:
    if kind == "string":
        return _FORMATS.get(str(schema.get("format")), name or "text")
    if kind in ("integer", "number"):
        least = schema.get("minimum", 1)
        number = 200 if name == "status" else least if isinstance(least, int | float) else 1
        return number if kind == "number" else int(number)
    if kind == "boolean":
        return True
    raise NoDouble


def shape(schema: Any, chars: int = _SHAPE_CHARS) -> str:
    """Return what a value of a schema looks like, in the words of Python: `{"sku": str or None, "tags": [str]}`; "" where nothing is known.

    :param chars: greatest number of characters; a longer shape is cut off at a property or a level.
    """
    for depth in range(6, 0, -1):
        text = _shape(schema, depth)
        if len(text) <= chars:
            return "" if text == "any" else text
    return text[: chars - 1] + "…"


def _shape(schema: Any, depth: int) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    try:
        chosen = _chosen(schema)
    except NoDouble:
        return "None"
    text = _shape_of(chosen, depth)
    return f"{text} or None" if text != "any" and (_takes_null(schema) or _takes_null(chosen)) else text


def _takes_null(schema: Mapping[str, Any]) -> bool:
    """Return True if a schema, or an alternative of it, says that the value may be null."""
    choices = next((schema[word] for word in ("anyOf", "oneOf") if isinstance(schema.get(word), list)), ())
    said = schema.get("type")
    return (isinstance(said, list) and "null" in said) or any(isinstance(one, Mapping) and one.get("type") == "null" for one in choices)


def _shape_of(schema: Mapping[str, Any], depth: int) -> str:
    kind = _kind(schema)
    values = [one for one in schema["enum"] if one is not None] if isinstance(schema.get("enum"), list) else []
    values = [schema["const"]] if schema.get("const") is not None else values
    if 0 < len(values) <= 6:
        return " or ".join(json.dumps(one, ensure_ascii=False) if isinstance(one, str) else repr(one) for one in values)
    if kind == "object" and depth and isinstance(parts := schema.get("properties"), Mapping) and parts:
        return "{" + ", ".join(f"{json.dumps(str(name))}: {_shape(part, depth - 1)}" for name, part in parts.items()) + "}"
    if kind == "object" and depth and isinstance(more := schema.get("additionalProperties"), Mapping) and more:
        return f"{{str: {_shape(more, depth - 1)}}}"
    if kind == "array" and depth and isinstance(schema.get("items"), Mapping):
        return f"[{_shape(schema['items'], depth - 1)}]"
    return _NAMES.get(kind, "any")
