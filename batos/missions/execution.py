"""One attempt at a mission: a unit of work, replayed from the journal when its commit meets a conflict.

The first try is free. After a conflict the cycle is replayed under a gate that only one replay holds at a time, so that
it makes progress; under the gate it never waits for a model (see `signals.NeedInference`).

How missions end: COMPLETE, FAILED with what is kept of it, or out of time.

Methods that nobody vouches for: no example, no intent, no agreement of several candidates, no rating, no word of their user's.

Such a method answers the message that it was written for, once. It is not kept in its place but with the mission's thought, and the result
says that it is unsure. A rating of +1 confirms it (`keep`); else the next such message has another one written.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import structlog
from transaction.interfaces import TransientError

from batos import scope
from batos.config import Settings
from batos.errors import BatosError, Conflicted, DeadlineExceeded, ImageDamaged, ImageFailed, MethodRefused, UnknownPersona
from batos.image import history, ledger, storage
from batos.image.living_image import LivingImage
from batos.image.unit_of_work import Unit
from batos.methods.runtime import BeingWritten, WriterAwaited
from batos.mind import model_needs, prompts
from batos.mind.attempt import Attempt
from batos.mind.brief_analysis import KNOWN, Errand, said_of
from batos.mind.evidence import Citation, EvidenceLimits, NeedEvidence
from batos.mind.incarnation import learn
from batos.mind.inference import NeedInference, PromptTooLong, ThinkingLimits
from batos.mind.messages import send
from batos.mind.psm import new_cycle, run_cycle
from batos.mind.router import RoutingLimits
from batos.missions.mission_queue import AttemptLimits
from batos.objects import Method, UvmObject, find

log = structlog.get_logger("batos.mind")
Record = dict[str, Any]


class Endings:
    """Records and tells ends. `outcomes` counts them."""

    def __init__(
        self, image: LivingImage, settings: Settings, release: Callable[[str], None], on_signal: Callable[[BaseException], None]
    ) -> None:
        """
        :param release: frees the mission's place: before its end is published, so that whoever hears of it finds the place free.
        :param on_signal: hears of a storage in which nothing can be recorded.
        """
        self._image, self.settings, self._release, self._on_signal = image, settings, release, on_signal
        self.outcomes = {"COMPLETE": 0, "FAILED": 0}
        self.waiting: set[str] = set()
        """Missions that wait for room on the disk, so that something can be recorded of them."""
        self._changed = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Why something could not be recorded, as far as that is known still."""
        return (
            self._image.committer.trouble
            or f"its disk was full; it is tried again within {AttemptLimits.of(self.settings).disk_retry_s:g} s"
        )

    async def until(self, id: str, *, waits: bool) -> None:
        """Return once a mission waits for room on the disk, or once it does not."""
        while (id in self.waiting) is not waits:
            await self._changed.wait()

    def _waits(self, id: str, waits: bool) -> None:
        if waits is not (id in self.waiting):
            (self.waiting.add if waits else self.waiting.discard)(id)
            self._changed.set()
            self._changed = asyncio.Event()

    def complete(self, record: Record, attempt: Attempt, result: Record) -> None:
        """A mission ended well, and that is on disk."""
        self.outcomes["COMPLETE"] += 1
        attempt.state = ledger.COMPLETE
        log.info("complete", mission=record["id"], persona=result.get("persona"), inferences=attempt.paid, replayed=attempt.tally.replayed)
        self._release(record["id"])
        attempt.publish("state")
        attempt.publish("result", result=result)

    async def fail(self, record: Record, attempt: Attempt, error: BatosError, *, final: bool) -> bool:
        """Record the failure of an attempt; whether the mission is over."""
        id, wire = record["id"], error.to_wire()
        context = {"state": attempt.reached, "persona": attempt.persona, "attempt": record["attempts"], "paid": attempt.paid}
        context["class"] = type((type(error) is BatosError and error.__cause__) or error).__name__
        if record["message"]:
            message = json.loads(record["message"])
            context |= {"target": message["target"], "selector": message["selector"]}
        if isinstance(error, MethodRefused):
            kept = error.source.encode("utf-8", "replace")[: AttemptLimits.of(self.settings).source_bytes].decode("utf-8", "ignore")
            context["method"] = {"selector": error.selector, "source": kept, "reasons": list(error.reasons)}
        try:
            over = await self.recorded(id, ledger.fail, id, wire, context, final)
        except ImageDamaged as e:  # what is damaged is the mission's own record, or the ledger's: all that is left is to say so
            log.error("failure_not_recorded", mission=id, error=e.message)
            over, wire, final = None, e.to_wire(), True
        if over is not None and over["state"] == ledger.COMPLETE:  # its commit was under way when the error came, and reached the disk
            self.complete(record, attempt, over["result"] or {})
            return True
        if over is not None:  # it was cancelled while another failure was being recorded
            wire, final = over["error"], True
        told = {name: value for name, value in context.items() if name != "method"}
        if "cause" in (wire.get("context") or {}):
            told["cause"] = wire["context"]["cause"]
        log.warning("failed" if final else "attempt_failed", mission=id, **told, code=wire["code"], error=wire["message"])
        if final:
            self.failed(record, attempt, wire)
        return final

    async def recorded(self, id: str, function: Callable[..., Any], *args: Any) -> Any:
        """A system transaction of a mission, tried again until it is recorded where the disk is full: else nobody would look after
        the mission before the next start, and whoever watches it would wait as long.

        :raises ImageFailed: where the disk does not write for another reason: that does not pass while the daemon waits for it.
        """
        try:
            while True:
                try:
                    return await self._image.system(function, *args, mission=id)
                except OSError as e:
                    if storage.disk_full_error(e) is None:
                        failed = ImageFailed(
                            f"nothing can be recorded of mission {id!r}: {e}; look at the disk, then start the daemon again"
                        )
                        self._on_signal(failed)
                        raise failed from e
                    if id not in self.waiting:
                        log.error("waits_for_room", mission=id, error=repr(e), retry_s=AttemptLimits.of(self.settings).disk_retry_s)
                    self._waits(id, True)
                await asyncio.sleep(AttemptLimits.of(self.settings).disk_retry_s)
        finally:
            self._waits(id, False)

    def failed(self, record: Record, attempt: Attempt, wire: Record) -> None:
        """A mission ended FAILED, and that is on disk.

        :param wire: the error as the wire shows it.
        """
        self.outcomes["FAILED"] += 1
        self._release(record["id"])
        if attempt.state != ledger.FAILED:  # else its cycle has said so
            attempt.state = ledger.FAILED
            attempt.publish("state", error=wire)
        attempt.publish("result", error=wire)


