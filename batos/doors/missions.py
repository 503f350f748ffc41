"""A turn as a mission: it is submitted, or found again where the same turn came before, and its events are followed.

A turn that answers a mission's question goes to that mission. A turn whose conversation ends with the answer of a known mission follows
that one; otherwise the brief repeats the conversation. All is asked of the dispatcher, as the console asks.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from batos.config import Settings
from batos.console.api_client import Asker, Heard, Reply
from batos.doors.access import DoorLimits
from batos.doors.turn_log import CONVERSATION, REQUEST, LoggedTurn, TurnLog
from batos.doors.turns import ChatTurn, brief_of, conversation_key, is_answer
from batos.errors import BatosError, Busy, InvalidInput, MissionIdTaken, UnknownMission

_FINAL = ("COMPLETE", "FAILED")
_BRANCHES = 8  # missions that are looked at for one place of a conversation
_AGAIN = ("ACCEPTED", "IDLE", "DECOMPOSING", "DELEGATING")
"""States after which an answer is written from its beginning."""
_ANEW = "\n\n---\n\n"
"""Stands between an answer that was refused, or taken back, and the one that takes its place."""
_LINE = 300  # characters of a line about a tool
STOPPED = "the daemon is stopping; the mission goes on at its next start: send the same turn again"


class AnswerPart(NamedTuple):
    """A part of an answer as it comes. `beat` says that nothing came for some time."""

    kind: str
    """`thought`, `text` or `beat`"""
    text: str = ""


class Answered(NamedTuple):
    """The end of a turn."""

    mission: str
    text: str
    """the whole answer, or the question that the mission asks"""
    usage: dict[str, Any]
    citations: tuple[dict[str, Any], ...] = ()
    error: dict[str, Any] | None = None
    cut: bool = False
    """True: the answer came to the greatest length that the model may give"""


class Following(NamedTuple):
    """A turn that was accepted: its mission, and what is heard of it."""

    mission: str
    heard: Heard
    schema: dict[str, Any] | None


class _Link(NamedTuple):
    """The mission that the conversation before a turn ends with, and the question that the turn answers, if it does."""

    mission: str
    question: dict[str, Any] | None = None


class TurnMissions:
    """Those of one daemon. On the loop's thread."""

    def __init__(self, asker: Asker, settings: Settings, log: TurnLog) -> None:
        self._asker, self._log, self._limits = asker, log, DoorLimits.of(settings)
        self._may_ask = self._limits.plan_questions
        self._open: set[Heard] = set()
        self._stopping = False

    def stop(self) -> None:
        """End the answers under way; their missions go on."""
        self._stopping = True
        for heard in list(self._open):
            heard.close()

    async def accept(self, turn: ChatTurn) -> Following:
        """Accept a turn: its mission is on disk when this returns.

        :raises BatosError: if it is refused.
        """
        if self._stopping:
            raise Busy(STOPPED)
        key = conversation_key(turn.said)
        link = await self._linked(turn)
        if link is not None and link.question is not None:
            await self._log.add(CONVERSATION, key, link.mission, time.time())
            await self._asker.ask("answer", id=link.mission, text=turn.words.text, number=link.question["number"])
            return await self._followed(link.mission, None)
        known = await self._log.find(REQUEST, turn.request_key)
        id = await self._id_of(turn, known)
        images = [await self._uploaded(one) for one in turn.words.images] or None
        brief = brief_of(turn, alone=link is None, chars=self._limits.conversation_chars)
        context = None if link is None else link.mission
        options = {"persona": turn.persona, "context": context, "schema": turn.schema, "images": images, "may_ask": self._may_ask or None}
        giver = Heard(1, "client")
        try:
            await self._asker.tell(giver, "submit", id=id, brief=brief, **options)
        except MissionIdTaken:
            # The same request may have become another brief: its conversation was not known then, or is not known now.
            if id not in [one.mission for one in known]:
                raise
        await self._log.add(CONVERSATION, key, id, time.time())
        return await self._followed(id, turn.schema)

    async def _followed(self, mission: str, schema: dict[str, Any] | None) -> Following:
        heard = Heard(self._limits.events, "client")
        try:
            await self._asker.tell(heard, "watch", id=mission)
        except BaseException:
            self._asker.forget(heard)
            raise
        self._open.add(heard)
        return Following(mission, heard, schema)

    def leave(self, following: Following) -> None:
        """Stop following a mission, which goes on."""
        self._open.discard(following.heard)
        self._asker.forget(following.heard)
        following.heard.close()

    # --- which mission it is

    async def _id_of(self, turn: ChatTurn, known: list[LoggedTurn]) -> str:
        """Return the id of a turn's mission. A request without a name that was answered some time ago, or failed, is another turn.

        :param known: the last mission of the same request, if there was one.
        """
        now = time.time()
        id = turn.id if turn.name or not known else known[0].mission
        if known and not turn.name and (status := await self._status(id)) is not None and status["state"] in _FINAL:
            old = now - float(status.get("finished") or known[0].at) > self._limits.repeat_s
            if old or status["state"] == "FAILED":
                id = f"{turn.id}-{int(id.removeprefix(turn.id).lstrip('-') or 1) + 1}"
        await self._log.add(REQUEST, turn.request_key, id, now)  # before the mission: a retry after a kill finds the same id
        return id

    async def _linked(self, turn: ChatTurn) -> _Link | None:
        """Return what the conversation before a turn ends with; None if no mission is known that said so."""
        before = turn.before
        if len(before) < 2 or before[-1].role != "assistant" or before[-2].role == "assistant":
            return None
        said = before[-1].text
        for one in await self._log.find(CONVERSATION, conversation_key(before[:-1]), _BRANCHES):
            status = await self._status(one.mission)
            if status is None or status.get("folded"):
                continue
            for question in reversed(status.get("questions") or ()):
                if is_answer(said, str(question["question"])):
                    if question["answer"] is None and status["state"] not in _FINAL:
                        return _Link(one.mission, question)
                    if question["answer"] == turn.words.text:  # the same turn again
                        return _Link(one.mission, question)
            result = status.get("result") or {}
            if status["state"] == "COMPLETE" and is_answer(said, text_of(result, None)):
                return _Link(one.mission)
        return None

    async def _status(self, id: str) -> Reply | None:
        try:
            return await self._asker.ask("status", id=id)
        except UnknownMission:
            return None

    async def _uploaded(self, image: str) -> Reply:
        """Hand an image to the daemon, in parts; return what a brief names it by."""
        try:
            data = base64.b64decode(image, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput("an image is not valid base64") from None
        if not data:
            raise InvalidInput("an image is empty")
        digest = hashlib.sha256(data).hexdigest()
        reply = await self._asker.ask("upload", digest=digest, bytes=len(data))
        while not reply["whole"]:
            have = reply["have"]
            part = base64.b64encode(data[have : have + reply["part"]]).decode()
            reply = await self._asker.ask("upload", digest=digest, bytes=len(data), offset=have, data=part)
        return {"digest": digest}

    # --- what comes of it

    async def parts(self, following: Following) -> AsyncIterator[AnswerPart | Answered]:
        """Yield the parts of an answer, and at last its end. Leaving early ends nothing but this."""
        answer = _AnswerText(following)
        try:
            while True:
                try:
                    async with asyncio.timeout(self._limits.beat_s):
                        event = await following.heard.next()
                except TimeoutError:
                    yield AnswerPart("beat")
                    continue
                if event is None:
                    yield Answered(following.mission, "", {}, error={"code": Busy.code, "message": STOPPED})
                    return
                for part in answer.hear(event):
                    yield part
                if answer.end is not None:
                    yield answer.end
                    return
        finally:
            self.leave(following)

    async def whole(self, following: Following) -> Answered:
        """Return the end of a turn, when it comes."""
        async for part in self.parts(following):
            if isinstance(part, Answered):
                return part
        raise AssertionError("the last part is the end")


class _AnswerText:
    """Answer of one mission, put together from its events.

    The pieces of the answer are told as they are written. Where the whole answer is another one in the end, it follows the pieces, since
    nobody can take back what was told.
    """

    def __init__(self, following: Following) -> None:
        self._mission, self._schema = following.mission, following.schema
        self._told = ""  # what was told of the answer that is being written
        self._live = False  # True: each piece since the beginning of this answer was heard
        self._shown: tuple[Any, Any] = (None, None)
        self.end: Answered | None = None

    def hear(self, event: Reply) -> list[AnswerPart]:
        """Return what an event tells; `end` is set by the last one."""
        kind = event["type"]
        inside = "." in str(event.get("cycle", ""))
        if kind == "result":
            return self._result(event)
        if kind == "needs_input" or event.get("question"):
            question = event["question"] if isinstance(event.get("question"), str) else event["question"]["question"]
            return self._ended(str(question), {}, ())
        if kind in ("state", "status"):
            return [] if inside else self._state(event)
        if kind == "token" and not inside and not event.get("facet") and event.get("state") == "SYNTHESIZING":
            return self._token(str(event["text"]))
        if kind == "revised" and not inside:
            return [*self._discard(), AnswerPart("thought", f"refused: {event.get('why')}\n")]
        if kind == "tool":
            told = event.get("arguments") or event.get("line") or event.get("result") or event.get("error") or ""
            return [AnswerPart("thought", f"{event['tool']} {event['step']}: {' '.join(str(told).split())[:_LINE]}\n")]
        if kind == "provision":
            return [AnswerPart("thought", f"pulling {event.get('model')}: {event.get('status')}\n")]
        return []

    def _state(self, event: Reply) -> list[AnswerPart]:
        state, persona = event["state"], event.get("persona")
        parts = self._discard() if state in _AGAIN else []
        self._live = self._live or (event["type"] == "state" and state == "SYNTHESIZING")
        if (state, persona) != self._shown and state not in _FINAL:
            self._shown = (state, persona)
            why = f" ({event['why']})" if event.get("why") else ""
            parts.append(AnswerPart("thought", f"{state}{f' {persona}' if persona else ''}{why}\n"))
        return parts

    def _token(self, text: str) -> list[AnswerPart]:
        if not self._live or self._schema is not None:
            return []
        if not self._told:
            text = text.lstrip()
        self._told += text
        return [AnswerPart("text", text)] if text else []

    def _discard(self) -> list[AnswerPart]:
        told, self._told = self._told, ""
        return [AnswerPart("text", _ANEW)] if told else []

    def _result(self, event: Reply) -> list[AnswerPart]:
        if event["state"] == "COMPLETE":
            result = event.get("result") or {}
            parts = self._ended(text_of(result, self._schema), result.get("usage") or {}, result.get("citations") or ())
            assert self.end is not None
            self.end = self.end._replace(cut=bool(result.get("cut")))
            return parts
        error = event.get("error") or {"code": BatosError.code, "message": "the mission failed"}
        self.end = Answered(self._mission, "", {}, error=error)
        return []

    def _ended(self, text: str, usage: dict[str, Any], citations: Any) -> list[AnswerPart]:
        self.end = Answered(self._mission, text, usage, tuple(citations))
        told = self._told
        if text.startswith(told):
            rest = text[len(told) :]
        elif text.startswith(told.rstrip()):
            rest = text[len(told.rstrip()) :].lstrip()
        else:
            rest = f"{_ANEW}{text}"
        return [AnswerPart("text", rest)] if rest else []


def text_of(result: Reply, schema: dict[str, Any] | None) -> str:
    """Return the text of a mission's result; for an answer with a schema, its value as JSON."""
    if schema is not None and result.get("value") is not None:
        return json.dumps(result["value"], ensure_ascii=False)
    return str(result.get("text") or "")
