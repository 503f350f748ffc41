"""Changes of operations: if the calls and the readers of an earlier definition fit a later one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from batos.tools.definitions import ToolDefinition

READING = 2
"""Number of the present rules by which documents are read; higher where they keep more of a document than before."""
_DEEPEST = 12


def why_unfit(before: ToolDefinition, after: ToolDefinition | None) -> str:
    """Return why a method that was written for one definition of an operation may not fit another one; "" if it does. New optional
    parameters, further fields of an answer and other words are not a reason.
    """
    if after is None:
        return "it is gone"
    asked = set(after.parameters.get("required") or ()) - set(before.parameters.get("required") or ())
    if asked:
        return f"it needs the argument {', '.join(sorted(asked))} now"
    if why := _missing(before.parameters, after.parameters, "the argument"):
        return why
    return _missing(before.result, after.result, "the field") if before.result is not None else ""


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


def _missing(before: Any, after: Any, what: str, at: str = "", depth: int = 0) -> str:
    """Return what an earlier schema has and a later one does not have, or has with another type."""
    if depth > _DEEPEST or not isinstance(before, Mapping) or not before:
        return ""
    if not isinstance(after, Mapping):
        return f"{what} {at or 'of its answer'} is not described any more"
    lost = _types(before) - _types(after)
    if lost and _types(after) and not ({"integer"} == lost and "number" in _types(after) and what == "the argument"):
        return f"{what} {at or 'of its answer'} is {' or '.join(sorted(_types(after)))} now, and was {' or '.join(sorted(_types(before)))}"
    parts, now = before.get("properties"), after.get("properties")
    if isinstance(parts, Mapping):
        for name, part in parts.items():
            path = f"{at}.{name}" if at else str(name)
            if not isinstance(now, Mapping) or name not in now:
                return f"{what} {path} is gone"
            if why := _missing(part, now[name], what, path, depth + 1):
                return why
    if isinstance(before.get("items"), Mapping):
        return _missing(before["items"], after.get("items"), what, f"{at}[]", depth + 1)
    return ""


def _types(schema: Mapping[str, Any]) -> set[str]:
    said = schema.get("type")
    return {str(one) for one in said if one != "null"} if isinstance(said, list) else {str(said)} if isinstance(said, str) else set()
