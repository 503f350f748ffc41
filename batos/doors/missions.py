"""A turn as a mission: it is submitted, or found again where the same turn came before, and its events are followed.

A turn that answers a mission's question goes to that mission. A turn whose conversation ends with the answer of a known mission follows
that one; otherwise the brief repeats the conversation. All is asked of the dispatcher, as the console asks.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import collections
import hashlib
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from batos.config import Settings
from batos.console.api_client import Asker, Heard, Reply
from batos.doors.access import DoorLimits
from batos.doors.answer_text import FINAL, Answered, AnswerPart, AnswerText, text_of
from batos.doors.turn_log import CONVERSATION, REQUEST, TOLD, LoggedTurn, TurnKeeper
from batos.doors.turns import ChatTurn, EarlierTurn, brief_of, conversation_key, is_answer, visible_text
from batos.errors import Busy, InvalidInput, MissionIdTaken, UnknownMission

_BRANCHES = 8  # missions that are looked at for one place of a conversation
_NUMBER_CHARS = 6  # digits of a question's number
STOPPED = "the daemon is stopping; the mission goes on at its next start: send the same turn again"


class Following(NamedTuple):
    """A turn that was accepted: its mission, and what is heard of it."""

    mission: str
    heard: Heard
    schema: dict[str, Any] | None
    answers: int = 0
    """number of the mission's question that the turn answers; 0: none"""


class _Link(NamedTuple):
    """The mission that the conversation before a turn ends with, and the question that the turn answers, if it does."""

    mission: str
    question: dict[str, Any] | None = None


