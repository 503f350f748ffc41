"""Execution of one attempt at a mission, and the recording of its end.

`Attempts` runs an attempt as a unit of work and commits it. When the commit meets a conflict, the cycle is replayed
from the journal. The first try is free; a replay holds a gate that only one replay holds at a time, so that it makes
progress. Under the gate it never waits for a model: a missing inference leaves the gate first
(`batos.mind.inference.NeedInference`).

`Endings` records COMPLETE and FAILED, also while the disk is full. `Deadlines` and `in_time` end a mission whose time
is up.

An unvouched method is one that only the model that wrote it speaks for. It has no example, no intent, no agreement of several candidates
and no rating. It answers the message that it was written for, once. Then it is kept with the mission's thought instead of in its slot, and
the result says that it is unsure. A rating of +1 puts it into its slot; otherwise the next such message has another one written.
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
from batos.errors import (
    BatosError,
    BatosSignal,
    Conflicted,
    DeadlineExceeded,
    ImageAway,
    ImageDamaged,
    ImageFailed,
    MethodRefused,
    MissionCancelled,
    UnknownPersona,
    from_wire,
)
from batos.image import history, ledger, ownership, storage, zodb_patches
from batos.image.living_image import LivingImage
from batos.image.mission_record import FROM_OTHERS, MissionRecord
from batos.image.unit_of_work import Unit
from batos.methods.runtime import BeingWritten, WriterAwaited
from batos.mind.attempt import Attempt
from batos.mind.brief_analysis import KNOWN, Errand, said_of
from batos.mind.connection_search import connect_for_errand, find_connection, target_of
from batos.mind.evidence import Citation, NeedEvidence
from batos.mind.incarnation import learn
from batos.mind.inference import NeedInference, PromptTooLong
from batos.mind.messages import send
from batos.mind.model_needs import pictures_left_out
from batos.mind.psm import new_cycle, run_cycle
from batos.mind.router import RoutingLimits
from batos.missions.about_user import answer_about_user, as_recorded
from batos.missions.mission_queue import AttemptLimits
from batos.objects import Method, UvmObject, find
from batos.tools.effects import NeedEffect

log = structlog.get_logger("batos.mind")

_CONFLICTS_S = 20.0  # for which a mission that meets conflicts with those of other kernels is replayed at least


class Endings:
    """Recorder of mission ends. It publishes each end and counts it in `outcomes`."""

    def __init__(
        self, image: LivingImage, settings: Settings, release: Callable[[str], None], on_signal: Callable[[BaseException], None]
    ) -> None:
        """
        :param release: frees the mission's place. It is called before the end is published, so that a listener finds
            the place free.
        :param on_signal: receives the error of a storage that can no longer record anything.
        """
        self._image, self.settings, self._release, self._on_signal = image, settings, release, on_signal
        self.outcomes = {"COMPLETE": 0, "FAILED": 0}
        self.waiting: set[str] = set()
        """Missions whose end waits to be recorded until the disk has room."""
        self._changed = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Return the known reason why an end could not be recorded."""
        return (
            self._image.committer.trouble
            or f"its disk was full; it is tried again within {AttemptLimits.of(self.settings).disk_retry_s:g} s"
        )

    async def until(self, id: str, *, waits: bool) -> None:
        """Wait until a mission waits for room on the disk; with `waits` False, until it does not."""
        while (id in self.waiting) is not waits:
            await self._changed.wait()

    def note_waiting(self, id: str, waits: bool) -> None:
        if waits is not (id in self.waiting):
            (self.waiting.add if waits else self.waiting.discard)(id)
            self._changed.set()
            self._changed = asyncio.Event()

    def complete(self, attempt: Attempt, result: dict[str, Any]) -> None:
        """Publish that a mission is COMPLETE, which is on disk already."""
        self.outcomes["COMPLETE"] += 1
        attempt.state = ledger.COMPLETE
        log.info("complete", mission=attempt.id, persona=result.get("persona"), inferences=attempt.paid, replayed=attempt.tally.replayed)
        self._release(attempt.id)
        attempt.publish("state")
        attempt.publish("result", result=result)

    async def fail(self, attempt: Attempt, error: BatosError, *, final: bool) -> bool:
        """Record the failure of an attempt; return True if the mission is over.

        :param final: True if the mission ends with this failure, False if it is tried again.
        """
        record, id, wire = attempt.mission, attempt.id, error.to_wire()
        _drop_frames(error)
        context = {"state": attempt.reached, "persona": attempt.persona, "attempt": record.attempts, "paid": attempt.paid}
        if attempt.saw:
            context["saw"] = attempt.saw
        context["class"] = type((type(error) is BatosError and error.__cause__) or error).__name__
        if record.message:
            message = json.loads(record.message)
            context |= {"target": message["target"], "selector": message["selector"]}
        if isinstance(error, MethodRefused):
            kept = error.source.encode("utf-8", "replace")[: AttemptLimits.of(self.settings).source_bytes].decode("utf-8", "ignore")
            context["method"] = {"selector": error.selector, "source": kept, "reasons": list(error.reasons)}
        try:
            over: MissionRecord | None = await self.recorded(id, ledger.fail, id, wire, context, final)
        except ImageDamaged as e:  # what is damaged is the mission's own record, or the ledger's: all that is left is to say so
            log.error("failure_not_recorded", mission=id, error=e.message)
            over, wire, final = None, e.to_wire(), True
        if over is not None and self._image.kernel not in ("", over.kernel):  # another kernel ended it: `MissionNews` tells of that
            self._release(id)
            return True
        if over is not None and over.state == ledger.COMPLETE:  # its commit was under way when the error came, and reached the disk
            self.complete(attempt, over.result or {})
            return True
        if over is not None:  # it was cancelled while another failure was being recorded
            wire, final = over.error or {}, True
        told = {name: value for name, value in context.items() if name not in ("method", "saw")}
        if "cause" in (wire.get("context") or {}):
            told["cause"] = wire["context"]["cause"]
        log.warning("failed" if final else "attempt_failed", mission=id, **told, code=wire["code"], error=wire["message"])
        if final:
            self.failed(attempt, wire)
        return final

    async def uncounted(self, attempt: Attempt, error: ImageAway, ended: int) -> int:
        """Take back the count of an attempt that could not read the image, and wait for its server meanwhile, as each commit does.

        :param ended: number of attempts before it, which count.
        :returns: that number.
        """
        log.info("attempt_waits_for_image", mission=attempt.id, error=error.message)
        await self.recorded(attempt.id, ledger.uncount_attempt, attempt.id, ended, True)
        return ended

    async def recorded(self, id: str, function: Callable[..., Any], *args: Any) -> Any:
        """Run a system transaction for a mission, and repeat it while the disk is full.

        Without the repetition no task would look after the mission before the next start, and its watchers would wait
        as long.

        :raises ImageFailed: if the disk does not write for another reason, which does not pass while the daemon
            waits.
        """
        try:
            while True:
                try:
                    return await self._image.system(function, *args, mission=id)
                except OSError as e:
                    if storage.disk_full_error(e) is None:
                        failed = ImageFailed(f"mission {id!r} cannot be recorded: {e}; check the disk, then start the daemon again")
                        self._on_signal(failed)
                        raise failed from e
                    if id not in self.waiting:
                        log.error("waits_for_room", mission=id, error=repr(e), retry_s=AttemptLimits.of(self.settings).disk_retry_s)
                    self.note_waiting(id, True)
                await asyncio.sleep(AttemptLimits.of(self.settings).disk_retry_s)
        finally:
            self.note_waiting(id, False)

    def failed(self, attempt: Attempt, wire: dict[str, Any]) -> None:
        """Publish that a mission is FAILED, which is on disk already.

        :param wire: the error as the wire shows it.
        """
        self.outcomes["FAILED"] += 1
        self._release(attempt.id)
        if attempt.state != ledger.FAILED:  # else its cycle has said so
            attempt.state = ledger.FAILED
            attempt.publish("state", error=wire)
        attempt.publish("result", error=wire)


