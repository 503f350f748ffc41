"""Answers of the doors: from a request, whichever interface it came by, to a mission or a plain inference, and to its end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from batos.concurrency import cancel_and_wait
from batos.doors import forms
from batos.doors.answer_text import Answered, AnswerPart
from batos.doors.bodies import content_digest
from batos.doors.models import ModelNames
from batos.doors.routes import INTERNAL, DoorServices, refusal
from batos.doors.turns import ChatTurn, ChatWords, EarlierTurn, PlainReply, is_chore
from batos.errors import BatosError, Busy, InvalidInput
from batos.wire.fields import left_out_words

log = structlog.get_logger("batos.doors")

GONE = 499  # the client left before its answer, which is not read
_NO_TASK = ("", "none", "null", "undefined")
Parts = AsyncIterator[AnswerPart | Answered]


@dataclass(frozen=True)
class PendingAnswer:
    """Answer that is on its way: of a mission, or of a plain inference."""

    id: str
    parts: Parts
    leave: Callable[[], object]
    headers: Mapping[str, str]
    """names the mission; empty for a plain inference"""
    answers: int = 0
    """number of the mission's question that the turn answers; 0: none"""


class AnswerStream(StreamingResponse):
    """Streamed answer that is left when its reader leaves, also before the first part was read."""

    def __init__(self, pending: PendingAnswer, content: AsyncIterator[bytes], media_type: str) -> None:
        super().__init__(content, media_type=media_type, headers={**forms.STREAM_HEADERS, **pending.headers})
        self._leave = pending.leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


@dataclass(frozen=True)
class AskedAnswer:
    """Request for an answer, whichever interface it came by."""

    request: Request
    fields: dict[str, Any]
    model: str
    words: Sequence[ChatWords]
    schema: dict[str, Any] | None
    options: dict[str, Any]
    task: str
    streams: bool
    follows: EarlierTurn | None = None
    """the turn before, where the client names it"""


class Answers:
    """Those of one daemon."""

    def __init__(self, services: DoorServices) -> None:
        self._missions, self._plain, self._limits = services.missions, services.plain, services.limits
        self._names = ModelNames(services)

    async def begun(self, asked: AskedAnswer) -> PendingAnswer:
        """Begin the answer to a request: its mission is accepted, or its inference asked for, when this returns."""
        words = asked.words
        if not words or words[-1].role not in ("user", "tool"):
            raise InvalidInput("messages: the last one is the user's; there is nothing to answer")
        chosen = await self._names.chosen(asked.model)
        if chosen.plain or is_chore(words, _task_of(asked), asked.streams):
            if asked.follows is not None:
                raise InvalidInput("previous_response_id: a model that is asked directly knows no response before; send `input` whole")
            return self._plainly(asked, chosen.expert)
        if not words[-1].text.strip():
            raise InvalidInput("messages: the last one has no text; say what is wanted")
        following = await self._missions.accept(_turn_of(asked, chosen.persona))
        headers = {"X-Batos-Mission": following.mission}
        parts = self._missions.parts(following)
        return PendingAnswer(following.mission, parts, lambda: self._missions.leave(following), headers, following.answers)

    def _plainly(self, asked: AskedAnswer, expert: str | None) -> PendingAnswer:
        parts: asyncio.Queue[AnswerPart | Answered] = asyncio.Queue()

        async def ask() -> None:
            try:
                reply = await self._plain.chat(
                    asked.words,
                    model=expert,
                    schema=asked.schema,
                    options=asked.options,
                    deadline_s=self._limits.plain_s,
                    on_text=(lambda piece: parts.put_nowait(AnswerPart("text", piece))) if asked.streams else None,
                )
                if reply.left_out:
                    parts.put_nowait(AnswerPart("thought", f"{left_out_words(reply.left_out)}\n"))
                parts.put_nowait(_answered(reply))
            except BatosError as e:
                parts.put_nowait(Answered("", "", {}, error={"code": e.code, "message": e.message}))
            except Exception:
                log.exception("a plain inference failed")
                parts.put_nowait(Answered("", "", {}, error=INTERNAL))

        task = asyncio.create_task(ask())

        async def told() -> Parts:
            try:
                while True:
                    try:
                        async with asyncio.timeout(self._limits.beat_s):
                            part = await parts.get()
                    except TimeoutError:
                        part = AnswerPart("beat")
                    yield part
                    if isinstance(part, Answered):
                        return
            finally:
                await cancel_and_wait(task)

        return PendingAnswer(uuid.uuid4().hex, told(), task.cancel, {})


def _task_of(asked: AskedAnswer) -> str:
    given = asked.request.headers.get("x-openwebui-task", "").strip()
    found = given if given and not given.startswith("{{") else asked.task
    return "" if found.casefold() in _NO_TASK else found


def _turn_of(asked: AskedAnswer, persona: str | None) -> ChatTurn:
    headers = asked.request.headers
    name = ""
    if key := headers.get("idempotency-key"):
        name = f"key {key}"
    elif (message := headers.get("x-openwebui-message-id")) and not message.startswith("{{"):
        name = f"message {headers.get('x-openwebui-chat-id', '')} {message}"
    system = "\n\n".join(one.text for one in asked.words if one.role == "system")
    said = [one for one in asked.words if one.role != "system"]
    # OpenAI's libraries say with each request how often they sent it before; Open WebUI, which names its chats, sends none again by itself.
    fresh = headers.get("x-stainless-retry-count") == "0" or bool(headers.get("x-openwebui-chat-id"))
    digest = content_digest(asked.fields)
    return ChatTurn(said[-1], tuple(said[:-1]), system, persona, asked.schema, name, digest, asked.follows, fresh)


def _answered(reply: PlainReply) -> Answered:
    usage = {"prompt_tokens": reply.prompt_tokens, "answer_tokens": reply.answer_tokens}
    return Answered("", reply.text, usage, cut=reply.cut)


async def whole_answer(request: Request, pending: PendingAnswer) -> tuple[Answered, str] | None:
    """Return the end of an answer with its thoughts; None if the client left before."""
    thoughts: list[str] = []

    async def read() -> Answered:
        async for part in pending.parts:
            if isinstance(part, Answered):
                return part
            if part.kind == "thought":
                thoughts.append(part.text)
        raise AssertionError("the last part is the end")

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    reading, leaving = asyncio.create_task(read()), asyncio.create_task(left())
    try:
        await asyncio.wait((reading, leaving), return_when=asyncio.FIRST_COMPLETED)
        return (reading.result(), "".join(thoughts)) if reading.done() else None
    finally:
        await cancel_and_wait(reading)
        await cancel_and_wait(leaving)
        pending.leave()


def failure(path: str, error: dict[str, Any]) -> Response:
    """Return the answer to a turn that failed."""
    return refusal(path, 503 if error["code"] == Busy.code else 500, str(error["message"]), str(error["code"]))
