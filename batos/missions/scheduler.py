"""Scheduler: accepts missions, queues them, and attempts them until they end.

Missions of users go before the system's own. A crash loses nothing. Before `accept` is durable nothing was promised. After it, `recover`
finds the mission at the next start, with its attempts counted and its inferences in the journal.

Those that are held back, or rest, are in `batos.missions.held_missions`. `batos.missions.cancellations`
has those that are being cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import structlog
from ZODB.POSException import POSKeyError

from batos import scope
from batos.bridge.admission import Ticket, session
from batos.cluster.membership import Alone, Membership
from batos.concurrency import Background
from batos.config import Settings
from batos.errors import (
    BatosError,
    BatosSignal,
    Busy,
    DeadlineExceeded,
    ImageAway,
    ImageDamaged,
    InferenceFailed,
    InvalidInput,
    MissionCancelled,
)
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord, draft
from batos.image.ownership import Overtaken
from batos.mind.attempt import Attempt
from batos.mind.attempt_services import AttemptServices
from batos.mind.events import Events
from batos.mind.inference import NeedAnswer, ThinkingLimits, as_error
from batos.mind.model_needs import NeedModel
from batos.missions.cancellations import Cancellations
from batos.missions.execution import Attempts, Deadlines, Endings, HeldBack, in_time
from batos.missions.held_missions import HeldMissions, RestingMissions, held_state
from batos.missions.mission_queue import AttemptLimits, Grouping, MissionQueue, QueuedMission
from batos.missions.sweep import MissionSweep
from batos.tools.machines import NeedMachine

log = structlog.get_logger("batos.mind")


class _Unfit(BatosSignal):
    """Signal of an attempt that failed since this kernel cannot think the mission any more: another one may."""


@dataclass(slots=True)
class _Run:
    """Mission that holds a place, while its attempts are made one after the other."""

    attempt: Attempt
    """Its `mission` is the record with the attempts counted so far."""
    ticket: Ticket
    """Its turn at the models."""
    ended: int
    """Attempts that ended and count; one that is interrupted takes back no more than itself."""


UNDER_WAY_TOLD = 100  # ids of missions under way that `info` names


class Scheduler:
    """Scheduler of missions. It runs `missions.concurrent` at a time."""

    def __init__(
        self,
        image: LivingImage,
        events: Events,
        settings: Settings,
        services: AttemptServices,
        on_signal: Callable[[BaseException], None],
        grouping: Grouping | None = None,
        membership: Membership | None = None,
    ) -> None:
        """
        :param services: services that all attempts share.
        :param on_signal: receives signals (a failed storage) that were raised in a mission's task.
        :param grouping: how missions are grouped by model; None: they are not.
        :param membership: this daemon among the kernels of the image; None: it has the image to itself.
        """
        self._image, self._events, self.settings, self._on_signal = image, events, settings, on_signal
        self.services = services
        """Services for attempts that begin from now on."""
        self._attempts = Attempts(image, conflict_retries=AttemptLimits.of(settings).conflict_retries)
        self.queue = MissionQueue(grouping, patience_s=AttemptLimits.of(settings).background_wait_s)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._live: dict[str, Attempt] = {}
        self._held, self._deadlines = HeldMissions(self._has_ended), Deadlines(self._expire)
        self._cancelled: set[str] = set()
        self._pausing: set[str] = set()
        self._provided: set[str] = set()  # those that wait for their model
        self._overtaken: set[str] = set()
        self._handled: Counter[str] = Counter()  # those that are being accepted, or ended while they wait
        self._reserved = self._accepting = 0
        self.resting = RestingMissions(self._places, self._dispatch)
        self._stopping = False
        self._quiet, self._hurry = asyncio.Event(), asyncio.Event()
        self._expiring: set[asyncio.Task[bool]] = set()
        self._accepts = Background(lambda part, e: log.info("not_accepted", part=part, error=repr(e)[:200]))  # their callers were cancelled
        self._heeding = Background()  # what users said of missions under way here by other kernels
        self._endings = Endings(image, settings, self._release, on_signal)
        self._cancelling = Cancellations(self._cancel, self._endings)
        self.outcomes = self._endings.outcomes
        self._membership = membership or Alone()
        self.sweep = MissionSweep(image, self._membership, self, concurrent=lambda: self.settings.missions.concurrent)
        """Search for missions that other kernels left."""
        self._end_sweep: Callable[[], object] = bool

    def attempt(self, record: MissionRecord) -> Attempt:
        """Make an attempt at a mission, which nothing runs yet."""
        return Attempt(record, self.services)

    # --- coming in

    async def recover(self) -> int:
        """Queue the missions that a former daemon accepted and did not finish; return their number.

        Call it before anyone can submit: a mission accepted meanwhile would be found here, too, and be run twice.
        Among several kernels there is no such moment: the sweep finds them.
        """
        if self._image.kernel:
            return 0
        records = await self._image.system(ledger.recover, self.settings.missions.inferences)
        for record in records:
            self._push(replace(record, resumed=True))
        return len(records)

    def begin(self) -> None:
        """Start the missions that `recover` queued, and search for those that other kernels leave."""
        self._dispatch()
        if self._image.kernel:
            self._end_sweep = self._membership.on_look(self.sweep.look)
            self._membership.on_renamed(self._lose_all)

    async def submit(
        self, id: str, brief: str, options: dict[str, Any], first: Callable[[Any], object] | None = None
    ) -> tuple[bool, MissionRecord]:
        """Accept a mission. When this returns, the mission survives `kill -9`. A cancelled caller ends nothing: what is accepted goes on.

        :param options: slots that a client chooses; lists and objects as JSON text.
        :param first: function of the root that is run in the transaction of a new acceptance; an error of it refuses the mission.
        :returns: True if the mission is new, and its record.
        :raises Busy: if the queue is full; nothing was accepted.
        :raises MissionIdTaken: if the id names another mission.
        :raises LeadLost: inside a fence, if the lead is not held any more: nothing was accepted.
        """
        if (lead := scope.current().lead) is None:
            return await self._submit(id, brief, options, first)
        with scope.enter(lead=None):  # a mission is in no fence: it goes on under any leader
            return await self._submit(id, brief, options, lead.before(first))

    async def _submit(
        self, id: str, brief: str, options: dict[str, Any], first: Callable[[Any], object] | None
    ) -> tuple[bool, MissionRecord]:
        if self._stopping and not self._image.kernel:  # else another kernel takes it up
            raise Busy("the daemon is stopping; send the mission again when it is back")
        queued = len(self.queue)
        begin = not self._held.waits_for(options.get("context")) and not queued and self._places() > 0
        if begin and self._image.kernel:
            begin = not (self._stopping or self._membership.draining) and self.sweep.begins(draft(id, brief, options))
        waiting = queued + self._accepting - self._reserved
        if not begin and waiting >= self.settings.missions.queue and not self._image.read(ledger.is_known, id):
            raise Busy(f"{waiting} missions wait, the limit missions.queue is {self.settings.missions.queue}; try again later")
        self._reserved, self._accepting = self._reserved + begin, self._accepting + 1
        self._handled[id] += 1
        committing = asyncio.create_task(self._image.system(ledger.accept, id, brief, options, begin, first, mission=id))
        try:
            await asyncio.wait([committing])
        except asyncio.CancelledError:
            self._accepts.start(self._accepted(committing, id, begin), f"acceptance of {id}")
            raise
        return await self._accepted(committing, id, begin)  # in the caller's task: its mission begins after what it does next

    async def _accepted(self, committing: asyncio.Task[tuple[bool, MissionRecord]], id: str, begin: bool) -> tuple[bool, MissionRecord]:
        """Begin or queue a mission once its acceptance is committed."""
        try:
            new, record = await committing
            if new:
                log.bind().info("accepted", mission=id, origin=record.origin)
                if begin:
                    await self._start_at_once(record)
                elif self.sweep.begins(record):
                    self._push(record)
            return new, record
        finally:
            self._unhandle(id)
            self._accepting, self._reserved = self._accepting - 1, self._reserved - begin
            self._dispatch()  # also after a refusal: others may wait for the place that it had reserved
            self._notice_quiet()

    async def _start_at_once(self, record: MissionRecord) -> None:
        if self._stopping:  # the daemon began to meanwhile
            self._push(record)
            await self._image.system(ledger.uncount_attempt, record.id, 0, mission=record.id)
            return
        entry = self.queue.entry(record)
        self.queue.began(entry)
        self._start(entry, counted=True)

    def _expire(self, record: MissionRecord) -> None:
        if self._stopping or self._take(record.id) is None:  # at the next start its time is looked at again
            return
        late = DeadlineExceeded(f"mission {record.id!r} was not finished in time while it waited; it asked for {record.deadline_s} s")
        task = asyncio.create_task(self._end_waiting(record, late))
        self._expiring.add(task)
        task.add_done_callback(self._expired)

    async def _end_waiting(self, record: MissionRecord, error: BatosError) -> bool:
        """End a mission that waited here; return False if another kernel has it."""
        self._handled[record.id] += 1
        try:
            return await self._endings.fail(self.attempt(record), error, final=True)
        except Overtaken as e:
            log.info("mission_overtaken", mission=record.id, by=e.owner)
            return False
        finally:
            self._unhandle(record.id)

    def _unhandle(self, id: str) -> None:
        self._handled[id] -= 1
        if not self._handled[id]:
            del self._handled[id]

    def _has_ended(self, id: str) -> bool:
        return bool(self._image.read(ledger.is_final, id))

    def _take(self, id: str) -> MissionRecord | None:
        """Remove a mission from the queue, or from those that are held back, and return its record; None if it does not wait."""
        self._deadlines.end(id)
        return self.queue.remove(id) or self._held.take(id)

    def _expired(self, task: asyncio.Task[bool]) -> None:
        self._expiring.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("mission_left_for_the_next_start", error=repr(failure))
        if not self._running:
            self._quiet.set()

    def _push(self, record: MissionRecord) -> None:
        if self._image.kernel and not self.sweep.may_take(record):
            return  # another kernel finds it
        self._deadlines.begin(record)
        if not self._held.holds(record):
            self.queue.push(record)

    def _again(self, id: str) -> None:
        """Queue a mission whose attempt was interrupted, or hold it back, as the ledger says now."""
        self._push(replace(self._image.read(ledger.record_of, id), resumed=True))
        self._dispatch()

    def _places(self) -> int:
        return self.settings.missions.concurrent - self._reserved - len(self._running) + len(self.resting)

    def _dispatch(self) -> None:
        self.resting.come_back()
        while self._places() > 0 and self.queue and not self._stopping and not self._membership.draining:
            entry = self.queue.pop()
            if self.sweep.may_take(entry.record):
                self._start(entry, counted=False)

    # --- being thought

    def _start(self, entry: QueuedMission, *, counted: bool) -> None:
        id = entry.record.id
        self._deadlines.end(id)  # of its attempts `in_time` sees to that
        self._live[id] = self.attempt(entry.record)
        task = asyncio.create_task(self._run(entry, self._live[id], counted), name=f"mission {id}")
        self._running[id] = task
        task.add_done_callback(lambda task: self._ended(id, task))

    def _release(self, id: str) -> None:
        """Free the mission's place. This comes before its end is published, so that a listener finds the place free."""
        self._running.pop(id, None)
        self._live.pop(id, None)
        self._overtaken.discard(id)
        followers = self._held.followers(id)
        for record in followers:
            self._push(record)
        if followers:
            self._dispatch()

    def _ended(self, id: str, task: asyncio.Task[None]) -> None:
        if self._running.get(id) is task:  # else it was released before, and may have been started again
            self._release(id)
        if not task.cancelled() and (failure := task.exception()) is not None:
            if isinstance(failure, Exception):  # not even its failure could be recorded: a full disk, say
                log.error("mission_left_for_the_next_start", mission=id, error=repr(failure))
            else:
                self._on_signal(failure)
        self._dispatch()
        self._notice_quiet()

    def _notice_quiet(self) -> None:
        if not (self._running or self.queue or self._accepting):
            self._quiet.set()

    async def _run(self, entry: QueuedMission, attempt: Attempt, counted: bool) -> None:
        run = _Run(attempt, entry.ticket, ended=attempt.mission.attempts - counted)
        try:
            await self._run_to_end(run, counted)
        except Overtaken as e:
            self._let_go(run, e.owner)

    def _let_go(self, run: _Run, owner: str) -> None:
        """Leave a mission to another kernel; report what was committed under this kernel's own name before."""
        now: MissionRecord = self._image.read(ledger.record_of, run.attempt.id)
        log.info("mission_overtaken", mission=run.attempt.id, by=owner or now.kernel or None, attempt=run.attempt.mission.attempts)
        self._release(run.attempt.id)
        if now.is_final and self._membership.was(now.kernel):
            self._tell_end(run.attempt, now)

    async def _run_to_end(self, run: _Run, counted: bool) -> None:
        attempt, id = run.attempt, run.attempt.id
        try:
            try:
                await self._try(run, counted)
            except NeedAnswer as need:
                await self._endings.recorded(id, ledger.ask_question, id, need.question, need.occurrence, run.ended, need.grant)
                log.info("needs_input", mission=id, question=need.question[:200])
                self._interrupted(run)
            except _Unfit as e:
                await self._endings.recorded(id, ledger.uncount_attempt, id, run.ended)
                log.warning("mission_given_back", mission=id, why=str(e))
                self._interrupted(run)
            except NeedMachine as there:
                await self._endings.recorded(id, ledger.hand_over, id, there.connection, run.ended)
                log.info("mission_handed_over", mission=id, to=there.machine, connection=there.connection)
                self._interrupted(run)
            except HeldBack:
                await self._endings.recorded(id, ledger.uncount_attempt, id, run.ended)
                self._interrupted(run)
        except asyncio.CancelledError:
            if id in self._overtaken:
                self._let_go(run, "")
                return
            if id in self._cancelled:  # also where it is paused at the same moment
                await self._endings.fail(attempt, MissionCancelled(f"mission {id!r} was cancelled"), final=True)
                return
            if id in self._pausing:  # it would not be looked after before the next start
                await self._endings.recorded(id, ledger.uncount_attempt, id, run.ended)
            else:
                await self._image.system(ledger.uncount_attempt, id, run.ended, mission=id)
            if id not in self._pausing:  # the daemon stops: the mission waits for the next start
                raise
            self._interrupted(run)

    def _interrupted(self, run: _Run) -> None:
        """Queue a mission whose attempt was interrupted; or end it, if its commit or its failure reached the disk first."""
        attempt = run.attempt
        now: MissionRecord = self._image.read(ledger.record_of, attempt.id)
        self._release(attempt.id)
        if now.is_final:
            self._tell_end(attempt, now)
        else:
            attempt.state = held_state(now) or ledger.ACCEPTED
            attempt.publish("state")
            if question := now.open_question:
                attempt.publish("needs_input", **question)
            self._again(attempt.id)

    def _tell_end(self, attempt: Attempt, now: MissionRecord) -> None:
        if now.state == ledger.COMPLETE:
            self._endings.complete(attempt, now.result or {})
        else:
            self._endings.failed(attempt, now.error or {})

    async def _try(self, run: _Run, counted: bool) -> None:
        """Attempt a mission until it is over.

        :param counted: True if its first attempt was counted when it was accepted.
        """
        id, attempt, settings, pause = run.attempt.id, run.attempt, self.settings, 0.0
        need: NeedModel | None = None
        while True:
            try:
                if need is not None:
                    wanted, need = need, None
                    await self._provide(run, wanted)
                if pause:
                    async with in_time(attempt, self.settings.missions.deadline_s):
                        await self.resting.rest(id, pause)
                if not counted:
                    await self._count(attempt)
                counted = False
                async with in_time(attempt, self.settings.missions.deadline_s):
                    with session(run.ticket):  # its turn at the models ends with the attempt
                        result = await self._attempts.run(attempt)
            except BatosError as e:
                error = e
            except NeedModel as e:
                need, pause = e, 0.0
                continue
            except BatosSignal:
                raise
            except POSKeyError as e:
                error = ImageDamaged(f"an object that the image refers to is not there ({e}); `batos info` says what else is damaged")
                error.__cause__ = e
            except Exception as e:
                log.exception("attempt_raised", mission=id)
                error = as_error(e)
            else:
                self._endings.complete(attempt, result)
                return
            attempts = attempt.mission.attempts
            if self._image.kernel and isinstance(error, InferenceFailed) and await self.sweep.is_unfit(attempt.mission):
                raise _Unfit(error.message)
            again = (error.retryable or getattr(error, "may_retry", False)) and attempts < settings.missions.attempts
            if isinstance(error, ImageAway):  # a read met it; the mission goes on when the server is back
                attempts = await self._endings.uncounted(attempt, error, run.ended)
            elif await self._endings.fail(attempt, error, final=not again):
                return
            run.ended = attempts
            attempt.restart(gated=False)  # first: no client may read FAILED from a mission that is tried again
            pause = AttemptLimits.of(settings).backoff_s * 2 ** (attempts - 1)

    async def _count(self, attempt: Attempt) -> None:
        """Count an attempt before it is made.

        :raises AttemptsExhausted: past the setting `missions.attempts`.
        """
        id = attempt.id
        limits = self.settings.missions
        attempts = await self._endings.recorded(id, ledger.begin_attempt, id, limits.attempts, limits.inferences)
        self._events.reopened(id)
        attempt.mission = replace(attempt.mission, attempts=attempts)

    async def _provide(self, run: _Run, need: NeedModel) -> None:
        """Provide a mission with a model, which may take hours.

        The mission holds no place meanwhile, and the attempt counts only if it fails here.
        """
        id, attempt = run.attempt.id, run.attempt
        await self._endings.recorded(id, ledger.uncount_attempt, id, run.ended, True)
        attempt.restart(gated=False)
        self._provided.add(id)
        try:
            async with in_time(attempt, math.inf):
                await self.resting.during(id, attempt.provide(need))
        except Exception:
            await self._count(attempt)
            raise
        finally:
            self._provided.discard(id)
        attempt.restart(gated=False)

    # --- being asked about, and going away

    def live(self, id: str) -> dict[str, Any]:
        """Return the facts about a mission that only the running daemon knows: state of thought, persona, place in the queue."""
        attempt = self._live.get(id)
        if attempt is not None:
            facts = {"state": attempt.live_state, "persona": attempt.persona or None, "why": attempt.why or None, "running": True}
            return {**facts, **({"progress": progress} if (progress := attempt.tools.progress) else {})}
        if (held := self._held.live(id)) is not None:
            return {"running": False, **held}
        if (place := self.queue.place(id)) is not None:
            return {"running": False, "place": place}
        return {"running": False, **({"waits": why} if self._image.kernel and (why := self.sweep.why_waits(id)) else {})}

    def state(self, id: str) -> str | None:
        """Return the state of thought of a mission under way; PAUSED or NEEDS_INPUT for one that is held back; else
        None."""
        attempt = self._live.get(id)
        if attempt is not None:
            return attempt.live_state
        return self._held.state(id)

    def facts(self) -> dict[str, Any]:
        """Return the facts about missions that `info` shows."""
        told = list(itertools.islice(self._running, UNDER_WAY_TOLD))
        return {"running": len(self._running), "under_way": told, "queued": len(self.queue), **self._held.facts(), **self.outcomes}

    async def quiet(self) -> None:
        """Wait until no mission is under way or queued."""
        while self._running or self.queue or self._accepting:
            self._quiet.clear()
            await self._quiet.wait()

    async def cancel(self, id: str) -> bool:
        """End a mission that is not final; return True if there was anything to end. It is ended even if the caller
        goes.

        :raises ImageError: while the disk is too full to record it; it is ended once there is room.
        """
        return await self._cancelling.of(id)

    async def _cancel(self, id: str) -> bool:
        if (task := self._running.get(id)) is not None:
            await self._cancel_running(id, task)
            if not self._image.kernel or self._has_ended(id):
                return True  # else another kernel had taken it up, and has to be asked
        cancelled = MissionCancelled(f"mission {id!r} was cancelled")
        if (record := self._take(id)) is not None and await self._end_waiting(record, cancelled):
            return True
        while self._image.kernel:  # another kernel may have it, and may go while it is asked
            record = await self._image.system(ledger.ask_to_cancel, id, mission=id)
            if record.is_final:
                return False
            if record.cancelled:
                await self._ended_elsewhere(id)
                return True
            if id in self._running:
                return await self._cancel(id)
            if await self._end_waiting(record, cancelled):
                return True
        return False

    async def _ended_elsewhere(self, id: str) -> None:
        """Wait until the kernel that was asked to end a mission has done so, for a lease at most. If it is gone, another one ends it."""
        ended = asyncio.Event()
        stop = self._events.watch(id, lambda event: ended.set() if event["type"] == "result" else None)
        try:
            if not self._has_ended(id):
                async with asyncio.timeout(self._membership.lease_s):
                    await ended.wait()
        except TimeoutError:
            log.warning("mission_not_ended_yet", mission=id, why="its kernel was asked to end it, and did not say that it has")
        finally:
            stop()

    async def pause(self, id: str) -> None:
        """Hold back a mission that is not final until `resume`, also over restarts; its deadline goes on.

        :raises UnknownMission: if there is no mission of that id.
        """
        await self._image.system(ledger.set_paused, id, True, mission=id)
        if not await self._interrupt(id) and self._take(id) is not None:
            self._again(id)

    async def _interrupt(self, id: str) -> bool:
        """Interrupt the attempt at a mission that was paused or continued; return False if none is under way."""
        task = self._running.get(id)
        if task is None or id in self._cancelled:
            return False
        if id in self._pausing:
            await asyncio.wait([task])
            return True
        self._pausing.add(id)
        try:
            await asyncio.sleep(0)  # its first turn, if it had none: only in it can it hear of the cancellation
            task.cancel()
            await asyncio.wait([task])
        finally:
            self._pausing.discard(id)
        return True

    async def resume(self, id: str) -> None:
        """Let a paused mission go on.

        :raises UnknownMission: if there is no mission of that id.
        """
        await self._image.system(ledger.set_paused, id, False, mission=id)
        if self._held.take(id) is not None:
            self._again(id)

    async def go_on(self, id: str) -> None:
        """Attempt a mission anew that was continued, after the transaction that lets it go on. An attempt under way is begun again, and
        does not count."""
        self._events.reopened(id)
        if await self._interrupt(id):
            return
        self._take(id)
        if not self._image.read(ledger.is_final, id):
            self._again(id)

    async def answer(self, id: str, text: str, number: int | None = None, *, may_grant: bool = True) -> None:
        """Answer a question of a mission, and let the mission go on.

        :param number: number of the question; None: the one that is open.
        :param may_grant: True if the client may let a method change more than its receiver.
        :raises UnknownMission: if there is no mission of that id.
        :raises InvalidInput: if it has no such question, or another answer to it.
        :raises RoleRefused: for a question that this client may not answer.
        """
        if len(text) > (limit := ThinkingLimits.of(self.settings).question_chars):
            raise InvalidInput(f"the answer has {len(text)} characters; at most {limit} are allowed")
        await self._image.system(ledger.answer_question, id, text, number, may_grant, mission=id)
        if self._held.take(id) is not None:
            self._again(id)

    async def _cancel_running(self, id: str, task: asyncio.Task[None]) -> None:
        attempt = self._live[id]
        self._cancelled.add(id)
        try:
            task.cancel()
            await asyncio.wait([task])
        finally:
            self._cancelled.discard(id)
        if task.cancelled():  # it had not had its first turn, so nothing in it could hear of the cancellation
            await self._end_waiting(attempt.mission, MissionCancelled(f"mission {id!r} was cancelled"))

    # --- among several kernels: see `MissionSweep` and `MissionNews`

    def tells_of(self, id: str) -> bool:
        """Return True if a mission is under way here, or is just being accepted or ended: what comes of it is published here."""
        return id in self._running or id in self._handled

    def was_written(self, record: MissionRecord) -> None:
        """Heed what the user said of a mission of this kernel's by another one."""
        id = record.id
        if record.is_final or id in self._cancelled or id in self._pausing or not self.knows(id):
            return
        if record.cancelled:
            self._heeding.start(self.cancel(id), f"cancellation of {id}", "scheduler")
        elif record.paused and id in self._running:
            self._heeding.start(self._interrupt(id), f"pause of {id}", "scheduler")

    def running(self) -> list[str]:
        """Return the missions under way here."""
        return list(self._running)

    def waiting(self) -> list[str]:
        """Return the missions that are queued or held back here, those apart that are just being ended."""
        return [id for id in (*self.queue.ids(), *self._held.ids()) if id not in self._handled]

    def knows(self, id: str) -> bool:
        """Return True if a mission is under way here, waits, or is just being accepted or ended."""
        return id in self._running or id in self.queue or id in self._handled or self._held.record(id) is not None

    def room(self) -> int:
        """Return how many more missions would get a place at once."""
        return 0 if self._stopping else self._places() - len(self.queue)

    def take_up(self, record: MissionRecord) -> None:
        """Queue a mission that no kernel thinks through."""
        if not self._stopping:
            self._push(record)
            self._dispatch()

    def look_again(self, record: MissionRecord) -> None:
        """Queue or hold back a waiting mission as its record says now: another kernel may have changed it, or ended what it waits for."""
        held = self._held.record(record.id)
        if record.id in self._handled or (held is None and record.id not in self.queue):
            return
        follows = held is not None and held_state(held) is None and not self._held.waits_for(held.context)
        if follows or held_state(record) != (None if held is None else held_state(held)):
            self._take(record.id)
            self._push(replace(record, resumed=True))
            self._dispatch()

    def lose(self, id: str) -> None:
        """Leave a mission to another kernel: end its attempt, or let it wait no longer."""
        task = self._running.get(id)
        if task is None:
            self._take(id)
        elif id not in self._overtaken:
            self._overtaken.add(id)
            task.cancel()

    def _lose_all(self) -> None:
        for id in self.running():
            self.lose(id)

    def hurry(self) -> None:
        """Cut short the grace that `stop` gives to missions under way."""
        self._hurry.set()

    async def finish(self, grace_s: float) -> None:
        """Wait until no mission is under way, `grace_s` seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._running:
                    await asyncio.wait(list(self._running.values()))

    async def stop(self, grace_s: float) -> None:
        """Let missions under way end within `grace_s` seconds; the rest waits for the next start."""
        self._stopping = True
        self._end_sweep()
        for id in self._provided:  # a pull may take hours, and goes on at the next start
            self._running[id].cancel()
        tasks = list(self._running.values())
        if tasks:
            log.info("stopping", missions=len(tasks), grace_s=grace_s, hint="a second signal stops at once; no mission is lost")
            hurried = asyncio.create_task(self._hurry.wait())
            waiting: set[asyncio.Future[Any]] = {asyncio.gather(*tasks, return_exceptions=True), hurried}
            await asyncio.wait(waiting, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
        await self._cancelling.stop()
        await self._heeding.stop()
        for task in self._running.values():
            task.cancel()
        for task in list(self._running.values()):
            with contextlib.suppress(asyncio.CancelledError, OSError):  # of a full disk; `_ended` tells of it
                await task
