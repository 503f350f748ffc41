"""Probes: tiny requests that find out what a model can do, where what its Ollama claims is not enough to go by.

* `think`: whether it thinks where it is told to, and answers at once where it is told not to. Some cannot be silenced.
* `format`: whether an answer keeps to a schema. Ollama leaves the schema out while it believes that the model still thinks: with a parser
  of its own for thoughts and `think` off until the end (0.17.4, server/routes.go).
* `tools`, `images`: whether Ollama takes them for this model.
* `context`: whether it is loaded with as much as it was asked for; found out where the model is loaded, see `Place.probe`.

What a model says does not matter here, only how it is told.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import structlog

from batos.bridge.capabilities import Capabilities
from batos.bridge.types import ChatReply, ChatRequest
from batos.errors import InferenceFailed

log = structlog.get_logger(__name__)

Ask = Callable[[ChatRequest], Awaitable[ChatReply]]
TOKENS = 48
ASKED = ("think", "format", "tools", "images")
ALL = (*ASKED, "context")
_QUESTION = "Say yes."
_SCHEMA = {"type": "object", "properties": {"answer": {"type": "string", "enum": ["yes"]}}, "required": ["answer"]}
_TOOL = {
    "type": "function",
    "function": {
        "name": "say",
        "description": "Says a word.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
_IMAGE = (  # a white square of 32 pixels
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJklEQVR42u3NMQ0AAAwDoPo33arYsQQMkB6LQCAQCAQCgUAg+BIMi1X0ptsIcT0AAAAASUVORK5CYII="
)


async def probe(ask: Ask, model: str, claims: Capabilities, wanted: Collection[str], options: Mapping[str, Any]) -> Capabilities:
    """Find out what is wanted and was not found out yet.

    :param ask: does an inference.
    :param claims: what is known so far.
    :param options: those of every inference, with which the model is loaded.
    :raises InferenceFailed: where the Ollama is away, or does not answer in time: then nothing of it is known.
    """
    found = claims
    for name in ASKED:
        if name in wanted and name not in found.probed:
            found = await _PROBES[name](_asking(ask, model, options), found)
            found = replace(found, probed=found.probed | {name})
            log.info("probed", model=model, probe=name, **{k: v for k, v in found.to_wire().items() if k != "probed"})
    return found


async def load(ask: Ask, model: str, options: Mapping[str, Any]) -> None:
    """Have a model loaded as every inference has it.

    :raises InferenceFailed: as `probe`.
    """
    await _asking(ask, model, options)(think=None)


def tiny(model: str, options: Mapping[str, Any]) -> ChatRequest:
    """A request that a model answers with hardly anything."""
    given = {name: value for name, value in options.items() if name != "think"}
    return ChatRequest(model, "", _QUESTION, options=tuple(sorted({**given, "num_predict": 1, "seed": 1}.items())))


Say = Callable[..., Awaitable[ChatReply | None]]


def _asking(ask: Ask, model: str, options: Mapping[str, Any]) -> Say:
    """A way to ask the model something tiny; it answers None where Ollama refuses the request."""

    async def say(*, think: bool | None = None, **more: Any) -> ChatReply | None:
        given = {**options, "num_predict": TOKENS, "seed": 1, **({} if think is None else {"think": think})}
        if think is None:
            given.pop("think", None)
        try:
            return await ask(ChatRequest(model, "", _QUESTION, options=tuple(sorted(given.items())), **more))
        except InferenceFailed as e:
            if e.cause in ("refused", "server_error"):
                return None
            raise

    return say


async def _think(say: Say, found: Capabilities) -> Capabilities:
    if not found.thinks:
        return found
    if await say(think=True) is None:  # it is not let
        return replace(found, thinks=False)
    quiet = await say(think=False)
    return replace(found, silenced=quiet is not None and not quiet.thinking)


async def _format(say: Say, found: Capabilities) -> Capabilities:
    think = False if found.thinks and found.silenced else None
    reply = await say(think=think, schema=_SCHEMA)
    if reply is None:
        return replace(found, format=False)
    text = reply.text.strip()
    if reply.done_reason == "length" and (text.startswith("{") or (not found.silenced and not text)):
        return found  # what there was time for kept to it; or all of it was thought, and the schema comes with the answer
    try:
        return replace(found, format=isinstance(json.loads(text), dict))
    except ValueError:
        return replace(found, format=False)


async def _tools(say: Say, found: Capabilities) -> Capabilities:
    think = False if found.thinks else None
    return replace(found, tools=found.tools and await say(think=think, tools=(_TOOL,)) is not None)


async def _images(say: Say, found: Capabilities) -> Capabilities:
    think = False if found.thinks else None
    return replace(found, vision=found.vision and await say(think=think, images=((_IMAGE,),)) is not None)


_PROBES: dict[str, Callable[[Say, Capabilities], Awaitable[Capabilities]]] = {
    "think": _think,
    "format": _format,
    "tools": _tools,
    "images": _images,
}
