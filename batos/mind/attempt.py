"""One attempt at a mission: a unit of work, replayed from the journal when its commit meets a conflict.

The first try is free. After a conflict the cycle is replayed under a gate that only one replay holds at a time, so that
it makes progress; under the gate it never waits for a model (see `signals.NeedInference`).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import time
from collections.abc import Callable
from typing import Any

import structlog
from transaction.interfaces import TransientError

from batos.errors import Conflicted, UnknownPersona
from batos.image import history, ledger
from batos.image.living import LivingImage
from batos.image.unit import Unit
from batos.mind import conversation, sight, tentative
from batos.mind.claims import BeingWritten, WriterAwaited
from batos.mind.errands import KNOWN, Errand, said_of
from batos.mind.evidence import Citation, NeedEvidence
from batos.mind.learning import learn
from batos.mind.messages import send
from batos.mind.psm import new_cycle, run_cycle
from batos.mind.signals import NeedInference, PromptTooLong
from batos.mind.thinking import Thinking, thinking
from batos.objects import UvmObject, find

log = structlog.get_logger("batos.mind")


class Attempts:
    """Runs attempts against one image; holds the gate."""

    def __init__(self, image: LivingImage, *, conflict_retries: int) -> None:
        self._image, self._retries = image, conflict_retries
        self._gate = asyncio.Lock()

    async def run(self, attempt: Thinking) -> dict[str, Any]:
        """Think the mission through and commit; the result.

        :raises Conflicted: after too many conflicts.
        :raises BatosError: as the cycle failed; nothing was committed then.
        """
        if attempt.mission.get("resumed"):
            attempt.recall()
        if not attempt.mission["message"] and attempt.errand is None:
            await attempt.decide()  # before the unit is opened: it may take a while
            await attempt.check_needs()
            await attempt.look()
        try:
            return await self._until_committed(attempt)
        finally:
            attempt.making.release()

    async def _until_committed(self, attempt: Thinking) -> dict[str, Any]:
        conflicts = 0
        while True:
            try:
                async with self._gate if attempt.gated else contextlib.nullcontext():
                    return await self._once(attempt)
            except TransientError as e:
                conflicts += 1
                log.info("conflict", mission=attempt.id, conflicts=conflicts, error=str(e)[:200])
                if conflicts > self._retries:
                    raise Conflicted(
                        f"mission {attempt.id!r} met {conflicts} conflicts; the limit conflict_retries is {self._retries}"
                    ) from e
                attempt.restart(gated=True)
            except BeingWritten as written:
                await attempt.making.methods.claims.ended(written.other, attempt.id)
                attempt.restart(gated=attempt.gated)
            except WriterAwaited:
                await attempt.making.methods.writer_known()
                attempt.restart(gated=attempt.gated)
            except NeedInference as need:
                await attempt.settle(need)
                attempt.restart(gated=True)
            except PromptTooLong as found:
                attempt.narrow(found)
                attempt.restart(gated=attempt.gated)
            except NeedEvidence as need:
                await attempt.evidence.about(need.question)
                attempt.restart(gated=True)

    async def _once(self, attempt: Thinking) -> dict[str, Any]:
        async with self._image.unit() as unit:
            mission = ledger.mission_of(unit.root, attempt.id)
            if mission.state in ledger.FINAL:  # an earlier attempt's commit had reached the disk after all
                return json.loads(mission.result) if mission.result else {}
            try:
                with thinking(attempt):
                    result, cycle = await self._think(unit, mission, attempt)
            except BaseException:
                unit.doom()
                raise
            self._learn(unit, mission, attempt)
            result["usage"] = attempt.usage()
            ledger.complete(mission, result, cycle)
            unit.note(attempt.id, f"COMPLETE by {result['persona'] or 'no persona'}")
        attempt.evidence.committed()
        self._image.committer.defer(ledger.settle, attempt.id, attempt.evidence.recalled)
        return result

    def _learn(self, unit: Unit, mission: UvmObject, attempt: Thinking) -> None:
        """Where its user chose another persona than the router would have, and it came to an end, the brief tells the router more."""
        route, limit = attempt.routed, attempt.settings.learned_exemplars
        if route is not None and limit and route.preferred not in (None, route.persona):
            lobby = unit.root["lobby"]
            personas = {name: found for name in lobby.personas if isinstance(found := lobby._slots.get(name), UvmObject)}
            learn(personas, route.persona, attempt.router.window(mission.brief), attempt.id, limit)

    async def rehearse(self, attempt: Thinking, see: Callable[[dict[str, Any], UvmObject | None], None] | None = None) -> dict[str, Any]:
        """Think a mission through in a unit that is doomed from the beginning: whatever comes of it, nothing is kept.

        :param see: is shown the result and the cycle while they are there.
        :raises BatosError: as the cycle failed.
        """
        try:
            while True:
                try:
                    return await self._rehearsed(attempt, see)
                except PromptTooLong as found:
                    attempt.narrow(found)
                    attempt.restart(gated=False)
        finally:
            attempt.making.release()

    async def _rehearsed(self, attempt: Thinking, see: Callable[[dict[str, Any], UvmObject | None], None] | None) -> dict[str, Any]:
        async with self._image.unit() as unit:
            unit.doom()
            with thinking(attempt):
                result, cycle = await self._think(unit, ledger.mission_of(unit.root, attempt.id), attempt)
            if see is not None:
                see(result, cycle)
            return result

    async def _think(self, unit: Unit, mission: UvmObject, attempt: Thinking) -> tuple[dict[str, Any], UvmObject | None]:
        if mission.message:
            message = json.loads(mission.message)
            target = history.resolve(unit.root, message["target"])
            value = await send(target, message["selector"], *message["args"], **message["kwargs"])
            shown = history.whole(value)
            own = value._slots.get("text") if isinstance(value, UvmObject) else value  # what a summary or a passage says
            text = own if isinstance(own, str) else json.dumps(shown, ensure_ascii=False)
            speaker = str(target.name) if find(target, "core_mission") else attempt.persona or None
            facts: dict[str, Any] = {"text": text, "value": shown, "persona": speaker}
            forged = attempt.tally.forged
            if forged:
                facts |= tentative.settle(attempt, message, target)
                facts["wrote"] = [
                    {
                        "selector": one.selector, "object": history.oid_of(one.holder), "receiver": history.oid_of(one.target),
                        "tries": one.tries, "candidates": one.compared, "agreed": one.agreed, "edited": one.edited,
                        "open": [json.loads(text) for text in one.open],
                    }
                    for one in forged
                ]  # fmt: skip
            return facts, forged[-1] if forged else None
        if attempt.errand is not None:
            return _told(attempt.errand, attempt.mission), None
        route = await attempt.decide()
        limits = attempt.settings
        before = {"missions": limits.context_missions, "chars": limits.context_chars}
        attempt.conversation = conversation.told(unit.root, mission, **before)
        attempt.turns = conversation.turns(unit.root, mission, **before)
        if images := attempt.mission["images"]:
            told_of = conversation.told_of(unit.root, mission, **before)
            attempt.shown = sight.shown(images, attempt.id, told_of, limits.brief_images)
        attempt.follows_deep = conversation.is_deep_before(unit.root, mission)
        persona = unit.root["lobby"]._slots.get(route.persona)
        if not isinstance(persona, UvmObject):
            raise UnknownPersona(f"the persona {route.persona!r} of this mission is not in the image any more; give it again to another")
        if (ruled := await attempt.ruled(unit.root, mission, persona)) is not None:
            return {"value": None, **ruled, "persona": persona.name, "why": route.why, "by_rule": True}, None
        cycle = new_cycle(persona, mission.brief, route)
        await run_cycle(cycle, attempt)
        facts = {"persona": persona.name, "why": route.why, "facets": [name for name, _ in cycle.plan], "plan": cycle.plan_source}
        if not attempt.earlier:
            facts["depth"] = cycle.depth
        if attempt.provision:
            facts["provided"] = attempt.provision.facts()
        if cycle.cited:
            facts["citations"] = [Citation(*one).to_wire() for one in cycle.cited]
        if cycle.quoted:
            facts["quoted"] = True  # memory's own words: what the model made of them was not fit
        if cycle.cut:
            facts["cut"] = True  # the answer came to the longest that it may be, and ends with its last whole sentence
        if attempt.room is not None and (left := sum(map(len, attempt.shown[:-1]))):
            facts["images_left_out"] = left  # those of earlier missions, likewise
        if cycle.left_out:
            facts["left_out"] = dict(cycle.left_out)  # characters that were not told: all was too long for the model's context
        if cycle.unsure:
            facts["unsure"] = cycle.unsure  # why it may not be the answer: it is the best that was at hand
        if "called" in cycle._slots:
            facts["called"] = json.loads(cycle.called)  # the method that answered in a model's place
        if cycle.silent:
            facts["silent"] = [name for name, _ in cycle.silent]
        if attempt.proposes and mission.origin == "system":
            facts |= await attempt.propose(unit.root, mission, cycle)
        # The answer is the mission's: its result has it, the record of the thought need not have it again.
        return {"text": cycle._slots.pop("answer"), "value": cycle._slots.pop("value", None), **facts}, cycle


def _told(errand: Errand, mission: dict[str, Any]) -> dict[str, Any]:
    """The result of a mission that is an errand: what the clock shows, or that it cannot be done. No model is asked."""
    at = mission["finished"] or time.time()  # a replay is told what the clock showed then
    facts: dict[str, Any] = {
        "text": said_of(errand, datetime.datetime.fromtimestamp(at).astimezone()),
        "value": None,
        "persona": str(mission["persona"]).upper() if mission["persona"] else None,
    }
    if errand.kind in KNOWN:
        return {**facts, "why": f"asks for the {errand.kind}, which the machine's clock shows"}
    return {**facts, "why": "asks for what is done outside, and there is no way to do it", "cannot": errand.kind}
