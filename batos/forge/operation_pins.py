"""Operations that a method reaches: the digests under which it was written, and what they answered when it first acted."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batos.errors import BatosError
from batos.guardian.subject import tool_of
from batos.image import effects, history, ledger, method_doubts
from batos.image.effects import DONE
from batos.objects import Example, Method, Root, UvmObject
from batos.tools import connections
from batos.tools.definitions import named
from batos.tools.operation_messages import meant_by
from batos.tools.toolbox import misfit_of


def pins_of(root: Root, source: str) -> tuple[tuple[str, str], ...]:
    """Return the operations that a method names (`self.tools.NAME.tool`), as `CONNECTION.TOOL`, each with the digest of its definition now.
    Operations that are not there are left out."""
    there = connections.load(root)
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if (reached := tool_of(node)) is None or (connection := named(reached[0], there)) is None:
            continue
        tools = {tool.name: tool for tool in there[connection].tools}
        if (tool := meant_by(reached[1], tools)) is not None:
            found[f"{connection}.{tool}"] = tools[tool].pin()
    return tuple(sorted(found.items()))


class ToolExchange(NamedTuple):
    """A call of a connection's method as a mission made it, with what tools answered then."""

    example: Example
    """its arguments and its result"""
    exchanges: Mapping[tuple[str, str], Sequence[Any]]
    """answers of tools, by `CONNECTION.TOOL` and canonical arguments"""


def recorded_call(root: Root, holder: UvmObject, method: Method) -> ToolExchange | None:
    """Return a call that a method answered well, for trials of its next version. It is the call of the mission in which the method first
    acted, or in which it was written. None where there is none, its user took it back, or what tools answered then is not described so any
    more.
    """
    there = connections.load(root)
    tools = {f"{name}.{tool.name}": tool for name, held in there.items() for tool in held.tools}
    for id in (method.acted, str(dict(method.provenance).get("mission", ""))):
        mission = root["ledger"].missions.get(id) if id else None
        if mission is None or mission.state != ledger.COMPLETE or mission.undone is not None or not mission.message:
            continue
        message, rated = json.loads(mission.message), json.loads(mission.rating)["rating"] if mission.rating else 0
        if message["selector"] != method.selector or rated < 0 or _target(root, message["target"]) is not holder or not mission.result:
            continue
        result, exchanges = json.loads(mission.result), dict[tuple[str, str], list[Any]]()
        done = effects.load(root, id)
        answers = [json.loads(one.result or "null") for one in done]
        if not done or any(
            one.state != DONE or one.failed or one.tool not in tools or misfit_of(tools[one.tool], answer)
            for one, answer in zip(done, answers, strict=True)
        ):
            continue
        for one, answer in zip(done, answers, strict=True):
            exchanges.setdefault((one.tool, one.arguments), []).append(answer)
        kwargs = tuple(message.get("kwargs", {}).items())
        return ToolExchange(Example(tuple(message["args"]), kwargs, result.get("value")), exchanges)
    return None


def _target(root: Root, path: str) -> UvmObject | None:
    try:
        return history.resolve(root, path)
    except BatosError:
        return None


def recorded_answers(root: Root, holder: UvmObject, method: Method, before: float) -> dict[str, Any]:
    """Return what tools are known to answer, by `CONNECTION.TOOL`, for trials of a method's next version. These are their answers in the
    mission in which the method first acted, as far as the tools are still described so. Answers that the method was doubted for are there,
    too.

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
