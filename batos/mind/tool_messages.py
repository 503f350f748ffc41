"""Messages to connections: generated methods and users reach tools as `tools.NAME.tool(…)`, and methods as `self.tools`.

A method sends to a tool only if its policy grants that (`default+tools`), and that of every method in the chain: one without it cannot
borrow it from another. Each call is an effect like all others: granted, journaled, done once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batos.errors import GrantRefused, InvalidInput
from batos.image import history
from batos.image.living_image import add_missing
from batos.methods.reach import fault_of_call
from batos.methods.runtime import may_use_tools
from batos.mind.attempt import current
from batos.objects import Primitive, UvmObject
from batos.sandbox import LOOKUP, UNDERSTANDS, senders
from batos.tools import connections
from batos.tools.definitions import ToolDefinition, named


@Primitive.register("tools.lookup")
async def lookup(holder: UvmObject, name: str) -> UvmObject:
    """Return the connection that a method means by a name that is not the name of one: `my_shop` for `my-shop`.

    :raises UnknownTool: if there is none.
    """
    return connections.find(holder, name)


@Primitive.register("tools.understand")
async def understand(connection: UvmObject, selector: str, *args: Any, **kwargs: Any) -> Any:
    """Call the tool of a connection that has the name of a message, and return its result.

    :raises UnknownTool: if there is none.
    :raises ToolFailed, GrantRefused, ToolsTied, InvalidInput: see `call_tool`.
    """
    tool = connections.find_tool(connection, selector)
    return await call_tool(connection, tool.name, _by_name(f"{connection.name}.{tool.name}", tool, args, kwargs))


@Primitive.register("tools.call_")
async def call_(connection: UvmObject, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """Call a tool of a connection, and return its result.

    :param arguments: by name, as the tool's schema has them.
    :raises ToolFailed, GrantRefused, ToolsTied, UnknownTool, InvalidInput: see `call_tool`.
    """
    given = {} if arguments is None else history.whole(arguments)
    if not isinstance(tool, str) or not isinstance(given, dict):
        raise InvalidInput(
            "call_ takes the name of a tool and its arguments as an object: `call_('get_current_time', {'timezone': 'UTC'})`"
        )
    return await call_tool(connection, tool, given)


async def call_tool(connection: UvmObject, tool: str, arguments: Mapping[str, Any]) -> Any:
    """Return the result of one call on behalf of a message.

    :raises GrantRefused: if a method sends it, or has it sent, whose policy does not grant tools, or the contract of the one that sends it
        does not reach the tool. Other errors: see `ToolUse.call`.
    """
    attempt, name = current(), f"{connection.name}.{tool}"
    # without runs of another mission that started this one
    own = [run.method for run in senders() if run.activity.seed == attempt.id]
    lacking = [method for method in own if not may_use_tools(method)]
    if lacking:
        policy = dict(lacking[0].provenance).get("policy", "default")
        raise GrantRefused(
            f"{name} is not called: the method {lacking[0].selector!r} has the policy {policy}, which grants no tools; "
            "`batos teach … --tools` has one written that may use them",
            tool=name,
        )
    if own and (fault := fault_of_call(own[0], name, _class_of(connection, tool))):
        advice = "`batos teach … --tools` has it written anew, with the call in full: self.tools.CONNECTION.TOOL(…)"
        raise GrantRefused(f"{name} is not called: {fault}; {advice}", tool=name)
    return await attempt.tools.call(name, arguments, gated=attempt.gated)


def _class_of(connection: UvmObject, tool: str) -> str:
    return connections.load(connection._p_jar.root())[connection.name].tool(tool).kind


def install(lobby: UvmObject) -> None:
    """Let every object know the connections as its slot `tools`, and let connections answer the messages that are their tools, and `call_`.
    A step of genesis."""
    connections.install(lobby)
    add_missing(lobby.genesis, tools=lobby.tools)
    add_missing(lobby.tools, **{LOOKUP: Primitive.of(lookup)})
    add_missing(lobby.traits.connection, call_=Primitive.of(call_), **{UNDERSTANDS: Primitive.of(understand)})


def _by_name(name: str, tool: ToolDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by the names of a tool's schema, positional ones in the order of its properties.

    :raises InvalidInput: for more than there are, and for one that is given twice.
    """
    known = list(tool.parameters.get("properties") or {})
    if len(args) > len(known):
        raise InvalidInput(f"{name} takes {len(known)} arguments ({', '.join(known) or 'none'}); {len(args)} were given by position")
    given = dict(zip(known, args, strict=False))
    for word, value in kwargs.items():
        meant = named(word, known) or word
        if meant in given:
            raise InvalidInput(f"{name} got two values for its argument {meant!r}; give one")
        given[meant] = value
    return {word: history.whole(value) for word, value in given.items()}
