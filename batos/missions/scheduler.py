"""Scheduler: accepts missions, queues them, and attempts them until they end.

Missions of users go before the system's own. A crash loses nothing: before `accept` is durable nothing was promised;
after it, `recover` finds the mission at the next start, with its attempts counted and its inferences in the journal.

`RestingMissions` keeps missions in retry back-off, or waiting for a model: they release their places and get one again before
the queue. `HeldMissions` keeps those that are paused, wait for an answer, or follow a mission that has not ended; the
reason is in their records, so they wait on after a restart. `Cancellations` ends missions, also when the disk is too
full to record it: the caller gets an error, and the mission is ended once there is room.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import structlog
from ZODB.POSException import POSKeyError

from batos.bridge.admission import Ticket, session
from batos.concurrency import SingleFlight
from batos.config import Settings
from batos.errors import BatosError, BatosSignal, Busy, DeadlineExceeded, ImageDamaged, ImageError, InvalidInput, MissionCancelled
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.mind.attempt import Attempt
from batos.mind.attempt_services import AttemptServices
from batos.mind.events import Events
from batos.mind.inference import NeedAnswer, ThinkingLimits, as_error
from batos.mind.model_needs import NeedModel
from batos.missions.execution import Attempts, Deadlines, Endings, in_time
from batos.missions.mission_queue import AttemptLimits, Grouping, MissionQueue, QueuedMission
from batos.objects import Root


class RestingMissions:
    """Missions in retry back-off, and those whose back-off is over and that want a place."""

    def __init__(self, places: Callable[[], int], dispatch: Callable[[], None]) -> None:
        """
        :param places: counts the free places; a resting mission holds none.
        :param dispatch: hands out free places; missions that `come_back` get one first.
        """
        self._places, self._dispatch = places, dispatch
        self._ids: set[str] = set()
        self._back: deque[tuple[str, asyncio.Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def wanting(self) -> int:
        """Return the number of missions whose rest is over and that wait for a place."""
        return len(self._back)

    async def rest(self, id: str, seconds: float) -> None:
        """Wait some seconds without a place; return with one."""
        await self.during(id, asyncio.sleep(seconds))

    async def during(self, id: str, work: Awaitable[None]) -> None:
        """Wait for some work without a place; return with one.

        :raises Exception: as the work does; the mission has no place then.
        """
        self._ids.add(id)
        self._dispatch()
        try:
            await work
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._back.append((id, place))
            self._dispatch()
            await place
        finally:
            self._ids.discard(id)

    def come_back(self) -> None:
        """Give free places to the missions that want one, in order."""
        while self._back and self._places() > 0:
            id, place = self._back.popleft()
            if not place.done():  # it may have been cancelled meanwhile
                self._ids.discard(id)
                place.set_result(None)


PAUSED, NEEDS_INPUT = "PAUSED", "NEEDS_INPUT"


def held_state(record: MissionRecord) -> str | None:
    """Return PAUSED or NEEDS_INPUT for a mission that its user holds back, else None."""
    if record.paused:
        return PAUSED
    return NEEDS_INPUT if record.open_question else None


class HeldMissions:
    """Missions that are held back."""

    def __init__(self, image: LivingImage) -> None:
        self._image = image
        self._records: dict[str, MissionRecord] = {}

    def holds(self, record: MissionRecord) -> bool:
        """Return True if a mission has to be held back, and keep it from now on."""
        if held_state(record) is None and not self.waits_for(record.context):
            return False
        self._records[record.id] = record
        return True

    def waits_for(self, context: str | None) -> bool:
        """Return True if a mission with this context has to wait until that one has ended."""
        try:
            return context is not None and not self._image.read(_is_final, context)
        except ImageDamaged:
            return False  # the attempt will say so

    def take(self, id: str) -> MissionRecord | None:
        """Remove a mission and return its record; None if it was not held back."""
        return self._records.pop(id, None)

    def followers(self, id: str) -> list[MissionRecord]:
        """Remove and return the missions that waited for one which has ended."""
        found = [record for record in self._records.values() if record.context == id]
        return [] if not found or self.waits_for(id) else [self._records.pop(record.id) for record in found]

    def state(self, id: str) -> str | None:
        """Return the reason why its user holds a mission back, else None; None, too, for one that follows another."""
        record = self._records.get(id)
        return None if record is None else held_state(record)

    def live(self, id: str) -> dict[str, Any] | None:
        """Return the facts that `status` adds for a held mission: its open `question`, or the mission that it
        `waits_for`."""
        record = self._records.get(id)
        if record is None:
            return None
        question = record.open_question
        facts: dict[str, Any] = {"question": question} if question else {}
        return facts if held_state(record) else {**facts, "waits_for": record.context}

    def facts(self) -> dict[str, Any]:
        """Count the held missions by reason."""
        counts = Counter(held_state(record) for record in self._records.values())
        return {"paused": counts[PAUSED], "needs_input": counts[NEEDS_INPUT], "following": counts[None]}


def _is_final(root: Root, id: str) -> bool:
    return ledger.is_final(root, id)


log = structlog.get_logger("batos.mind")


class Cancellations:
    """Cancellations under way, each in a separate task, so that it ends its mission even if its caller leaves."""

    def __init__(self, cancel: Callable[[str], Coroutine[Any, Any, bool]], endings: Endings) -> None:
        """
        :param cancel: ends a mission for which no record is pending; returns True if there was anything to end.
        """
        self._cancel, self._endings = cancel, endings
        self._works: SingleFlight[bool] = SingleFlight("cancellation")

    async def of(self, id: str) -> bool:
        """Cancel a mission; return True if there was anything to end.

        :raises ImageError: if the disk has no room to record it; the mission is ended once there is.
        """
        work = self._works.begin(id, lambda: self._once_recorded(id))
        held_up = asyncio.create_task(self._endings.until(id, waits=True))
        try:
            await asyncio.wait([work, held_up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            held_up.cancel()
        if work.done():
            return work.result()
        why = f"mission {id!r} cannot be recorded now: {self._endings.trouble}"
        raise ImageError(f"{why}; if it has not ended by itself, it is cancelled as soon as there is room", cause="disk_full")

    async def _once_recorded(self, id: str) -> bool:
        try:
            await self._endings.until(id, waits=False)  # a failure that waits for room comes first: interrupted, it would be lost
            return await self._cancel(id)
        except (Exception, BatosSignal) as e:  # who asked may be gone
            log.error("mission_not_cancelled", mission=id, error=repr(e))
            raise

    async def stop(self) -> None:
        """Give up the cancellations under way: their missions go on at the next start, unless the end was recorded."""
        await self._works.stop()


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
    ) -> None:
        """
        :param services: services that all attempts share.
        :param on_signal: receives signals (a failed storage) that were raised in a mission's task.
        :param grouping: how missions are grouped by model; None: they are not.
        """
        self._image, self._events, self.settings = image, events, settings
        self._on_signal = on_signal
        self.services = services
        """Services for attempts that begin from now on."""
        self._attempts = Attempts(image, conflict_retries=AttemptLimits.of(settings).conflict_retries)
        self.queue = MissionQueue(grouping, patience_s=AttemptLimits.of(settings).background_wait_s)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._live: dict[str, Attempt] = {}
        self._held, self._deadlines = HeldMissions(image), Deadlines(self._expire)
        self._cancelled: set[str] = set()
        self._pausing: set[str] = set()
        self._provided: set[str] = set()  # those that wait for their model
        self._reserved = self._accepting = 0
        self.resting = RestingMissions(self._places, self._dispatch)
        self._stopping = False
        self._quiet = asyncio.Event()
        self._hurry = asyncio.Event()
        self._expiring: set[asyncio.Task[bool]] = set()
        self._endings = Endings(image, settings, self._release, on_signal)
        self._cancelling = Cancellations(self._cancel, self._endings)
        self.outcomes = self._endings.outcomes

    def attempt(self, record: MissionRecord) -> Attempt:
        """Make an attempt at a mission, which nothing runs yet."""
        return Attempt(record, self.services)

    # --- coming in

    async def recover(self) -> int:
        """Queue the missions that a former daemon accepted and did not finish; return their number.

        Call it before anyone can submit: a mission accepted meanwhile would be found here, too, and be run twice.
        """
        records = await self._image.system(ledger.recover, self.settings.missions.inferences)
        for record in records:
            self._push(replace(record, resumed=True))
        return len(records)

    def begin(self) -> None:
        """Start the missions that `recover` queued."""
        self._dispatch()

    async def submit(
        self, id: str, brief: str, options: dict[str, Any], first: Callable[[Any], object] | None = None
    ) -> tuple[bool, MissionRecord]:
        """Accept a mission. When this returns, the mission survives `kill -9`.

        :param options: slots that a client chooses; lists and objects as JSON text.
        :param first: function of the root that is run in the transaction of a new acceptance; an error of it refuses
            the mission.
        :returns: True if the mission is new, and its record.
        :raises Busy: if the queue is full; nothing was accepted.
        :raises MissionIdTaken: if the id names another mission.
        """
        if self._stopping:
            raise Busy("the daemon is stopping; send the mission again when it is back")
        queued = len(self.queue)
        begin = not self._held.waits_for(options.get("context")) and not queued and self._places() > 0
        waiting = queued + self._accepting - self._reserved
        if not begin and waiting >= self.settings.missions.queue and not self._image.read(_holds, id):
            raise Busy(f"{waiting} missions wait, the limit missions.queue is {self.settings.missions.queue}; try again later")
        self._reserved += begin
        self._accepting += 1
        try:
            new, record = await self._image.system(ledger.accept, id, brief, options, begin, first, mission=id)
            if new:
                log.bind().info("accepted", mission=id, origin=record.origin)
                if begin:
                    await self._start_at_once(record)
                else:
                    self._push(record)
            return new, record
        finally:
            self._accepting -= 1
            self._reserved -= begin
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
        task = asyncio.create_task(self._endings.fail(self.attempt(record), late, final=True))
        self._expiring.add(task)
        task.add_done_callback(self._expired)

    def _take(self, id: str) -> MissionRecord | None:
        """Remove a mission from the queue, or from those that are held back, and return its record; None if it does
        not wait."""
        self._deadlines.end(id)
        return self.queue.remove(id) or self._held.take(id)

    def _expired(self, task: asyncio.Task[bool]) -> None:
        self._expiring.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("mission_left_for_the_next_start", error=repr(failure))
        if not self._running:
            self._quiet.set()

    def _push(self, record: MissionRecord) -> None:
        self._deadlines.begin(record)
        if not self._held.holds(record):
            self.queue.push(record)

    def _again(self, id: str) -> None:
        """Queue a mission whose attempt was interrupted, or hold it back, as the ledger says now."""
        self._push(replace(self._image.read(_described, id), resumed=True))
        self._dispatch()

    def _places(self) -> int:
        return self.settings.missions.concurrent - self._reserved - len(self._running) + len(self.resting)

    def _dispatch(self) -> None:
        self.resting.come_back()
        while self._places() > 0 and self.queue and not self._stopping:
            self._start(self.queue.pop(), counted=False)

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
        run, id = _Run(attempt, entry.ticket, ended=attempt.mission.attempts - counted), attempt.id
        try:
            try:
                await self._try(run, counted)
            except NeedAnswer as need:
                await self._endings.recorded(id, ledger.ask_question, id, need.question, need.occurrence, run.ended, need.grant)
                log.info("needs_input", mission=id, question=need.question[:200])
                self._interrupted(run)
        except asyncio.CancelledError:
            if id in self._cancelled and id not in self._pausing:
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
        """Queue a mission whose attempt was interrupted; or end it, if its commit or its failure reached the disk
        first."""
        attempt = run.attempt
        now: MissionRecord = self._image.read(_described, attempt.id)
        self._release(attempt.id)
        if now.state == ledger.COMPLETE:
            self._endings.complete(attempt, now.result or {})
        elif now.state == ledger.FAILED:
            self._endings.failed(attempt, now.error or {})
        else:
            attempt.state = held_state(now) or ledger.ACCEPTED
            attempt.publish("state")
            if question := now.open_question:
                attempt.publish("needs_input", **question)
            self._again(attempt.id)

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
            again = (error.retryable or getattr(error, "may_retry", False)) and attempts < settings.missions.attempts
            if await self._endings.fail(attempt, error, final=not again):
                return
            run.ended = attempts
            attempt.restart(gated=False)  # first: nobody may read FAILED from a mission that is tried again
            pause = AttemptLimits.of(settings).backoff_s * 2 ** (attempts - 1)

    async def _count(self, attempt: Attempt) -> None:
        """Count an attempt before it is made.

        :raises AttemptsExhausted: past the setting `missions.attempts`.
        """
        id = attempt.id
        attempts = await self._endings.recorded(id, ledger.begin_attempt, id, self.settings.missions.attempts)
        attempt.mission = replace(attempt.mission, attempts=attempts)

    async def _provide(self, run: _Run, need: NeedModel) -> None:
        """Provide a mission with a model, which may take hours.

        The mission holds no place meanwhile, and the attempt counts only if it fails here.
        """
        id, attempt = run.attempt.id, run.attempt
        await self._endings.recorded(id, ledger.uncount_attempt, id, run.ended)
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
        """Return the facts about a mission that only the running daemon knows: state of thought, persona, place in
        the queue."""
        attempt = self._live.get(id)
        if attempt is not None:
            facts = {"state": attempt.live_state, "persona": attempt.persona or None, "why": attempt.why or None, "running": True}
            return {**facts, **({"progress": progress} if (progress := attempt.tools.progress) else {})}
        if (held := self._held.live(id)) is not None:
            return {"running": False, **held}
        place = self.queue.place(id)
        return {"running": False} if place is None else {"running": False, "place": place}

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
            return True
        if (record := self._take(id)) is None:
            return False
        await self._endings.fail(self.attempt(record), MissionCancelled(f"mission {id!r} was cancelled"), final=True)
        return True

    async def pause(self, id: str) -> None:
        """Hold back a mission that is not final until `resume`, also over restarts; its deadline goes on.

        :raises UnknownMission: if there is no mission of that id.
        """
        await self._image.system(ledger.set_paused, id, True, mission=id)
        task = self._running.get(id)
        if task is not None and id not in self._cancelled and id not in self._pausing:
            await self._interrupt(id, task)
        elif self._take(id) is not None:
            self._again(id)

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
        task = self._running.get(id)
        if task is not None and id not in self._cancelled and id not in self._pausing:
            await self._interrupt(id, task)
        else:
            self._take(id)
            if not self._image.read(_is_final, id):
                self._again(id)

    async def _interrupt(self, id: str, task: asyncio.Task[None]) -> None:
        self._pausing.add(id)
        try:
            await asyncio.sleep(0)  # its first turn, if it had none: only in it can it hear of the cancellation
            task.cancel()
            await asyncio.wait([task])
        finally:
            self._pausing.discard(id)

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
            await self._endings.fail(attempt, MissionCancelled(f"mission {id!r} was cancelled"), final=True)

    def hurry(self) -> None:
        """Cut short the grace that `stop` gives to missions under way."""
        self._hurry.set()

    async def stop(self, grace_s: float) -> None:
        """Let missions under way end within `grace_s` seconds; the rest waits for the next start."""
        self._stopping = True
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
        for task in self._running.values():
            task.cancel()
        for task in list(self._running.values()):
            with contextlib.suppress(asyncio.CancelledError, OSError):  # of a full disk; `_ended` tells of it
                await task


def _described(root: Root, id: str) -> MissionRecord:
    return ledger.describe(ledger.mission_of(root, id))


def _holds(root: Root, id: str) -> bool:
    return ledger.is_known(root, id)
