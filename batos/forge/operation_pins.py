"""Operations that a method reaches: the digests under which it was written, and what they answered when it first acted."""

from __future__ import annotations

import ast
import json
from typing import Any

from batos.guardian.subject import tool_of
from batos.image import effects, method_doubts
from batos.image.effects import DONE
from batos.objects import Method, Root, UvmObject
from batos.tools import connections
from batos.tools.definitions import named
from batos.tools.operation_messages import meant_by
from batos.tools.toolbox import misfit_of


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


def recorded_answers(root: Root, holder: UvmObject, method: Method, before: float) -> dict[str, Any]:
    """Return what tools are known to answer, by `CONNECTION.TOOL`, for trials of a method's next version: what they answered in the mission
    in which the method first acted, as far as they are still described so, and what it was doubted for.

    :param before: see `method_doubts.about`.
    """
    there = connections.load(root)
    tools = {f"{name}.{tool.name}": tool for name, held in there.items() for tool in held.tools}
    found = {}
    for one in effects.load(root, method.acted) if method.acted else ():
        if one.state == DONE and not one.failed and one.tool in tools:
            answer = json.loads(one.result or "null")
            if not misfit_of(tools[one.tool], answer):
                found[one.tool] = answer
    return found | method_doubts.answers(method_doubts.about(holder, method, before))
