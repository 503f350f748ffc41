"""Mends of drafts that use tools: slips whose meaning is plain are put right without a model.

A small expert writes `self.tools.shop.listTeas.get("body")` or `self.tools.shop["listTeas"]` where it means what the tool answers. The
guardian refuses a tool that is used as a value, rightly: so the call is put in, where the tool needs no argument.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from batos.guardian.subject import tool_of
from batos.tools.connections import PinnedConnection
from batos.tools.definitions import ToolDefinition, identifier, named
from batos.tools.operation_messages import meant_by

NOTE = "a tool is called"


class _Cut(NamedTuple):
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def with_calls(source: str, there: Mapping[str, PinnedConnection]) -> tuple[str, tuple[str, ...]]:
    """Return a draft with the calls put in that it lacks, and the notes of what was mended; as it is where nothing is lacking.

    :param there: the connections by name.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source, ()
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    cuts = list(_cuts(tree, called, there))
    if not cuts:
        return source, ()
    lines = [line.encode("utf-8", "surrogatepass") for line in source.split("\n")]  # columns of a syntax tree count bytes
    for start, end, text in sorted(cuts, reverse=True):
        if start[0] == end[0]:
            line = lines[start[0]]
            lines[start[0]] = line[: start[1]] + text.encode() + line[end[1] :]
    return "\n".join(line.decode("utf-8", "surrogatepass") for line in lines), (NOTE,)


def _cuts(tree: ast.AST, called: set[int], there: Mapping[str, PinnedConnection]) -> Iterator[_Cut]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in called and (reached := tool_of(node)) is not None:
            if (tool := _free(*reached, there)) is not None:
                yield _cut(node, f"self.tools.{reached[0]}.{identifier(tool.name)}()")
            continue
        match node:
            case ast.Subscript(value=ast.Attribute() as place, slice=ast.Constant(value=str(wanted))):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Attribute() as place, attr="get"), args=[ast.Constant(value=str(wanted))]):
                pass
            case _:
                continue
        if (name := _connection_of(place)) and not _has(name, "get", there) and (tool := _free(name, wanted, there)) is not None:
            assert isinstance(node, ast.expr)
            yield _cut(node, f"self.tools.{name}.{identifier(tool.name)}()")


def _cut(node: ast.expr, text: str) -> _Cut:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _Cut((node.lineno - 1, node.col_offset), (node.end_lineno - 1, node.end_col_offset), text)


def _connection_of(node: ast.Attribute) -> str:
    """Return the connection, as a method names it, if a node is `self.tools.CONNECTION`; "" for any other."""
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr="tools"), attr=connection):
            return connection
    return ""


def _has(connection: str, tool: str, there: Mapping[str, PinnedConnection]) -> bool:
    held = named(connection, there)
    return held is not None and meant_by(tool, [one.name for one in there[held].tools]) is not None


def _free(connection: str, wanted: str, there: Mapping[str, PinnedConnection]) -> ToolDefinition | None:
    """Return a tool that needs no argument; None if it needs one, or is not there."""
    held = named(connection, there)
    if held is None or (name := meant_by(wanted, [one.name for one in there[held].tools])) is None:
        return None
    tool = there[held].tool(name)
    return None if tool.parameters.get("required") else tool
