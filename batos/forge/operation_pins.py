"""Pins of the operations that a method reaches: the digests under which it was written."""

from __future__ import annotations

import ast

from batos.guardian.subject import tool_of
from batos.objects import Root
from batos.tools import connections
from batos.tools.definitions import named
from batos.tools.operation_messages import meant_by


def pins_of(root: Root, source: str) -> tuple[tuple[str, str], ...]:
    """Return the operations that a method names (`self.tools.NAME.tool`), as `CONNECTION.TOOL`, each with the digest of its definition
    now; those that are not there are left out."""
    there = connections.load(root)
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if (reached := tool_of(node)) is None or (connection := named(reached[0], there)) is None:
            continue
        tools = {tool.name: tool for tool in there[connection].tools}
        if (tool := meant_by(reached[1], tools)) is not None:
            found[f"{connection}.{tool}"] = tools[tool].pin()
    return tuple(sorted(found.items()))
