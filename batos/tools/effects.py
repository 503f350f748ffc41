"""The effects of one attempt at a mission. Each call of a tool is done once, is replayed from the journal, or its user is asked.

The order of durable steps is the promise. An effect that acts is INTENDED on disk before its first byte leaves, and its result is on
disk before it is used. An effect that only reads is sent again without a word. What could not be made before an act is on disk before it,
too: no later attempt makes it.

A process that dies in between leaves a doubt, which the next one resolves in this order:

* end what is left of the effect
* send again what is keyed
* send again what is idempotent, unless something later changed the same target
* look, where a tool can
* otherwise ask the user whether the effect happened, is to be done again, or is left
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import structlog

from batos import scope
from batos.errors import BatosError, BatosSignal, EgressFailed, GrantRefused, InvalidInput, ToolFailed, ToolsTied, from_wire
from batos.image import effects, ownership
from batos.image.effects import (
    ACTS,
    AGAIN,
    DONE,
    ENDED,
    FAILED,
    IDEMPOTENT,
    IN_DOUBT,
    KEYED,
    READS,
    SETTLED,
    SETTLEMENTS,
    VERIFIABLE,
    EffectRecord,
)
from batos.image.identity import RESUMED, ActMarks
from batos.image.living_image import LivingImage
from batos.tools.definitions import Delivery, InputRequired, ToolCall

log = structlog.get_logger("batos.tools")
TRIES = 3
"""Number of times that an effect is sent again by itself before its user is asked."""
GRACE_S = 1.0
"""Seconds beyond its deadline for which a server is taken to go on with a request that was cut off."""
RESULT_BYTES = 1 << 20
"""Bytes of a result's JSON that are kept."""
MESSAGE_CHARS = 4000
"""Characters of an error's message that are kept: it goes into events, questions and answers."""
HOW = "`happened` if it did, `again` to do it once more, `leave` to go on without it"
_SHOWN = 400
_AS_IF_DONE = frozenset({404, 409, 410, 412})
"""Answers to a second sending that the first one may be the reason of: what was to be deleted is gone."""
NOT_READ = (401, 402, 403, 407, 408, 423, 425, 429, 451)
"""Statuses of the 4xx by which a place says that it does not look at the request: for want of rights, or now."""
_NOT_AGAIN = "it is not sent again: "
_AFTER_REST = {
    KEYED: "it is sent again with its key",
    IDEMPOTENT: "it is sent again, unless something else changed the same thing",
    VERIFIABLE: "a look tells whether it was",
}

Prepare = Callable[[], Awaitable[ToolCall]]
"""Makes a call ready to be sent. Raises an error where it surely cannot be made."""
Refusal = Callable[[ToolCall], str]
"""Returns why a call that was let before is not let any more, since its user denied it meanwhile; "" where it is."""


class NeedEffect(BatosSignal):
    """Signal of a cycle under the gate that needs an effect which has not ended: it is brought to its end outside the gate."""

    def __init__(self, name: str, arguments: Mapping[str, Any], occurrence: int, prepare: Prepare) -> None:
        super().__init__(name)
        self.name, self.arguments, self.occurrence, self.prepare = name, arguments, occurrence, prepare
        self.sender: Any = None
        """Facts about the method that calls, for its caller: outside the gate no method runs."""