class Deadlines:
    """Timers of waiting missions that have a deadline of their own. It counts from the acceptance, also over
    restarts. A timer and its record live no longer than the mission waits."""

    def __init__(self, expire: Callable[[MissionRecord], None]) -> None:
        self._expire = expire
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def begin(self, record: MissionRecord) -> None:
        """Start the timer of a mission that begins to wait, or waits again."""
        self.end(record.id)
        if record.deadline_s is not None:
            left = record.accepted + record.deadline_s - time.time()
            self._timers[record.id] = asyncio.get_running_loop().call_later(max(0.0, left), self._expire, record)

    def end(self, id: str) -> None:
        """Stop the timer of a mission that waits no longer."""
        if (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()


@contextlib.asynccontextmanager
async def in_time(attempt: Attempt, limit_s: float) -> AsyncIterator[None]:
    """Limit the time of the block. A deadline of the mission's own counts from its acceptance, also over restarts;
    the default counts from here.

    :param limit_s: the default, in seconds.
    :raises DeadlineExceeded: when the time is up; with the cause `unreachable` if no Ollama answers.
    """
    record, left = attempt.mission, limit_s
    if record.deadline_s is not None:
        left = float(record.accepted + record.deadline_s - time.time())
    late = f"mission {record.id!r} was not finished in time (attempt {record.attempts})"
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
"""Slot of a thought: holder, selector and method of each unvouched method that was moved out of its slot."""
_NO_MODEL = ("rule", "handbook")  # who wrote it, where that is no model
UNSURE = (
    "no user said what {selector} is for: it was written for this one answer, and is not kept. `batos rate {id} +1` keeps it. "
    "`batos teach` with an example has one written that is held against it"
)


def settle_unvouched(attempt: Attempt, message: Mapping[str, Any], receiver: UvmObject) -> dict[str, Any]:
    """Move unvouched methods out of their slots at the end of a mission that sent a message; return facts for its
    result.

    The methods are kept with the thought. A method vouches for what it sends, so that nothing is written anew at each of its runs. So only
    if the message's own method is unvouched, the methods that were written on its way are moved, too.
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
    """Return True if more than the model that wrote a method speaks for it: a lesson, an intent or an earlier version in its slot. A rule
    or handbook in a model's place speaks for it, too, and so does agreement of most of several candidates."""
    came = dict(method.provenance)
    if method.previous is not None or came["trials"] > 1 or came["intent"] or came["model"] in _NO_MODEL:
        return True
    return bool(came["candidates"] > 1 and 2 * came["agreed"] > came["candidates"])


def keep_rated(mission: UvmObject, rating: int) -> None:
    """Apply a user's rating to the methods that were written for a mission. Part of a system transaction.

    A rating of +1 puts them into their slots where those are empty by now; -1 takes them out again.
    """
    if mission.message is None or mission.thought is None:
        return
    for holder, selector, method in mission.thought._slots.get(DRAFTS) or ():
        if rating > 0 and find(holder, selector) is None:
            holder._slots[selector] = method
        elif rating < 0 and holder._slots.get(selector) is method:
            del holder._slots[selector]


def settle_unvouched_again(mission: UvmObject, *, redo: bool) -> None:
    """Take a rating's methods out with the undo of their mission, or put them back with its redo. Part of that
    transaction."""
    rated = json.loads(mission.rating)["rating"] if mission.rating else 0
    keep_rated(mission, rated if redo else -1)


class HeldBack(BatosSignal):
    """Signal that the user paused a mission under way by another kernel than the one that thinks it through, or continued it with changes.
    Nothing of this attempt is committed."""


def _heed(mission: UvmObject) -> None:
    """See that a mission is not completed which its user steered by another kernel: what that one said stands on disk.

    :raises MissionCancelled: if it was cancelled.
    :raises HeldBack: if it was paused.
    """
    if mission.cancelled:
        raise MissionCancelled(f"mission {mission.id!r} was cancelled")
    if mission.paused:
        raise HeldBack(f"mission {mission.id!r} was paused")


def _drop_frames(error: BaseException) -> None:
    """Drop the frames of an error and of its causes: they hold the error and the attempt, which only the collector could free then."""
    one: BaseException | None = error
    done: set[int] = set()
    while one is not None and id(one) not in done:  # an error may be its own cause
        done.add(id(one))
        one.__traceback__ = None
        one = one.__cause__ or one.__context__


class Attempts:
    """Runner of attempts against one image. It holds the gate of the replays."""

    def __init__(self, image: LivingImage, *, conflict_retries: int) -> None:
        self._image, self._retries = image, conflict_retries
        self._gate = asyncio.Lock()

    async def run(self, attempt: Attempt) -> dict[str, Any]:
        """Think a mission through, commit it, and return its result.

        :raises Conflicted: after more than `AttemptLimits.conflict_retries` conflicts. Where several kernels serve the image, twenty
            seconds have passed since the first of them, too. A replay may lose against those of the others many times.
        :raises BatosError: if the cycle fails; nothing was committed then.
        """
        if attempt.mission.resumed:
            attempt.recall()
        if not attempt.mission.message:
            await connect_for_errand(attempt)
        attempt.told_by_user = await answer_about_user(attempt, self._image)
        if not attempt.mission.message and attempt.errand is None and attempt.told_by_user is None:
            await attempt.decide()  # before the unit is opened: it may take a while
            await attempt.check_needs()
            await attempt.check_sight()
        await find_connection(attempt)
        try:
            return await self._until_committed(attempt)
        finally:
            attempt.making.release()

    async def _until_committed(self, attempt: Attempt) -> dict[str, Any]:
        conflicts, first = 0, 0.0
        while True:
            try:
                async with self._replays() if attempt.gated else contextlib.nullcontext():
                    return await self._once(attempt)
            except TransientError as e:
                conflicts += 1
                first = first or time.monotonic()
                log.info("conflict", mission=attempt.id, conflicts=conflicts, error=str(e)[:200])
                if conflicts > self._retries and not (self._image.kernel and time.monotonic() - first < _CONFLICTS_S):
                    raise Conflicted(f"mission {attempt.id!r} met {conflicts} conflicts; the limit is {self._retries}") from e
                attempt.restart(gated=True)
            except BeingWritten as written:
                await attempt.making.methods.claims.ended(written.other, attempt.id)
                attempt.restart(gated=attempt.gated)
            except WriterAwaited:
                await attempt.making.methods.writer_known()
                attempt.restart(gated=attempt.gated)
            except (NeedInference, NeedEffect) as need:
                await attempt.settle(need)
                attempt.restart(gated=True)
            except PromptTooLong as found:
                attempt.narrow(found)
                attempt.restart(gated=attempt.gated)
            except NeedEvidence as need:
                await attempt.evidence.about(need.question)
                attempt.restart(gated=True)

    @contextlib.asynccontextmanager
    async def _replays(self) -> AsyncIterator[None]:
        """Keep the replays apart: those of this kernel, and where its server knows turns those of all kernels."""
        async with self._gate, self._image.replay_turn():
            yield

    async def _once(self, attempt: Attempt) -> dict[str, Any]:
        async with self._image.unit() as unit:
            attempt.saw = zodb_patches.first_unseen(unit.connection).hex()
            mission = ledger.mission_of(unit.root, attempt.id)
            ownership.require_own(unit.root, mission)
            if mission.state in ledger.FINAL:  # an earlier attempt's commit had reached the disk after all, or another kernel ended it
                if mission.error:
                    raise from_wire(json.loads(mission.error))
                return json.loads(mission.result) if mission.result else {}
            if self._image.kernel:
                _heed(mission)
            if ledger.continuations_of(mission) != len(attempt.mission.continued):
                raise HeldBack(f"mission {mission.id!r} was continued: this attempt has its former thought")
            try:
                with scope.begin(attempt):
                    result, cycle = await self._think(unit, mission, attempt)
            except BaseException:
                unit.doom()
                raise
            self._learn(unit, mission, attempt)
            result |= {"usage": attempt.usage(), **attempt.tools.facts()}
            ledger.complete(mission, result, cycle)
            unit.note(attempt.id, f"COMPLETE by {result['persona'] or 'no persona'}")
        attempt.evidence.committed()
        self._image.committer.defer(ledger.settle, attempt.id, attempt.evidence.recalled)
        return result

    def _learn(self, unit: Unit, mission: UvmObject, attempt: Attempt) -> None:
        """Teach the router the brief of a mission that completed with another persona than the router would have
        chosen."""
        route, limit = attempt.routed, RoutingLimits.of(attempt.settings).learned
        if mission.origin in FROM_OTHERS:
            return  # text of others teaches nothing
        if route is not None and limit and route.preferred not in (None, route.persona):
            lobby = unit.root["lobby"]
            personas = {name: found for name in lobby.personas if isinstance(found := lobby._slots.get(name), UvmObject)}
            learn(personas, route.persona, attempt.services.router.window(mission.brief), attempt.id, limit)

    async def rehearse(self, attempt: Attempt, see: Callable[[dict[str, Any], UvmObject | None], None] | None = None) -> dict[str, Any]:
        """Think a mission through in a doomed unit of work, which keeps nothing.

        :param see: receives the result and the cycle while they exist.
        :raises BatosError: if the cycle fails.
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
            result, cycle = await self.think_in(unit, attempt)
            if see is not None:
                see(result, cycle)
            return result

    async def think_in(self, unit: Unit, attempt: Attempt) -> tuple[dict[str, Any], UvmObject | None]:
        """Think a mission through in a doomed unit of work that the caller holds; return its result and its cycle.

        :raises BatosError: if the cycle fails.
        """
        with scope.begin(attempt):
            return await self._think(unit, ledger.mission_of(unit.root, attempt.id), attempt)

    async def _think(self, unit: Unit, mission: UvmObject, attempt: Attempt) -> tuple[dict[str, Any], UvmObject | None]:
        if mission.message:
            message = json.loads(mission.message)
            goes = target_of(attempt, message)
            target = history.resolve(unit.root, goes.target)
            value = await send(target, goes.selector, *message["args"], **message["kwargs"])
            shown = history.whole(value)
            own = value._slots.get("text") if isinstance(value, UvmObject) else value  # what a summary or a passage says
            text = own if isinstance(own, str) else json.dumps(shown, ensure_ascii=False)
            speaker = str(target.name) if find(target, "core_mission") else attempt.persona or None
            facts: dict[str, Any] = {"text": text, "value": shown, "persona": speaker}
            if goes.target != message["target"]:
                facts["sent_to"] = goes.target  # the connection that was found in the place of one that is not there
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
        if (told := attempt.told_by_user or as_recorded(attempt.mission)) is not None:
            return dict(told), None
        route = await attempt.decide()
        attempt.load_conversation(unit.root, mission)
        persona = unit.root["lobby"]._slots.get(route.persona)
        if not isinstance(persona, UvmObject):
            raise UnknownPersona(
                f"the persona {route.persona!r} of this mission is no longer in the image; submit its brief again for another persona"
            )
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
        if left := pictures_left_out(attempt.mission.images or (), attempt.shown if attempt.room is None else ()):
            facts["images_left_out"] = left
        if cycle.left_out:
            facts["left_out"] = dict(cycle.left_out)  # characters that were not told: all was too long for one prompt
            log.info("left_out", mission=attempt.id, **facts["left_out"])
        if cycle.unsure:
            facts["unsure"] = cycle.unsure  # why it may not be the answer: it is the best that was at hand
        if cycle.cannot:
            facts["cannot"] = cycle.cannot  # what was asked for could not be done, and the text says why
        if "called" in cycle._slots:
            facts["called"] = json.loads(cycle.called)  # the method that answered in a model's place
        if "program" in cycle._slots:
            facts["program"] = cycle.program  # the plan that called the tools
        if cycle.silent:
            facts["silent"] = [name for name, _ in cycle.silent]
        if mission.origin == "system":
            facts |= await attempt.services.propose(unit.root, mission, cycle)
        # The answer is the mission's: its result has it, the record of the thought need not have it again.
        return {"text": cycle._slots.pop("answer"), "value": cycle._slots.pop("value", None), **facts}, cycle


def _told(errand: Errand, mission: MissionRecord) -> dict[str, Any]:
    """Return the result of an errand: the reading of the clock, or the reason why it cannot be done. No model is
    asked."""
    at = mission.finished or time.time()  # a replay is told what the clock showed then
    facts: dict[str, Any] = {
        "text": said_of(errand, datetime.datetime.fromtimestamp(at).astimezone()),
        "value": None,
        "persona": str(mission.persona).upper() if mission.persona else None,
    }
    if errand.kind in KNOWN:
        return {**facts, "why": f"asks for the {errand.kind}, which the machine's clock shows"}
    return {**facts, "why": "asks for something outside the system, which it cannot do", "cannot": errand.kind}
