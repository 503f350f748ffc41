"""Operations as messages: which tool of a connection a message means, and its arguments, by rule.

`order_` means the tool `order`, and `list_orders_` the tool `listOrders`, `list-orders` or `list_orders`. A tool's own name, and the way a
method writes it (`identifier`), mean it too, and `find_all_` means `findAllUsingGET`. Where two tools could be meant, none is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from batos.errors import InvalidInput, UnknownTool
from batos.image import history
from batos.objects import UvmObject, find
from batos.tools import connections
from batos.tools.connections import PinnedConnection
from batos.tools.definitions import ConnectionSpec, ToolDefinition, named
from batos.tools.toolbox import check_arguments

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OTHER = re.compile(r"[\W_]+")
_ADDED = re.compile(r"(?:(?<=[A-Za-z0-9])Using|(?<=[A-Za-z0-9])_using)[_-]?(?i:get|post|put|patch|delete|head|options)(_?\d*_?)$")


def selector_of(tool: str) -> str:
    """Return the message that means a tool by its name: `list_orders_` for `listOrders`."""
    return f"{_OTHER.sub('_', _HUMP.sub('_', tool)).strip('_').lower()}_"


def meant_by(selector: str, tools: Collection[str]) -> str | None:
    """Return the one of these tools that a message means; None if there is none, or more than one that it could mean."""
    bare = selector.removesuffix("_")
    for wanted in (selector, bare):
        if (found := named(wanted, tools)) is not None:
            return found
    alike = [tool for tool in tools if _plain(tool) == _plain(bare)] if bare else []
    return alike[0] if len(alike) == 1 else None


def operation_of(connection: UvmObject, selector: str) -> ToolDefinition | None:
    """Return the tool of a connection that a message means; None if none is meant.

    :raises UnknownTool: if that tool is suspended, or more than one could be meant.
    """
    pinned = connections.pinned(connection)
    name = meant_by(selector, [tool.name for tool in pinned.tools])
    if name is not None:
        return pinned.tool(name)
    if (waits := meant_by(selector, [tool.name for tool in pinned.suspended])) is not None:
        pinned.tool(waits)  # says how to accept it
    alike = [tool.name for tool in pinned.tools if _plain(tool.name) == _plain(selector)]
    if len(alike) > 1:
        raise UnknownTool(
            f"{selector!r} could mean each of these tools of {connection.name}: {', '.join(alike)}; `call_` calls one by its own name: "
            f"`batos tools call {connection.name}.{alike[0]}`"
        )
    return None


def understood(connection: UvmObject) -> dict[str, ToolDefinition]:
    """Return the operations that a connection performs as messages, by their selectors. Those whose name is a slot's or another
    operation's are left out; `call_` reaches them."""
    pinned = connections.pinned(connection)
    names = [tool.name for tool in pinned.tools]
    found = {selector_of(tool.name): tool for tool in pinned.tools}
    return {selector: tool for selector, tool in found.items() if _is_message(connection, selector, tool, names)}


def _is_message(connection: UvmObject, selector: str, tool: ToolDefinition, names: Collection[str]) -> bool:
    return selector.isidentifier() and meant_by(selector, names) == tool.name and find(connection, selector) is None


def message_of(connection: UvmObject, tool: ToolDefinition) -> str:
    """Return the message that performs a tool of a connection; "" where only `call_` does."""
    names, selector = [one.name for one in connections.pinned(connection).tools], selector_of(tool.name)
    return selector if _is_message(connection, selector, tool, names) else ""


def tool_named(pinned: PinnedConnection, name: str) -> ToolDefinition:
    """Return the tool of a connection that its own name or a message names, also one that is suspended.

    :raises UnknownTool: if there is none.
    """
    for tools in (pinned.suspended, pinned.tools):
        if (found := next((tool for tool in tools if tool.name == name), None)) is not None:
            return found
    for tools in (pinned.tools, pinned.suspended):
        if (meant := meant_by(name, [tool.name for tool in tools])) is not None:
            return next(tool for tool in tools if tool.name == meant)
    return pinned.tool(name)


def request_of(spec: ConnectionSpec, tool: ToolDefinition) -> dict[str, Any]:
    """Return what a call sends: `method` and `path` of HTTP, with the `server` that a document has, or the `argv` of a program. Of a server
    of the Model Context Protocol it is that protocol's `method`. Empty for a folder and for pages."""
    details = tool.details
    if "method" in details:
        return {name: details[key] for name, key in (("method", "method"), ("path", "path"), ("server", "base")) if details.get(key)}
    if spec.kind == "program":
        return {"argv": [*shlex.split(spec.place), *details.get("argv", ())]}
    return {"method": "tools/call"} if spec.kind == "mcp" else {}


def arguments_of(name: str, tool: ToolDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a message by the names of a tool's schema: positional ones in the order of its properties. One object alone
    that fits the schema is all of them.

    :param name: `CONNECTION.TOOL`
    :raises InvalidInput: for more than there are, and for one that is given twice.
    """
    known = list(tool.parameters.get("properties") or {})
    if len(args) == 1 and not kwargs and isinstance(whole := history.whole(args[0]), dict) and _is_all(name, tool, whole):
        return whole
    if len(args) > len(known):
        raise InvalidInput(f"{name} takes {len(known)} arguments ({', '.join(known) or 'none'}); {len(args)} were given by position")
    given = dict(zip(known, args, strict=False))
    for word, value in kwargs.items():
        meant = named(word, known) or word
        if meant in given:
            raise InvalidInput(f"{name} got two values for its argument {meant!r}; give one")
        given[meant] = value
    return {word: history.whole(value) for word, value in given.items()}


def _is_all(name: str, tool: ToolDefinition, given: Mapping[str, Any]) -> bool:
    """Return True if an object that was given alone holds the arguments by name, and is not the first of them."""
    known = tool.parameters.get("properties") or {}
    if not known or (given.keys() <= known.keys() and _fits(name, tool, given)):
        return True
    return bool(given.keys() & known.keys()) and not _fits(name, tool, {next(iter(known)): given})


def _fits(name: str, tool: ToolDefinition, arguments: Mapping[str, Any]) -> bool:
    try:
        check_arguments(name, tool, arguments)
    except InvalidInput:
        return False
    return True


def _plain(name: str) -> str:
    """Return a name without its spelling, and without the method that a generator of descriptions adds: `findAllUsingGET` is `find_all`."""
    return _OTHER.sub("", _ADDED.sub(r"\1", name)).lower()