class Deadlines:
    """Own deadlines of missions that wait: they count from the acceptance, also over restarts. A timer and its record stay no longer
    than the mission waits."""

    def __init__(self, expire: Callable[[Record], None]) -> None:
        self._expire = expire
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def begin(self, record: Record) -> None:
        """This mission waits from now on, or again."""
        self.end(record["id"])
        if record["deadline_s"] is not None:
            left = record["accepted"] + record["deadline_s"] - time.time()
            self._timers[record["id"]] = asyncio.get_running_loop().call_later(max(0.0, left), self._expire, record)

    def end(self, id: str) -> None:
        """It does not wait any more."""
        if (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()


@contextlib.asynccontextmanager
async def in_time(record: Record, attempt: Attempt, limit_s: float) -> AsyncIterator[None]:
    """See that the block is done in time: an own deadline counts from the acceptance, also over restarts, the default from here.

    :param limit_s: the default.
    :raises DeadlineExceeded: when it was not; with cause `unreachable` where no Ollama answers.
    """
    left = limit_s
    if record["deadline_s"] is not None:
        left = float(record["accepted"] + record["deadline_s"] - time.time())
    late = f"mission {record['id']!r} was not finished in time (attempt {record['attempts']})"
    if left <= 0:
        raise DeadlineExceeded(late)
    try:
        async with asyncio.timeout(left) as timer:
            yield
    except TimeoutError:
        if not timer.expired():  # a time-out inside the thought: a fault of its own
            raise
        if outage := attempt.services.outage():
            raise DeadlineExceeded(f"{late}: {outage}", cause="unreachable") from None
        raise DeadlineExceeded(late) from None


DRAFTS = "drafts"
"""Slot of a thought: for each method that is not in its place its holder, selector and itself."""
_NO_MODEL = ("rule", "handbook")  # who wrote it, where that is no model
UNSURE = (
    "nobody said what {selector} is for: it was written for this one answer, and is not kept; `batos rate {id} +1` keeps it, and "
    "`batos teach` with an example has one written that is held against it"
)


def settle_unvouched(attempt: Attempt, message: Mapping[str, Any], receiver: UvmObject) -> dict[str, Any]:
    """At the end of a mission that sent a message: take what nobody vouches for out of its place, and keep it with the thought; facts for
    the result.

    What a method sends is vouched for by the method, so that nothing is written anew at each of its runs: only where the message's own one
    is tentative, what was written on its way is, too.
    """
    forged = attempt.tally.forged
    own = next((one for one in forged if one.selector == message["selector"] and one.target is receiver), None)
    written = None if own is None else own.holder._slots.get(own.selector)
    if own is None or message.get("write") or not isinstance(written, Method) or is_vouched_for(written):
        return {}
    drafts = []
    for one in forged:
        method = one.holder._slots.get(one.selector)
        if isinstance(method, Method) and not is_vouched_for(method):
            drafts.append((one.holder, one.selector, method))
            del one.holder._slots[one.selector]
    if drafts:
        forged[-1]._slots[DRAFTS] = tuple(drafts)
    return {"unsure": UNSURE.format(selector=own.selector, id=attempt.id)}


def is_vouched_for(method: Method) -> bool:
    """Whether anything but the model that wrote it speaks for a method: what was taught, what it is for, an earlier version in its place, a
    rule or a handbook in a model's place, or most of several candidates that do the same."""
    came = dict(method.provenance)
    if method.previous is not None or came["trials"] > 1 or came["intent"] or came["model"] in _NO_MODEL:
        return True
    return bool(came["candidates"] > 1 and 2 * came["agreed"] > came["candidates"])


def keep_rated(mission: UvmObject, rating: int) -> None:
    """System transaction's part: a user rated a mission; +1 puts the methods that were written for it into their places, where nothing is
    by now, and -1 takes them out again."""
    if mission.message is None or mission.thought is None:
        return
    for holder, selector, method in mission.thought._slots.get(DRAFTS) or ():
        if rating > 0 and find(holder, selector) is None:
            holder._slots[selector] = method
        elif rating < 0 and holder._slots.get(selector) is method:
            del holder._slots[selector]


def settle_unvouched_again(mission: UvmObject, *, redo: bool) -> None:
    """Part of the transaction that undoes a mission, or does it again: what a rating confirmed goes with it, and comes back."""
    rated = json.loads(mission.rating)["rating"] if mission.rating else 0
    keep_rated(mission, rated if redo else -1)


class Attempts:
    """Runs attempts against one image; holds the gate."""

    def __init__(self, image: LivingImage, *, conflict_retries: int) -> None:
        self._image, self._retries = image, conflict_retries
        self._gate = asyncio.Lock()

    async def run(self, attempt: Attempt) -> dict[str, Any]:
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

    async def _until_committed(self, attempt: Attempt) -> dict[str, Any]:
        conflicts = 0
        while True:
            try:
                async with self._gate if attempt.gated else contextlib.nullcontext():
                    return await self._once(attempt)
            except TransientError as e:
                conflicts += 1
                log.info("conflict", mission=attempt.id, conflicts=conflicts, error=str(e)[:200])
                if conflicts > self._retries:
                    raise Conflicted(f"mission {attempt.id!r} met {conflicts} conflicts; the limit is {self._retries}") from e
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

    async def _once(self, attempt: Attempt) -> dict[str, Any]:
        async with self._image.unit() as unit:
            mission = ledger.mission_of(unit.root, attempt.id)
            if mission.state in ledger.FINAL:  # an earlier attempt's commit had reached the disk after all
                return json.loads(mission.result) if mission.result else {}
            try:
                with scope.begin(attempt):
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

    def _learn(self, unit: Unit, mission: UvmObject, attempt: Attempt) -> None:
        """Where its user chose another persona than the router would have, and it came to an end, the brief tells the router more."""
        route, limit = attempt.routed, RoutingLimits.of(attempt.settings).learned
        if route is not None and limit and route.preferred not in (None, route.persona):
            lobby = unit.root["lobby"]
            personas = {name: found for name in lobby.personas if isinstance(found := lobby._slots.get(name), UvmObject)}
            learn(personas, route.persona, attempt.services.router.window(mission.brief), attempt.id, limit)

    async def rehearse(self, attempt: Attempt, see: Callable[[dict[str, Any], UvmObject | None], None] | None = None) -> dict[str, Any]:
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

    async def _rehearsed(self, attempt: Attempt, see: Callable[[dict[str, Any], UvmObject | None], None] | None) -> dict[str, Any]:
        async with self._image.unit() as unit:
            unit.doom()
            with scope.begin(attempt):
                result, cycle = await self._think(unit, ledger.mission_of(unit.root, attempt.id), attempt)
            if see is not None:
                see(result, cycle)
            return result

    async def _think(self, unit: Unit, mission: UvmObject, attempt: Attempt) -> tuple[dict[str, Any], UvmObject | None]:
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
                facts |= settle_unvouched(attempt, message, target)
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
        limits = EvidenceLimits.of(attempt.settings)
        before = {"missions": limits.context_missions, "chars": limits.context_chars}
        attempt.conversation = prompts.conversation_text(unit.root, mission, **before)
        attempt.turns = prompts.conversation_turns(unit.root, mission, **before)
        if images := attempt.mission["images"]:
            told_of = prompts.missions_of_turns(unit.root, mission, **before)
            attempt.shown = model_needs.pictures_shown(images, attempt.id, told_of, ThinkingLimits.of(attempt.settings).images)
        attempt.follows_deep = prompts.is_deep_before(unit.root, mission)
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
        if mission.origin == "system":
            facts |= await attempt.services.propose(unit.root, mission, cycle)
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