class TurnMissions:
    """Those of one daemon. On the loop's thread."""

    def __init__(self, asker: Asker, settings: Settings, log: TurnKeeper) -> None:
        self._asker, self._log, self._limits = asker, log, DoorLimits.of(settings)
        self._may_ask = self._limits.plan_questions
        self._open: set[Heard] = set()
        self._readers: collections.Counter[str] = collections.Counter()  # by mission: turns that were accepted as it, and not left
        self._choice = asyncio.Lock()
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
        link = await (self._linked(turn) if turn.follows is None else self._named(turn.follows, turn.words.text))
        if link is not None and link.question is not None:
            number = int(link.question["number"])
            await self._note_conversation(turn, link.mission)
            await self._asker.ask("answer", id=link.mission, text=turn.words.text, number=number)
            self._readers[link.mission] += 1
            return await self._followed(Following(link.mission, self._hearer(), None, number))
        async with self._choice:
            known = await self._log.find(REQUEST, turn.request_key)
            id = await self._id_of(turn, known)
            self._readers[id] += 1
        heard = self._hearer()
        try:
            watched = await self._submit(turn, id, link, known, heard)
        except BaseException:
            self._asker.forget(heard)
            self._uncount(id)
            raise
        return await self._followed(Following(id, heard, turn.schema), watched=watched)

    async def _submit(self, turn: ChatTurn, id: str, link: _Link | None, known: list[LoggedTurn], heard: Heard) -> bool:
        """Submit the mission of a turn. Return True if its events are heard from its first one on."""
        images = [await self._uploaded(one) for one in turn.words.images] or None
        more = turn.follows is not None and bool(turn.before or turn.system)  # the client names the turn before, and says the rest itself
        brief = brief_of(turn, alone=link is None or more, chars=self._limits.conversation_chars)
        context = None if link is None else link.mission
        options = {"persona": turn.persona, "context": context, "schema": turn.schema, "images": images, "may_ask": self._may_ask or None}
        if link is not None and not more:
            options["instructions"] = turn.system.strip() or None
        watched = False
        try:
            await self._asker.tell(heard, "submit", id=id, brief=brief, watch=True, **options)
            accepted = await heard.next() or {}
            watched = not accepted.get("duplicate") or accepted["state"] in FINAL  # else its state and its question are not told yet
        except MissionIdTaken:
            # The same request may have become another brief: its conversation was not known then, or is not known now.
            if id not in [one.mission for one in known]:
                raise
        await self._note_conversation(turn, id)
        return watched

    async def _note_conversation(self, turn: ChatTurn, mission: str) -> None:
        if turn.follows is None:  # else the words are not all of it
            await self._log.add(CONVERSATION, conversation_key(turn.said), mission, time.time())

    async def follow(self, mission: str, schema: dict[str, Any] | None = None) -> Following:
        """Follow a mission that is there.

        :raises UnknownMission: if there is none.
        """
        self._readers[mission] += 1
        return await self._followed(Following(mission, self._hearer(), schema))

    def _hearer(self) -> Heard:
        return Heard(self._limits.events, "client")

    async def _followed(self, following: Following, *, watched: bool = False) -> Following:
        """Begin to hear a mission whose reader is counted already.

        :param watched: True if its events are heard already.
        :raises Busy: when the daemon stops.
        """
        self._open.add(following.heard)
        try:
            if not watched:
                await self._asker.tell(following.heard, "watch", id=following.mission)
            if self._stopping:  # it was accepted meanwhile: `stop` has ended what was heard before
                raise Busy(STOPPED)
        except BaseException:
            self.leave(following)
            raise
        return following

    def leave(self, following: Following) -> None:
        """Stop following a mission, which goes on. May be called again."""
        if following.heard not in self._open:
            return
        self._open.discard(following.heard)
        self._asker.forget(following.heard)
        following.heard.close()
        self._uncount(following.mission)

    def _uncount(self, mission: str) -> None:
        self._readers[mission] -= 1
        if not self._readers[mission]:
            del self._readers[mission]

    # --- turns that a client names

    async def turn_of(self, id: str) -> EarlierTurn:
        """Return the turn with an id: that of a mission, and where it answers a question of it, a point and the question's number.

        :raises UnknownMission: if there is no such mission.
        """
        mission, _, number = id.rpartition(".")
        status = await self._status(id)
        if status is None and mission and number.isdecimal() and len(number) <= _NUMBER_CHARS:
            status = await self._status(mission)
        if status is None:
            raise UnknownMission(f"there is no response {id[:80]!r}; those of plain models are not kept: send `input` whole")
        return EarlierTurn(status["id"], 0 if status["id"] == id else int(number))

    def end_of(self, status: Reply, answers: int) -> Answered | None:
        """Return the end of a turn; None while its mission thinks.

        :param status: of the mission.
        :param answers: number of the question that the turn answers; 0: none.
        """
        for question in status.get("questions") or ():
            if question["number"] == answers + 1:
                return Answered(status["id"], str(question["question"]), {})
        if status["state"] not in FINAL:
            return None
        answer = AnswerText(status["id"], {} if (status.get("result") or {}).get("value") is not None else None)
        answer.hear({**status, "type": "result"})
        return answer.end

    # --- which mission it is

    async def _id_of(self, turn: ChatTurn, known: list[LoggedTurn]) -> str:
        """Return the id of a turn's mission. A request without a name is another turn where it was answered some time ago, or failed. It is
        another turn at once where its client declares that it repeats no request, and the answer was sent whole or is under way.

        :param known: the last mission of the same request, if there was one.
        """
        now = time.time()
        id = turn.id if turn.name or not known else known[0].mission
        if known and not turn.name and await self._is_over(turn, known[0], now):
            id = f"{turn.id}-{int(id.removeprefix(turn.id).lstrip('-') or 1) + 1}"
        if known or not turn.name or await self._status(id) is None:  # else the name is another request's, which is to be refused each time
            await self._log.add(REQUEST, turn.request_key, id, now)  # before the mission: a retry after a kill finds the same id
        return id

    async def _is_over(self, turn: ChatTurn, last: LoggedTurn, now: float) -> bool:
        """Return True if a request like one before is another turn, not that one sent again."""
        if turn.fresh and self._readers[last.mission] > 0:
            return True
        status = await self._status(last.mission)
        if status is None or status["state"] not in FINAL:
            return False
        if status["state"] == "FAILED" or now - float(status.get("finished") or last.at) > self._limits.repeat_s:
            return True
        return turn.fresh and bool(await self._log.find(TOLD, last.mission))

    async def _named(self, earlier: EarlierTurn, text: str) -> _Link:
        """Return the link to the turn before that a client names, whose question the text answers if it asked one.

        :raises UnknownMission: if there is no such mission.
        :raises Busy: if it still runs after some time.
        :raises InvalidInput: if it failed, or its question was answered otherwise.
        """
        status = await self._asker.ask("status", id=earlier.mission)
        for question in status.get("questions") or ():
            if question["number"] == earlier.answers + 1:
                if question["answer"] == text or (question["answer"] is None and status["state"] not in FINAL):
                    return _Link(earlier.mission, question)
                if question["answer"] is not None:
                    raise InvalidInput(f"previous_response_id: its question was answered already, with {question['answer'][:60]!r}")
        if status["state"] not in FINAL:
            status = await self._ended(status, self._limits.follow_s)
        if status["state"] not in FINAL:
            raise Busy("previous_response_id: that response is still in progress; try again in a moment, or cancel it")
        if status["state"] == "FAILED" or status.get("folded"):
            why = "failed" if status["state"] == "FAILED" else "was folded away with old missions"
            raise InvalidInput(f"previous_response_id: that response {why}: send `input` whole")
        return _Link(earlier.mission)

    async def _ended(self, status: Reply, within_s: float) -> Reply:
        """Return the status of a mission when it has ended, or asks, or the time is over."""
        following = await self.follow(status["id"])
        answer = AnswerText(following.mission, None)
        try:
            async with asyncio.timeout(within_s):
                while answer.end is None and (event := await following.heard.next()) is not None:
                    answer.hear(event)
        except TimeoutError:
            pass
        finally:
            self.leave(following)
        if self._stopping:
            raise Busy(STOPPED)
        return await self._asker.ask("status", id=status["id"])

    async def _linked(self, turn: ChatTurn) -> _Link | None:
        """Return what the conversation before a turn ends with; None if no mission is known that said so.

        Where a mission of the conversation still runs, its reader left before the end: only its end tells whether it said so.
        """
        before = turn.before
        if len(before) < 2 or before[-1].role != "assistant" or before[-2].role == "assistant":
            return None
        said, until = before[-1].text, time.monotonic() + self._limits.follow_s
        for one in await self._log.find(CONVERSATION, conversation_key(before[:-1]), _BRANCHES):
            status = await self._status(one.mission)
            if status is None or status.get("folded"):
                continue
            for question in reversed(status.get("questions") or ()):
                if is_answer(said, str(question["question"])):
                    if question["answer"] is None and status["state"] not in FINAL:
                        return _Link(one.mission, question)
                    if question["answer"] == turn.words.text:  # the same turn again
                        return _Link(one.mission, question)
            if status["state"] not in FINAL and visible_text(said) and not status.get("question"):
                status = await self._ended(status, max(0.0, until - time.monotonic()))
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
        answer = AnswerText(following.mission, following.schema)
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
                    if answer.end.error is None:
                        await self._log.add(TOLD, following.mission, following.mission, time.time())
                    yield answer.end
                    return
        finally:
            self.leave(following)
