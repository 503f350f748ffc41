"""Tools in the prompt for a method: how each is called, what it answers, what it does, and the rules for calls.

Of a connection's own method, the operations that the message speaks of stand first and are told whole: with what their arguments mean,
and the shape of their answers. Of the others there is a line, as far as there is room: a message may need one that it does not name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from batos.image.effects import READS
from batos.mind.tool_choice import ToolOffer, offered
from batos.tools import doubles
from batos.tools.definitions import ToolDefinition, identifier

_HEAD = (
    "It may use these tools. Arguments go by name; behind -> stands the answer, as plain values. One that fails raises RuntimeError, one "
    "that is refused PermissionError. "
    "Each call is written in full where it is made, `self.tools.NAME.tool(…)`: no tool and no connection is kept under another name."
)
_ACTING = (
    "One marked `acts` changes something outside: in a loop it is called only where a literal bounds the rounds, as in "
    "`for one in found[:50]` or `for _ in range(20)`; never in a while loop or in an inner function."
)
RANKED = 24
"""Greatest number of operations that are compared with the message."""
_ANSWER_CHARS, _ARGUMENT_CHARS, _ABOUT_CHARS, _MEANING_CHARS = 500, 80, 200, 120


def head(tools: Iterable[ToolDefinition]) -> str:
    """Return what a prompt says of all tools."""
    return f"{_HEAD} {_ACTING}" if any(tool.kind != READS for tool in tools) else _HEAD


def tool_lines(offers: Sequence[tuple[str, ToolDefinition]], purpose: str, most: int) -> tuple[str, ...]:
    """Return tools as the prompt of an object's method shows them: those that share most words with its purpose.

    :param offers: tools with their names `CONNECTION.TOOL`.
    """
    asked = _words(purpose)
    shared = {name: len(asked & _words(f"{name} {tool.description}")) for name, tool in offers}
    best = sorted(offers, key=lambda offer: -shared[offer[0]])[:most]
    shown = [(name.partition(".")[0], replace(tool, name=identifier(tool.name)), _mark(tool)) for name, tool in best]
    return tuple(f"self.tools.{identifier(connection)}.{tool.line()}{mark}" for connection, tool, mark in shown)


async def ranked(connection: str, tools: Sequence[ToolDefinition], purpose: str, most: int) -> list[ToolDefinition]:
    """Return a connection's operations: first the `most` that the words of a message ask for, with those that they need, then others."""
    offers = [ToolOffer(f"{connection}.{tool.name}", tool) for tool in tools]
    found: dict[str, ToolDefinition] = {}
    for count in (most, RANKED):
        found |= {offer.name: offer.tool for offer, _ in await offered(purpose, offers, count) if offer.name not in found}
    return list(found.values())


def operation_lines(connection: str, tools: Sequence[ToolDefinition], chars: int) -> tuple[str, ...]:
    """Return a connection's own operations as the prompt of one of its methods shows them, in at most `chars` characters: a line of each,
    and as many as have room whole.

    :param tools: in the order of their weight.
    """
    lines: list[str] = []
    left = chars
    for line in (_line(connection, tool) for tool in tools):
        if len(line) < left:
            lines.append(line)
            left -= len(line) + 1
    for at, tool in enumerate(tools[: len(lines)]):
        whole = _whole(connection, tool)
        if len(whole) - len(lines[at]) <= left:
            left -= len(whole) - len(lines[at])
            lines[at] = whole
    return tuple(lines)


def _whole(connection: str, tool: ToolDefinition) -> str:
    given: Mapping[str, Any] = tool.parameters.get("properties") or {}
    meanings = [
        f"{identifier(name)}: {_cut(schema['description'], _MEANING_CHARS)}"
        for name, schema in given.items()
        if isinstance(schema, Mapping) and isinstance(schema.get("description"), str)
    ]
    about = " ".join([_cut(tool.description, _ABOUT_CHARS), *meanings]).strip()
    return _call(connection, tool) + (f"\n    {about}" if about else "")


def _line(connection: str, tool: ToolDefinition) -> str:
    told = tool.line().partition("): ")[2]
    return _call(connection, tool) + (f": {told}" if told else "")


def _call(connection: str, tool: ToolDefinition) -> str:
    required = set(tool.parameters.get("required") or ())
    given = [
        f"{identifier(name)}{'' if name in required else '?'}: {doubles.shape(schema, _ARGUMENT_CHARS) or 'any'}"
        for name, schema in (tool.parameters.get("properties") or {}).items()
    ]
    return f"self.tools.{identifier(connection)}.{identifier(tool.name)}({', '.join(given)}){_answer(tool)}{_mark(tool)}"


def _mark(tool: ToolDefinition) -> str:
    return "" if tool.kind == READS else " (acts)"


def _answer(tool: ToolDefinition) -> str:
    parts = (tool.result or {}).get("properties")
    if not isinstance(parts, Mapping) or not {"status", "body"} <= parts.keys():
        shape = doubles.shape(tool.result, _ANSWER_CHARS)
        return f" -> {shape}" if shape else ""
    return f' -> {{"body": {doubles.shape(parts["body"], _ANSWER_CHARS) or "any"}, …}}'  # of an HTTP answer the rest tells a method nothing


def _cut(text: str, chars: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= chars else plain[: chars - 1].rstrip() + "…"


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[\W_]+", text.lower()) if len(word) > 2}
