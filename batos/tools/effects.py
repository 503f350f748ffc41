"""The effects of one attempt at a mission: each call of a tool is done once, is replayed from the journal, or its user is asked.

The order of durable steps is the promise. An effect that acts is INTENDED on disk before its first byte leaves, and its result is on
disk before it is used. A process that dies in between leaves a doubt, which the next one resolves in this order: end what is left of it;
send again what is keyed; send again what is idempotent, unless something later changed the same target; look, where a tool can; else ask
the user whether it happened, is to be done again, or is left. An effect that only reads is sent again without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from batos.errors import BatosError, EgressFailed, InvalidInput, ToolFailed, ToolsTied, from_wire
from batos.image import effects
from batos.image.effects import AGAIN, DONE, ENDED, FAILED, IDEMPOTENT, IN_DOUBT, KEYED, READS, SETTLEMENTS, VERIFIABLE, EffectRecord
from batos.image.living_image import LivingImage

log = structlog.get_logger("batos.tools")
TRIES = 3
"""How often an effect is sent again by itself before its user is asked."""
GRACE_S = 1.0
"""Seconds beyond its deadline for which a server is taken to go on with a request that was cut off."""
RESULT_BYTES = 1 << 20
"""Bytes of a result's JSON that are kept."""
HOW = "`happened` if it did, `again` to do it once more, `leave` to go on without it"
_SHOWN = 400

Look = Callable[[], Awaitable[Any]]
"""Looks whether an effect happened: what came of it, or None if it surely did not. Any error: it cannot be told."""
Ask = Callable[[str], str]
"""Answers a question to the user, or raises the signal that the mission waits for it."""
Allow = Callable[["ToolCall"], Awaitable[str]]
"""Returns by whose leave a call is made. Raises GrantRefused, or the signal that the mission waits for an answer."""


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool, ready to be sent."""

    tool: str
    """`CONNECTION.TOOL`"""
    kind: str
    """one of `batos.image.effects.CLASSES`"""
    arguments: Mapping[str, Any]
    send: Callable[[str], Awaitable[Any]]
    """Sends it once, with its key, and returns a result that JSON can hold. `ToolFailed` and an `EgressFailed` that was not sent mean
    that it surely did not happen; any other error leaves that open."""
    seconds: float = 60.0
    target: str = ""
    """what it changes, so that a later change of the same is noticed"""
    look: Look | None = None
    process: str = ""
    """the process of this machine that carries it out, as `PID START`"""


class NeedEffect(Exception):
    """Raised where a call would have to be made while a cycle is replayed and nothing may be waited for."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__(call.tool)
        self.call = call


