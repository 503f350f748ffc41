"""Effects of calls of tools: how often a method may act, and whose words say where.

A call of a tool answers what its connection says. That is followed through texts, containers, slots and other messages as an *origin*. So
what one place says does not choose a path or an address at another. A call of a tool that acts is noted with the loops and functions around
it, and judged when the whole method was followed.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from batos.guardian.effects.abstract_state import Activation, Arguments, Function, LoopFrame
from batos.guardian.effects.expressions import Expressions
from batos.guardian.policy import READS, ReachableTool
from batos.guardian.rules import tool_use
from batos.guardian.subject import AuditSubject

_BY_CALL = "call_"


@dataclass(slots=True)
class ActingCall:
    """A call of a tool that acts, with what may repeat it."""

    tool: ReachableTool
    loops: dict[ast.AST, int | None] = field(default_factory=dict)
    """Loops around it, each with the containers whose length bounds its rounds; None if nothing does."""
    functions: set[Function] = field(default_factory=set)
    """Functions that it may run in."""


class ToolCalls(Expressions):
    """Calls of tools."""

    def __init__(self, subject: AuditSubject, method: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        super().__init__(subject, method)
        self.acting: dict[ast.Call, ActingCall] = {}
        self.is_sealed = tool_use.SEALED_ID in subject.policy.capabilities
        """True for a plan: free texts that tools answer are sealed."""

    def call_tool(self, node: ast.Call, tool: ReachableTool, arguments: Arguments) -> int:
        """Return what a tool answers."""
        connection = tool.name.partition(".")[0]
        if tool.places:
            self._check_places(node, tool, connection, arguments)
        if tool.kind != READS:
            self._note(node, tool)
        return self.heap.unknown(node) | self.heap.origin(connection)

    def _note(self, node: ast.Call, tool: ReachableTool) -> None:
        noted = self.acting.setdefault(node, ActingCall(tool))
        for frame in self.frames:
            if isinstance(frame, LoopFrame):
                before = noted.loops.get(frame.node, 0)
                noted.loops[frame.node] = None if frame.limit is None or before is None else before | frame.limit
            elif isinstance(frame, Activation):
                noted.functions.add(frame.function)

    def check_acting(self) -> None:
        """Refuse calls that act again and again, with no literal that bounds it, and a plan that writes. The whole method was followed."""
        tool_use.check_sealed_writes(self.subject)
        for node, noted in self.acting.items():
            for loop, limit in noted.loops.items():
                if limit is None or not self.heap.is_limited(limit):
                    tool_use.refuse_loop(self.subject, node, noted.tool, loop)
                    break
            else:
                if self.sends_itself or not self.recursive.isdisjoint(noted.functions):
                    tool_use.refuse_loop(self.subject, node, noted.tool, self.method.node)

    # --- places

    def _check_places(self, node: ast.Call, tool: ReachableTool, connection: str, arguments: Arguments) -> None:
        positional, keywords = list(zip(node.args, arguments.positional, strict=False)), dict(arguments.keywords)
        if isinstance(node.func, ast.Attribute) and node.func.attr == _BY_CALL:
            whole = positional[1:2] or [(one.value, keywords[one.arg]) for one in node.keywords if one.arg == "arguments"]
        else:
            whole = positional if len(positional) == 1 and isinstance(node.args[0], ast.Dict) else []
        if whole:
            self._check_whole(*whole[0], tool, connection)
            return
        named = [*zip(tool.parameters, (objects for _, objects in positional), strict=False), *keywords.items()]
        for name, objects in named:
            if name in tool.places:
                self._check_place(node, name, objects, tool, connection)
        if arguments.rest:
            self._check_place(node, "", arguments.rest, tool, connection)

    def _check_whole(self, node: ast.expr, objects: int, tool: ReachableTool, connection: str) -> None:
        """Check arguments that are given as one object."""
        if not isinstance(node, ast.Dict):
            self._check_place(node, "", objects, tool, connection)
            return
        for key, value in zip(node.keys, node.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else ""
            if not name or name in tool.places:
                self._check_place(node, str(name), self.evaluate(value), tool, connection)

    def _check_place(self, node: ast.AST, name: str, objects: int, tool: ReachableTool, connection: str) -> None:
        if self.is_sealed:
            if said := self.heap.origins_in(objects):
                tool_use.refuse_sealed_place(self.subject, node, tool, name, self.heap.connections(said))
            return
        others = self.heap.origins_in(objects) & ~self.heap.origin(connection)
        if others:
            tool_use.refuse_place(self.subject, node, tool, name, self.heap.connections(others))
