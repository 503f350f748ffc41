"""Tools in the prompt for a method: how each is called, what it answers, what it does, and the rules for calls.

Of a connection's own method, the prompt begins with the operations that the message speaks of. It describes them whole, with what their
arguments mean and the shape of their answers. Of the others there is a line, as far as there is room: a message may need one that it does
not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from batos.image.effects import READS
from batos.tools import doubles
from batos.tools.definitions import ToolDefinition, identifier

_HEAD = (
    "It may use these tools. Arguments go by name; behind -> stands the answer, as plain values. One that fails raises RuntimeError, one "
    "that is refused PermissionError. "
    "Each call is written in full where it is made, from `self.tools` on, just as it stands here: no tool and no connection is kept under "
    "another name."
)
_ACTING = (
    "One marked `acts` changes something outside: in a loop it is called only where a literal bounds the rounds, as in "
    "`for one in found[:50]` or `for _ in range(20)`; never in a while loop or in an inner function."
)
_PLAN_CHARS = 240
_ARGUMENTS = 12  # greatest number of arguments of which also the optional ones are shown
RANKED = 64
"""Greatest number of operations in a prompt."""
_ANSWER_CHARS, _LEAST_CHARS, _SENTENCE_CHARS, _ARGUMENT_CHARS, _ABOUT_CHARS, _MEANING_CHARS = 500, 120, 80, 80, 200, 160


def head(tools: Iterable[ToolDefinition]) -> str:
    """Return what a prompt says of all tools."""
    return f"{_HEAD} {_ACTING}" if any(tool.kind != READS for tool in tools) else _HEAD


def tool_lines(offers: Sequence[tuple[str, ToolDefinition]], purpose: str, most: int) -> tuple[str, ...]:
    """Return tools as the prompt of an object's method shows them: those that a catalogue finds for its purpose.

    :param offers: tools with their names `CONNECTION.TOOL`.
    """
    best = [offers[at] for at in _by_catalogue(offers, purpose, most)]
    shown = [(name.partition(".")[0], replace(tool, name=identifier(tool.name)), _mark(tool)) for name, tool in best]
    return tuple(f"self.tools.{identifier(connection)}.{tool.line()}{mark}" for connection, tool, mark in shown)


def plan_lines(offers: Sequence[tuple[str, ToolDefinition]], purpose: str, most: int) -> tuple[str, ...]:
    """Return tools as the prompt of a plan shows them. Each is shown with the types of the arguments, and the shape of the answer where it
    is known. They are those that a catalogue offers for the purpose by words.

    :param offers: tools with their names `CONNECTION.TOOL`.
    """
    best = [(offers[at][0].partition(".")[0], offers[at][1]) for at in _by_catalogue(offers, purpose, most)]
    return tuple(_called(name, tool) + _answer(tool, _PLAN_CHARS) + _mark(tool) + _purpose(tool) for name, tool in best)


def _by_catalogue(offers: Sequence[tuple[str, ToolDefinition]], purpose: str, most: int) -> list[int]:
    from batos.mind.tool_catalogue import catalogue_of  # late import: it loads tables that only connections need

    return catalogue_of([tool for _, tool in offers]).by_words(purpose, most)


async def ranked(connection: str, tools: Sequence[ToolDefinition], purpose: str, most: int) -> list[ToolDefinition]:
    """Return a connection's operations: first the `most` that the words of a message ask for, with those that they need, then others."""
    from batos.mind.tool_choice import ToolOffer, offered  # late import: it loads tables that only connections need

    offers = [ToolOffer(f"{connection}.{tool.name}", tool) for tool in tools]
    found: dict[str, ToolDefinition] = {}
    for count in (most, RANKED):
        found |= {offer.name: offer.tool for offer, _ in await offered(purpose, offers, count) if offer.name not in found}
    return list(found.values())


def operation_lines(connection: str, tools: Sequence[ToolDefinition], most: int, chars: int) -> tuple[str, ...]:
    """Return a connection's own operations as the prompt of one of its methods shows them, in at most `chars` characters. Each is shown
    with how it is called. As many as have room are shown with what they answer and do, the first `most` at least in few words. Then comes
    what their arguments mean.

    :param tools: in the order of their weight.
    """
    lines: list[str] = []
    left = chars
    for tool in tools:
        line = _called(connection, tool) + _mark(tool)
        if len(line) >= left:
            break
        lines.append(line)
        left -= len(line) + 1
    answer = min(_ANSWER_CHARS, max(_LEAST_CHARS, left // max(1, most) - _SENTENCE_CHARS))
    for whole in (False, True):
        for at, tool in enumerate(tools[: len(lines)]):
            line = _called(connection, tool) + _answer(tool, answer) + _mark(tool) + (_meaning(tool) if whole else _purpose(tool))
            if len(line) - len(lines[at]) > left:
                break
            left -= len(line) - len(lines[at])
            lines[at] = line
    return tuple(lines)


def _meaning(tool: ToolDefinition) -> str:
    """Return what a tool does and what its arguments mean, on a line of their own."""
    meanings = [
        f"{identifier(name)}: {_cut(schema['description'], _MEANING_CHARS)}"
        for name, schema in (tool.parameters.get("properties") or {}).items()
        if isinstance(schema, Mapping) and isinstance(schema.get("description"), str)
    ]
    about = " ".join([_cut(tool.description, _ABOUT_CHARS), *meanings]).strip()
    return f"\n    {about}" if about else ""


def _purpose(tool: ToolDefinition) -> str:
    told = tool.line().partition("): ")[2]
    return f": {told}" if told else ""


def _called(connection: str, tool: ToolDefinition) -> str:
    schemas, required = tool.parameters.get("properties") or {}, set(tool.parameters.get("required") or ())
    given = [
        f"{identifier(name)}{'' if name in required else '?'}: {doubles.shape(schema, _ARGUMENT_CHARS) or 'any'}"
        for name, schema in schemas.items()
        if name in required or len(schemas) <= _ARGUMENTS
    ]
    given += ["…"] if len(given) < len(schemas) else []
    return f"self.tools.{identifier(connection)}.{identifier(tool.name)}({', '.join(given)})"


def _mark(tool: ToolDefinition) -> str:
    return "" if tool.kind == READS else " (acts)"


def _answer(tool: ToolDefinition, chars: int) -> str:
    parts = (tool.result or {}).get("properties")
    if not isinstance(parts, Mapping) or not {"status", "body"} <= parts.keys():
        shape = doubles.shape(tool.result, chars)
        return f" -> {shape}" if shape else ""
    return f' -> {{"body": {doubles.shape(parts["body"], chars) or "any"}, …}}'  # of an HTTP answer the rest tells a method nothing


def _cut(text: str, chars: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= chars else plain[: chars - 1].rstrip() + "…"
