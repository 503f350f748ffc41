"""Missions of MCP clients: given, waited for, told and answered. Knows nothing of the protocol.

The daemon is this process (`/mcp`), or another one behind the wire (`batos mcp`): `McpDaemon` is what both can do. A client that stops
waiting ends nothing; the mission goes on.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, Field

from batos.doors.turns import digest
from batos.errors import Busy, InvalidInput, UnknownMission
from batos.wire.fields import left_out_words

Reply = dict[str, Any]
STOPPED = "the daemon is stopping; the mission goes on at its next start: make the same call again, with the same key"
_FINAL = ("COMPLETE", "FAILED")
_LINE = 300  # characters of a line of progress


class EventSource(Protocol):
    """Events of one mission, as they come. Waiting may be cut off without losing one."""

    async def next(self) -> Reply | None:
        """Return the next event; None where the daemon stops."""
        ...


class McpDaemon(Protocol):
    """The daemon, as an MCP server asks it."""

    async def ask(self, op: str, /, **fields: Any) -> Reply:
        """Return the reply to one request of the wire; fields that are None are left out.

        :raises BatosError: as the daemon refuses it, or where none answers.
        """
        ...

    def watch(self, id: str, /) -> AbstractAsyncContextManager[EventSource]:
        """Return the events of a mission: first its status, last its result."""
        ...


class McpTalk(Protocol):
    """The client's side of one call."""

    async def tell(self, line: str) -> None:
        """Tell how far the call is, if the client wants to know."""
        ...

    async def answer(self, mission: str, question: MissionQuestion, settled: AbstractAsyncContextManager[EventSource]) -> str | None:
        """Have the client ask its user. Return the answer; None if there is none.

        :param settled: events of the mission; where they show that the question is settled, the user is not asked any longer.
        """
        ...


class MissionQuestion(BaseModel):
    """Question of a mission to its user."""

    number: int
    question: str


class MissionSource(BaseModel):
    """Passage of the memory that an answer comes from."""

    n: int = Field(description="its mark in the text: [1]")
    title: str = ""
    source: str = ""


class MissionError(BaseModel):
    """Reason why a mission failed."""

    code: str
    message: str


class MissionOutcome(BaseModel):
    """State of a mission, with all that it came to."""

    id: str
    state: str = Field(description="COMPLETE or FAILED at its end; NEEDS_INPUT: it asks `question`, and waits; else it goes on")
    text: str | None = Field(default=None, description="the answer")
    value: Any = Field(default=None, description="the answer as a value: of a mission with a schema, or of a message")
    persona: str | None = None
    citations: list[MissionSource] | None = None
    question: MissionQuestion | None = None
    unsure: str | None = Field(default=None, description="why the answer may not be one")
    left_out: dict[str, int] | None = Field(
        default=None,
        description="characters that were not shown to the model, which reads less at a time, by what they are of",
    )
    error: MissionError | None = None

    @classmethod
    def of(cls, reply: Reply) -> MissionOutcome:
        """Return the outcome that a reply of the wire tells: a status, or a result."""
        result, error = reply.get("result") or {}, reply.get("error")
        told: dict[str, Any] = {"id": reply["id"], "state": reply["state"]}
        if reply["state"] == "COMPLETE":
            cited = [
                {"n": one["n"], "title": str(one["title"] or ""), "source": str(one["source"] or "")}
                for one in result.get("citations") or ()
            ]
            told |= {"text": str(result.get("text") or ""), "value": result.get("value"), "citations": cited or None}
            told |= {"persona": result.get("persona"), "unsure": result.get("unsure"), "left_out": result.get("left_out")}
        elif reply["state"] == "FAILED":
            told["error"] = {"code": str((error or {}).get("code", "internal")), "message": str((error or {}).get("message", "it failed"))}
        elif (question := question_of(reply)) is not None:
            told["question"] = question
        return cls.model_validate(told)

    def words(self) -> str:
        """Return the outcome as text, with what to do next."""
        if self.error is not None:
            return f"The mission {self.id} failed ({self.error.code}): {self.error.message}"
        if self.question is not None:
            return (
                f"The mission {self.id} waits for an answer to its question {self.question.number}:\n\n{self.question.question}\n\n"
                f"Ask the user, and give their answer with the tool `answer` (id {self.id!r}, number {self.question.number})."
            )
        if self.state != "COMPLETE":
            return f"The mission {self.id} goes on ({self.state}). Call `result` with this id to wait for its answer."
        lines = [self.text or ("done" if self.value is None else json.dumps(self.value, ensure_ascii=False))]
        if self.unsure:
            lines.append(f"(It may not be an answer: {self.unsure})")
        if self.left_out:
            lines.append(f"({left_out_words(self.left_out)})")
        if self.citations:
            lines.append("\n".join(f"[{one.n}] {' - '.join(part for part in (one.title, one.source) if part)}" for one in self.citations))
        return "\n\n".join(lines)


@dataclass(frozen=True)
class McpPace:
    """Times of waiting, in seconds."""

    beat_s: float
    """silence after which a client that wants progress hears that the mission goes on"""
    repeat_s: float
    """time in which the same brief without a key is the same mission"""