class Effects:
    """The effects of one attempt. `asked` holds the keys of those that this attempt asked for."""

    def __init__(
        self, image: LivingImage, mission: str, identity: str, *, allow: Allow, ask: Ask, tied: str = "", label: Callable[[], str] = str
    ) -> None:
        """
        :param identity: of the image, which keys are derived from.
        :param tied: why nothing may be done outside, or empty; what is in the journal is replayed all the same.
        :param label: says which part of the mission calls, for the record.
        """
        self._image, self._mission, self._identity = image, mission, identity
        self._allow, self._ask, self.tied, self._label = allow, ask, tied, label
        self._known = {one.key: one for one in image.read(effects.load, mission)}
        self._counts: Counter[tuple[str, str]] = Counter()
        self.asked: set[str] = set()

    async def perform(self, call: ToolCall) -> Any:
        """Return the result of a call, which is made now, or was made by an earlier attempt.

        :raises ToolFailed: if it surely did not happen, now or then.
        :raises ToolsTied: where nothing may be done outside and the journal does not have it.
        :raises GrantRefused: if no grant lets it.
        """
        arguments = effects.canonical(call.arguments)
        occurrence = self._counts[call.tool, arguments]
        self._counts[call.tool, arguments] += 1
        key = effects.key_of(self._identity, self._mission, call.tool, arguments, occurrence)
        self.asked.add(key)
        record = self._known.get(key)
        if record is not None and record.state in ENDED:
            return _outcome(record)
        if self.tied:
            raise ToolsTied(f"{call.tool} is not called: {self.tied}")
        if record is not None:
            return await self._resolved(record, call)
        grant = await self._allow(call)
        record = EffectRecord(key, call.tool, call.kind, arguments, occurrence, effects.INTENDED, 0.0, grant=grant, target=call.target)
        return await self._send(record._replace(label=self._label()), call)

    def strays(self) -> list[EffectRecord]:
        """Return the effects that act and stand, and that this attempt did not ask for: a conflict led it another way."""
        return [one for one in self._known.values() if one.key not in self.asked and one.kind != READS and one.state != FAILED]

    def standing(self) -> list[EffectRecord]:
        """Return the effects that act and may have happened, in the order in which they were intended."""
        return [one for one in self._known.values() if one.kind != READS and one.state != FAILED]

    async def _send(self, record: EffectRecord, call: ToolCall) -> Any:
        at = effects.now()
        record = record._replace(at=at, until=at + call.seconds, process=call.process, why="")
        if call.kind != READS:
            await self._keep(effects.intend, record)
        try:
            async with asyncio.timeout(call.seconds):
                result = json.dumps(await call.send(record.key), ensure_ascii=False)
        except (ToolFailed, InvalidInput) as e:
            return await self._failed(record, e)
        except EgressFailed as e:
            if not e.sent:
                return await self._failed(record, ToolFailed(e.message))
            why = e.message
        except TimeoutError:
            why = f"no answer within {call.seconds:g} s"
        except Exception as e:  # whatever it is, the world may have acted
            why = e.message if isinstance(e, BatosError) else f"{type(e).__name__}: {e}"
        else:
            if len(result) > RESULT_BYTES:
                return await self._failed(record, ToolFailed(f"{call.tool} answered more than {RESULT_BYTES} bytes"), happened=True)
            await self._keep(effects.end, record._replace(state=DONE, result=result, ended=effects.now()))
            return json.loads(result)
        if call.kind == READS:
            return await self._failed(record, ToolFailed(f"{call.tool}: {why}"))
        log.warning("effect_in_doubt", mission=self._mission, tool=call.tool, key=record.key, why=why)
        record = record._replace(state=IN_DOUBT, why=why)
        await self._keep(effects.end, record)
        return await self._resolved(record, call)

    async def _resolved(self, record: EffectRecord, call: ToolCall) -> Any:
        """Return the result of an effect that may have happened, once that is known."""
        again = record.why.startswith(AGAIN)
        if not again:
            await _nothing_left(record)
        if again or (record.kind in (KEYED, IDEMPOTENT) and record.attempts < TRIES and not self._changed_since(record)):
            return await self._send(self._once_more(record), call)
        if record.kind == VERIFIABLE and call.look is not None:
            with contextlib.suppress(Exception):  # what cannot be told is asked
                found = await call.look()
                if found is None:
                    return await self._send(self._once_more(record), call)
                await self._keep(effects.end, record._replace(state=DONE, result=json.dumps(found), ended=effects.now(), why="looked"))
                return found
        how = self._answer(record)
        record = effects.settled(record, how, "its user")
        if how == AGAIN:
            return await self._send(self._once_more(record), call)
        await self._keep(effects.end, record)
        return _outcome(record)

    def _answer(self, record: EffectRecord) -> str:
        shown = record.arguments if len(record.arguments) <= _SHOWN else record.arguments[:_SHOWN] + "…"
        question = (
            f"{record.tool} {shown} was cut off ({record.why or 'the system stopped'}) and may have happened [{record.key[:8]}]. Say {HOW}."
        )
        while (said := self._ask(question).strip().casefold()) not in SETTLEMENTS:
            question = f"{said[:_SHOWN]!r} is none of the answers to: {record.tool} [{record.key[:8]}] may have happened. Say {HOW}."
        return said

    def _changed_since(self, record: EffectRecord) -> bool:
        return record.kind == IDEMPOTENT and bool(record.target) and self._image.read(effects.last_on, record.target) != record.key

    def _once_more(self, record: EffectRecord) -> EffectRecord:
        return record._replace(attempts=record.attempts + 1)

    async def _failed(self, record: EffectRecord, error: BatosError, *, happened: bool = False) -> Any:
        state = DONE if happened else FAILED
        record = record._replace(state=state, result=json.dumps({"error": error.to_wire()}), ended=effects.now(), why=error.message)
        await self._keep(effects.end, record)
        raise error

    async def _keep(self, how: Callable[..., None], record: EffectRecord) -> None:
        await self._image.system(how, self._mission, record, mission=self._mission)
        self._known[record.key] = record


def _outcome(record: EffectRecord) -> Any:
    """Return what an effect that has ended came to, or raise how it failed."""
    found = json.loads(record.result or "null")
    if isinstance(found, dict) and "error" in found and len(found) == 1:
        raise from_wire(found["error"])
    return found


async def _nothing_left(record: EffectRecord) -> None:
    """Wait until nothing works on a request that was cut off: kill the process that does, or let its time run out."""
    if record.process:
        end_process(record.process)
        return
    longest = record.until - record.at + GRACE_S  # also where the clock was set back
    await asyncio.sleep(max(0.0, min(record.until + GRACE_S - effects.now(), longest)))


def end_process(process: str) -> None:
    """Kill the process group of a tool's process that an earlier daemon left, if it still is that process.

    :param process: `PID START`, the latter as `/proc/PID/stat` has it.
    """
    pid, _, start = process.partition(" ")
    if start and process_start(int(pid)) == start:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(pid), signal.SIGKILL)


def process_start(pid: int) -> str:
    """Return when a process started, in the kernel's clock ticks; empty where there is none or that cannot be told."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