class Caller(Protocol):
    """The attempt on whose behalf calls are made."""

    async def allow(self, call: ToolCall) -> str:
        """Return by whose leave a call is made.

        :raises GrantRefused: if no grant lets it. The signal that the mission waits for an answer passes, too.
        """
        ...

    def ask(self, question: str) -> str:
        """Return the user's answer to a question. The signal that the mission waits for it passes."""
        ...

    def tied(self) -> str:
        """Return why nothing may be done outside; "" where it may. What is in the journal is replayed all the same."""
        ...

    def label(self) -> str:
        """Return the part of the mission that calls, as in the journal of inferences."""
        ...

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the number of calls so far, by tool and arguments; a trial has its own."""
        ...

    def tell(self, name: str, line: str) -> None:
        """Hear how far a call is, in one line."""
        ...

    def permits(self, call: ToolCall, arguments: Mapping[str, Any]) -> bool:
        """Return True if the same call with other arguments needs no question."""
        ...


class Effects:
    """The effects of one attempt. `asked` holds the keys of those that this attempt asked for."""

    def __init__(
        self,
        image: LivingImage,
        mission: str,
        identity: str,
        caller: Caller,
        refusal: Refusal = lambda call: "",
        marks: ActMarks | None = None,
    ) -> None:
        """
        :param identity: of the image, which keys are derived from.
        :param refusal: is asked before a second sending.
        :param marks: counts what acts, beside an image of a server.
        """
        self._image, self._mission, self._identity, self._caller, self._refusal = image, mission, identity, caller, refusal
        self._marks = marks
        self._known = {one.key: one for one in image.read(effects.load, mission)}
        self.asked: set[str] = set()
        self._unmade: dict[str, BatosError] = {}
        self._passed: list[EffectRecord] = []  # calls of this attempt that could not be made; nothing was done since

    def restart(self, *, gated: bool) -> None:
        """Begin the cycle anew; outside of the gate what could not be made is tried once more."""
        self.asked.clear()
        self._passed.clear()
        if not gated:
            self._unmade.clear()

    async def perform(self, name: str, arguments: Mapping[str, Any], prepare: Prepare, *, gated: bool = False, reads: bool = False) -> Any:
        """Return the result of a call, which is made now, or was made by an earlier attempt.

        :param name: `CONNECTION.TOOL`
        :param prepare: makes the call ready; it is not asked where the journal has the result.
        :param reads: True to make the call in a trial, too: its tool only reads. The mission itself finds the answer in the journal.
        :raises ToolFailed: if it surely did not happen, now or then, or the tool answered with an error.
        :raises ToolsTied: where nothing may be done outside and the journal does not have it.
        :raises GrantRefused: if no grant lets it.
        :raises NeedEffect: under the gate, where it would have to be waited for.
        """
        said = effects.canonical(arguments)
        counts = self._caller.counts()
        occurrence = counts[name, said]
        counts[name, said] += 1
        return await self._performed(name, arguments, occurrence, prepare, gated, reads=reads)

    async def settle(self, need: NeedEffect) -> EffectRecord | BatosError:
        """Bring to its end, outside the gate, what a replay needs. Return how it ended, or why it could not be made: the replay meets that
        error in the same place."""
        key = effects.key_of(self._identity, self._mission, need.name, effects.canonical(need.arguments), need.occurrence)
        try:
            await self._performed(need.name, need.arguments, need.occurrence, need.prepare, False)
        except BatosError as e:
            self._unmade[key] = error = e
            if key not in self._known or self._known[key].state not in ENDED:
                return error
        return self._known[key]

    async def _performed(
        self, name: str, arguments: Mapping[str, Any], occurrence: int, prepare: Prepare, gated: bool, *, reads: bool = False
    ) -> Any:
        said = effects.canonical(arguments)
        key = effects.key_of(self._identity, self._mission, name, said, occurrence)
        record = self._known.get(key)
        if scope.current().in_trial and not reads:
            # what the mission asked for before is the same in each replay; the rest of the journal is not
            if record is not None and record.state in ENDED and key in self.asked:
                return _outcome(record)
            raise ToolsTied(f"{name} is not called: {self._caller.tied() or 'this is a trial'}")
        self.asked.add(key)
        if record is not None and record.state in ENDED:
            return _outcome(record)
        if tied := self._caller.tied():
            raise ToolsTied(f"{name} is not called: {tied}")
        if gated:
            if key in self._unmade:
                self._pass(key, name, said, occurrence, self._unmade[key])
                raise self._unmade[key]
            raise NeedEffect(name, arguments, occurrence, prepare)
        if record is not None:
            return await self._taken_up(record, prepare)
        try:
            call = dataclasses.replace(await prepare(), key=key)
            if scope.current().in_trial and call.tool.kind != READS:  # it became another tool meanwhile
                raise ToolsTied(f"{name} is not called: this is a trial")
            grant = await self._caller.allow(call)
        except BatosError as e:
            self._pass(key, name, said, occurrence, e)
            raise
        kind, target = call.tool.kind, call.target
        record = EffectRecord(key, name, kind, said, occurrence, effects.INTENDED, 0.0, grant=grant, target=target)
        undo = f"{call.connection}.{call.tool.undo}" if call.tool.undo else ""
        return await self._send(record._replace(label=self._caller.label(), undo=undo), call)

    def _pass(self, key: str, name: str, said: str, occurrence: int, error: BatosError) -> None:
        """Remember that a call could not be made. If its mission acts afterwards, the failure goes into the journal before. Else a later
        attempt, in which the call could be made, would do it beside what was done in its place."""
        if scope.current().in_trial or isinstance(error, ToolsTied):
            return
        _shorten(error)
        record = EffectRecord(key, name, ACTS, said, occurrence, FAILED, 0.0, attempts=0, ended=effects.now(), label=self._caller.label())
        self._passed.append(record._replace(result=json.dumps(error.to_wire()), failed=True, why=error.message))

    async def _keep_passed(self) -> None:
        """Record what could not be made so far in this attempt."""
        passed, self._passed = self._passed, []
        if passed:
            await self._image.system(effects.end_each, self._mission, passed, mission=self._mission)
            self._known |= {one.key: one for one in passed}

    def next_key(self, name: str, arguments: Mapping[str, Any], after: int = 0) -> str:
        """Return the key of the next call of these arguments; it is in `known` where the journal has it, ended or not.

        :param after: number of such calls that come before it and are not made yet.
        """
        said = effects.canonical(arguments)
        return effects.key_of(self._identity, self._mission, name, said, self._caller.counts()[name, said] + after)

    def last_of(self, name: str, arguments: Mapping[str, Any]) -> EffectRecord | None:
        """Return the record of the last call of these arguments; None where it has none."""
        said = effects.canonical(arguments)
        occurrence = self._caller.counts()[name, said] - 1
        return self._known.get(effects.key_of(self._identity, self._mission, name, said, occurrence))

    def has_asked(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if the mission has asked for the next call of these arguments before, outside of trials or in one."""
        return self.next_key(name, arguments) in self.asked

    def has_ended(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if the journal has the end of the next call of these arguments."""
        record = self._known.get(self.next_key(name, arguments))
        return record is not None and record.state in ENDED

    @property
    def known(self) -> Mapping[str, EffectRecord]:
        """Return the mission's effects by their keys, in the order in which they were recorded."""
        return self._known

    def strays(self) -> list[EffectRecord]:
        """Return the effects that act and stand, and that this attempt did not ask for: a conflict led it another way."""
        return [one for one in self._known.values() if one.key not in self.asked and one.kind != READS and one.state != FAILED]

    def standing(self) -> list[EffectRecord]:
        """Return the effects that act and may have happened, in the order in which they were intended."""
        return [one for one in self._known.values() if one.kind != READS and one.state != FAILED]

    async def _send(self, record: EffectRecord, call: ToolCall, answer: str = "", *, doubted: bool = False) -> Any:
        """Send a call, and return its result.

        :param doubted: an earlier sending of it may have happened: a failure of this one alone does not say that nothing did.
        """
        while True:
            await self._image.lease.renewed()
            try:
                return await self._sent(record, call, answer, doubted)
            except ownership.LeaseLapsed as e:  # nothing of it has left; it is intended anew, if the mission still is this kernel's
                log.info("effect_held_back", mission=self._mission, tool=call.name, key=record.key, why=str(e))

    def _leave(self) -> None:
        """Go on only if the mission is this kernel's, which may have stood still, and no other one can have taken it over since.

        :raises Overtaken: if it is another's.
        :raises LeaseLapsed: if another may have it.
        """
        if self._image.kernel:
            self._image.read(ownership.still_own, self._mission)
            self._image.lease.check()

    async def _sent(self, record: EffectRecord, call: ToolCall, answer: str, doubted: bool) -> Any:
        at, earlier = effects.now(), record.why.removeprefix(f"{AGAIN}: ").removeprefix(f"{RESUMED}: ")
        pending, record = record.pending, record._replace(at=at, until=at + call.seconds, process=call.process, why="", pending="")
        if record.kind != READS:
            await self._keep_passed()
            await self._keep(effects.intend, record)
            if self._known[record.key].state in ENDED:  # its user settled it meanwhile
                return _outcome(self._known[record.key])
            if self._marks is not None:
                try:
                    await self._marks.note()
                except OSError as e:
                    why = f"the file beside the image cannot be written: {e.strerror or e}"
                    if doubted:  # an earlier sending may have happened: its record stays open
                        raise ToolsTied(f"{call.name} is not called: {why}") from None
                    return await self._failed(record, ToolFailed(f"{call.name} is not called: {why}"))
        tell = functools.partial(self._caller.tell, call.name)
        permits = functools.partial(self._caller.permits, call)
        delivery = Delivery(record.key, tell, json.loads(pending)["left"] if pending else "", answer, self._leave, permits)
        self._leave()
        try:
            async with asyncio.timeout(call.seconds):
                result = json.dumps(await call.send(delivery), ensure_ascii=False)
        except InputRequired as e:
            number = json.loads(pending).get("number", 1) + 1 if pending else 1
            record = record._replace(pending=_pending(e, number, record.attempts), why="it asks its user")
            await self._keep(effects.intend, record)
            return await self._resolved(record, call)
        except (ToolFailed, InvalidInput, EgressFailed) as e:
            status = e.context.get("status")
            if isinstance(e, ToolFailed) and not (doubted and e.sure and (status is None or status in NOT_READ)):
                stands = doubted and record.kind == IDEMPOTENT and status in _AS_IF_DONE
                return await self._failed(record, e, happened=not e.sure or stands)
            why = e.message
            if not isinstance(e, EgressFailed) or not e.sent:
                if not doubted:
                    return await self._failed(record, ToolFailed(e.message))
                came = "it did not leave" if status is None else "it was not looked at"
                record, why = record._replace(until=record.at), f"{earlier or 'the system stopped'}; sent again, {came}: {why}"
        except TimeoutError:
            why = f"no answer within {call.seconds:g} s"
        except Exception as e:  # whatever it is, the world may have acted
            why = e.message if isinstance(e, BatosError) else f"{type(e).__name__}: {e}"
        else:
            return await self._done(record, result)
        why = why[:_SHOWN]
        if record.kind == READS:
            return await self._failed(record, ToolFailed(f"{call.name}: {why}"))
        log.warning("effect_in_doubt", mission=self._mission, tool=call.name, key=record.key, why=why)
        record = record._replace(state=IN_DOUBT, why=why)
        await self._keep(effects.end, record)
        return await self._resolved(record, call)

    async def _taken_up(self, record: EffectRecord, prepare: Prepare) -> Any:
        """Return the result of an effect that an earlier attempt left open. Its user is asked also where the call cannot be made any more:
        its connection is gone, or does not start."""
        while True:
            try:
                call = dataclasses.replace(await prepare(), key=record.key)
            except BatosError as e:
                if record.kind == READS:
                    raise
                if record.pending:  # the tool only asked so far
                    return await self._failed(record, ToolFailed(e.message))
                await self._rested(record, "its user is asked")
                was = "the system stopped" if not record.why or record.why.startswith(f"{AGAIN}: ") else record.why
                record = self._settled(record._replace(why=f"{was}; now: {e.message}"))
                if record.state in ENDED:
                    await self._keep(effects.end, record)
                    return _outcome(self._known[record.key])
                record = self._once_more(record)
                await self._keep(effects.end, record)
            else:
                return await self._resolved(record, call)

    async def _resolved(self, record: EffectRecord, call: ToolCall) -> Any:
        """Return the result of an effect that may have happened, once that is known."""
        refused = self._refusal(call)
        kind = record.kind if call.tool.kind == record.kind else ACTS  # of another class by now: nothing is known of a repetition
        if record.pending:
            if refused:  # the tool only asked so far
                return await self._failed(record, GrantRefused(f"{call.name} is not called: {refused}", tool=call.name))
            return await self._send(record, call, self._caller.ask(json.loads(record.pending)["question"]))
        if not record.why.startswith(f"{AGAIN}: "):
            by_itself = record.attempts < TRIES and not refused and not record.why.startswith(f"{RESUMED}: ")
            await self._rested(record, _AFTER_REST.get(kind if by_itself else "", "its user is asked"))
            record, refused = self._as_kept(record), self._refusal(call)
            if record.state in ENDED:  # its user settled it meanwhile
                return _outcome(record)
        again, asks = record.why.startswith(f"{AGAIN}: "), record.why.startswith(f"{RESUMED}: ")
        by_itself = not asks and kind in (KEYED, IDEMPOTENT) and record.attempts < TRIES and not self._changed_since(record)
        if (again or by_itself) and not refused:
            return await self._send(self._once_more(record), call, doubted=True)
        look = call.look if kind == VERIFIABLE and not asks and not self._refusal(_look_of(call)) else None
        if look is not None and (looked := await _looked(look, call.seconds)):
            if looked != "null":
                return await self._done(record._replace(why="looked"), looked)
            if refused:
                return await self._failed(record, GrantRefused(f"{call.name} did not happen; {_NOT_AGAIN}{refused}", tool=call.name))
            if record.attempts < TRIES:
                return await self._send(self._once_more(record), call)
            return await self._failed(record, ToolFailed(f"{call.name} did not happen, in {record.attempts} tries: {record.why}"))
        if refused:
            record = await self._not_again(record, refused)
        record = self._settled(record, call)
        if record.state not in ENDED:
            return await self._send(self._once_more(record), call, doubted=True)
        await self._keep(effects.end, record)
        return _outcome(self._known[record.key])

    async def _not_again(self, record: EffectRecord, refused: str) -> EffectRecord:
        """Return an effect in doubt whose user denied it meanwhile: its record says so, and the question about it does."""
        why = f"{record.why.partition(f'; {_NOT_AGAIN}')[0] or 'the system stopped'}; {_NOT_AGAIN}{refused[:_SHOWN]}"
        if record.why != why or record.state != IN_DOUBT:
            log.warning("effect_not_sent_again", mission=self._mission, tool=record.tool, key=record.key, why=refused[:_SHOWN])
            await self._keep(effects.end, record._replace(state=IN_DOUBT, why=why))
        return self._known[record.key]

    def _as_kept(self, record: EffectRecord) -> EffectRecord:
        """Return a record as it is on disk: its user may have settled it while its mission waited."""
        self._known[record.key] = next((one for one in self._image.read(effects.load, self._mission) if one.key == record.key), record)
        return self._known[record.key]

    async def _rested(self, record: EffectRecord, then: str) -> None:
        """Wait until nothing works on a request that was cut off; say so, where that takes a while."""
        if not record.process and (left := _left_s(record)) > 0:
            clock = time.strftime("%H:%M:%S", time.localtime(time.time() + left))
            self._caller.tell(record.tool, f"was cut off and may still be carried out until {clock}; then {then}")
        await end_request(record)

    def _settled(self, record: EffectRecord, call: ToolCall | None = None) -> EffectRecord:
        """Return an effect as its user says that it ended. Each try has a question of its own: the answer to an earlier one is not its."""
        shown = record.arguments if len(record.arguments) <= _SHOWN else record.arguments[:_SHOWN] + "…"
        number = f"; try {record.attempts}" if record.attempts > 1 else ""
        why = f"{record.why or 'the system stopped'}{number}"
        question = f"{record.tool} {shown} was cut off ({why}) and may have happened [{record.key[:8]}]. Say {HOW}."
        while True:
            said = self._caller.ask(question).strip().casefold()
            refused = self._refusal(call) if call is not None and said == AGAIN else ""
            if said in SETTLEMENTS and not refused:
                return effects.settled(record, said, "its user")
            wrong = f"{_NOT_AGAIN}{refused[:_SHOWN]}. What of it" if refused else f"{said[:_SHOWN]!r} is none of the answers to"
            question = f"{wrong}: {record.tool}{number} [{record.key[:8]}] may have happened. Say {HOW}."

    def _changed_since(self, record: EffectRecord) -> bool:
        return record.kind == IDEMPOTENT and bool(record.target) and self._image.read(effects.last_on, record.target) != record.key

    def _once_more(self, record: EffectRecord) -> EffectRecord:
        return record._replace(attempts=record.attempts + 1)

    async def _done(self, record: EffectRecord, result: str) -> Any:
        if len(result.encode("utf-8", "surrogatepass")) > RESULT_BYTES:
            return await self._failed(record, ToolFailed(f"{record.tool} answered more than {RESULT_BYTES} bytes"), happened=True)
        await self._keep(effects.end, record._replace(state=DONE, result=result, ended=effects.now()))
        return _outcome(self._known[record.key])

    async def _failed(self, record: EffectRecord, error: BatosError, *, happened: bool = False) -> Any:
        _shorten(error)
        state = DONE if happened else FAILED
        record = record._replace(state=state, result=json.dumps(error.to_wire()), failed=True, ended=effects.now(), why=error.message)
        await self._keep(effects.end, record)
        if self._known[record.key].state == SETTLED:
            return _outcome(self._known[record.key])
        raise error

    async def _keep(self, how: Callable[..., EffectRecord], record: EffectRecord) -> None:
        """Record an effect. What is known of it is what the journal holds then: an end that its user gave it meanwhile stays."""
        more = (self._marks.known,) if self._marks is not None and how is effects.intend else ()
        self._known[record.key] = await self._image.system(how, self._mission, record, *more, mission=self._mission)


def _shorten(error: BatosError) -> None:
    if len(error.message) > MESSAGE_CHARS:
        error.message = f"{error.message[: MESSAGE_CHARS - 1]}…"
        error.args = (error.message,)


def asks_about(question: str, key: str) -> bool:
    """Return True if a question of a mission's asks what became of the effect of a key."""
    return question.endswith((f"may have happened [{key[:8]}]. Say {HOW}.", f"[{key[:8]}] may have happened. Say {HOW}."))


def _outcome(record: EffectRecord) -> Any:
    """Return what an effect that has ended came to, or raise how it failed."""
    found = json.loads(record.result or "null")
    if record.failed:
        raise from_wire(found)
    return found


def _pending(asked: InputRequired, number: int, attempts: int) -> str:
    """Return what a tool asks, as it is recorded. Each question of an effect differs: an answer to an earlier one is not its."""
    question = asked.question if (number, attempts) == (1, 1) else f"{asked.question}\n(question {number}, try {attempts})"
    return json.dumps({"question": question, "left": asked.pending, "number": number})


def _look_of(call: ToolCall) -> ToolCall:
    """Return the call of the reading tool that looks for another call, as grants judge it."""
    return dataclasses.replace(call, tool=dataclasses.replace(call.tool, name=call.tool.look or call.tool.name, kind=READS), key="")


async def _looked(look: Callable[[], Awaitable[Any]], seconds: float) -> str:
    """Return what a look found, as JSON; empty where the look failed."""
    try:
        async with asyncio.timeout(seconds):
            return json.dumps(await look(), ensure_ascii=False)
    except Exception as e:
        log.info("look_failed", error=f"{type(e).__name__}: {e}"[:200])
        return ""


async def end_request(record: EffectRecord) -> None:
    """End a request that was cut off. Kill the process that works on it, or wait until the time of a server that may work on it is over."""
    if record.process:
        end_process(record.process)
        return
    await asyncio.sleep(_left_s(record))


def _left_s(record: EffectRecord) -> float:
    """Return the seconds for which a server is taken to go on with a request that was cut off."""
    longest = record.until - record.at + GRACE_S  # also where the clock was set back
    return max(0.0, min(record.until + GRACE_S - effects.now(), longest))


def end_process(process: str) -> None:
    """Kill the process group of a tool's process that an earlier daemon left, if it still is that process.

    :param process: `PID START`, the latter as `/proc/PID/stat` has it.
    """
    pid, _, start = process.partition(" ")
    if start and process_start(int(pid)) == start:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(pid), signal.SIGKILL)


def process_start(pid: int) -> str:
    """Return when a process started, in the kernel's clock ticks; empty where there is none or that cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