class McpMissions:
    """Those of the clients of one MCP server."""

    def __init__(self, daemon: McpDaemon, pace: McpPace) -> None:
        self._daemon, self._pace = daemon, pace

    async def give(self, op: str, fields: Reply, *, id: str) -> str:
        """Give a mission, which is on disk when this returns. The same id with the same fields is the same mission. Return the id.

        :param op: `submit` or `send`.
        :raises MissionIdTaken: for the id of another one.
        """
        await self._daemon.ask(op, id=id, **fields)
        return id

    async def id_of(self, key: str, content: Any) -> str:
        """Return the id of a mission that a client gives.

        :param key: the client's own name of it; "" for none. Then the same content is the same mission while it goes on, and for some time
            after its answer; one that failed is tried anew.
        """
        if key:
            return f"mcp-{digest(['key', key])[:32]}"
        base = f"mcp-{digest(['content', content])[:32]}"
        last, status = await self._last(base)
        if last == 0 or status is None:
            return base
        found = base if last == 1 else f"{base}-{last}"
        if status["state"] not in _FINAL:
            return found
        fresh = status["state"] == "COMPLETE" and time.time() - float(status.get("finished") or 0.0) < self._pace.repeat_s
        return found if fresh else f"{base}-{last + 1}"

    async def _last(self, base: str) -> tuple[int, Reply | None]:
        """Return the number of the newest mission of a content, and its status; 0 and None if there is none. Few questions find it."""
        known = await self._status(base)
        if known is None:
            return 0, None
        low, high = 1, 2
        while (status := await self._status(f"{base}-{high}")) is not None:
            low, high, known = high, high * 2, status
        while high - low > 1:
            middle = (low + high) // 2
            status = await self._status(f"{base}-{middle}")
            low, high, known = (middle, high, status) if status is not None else (low, middle, known)
        return low, known

    async def _status(self, id: str) -> Reply | None:
        try:
            return await self._daemon.ask("status", id=id)
        except UnknownMission:
            return None

    async def answer(self, id: str, text: str, number: int | None) -> None:
        """Answer the question of a mission: the open one, or that of a number. The same answer once more changes nothing."""
        try:
            await self._daemon.ask("answer", id=id, text=text, number=number)
        except InvalidInput:
            asked = (await self._daemon.ask("status", id=id)).get("questions") or ()
            if number is not None or not any(one["answer"] == text for one in asked):
                raise

    async def outcome(self, id: str, wait_s: float, talk: McpTalk) -> MissionOutcome:
        """Return what a mission came to, or where it stands after `wait_s` seconds. Its questions go to the client's user, if that can ask.

        The time that a user takes to answer does not count.
        """
        while True:
            outcome = await self._waited(id, wait_s, talk)
            if outcome.question is None:
                return outcome
            said = await talk.answer(id, outcome.question, self._daemon.watch(id))
            if said is not None:
                await self.answer(id, said, outcome.question.number)
                continue
            now = question_of(await self._daemon.ask("status", id=id))
            if now is not None and now.number == outcome.question.number:
                return outcome  # its user gave no answer

    async def _waited(self, id: str, wait_s: float, talk: McpTalk) -> MissionOutcome:
        if wait_s > 0:
            try:
                async with asyncio.timeout(wait_s), self._daemon.watch(id) as events:
                    return await self._followed(id, events, talk)
            except TimeoutError:
                pass
        return MissionOutcome.of(await self._daemon.ask("status", id=id))

    async def _followed(self, id: str, events: EventSource, talk: McpTalk) -> MissionOutcome:
        """Return the outcome at the next question, or at the end."""
        stands = ""
        while True:
            try:
                async with asyncio.timeout(self._pace.beat_s):
                    event = await events.next()
            except TimeoutError:
                await talk.tell(stands or "it goes on")
                continue
            if event is None:
                raise Busy(STOPPED)
            if event["type"] == "result":
                return MissionOutcome.of(event)
            if (question := question_of(event)) is not None:
                return MissionOutcome(id=id, state="NEEDS_INPUT", question=question)
            if line := line_of(event):
                stands = line
                await talk.tell(line)


def question_of(event: Reply) -> MissionQuestion | None:
    """Return the question with which a mission waits, by an event or a status of it; None if it asks nothing."""
    question = event.get("question")
    if event["type"] == "needs_input":
        return MissionQuestion(number=event["number"], question=str(question))
    if event["type"] == "status" and isinstance(question, dict) and event["state"] not in _FINAL:
        return MissionQuestion(number=question["number"], question=str(question["question"]))
    return None


async def until_settled(events: AbstractAsyncContextManager[EventSource], number: int) -> None:
    """Return when a mission waits no longer for the answer to its question of that number, or the daemon stops."""
    async with events as source:
        while (event := await source.next()) is not None:
            asked = question_of(event)
            if event["type"] == "result" or (asked is None and event["type"] in ("state", "status")) or (asked and asked.number != number):
                return


def line_of(event: Reply) -> str:
    """Return an event as one line of progress; "" for one that tells nothing new."""
    kind = event["type"]
    if kind in ("state", "status"):
        who = f" {event['persona']}" if event.get("persona") else ""
        return "" if event["state"] in _FINAL else f"{event['state']}{who}"
    if kind == "tool":
        told = event.get("arguments") or event.get("line") or event.get("result") or event.get("error") or ""
        return f"{event['tool']} {event['step']}: {' '.join(str(told).split())}"[:_LINE]
    if kind == "provision":
        return f"pulling {event.get('model')}: {event.get('status')}"[:_LINE]
    return ""


def new_id() -> str:
    """Return the id of a mission that no other call means."""
    return f"mcp-{uuid.uuid4().hex}"
