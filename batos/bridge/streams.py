"""The parts of a chat as Ollama streams them: a line of JSON each, read as it comes and made no more of than is needed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import httpx
    from ollama import ChatResponse

__all__ = ["Part", "parts"]


class Part(NamedTuple):
    """One part of an answer: its text, the model's thought, and in the last one what the server says of the whole."""

    text: str
    thought: str
    done: ChatResponse | None


async def parts(client: httpx.AsyncClient, chat: dict[str, Any]) -> AsyncGenerator[Part, None]:
    """Ask for a chat that streams. Closing it closes the connection, unless it is at its end.

    :param chat: the request, as Ollama's API has it.
    :raises ResponseError: for a status that is none of success, and for an error that a part tells.
    :raises ValueError, TypeError, AttributeError: for what is no part of an answer.
    """
    import httpx

    from batos.bridge.client_library import ResponseError
    from batos.bridge.connection import GATHER_S, Connection

    async with client.stream("POST", "/api/chat", json=chat) as reply:
        try:
            reply.raise_for_status()
        except httpx.HTTPStatusError:
            await reply.aread()
            raise ResponseError(reply.text, reply.status_code) from None
        connection = reply.extensions.get("network_stream")
        gather = connection.gather if isinstance(connection, Connection) else None  # one with encryption does not
        rest, begun = b"", False
        try:
            async for data in reply.aiter_bytes():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    yield _part(line)
                if gather is not None and not begun:
                    gather(GATHER_S)  # only now: the first token is not waited for
                    begun = True
        finally:
            if gather is not None:
                gather(0)
        if rest:
            yield _part(rest)


def _part(line: bytes) -> Part:
    told = json.loads(line)
    if error := told.get("error"):
        from batos.bridge.client_library import ResponseError

        raise ResponseError(error)
    if told.get("done"):
        from batos.bridge.client_library import ChatResponse

        whole = ChatResponse(**told)
        return Part(whole.message.content or "", whole.message.thinking or "", whole)
    message = told.get("message")
    text, thought = message.get("content") or "", message.get("thinking") or ""
    if not isinstance(text, str) or not isinstance(thought, str):
        raise TypeError(f"a part is no text: {line[:80]!r}")
    return Part(text, thought, None)
