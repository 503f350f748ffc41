"""Calls by methods whose arguments do not fit the tool's schema: whether that is the fault of the method, or of who sent the message."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.image import history
from batos.methods.runtime import parameters_of
from batos.objects import Method
from batos.tools.definitions import ToolDefinition
from batos.tools.operation_messages import meant_by
from batos.tools.toolbox import wrong_in

METHODS, SENDERS, UNKNOWN = "method", "sender", "unknown"
"""Names of those whose fault a misfit can be; the last one stands for an unknown one."""
_BY_CALL = "call_"


class MisfitFault(NamedTuple):
    """Fault of a call that does not fit its schema."""

    argument: str
    """name of the argument that does not fit; empty where it is all of them"""
    whose: str
    """`METHODS`, `SENDERS` or `UNKNOWN`"""


def fault_of(
    method: Method, args: Sequence[Any], kwargs: Mapping[str, Any], name: str, tool: ToolDefinition, arguments: Mapping[str, Any]
) -> MisfitFault | None:
    """Return whose fault it is that a method's call does not fit its schema; None if it fits.

    It is the sender's where the method hands on what it was sent, unchanged. It is unknown where the value is one that it was sent, and the
    text does not show that it is handed on.

    :param args: those of the message that the method answers; `kwargs` likewise.
    :param name: `CONNECTION.TOOL`
    """
    if (wrong := wrong_in(name, tool, arguments)) is None:
        return None
    value, path = wrong.instance, list(wrong.absolute_path)
    argument = str(path[0]) if path else ""
    sent = {at: history.uncut(one) for at, one in _bound(method.source, args, kwargs).items()}
    if not any(_holds(one, value) for one in sent.values()):
        return MisfitFault(argument, METHODS)
    passed = any(_holds(sent[at], value) for at in _handed_on(method.source, tool.name) if at in sent)
    return MisfitFault(argument, SENDERS if passed else UNKNOWN)


def _bound(source: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a message by the names of the method's parameters."""
    try:
        return inspect.Signature(parameters_of(source)).bind(*args, **kwargs).arguments
    except TypeError:
        return {}


def _handed_on(source: str, tool: str) -> set[str]:
    """Return the names that stand in the arguments of calls of a tool, and that the method never binds itself."""
    nodes = list(ast.walk(ast.parse(source)))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return {name for node in nodes if isinstance(node, ast.Call) and _calls(node, tool) for name in _names(node)} - bound


def _calls(node: ast.Call, tool: str) -> bool:
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == _BY_CALL:
        literals = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
        return tool in literals
    return meant_by(node.func.attr, [tool]) == tool


def _names(node: ast.Call) -> Iterator[str]:
    for part in (*node.args, *(keyword.value for keyword in node.keywords)):
        yield from (one.id for one in ast.walk(part) if isinstance(one, ast.Name))


def _holds(sent: Any, value: Any) -> bool:
    """Return True if a value is what was sent, or a part of it."""
    if isinstance(sent, bool) == isinstance(value, bool) and sent == value:
        return True
    parts = sent.values() if isinstance(sent, Mapping) else sent if isinstance(sent, list | tuple) else ()
    return any(_holds(one, value) for one in parts)
