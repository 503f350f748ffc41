"""Readings of a connection for the expert that writes methods: what its operations answer that need no argument, as slots.

An expert is small, and was trained on methods over the slots of an object. So what a connection's reading operations answer now stands
before it as slots of a stand-in: `list_teas` as `self.teas`. Drafts and the search work on these values. What is tried, kept and sent is
the draft with the calls in their place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batos.forge import trials
from batos.image.effects import READS
from batos.methods.runtime import MethodRuntime
from batos.mind.attempt import Attempt
from batos.objects import Method, UvmObject
from batos.tools.definitions import ToolDefinition, identifier

MOST = 3
"""Greatest number of operations that are asked for one method."""
_SELECTOR = "reading_"
_VERB = re.compile(r"\A(?:get|list|read|fetch|show|find|all)_(?=[a-z])")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ToolReading(NamedTuple):
    """Answer of an operation, as it is now.

    :ivar slot: the name under which a draft knows it.
    :ivar call: the call in the text of a method.
    """

    slot: str
    call: str
    value: Any


async def readings(
    connection: str, tools: Sequence[ToolDefinition], obj: UvmObject, attempt: Attempt, methods: MethodRuntime
) -> tuple[ToolReading, ...]:
    """Ask the first reading operations that need no argument. One that is not let, or fails, is left out.

    :param tools: the connection's operations, in the order of their weight.
    :param obj: the connection.
    """
    found: dict[str, ToolReading] = {}
    for tool in [one for one in tools if one.kind == READS and not one.parameters.get("required")][:MOST]:
        call = f"self.tools.{identifier(connection)}.{identifier(tool.name)}()"
        method = Method(_SELECTOR, f"def {_SELECTOR}(self):\n    return {call}\n", provenance={"policy": "default+tools"})
        outcome = await trials.run(trials.Case((), {}), obj, method, attempt, methods, attempt.making.new_activity())
        if outcome.reason or not outcome.did or outcome.doubled:
            continue
        reading = _reading(_slot(tool.name), call, ast.literal_eval(outcome.did)[0])
        found.setdefault(reading.slot, reading)
    return tuple(found.values())


def _slot(name: str) -> str:
    plain = _HUMP.sub("_", identifier(name)).lower().strip("_")
    return _VERB.sub("", plain) or plain


def _reading(slot: str, call: str, value: Any) -> ToolReading:
    """Return a reading without its envelopes: the body of an HTTP answer, and the one list in an object."""
    if isinstance(value, dict) and {"status", "body"} <= value.keys():
        call, value = f'{call}["body"]', value["body"]
    if isinstance(value, dict):
        lists = [name for name, one in value.items() if isinstance(one, list)]
        if len(lists) == 1:
            call, value = f"{call}[{lists[0]!r}]", value[lists[0]]
    return ToolReading(slot, call, value)


def stand_in(obj: UvmObject, known: Sequence[ToolReading]) -> UvmObject:
    """Return an object that has readings as its slots. It is in no image."""
    return UvmObject(name=str(obj.name), **{one.slot: one.value for one in known})


def with_calls(source: str, known: Sequence[ToolReading]) -> str:
    """Return a draft with calls in the place of the slots that stand for them, each made once, at the begin of the method."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source
    if not known or len(tree.body) != 1 or not isinstance(method := tree.body[0], ast.FunctionDef):
        return source
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {
        node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)
    }
    names = {one.slot: one.slot if one.slot not in taken else f"{one.slot}_here" for one in known}
    put = _Put(names)
    method = put.visit(method)
    begin = [ast.parse(f"{names[one.slot]} = {one.call}").body[0] for one in known if one.slot in put.used]
    after_docstring = int(ast.get_docstring(method) is not None)
    method.body[after_docstring:after_docstring] = begin
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n" if begin else source


class _Put(ast.NodeTransformer):
    """Puts names in the place of slots that are read."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names, self.used = names, set[str]()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in self._names and isinstance(node.ctx, ast.Load):
            self.used.add(node.attr)
            return ast.copy_location(ast.Name(self._names[node.attr], ast.Load()), node)
        return node
