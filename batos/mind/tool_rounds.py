"""Rounds of tool use in DELEGATING, and the message by which connections are sent a call.

brief ─ offers ─ choice (`batos.mind.tool_choice`) ─ calls ─ results as passages ─ choice again, until none fits or the rounds are over

A choice is recorded before its call is made, so that an attempt that takes the mission up again makes the same call, and not a second one
with other arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batos.errors import InvalidInput
from batos.image.living_image import add_missing
from batos.mind.attempt import current
from batos.objects import Primitive, UvmObject
from batos.objects.json_form import whole
from batos.tools import connections


@Primitive.register("tools.call_")
async def call_(connection: UvmObject, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """Call a tool of a connection, and return its result.

    :param arguments: by name, as the tool's schema has them.
    :raises ToolFailed, GrantRefused, ToolsTied, UnknownTool, InvalidInput: see `ToolUse.call`.
    """
    given = {} if arguments is None else whole(arguments)
    if not isinstance(tool, str) or not isinstance(given, dict):
        raise InvalidInput(
            "call_ takes the name of a tool and its arguments as an object: `call_('get_current_time', {'timezone': 'UTC'})`"
        )
    attempt = current()
    return await attempt.tools.call(f"{connection.name}.{tool}", given, gated=attempt.gated)


def install(lobby: UvmObject) -> None:
    """Make the object that holds the connections, and let connections answer `call_`. A step of genesis."""
    connections.install(lobby)
    add_missing(lobby.traits.connection, call_=Primitive.of(call_))
