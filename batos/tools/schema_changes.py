"""Changes of operations: if the calls and the readers of an earlier definition fit a later one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from batos.tools.definitions import ToolDefinition
from batos.tools.schema_bounds import names_in, narrowed, types_of

READING = 2
"""Number of the present rules by which documents are read; higher where they keep more of a document than before."""
_DEEPEST = 12
_PAIRS = 5000  # pairs of schemas that are compared
_ALTERNATIVES = 50
_CHOICES = ("anyOf", "oneOf")
_JOINED = ("allOf", *_CHOICES)


def why_unfit(before: ToolDefinition, after: ToolDefinition | None) -> str:
    """Return why a method that was written for one definition of an operation may not fit another one; "" if it does. New optional
    parameters, further fields of an answer, more values and other words are not a reason.
    """
    if after is None:
        return "it is gone"
    if why := _Comparison("the argument").why(before.parameters, after.parameters):
        return why
    return _Comparison("the field").why(before.result, after.result) if before.result is not None else ""


def differs_by_reading(before: ToolDefinition, after: ToolDefinition) -> bool:
    """Return True if two definitions differ in nothing but what the rules before `READING` did not keep: which fields are required."""
    return before.pin() != after.pin() and _as_first_read(before).pin() == _as_first_read(after).pin()


def _as_first_read(tool: ToolDefinition) -> ToolDefinition:
    return replace(tool, parameters=_without_needs(tool.parameters), result=_without_needs(tool.result))


def _without_needs(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return [_without_needs(one) for one in schema] if isinstance(schema, list) else schema
    kept = {name: one for name, one in schema.items() if name not in ("required", "dependentRequired", "allOf")}
    made = {name: one if name in ("enum", "const", "default") else _without_needs(one) for name, one in kept.items()}
    if isinstance(parts := schema.get("properties"), Mapping):
        made["properties"] = {name: _without_needs(one) for name, one in parts.items()}
    return made


class _Comparison:
    """A comparison of the schemas of arguments, or of those of fields of an answer, in bounded time."""

    def __init__(self, what: str) -> None:
        self._what, self._is_argument, self._left = what, what == "the argument", _PAIRS

    def why(self, before: Any, after: Any, at: str = "", depth: int = 0) -> str:
        """Return what an earlier schema has and a later one does not have, or has otherwise. An argument may be narrower, too."""
        self._left -= 1
        if depth > _DEEPEST or self._left < 0 or not isinstance(before, Mapping) or not before or before == after:
            return ""
        if not isinstance(after, Mapping):
            return f"{self._what} {at or 'of its answer'} is not described any more"
        if why := self._retyped(before, after, at):
            return why
        for one in _alternatives(before):
            reasons = [self._alone(one, other, at, depth) for other in _alternatives(after)]
            if all(reasons):
                alike = [why for why, other in zip(reasons, _alternatives(after), strict=True) if types_of(one) & types_of(other)]
                return [*alike, *reasons][0]
        return ""

    def _retyped(self, before: Mapping[str, Any], after: Mapping[str, Any], at: str) -> str:
        had, has = types_of(before), types_of(after)
        if self._is_argument and "number" in has:
            has = has | {"integer"}
        lost = had - has if self._is_argument else had - has - {"null"}
        if not lost or not has - {"null"}:
            return ""
        shown = [" or ".join(sorted(types - ({"null"} if "null" not in lost else set()))) for types in (types_of(after), had)]
        return f"{self._what} {at or 'of its answer'} is {shown[0]} now, and was {shown[1]}"

    def _alone(self, before: Mapping[str, Any], after: Mapping[str, Any], at: str, depth: int) -> str:
        """Return the reason for two schemas without alternatives."""
        self._left -= 1
        if self._left < 0:
            return ""
        if why := self._retyped(before, after, at):
            return why
        if self._is_argument and (why := self._asked(before, after, at) or narrowed(before, after, f"{self._what} {at}".strip())):
            return why
        parts, now = before.get("properties"), after.get("properties")
        for name, part in parts.items() if isinstance(parts, Mapping) else ():
            path = f"{at}.{name}" if at else str(name)
            if not isinstance(now, Mapping) or name not in now:
                return f"{self._what} {path} is gone"
            if why := self.why(part, now[name], path, depth + 1):
                return why
        for word, mark in (("items", "[]"), ("additionalProperties", "{}")):
            inner, other = before.get(word), after.get(word)
            compared = isinstance(inner, Mapping) and (word == "items" or isinstance(other, Mapping))
            if compared and (why := self.why(inner, other, f"{at}{mark}", depth + 1)):
                return why
        return ""

    def _asked(self, before: Mapping[str, Any], after: Mapping[str, Any], at: str) -> str:
        begin = f"{at}." if at else ""
        had, has = set(names_in(before.get("required"))), set(names_in(after.get("required")))
        if asked := has - had:
            return f"it needs the argument {', '.join(begin + name for name in sorted(asked))} now"
        for name in before.get("properties") or ():
            if asked := _together(after, name) - _together(before, name) - had - has:
                return f"it needs the argument {', '.join(begin + one for one in sorted(asked))} beside {begin}{name} now"
        if before.get("additionalProperties") not in (None, False) and after.get("additionalProperties") is False:
            return f"{self._what} {at}".strip() + " takes no other fields now"
        return ""


def _together(schema: Mapping[str, Any], name: str) -> set[str]:
    """Return what there has to be where a property is there (`dependentRequired`), with what that asks for in turn."""
    asks, found, left = schema.get("dependentRequired"), {name}, [name]
    while left and isinstance(asks, Mapping):
        further = set(names_in(asks.get(left.pop()))) - found
        found |= further
        left += further
    return found


def _alternatives(schema: Mapping[str, Any], depth: int = 0) -> Sequence[Mapping[str, Any]]:
    """Return the alternatives of a schema, each with what all of them have; the schema alone where it has none."""
    found = [{name: one for name, one in schema.items() if name not in _JOINED}]
    if depth > _DEEPEST:
        return found
    further = [_alternatives(part, depth + 1) for part in _parts(schema, "allOf")]
    for word in _CHOICES:
        further.append([one for part in _parts(schema, word) for one in _alternatives(part, depth + 1)])
    for parts in filter(None, further):
        found = [_joined(one, other) for one in found for other in parts][:_ALTERNATIVES]
    return found


def _parts(schema: Mapping[str, Any], word: str) -> list[Mapping[str, Any]]:
    return [one for one in schema[word] if isinstance(one, Mapping)] if isinstance(schema.get(word), list) else []


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    made = {**one, **other}
    if isinstance(one.get("properties"), Mapping) and isinstance(other.get("properties"), Mapping):
        made["properties"] = {**one["properties"], **other["properties"]}
    if required := {*names_in(one.get("required")), *names_in(other.get("required"))}:
        made["required"] = sorted(required)
    return made
