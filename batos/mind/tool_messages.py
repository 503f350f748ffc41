"""Messages to connections: generated methods and users reach tools as `tools.NAME.tool(…)`, and methods as `self.tools`.

A method sends to a tool only if its policy grants that (`default+tools`), and that of every method in the chain. A method without the grant
cannot borrow it from another. Each call is an effect like all others: granted, journaled, done once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from batos.errors import GrantRefused, InvalidInput
from batos.image import history, method_doubts
from batos.image.living_image import add_missing
from batos.methods.reach import fault_of_call
from batos.methods.runtime import may_use_tools
from batos.mind import sealed_sends
from batos.mind.attempt import attempt_or_none, current
from batos.objects import Method, Primitive, UvmObject
from batos.sandbox import LOOKUP, UNDERSTANDS, senders
from batos.tools import connections, operation_messages
from batos.tools.toolbox import check_arguments


@Primitive.register("tools.lookup")
async def lookup(holder: UvmObject, name: str) -> UvmObject:
    """Return the connection that a method means by a name that is not the name of one: `my_shop` for `my-shop`.

    :raises UnknownTool: if there is none.
    """
    return connections.find(holder, name)


@Primitive.register("tools.understand")
async def understand(connection: UvmObject, selector: str, *args: Any, **kwargs: Any) -> Any:
    """Call the tool of a connection that a message means, and return its result.

    :raises UnknownTool: if there is none.
    :raises ToolFailed, GrantRefused, ToolsTied, InvalidInput: see `call_tool`.
    """
    tool = operation_messages.operation_of(connection, selector) or connections.pinned(connection).tool(selector)
    given, named = sealed_sends.opened_arguments(args), dict(zip(kwargs, sealed_sends.opened_arguments([*kwargs.values()]), strict=True))
    arguments = operation_messages.arguments_of(f"{connection.name}.{tool.name}", tool, given, named)
    return await call_tool(connection, tool.name, sealed_sends.check_destinations(connection, arguments))


def wants_method(obj: UvmObject, selector: str) -> bool:
    """Return True if a mission is a message to a connection that means none of its tools: a method is written for it.

    :raises UnknownTool: if the tool that is meant is suspended, or more than one could be meant.
    """
    attempt = attempt_or_none()
    if attempt is None or obj._p_jar is None or not connections.is_connection(obj._p_jar.root(), obj):
        return False
    message = json.loads(attempt.mission.message or "{}")
    if message.get("selector") != selector or senders():
        return False
    return operation_messages.operation_of(obj, selector) is None


def is_doubted(holder: UvmObject, method: Method) -> bool:
    """Return True if what a tool answered, or a change of it, speaks against a version of a connection's method: it is written anew."""
    attempt = attempt_or_none()
    return attempt is not None and bool(method_doubts.about(holder, method, attempt.mission.accepted))


def check_operation(connection: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Check a message to a connection before its mission is accepted; return False if it means none of its tools.

    :raises InvalidInput: if the arguments do not fit the schema of the tool that is meant.
    :raises UnknownTool: if that tool is suspended, or more than one could be meant.
    """
    tool = operation_messages.operation_of(connection, selector)
    if tool is None:
        return False
    name = f"{connection.name}.{tool.name}"
    check_arguments(name, tool, operation_messages.arguments_of(name, tool, args, kwargs))
    return True


@Primitive.register("tools.call_")
async def call_(connection: UvmObject, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """Call a tool of a connection, and return its result.

    :param arguments: by name, as the tool's schema has them.
    :raises ToolFailed, GrantRefused, ToolsTied, UnknownTool, InvalidInput: see `call_tool`.
    """
    [held] = sealed_sends.opened_arguments([arguments])
    given = {} if held is None else history.whole(held)
    if not isinstance(tool, str) or not isinstance(given, dict):
        raise InvalidInput(
            "call_ takes the name of a tool and its arguments as an object: `call_('get_current_time', {'timezone': 'UTC'})`"
        )
    return await call_tool(connection, tool, sealed_sends.check_destinations(connection, given))


async def call_tool(connection: UvmObject, tool: str, arguments: Mapping[str, Any]) -> Any:
    """Return the result of one call on behalf of a message.

    :raises GrantRefused: if a method sends it, or has it sent, whose policy does not grant tools. Also if the contract of the sending
        method does not reach the tool. Other errors: see `ToolUse.call`.
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


def _class_of(holder: UvmObject, tool: str) -> str:
    return connections.load(holder._p_jar.root())[holder.name].tool(tool).kind


def install(lobby: UvmObject) -> None:
    """Let every object know the connections as its slot `tools`, and let connections answer the messages that are their tools, and `call_`.
    A step of genesis."""
    connections.install(lobby)
    add_missing(lobby.genesis, tools=lobby.tools)
    add_missing(lobby.tools, **{LOOKUP: Primitive.of(lookup)})
    sealed_sends.install(lobby)
    add_missing(lobby.traits.connection, call_=Primitive.of(call_), **{UNDERSTANDS: Primitive.of(understand)})
