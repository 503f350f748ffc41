"""Requests about schedules. What times and rules need is loaded with the first schedule."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import structlog

from batos.api.dispatcher import handles
from batos.bus import EventBus
from batos.concurrency import Lifetime
from batos.image import ledger
from batos.image.living_image import LivingImage, run_through_outages
from batos.image.record_watch import RecordWatch
from batos.mind.router import Router
from batos.missions.scheduler import Scheduler
from batos.objects import Root
from batos.schedules import book
from batos.triggers.register import outcome
from batos.wire import schemas
from batos.wire.outbox import Recipient

if TYPE_CHECKING:
    from batos.schedules.alarm import Alarm

log = structlog.get_logger("batos.schedules")
Reply = dict[str, Any]
NEXT_TOLD = 5
_LISTED_CHARS = 200


class Schedules:
    """The alarm of a daemon, which begins with the first schedule; handlers of the requests about schedules."""

    def __init__(self, image: LivingImage, scheduler: Scheduler, router: Router, bus: EventBus) -> None:
        self._image, self._scheduler, self._router, self._bus = image, scheduler, router, bus
        self.made: Alarm | None = None
        """The alarm; None before there is a schedule."""
        self._begin: Callable[[Alarm], None] = lambda alarm: None
        self._changes = RecordWatch(book.holder, book.each, book.said)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make missions of schedules as long as the block lasts."""
        async with Lifetime() as life:
            self._begin = lambda alarm: life.background(run_through_outages(alarm.run, "schedules"), "schedules")
            if self.made is not None:
                self._begin(self.made)
            elif not self._image.read(book.is_empty):
                self._alarm()
            yield
            self._begin = lambda alarm: None

    def look(self, root: Root) -> None:
        """See what other kernels changed, while this one leads."""
        for name in self._changes.changed(root):
            self._alarm().changed(name)

    def _alarm(self) -> Alarm:
        if self.made is None:
            from batos.schedules.alarm import Alarm  # late: cron expressions and time zones are needed for schedules only

            self.made = Alarm(self._image, self._scheduler.submit, self._bus)
            self._begin(self.made)
        return self.made

    @handles(schemas.SchedulesRequest)
    async def listed(self, request: schemas.SchedulesRequest, client: Recipient) -> Reply:
        """Return the schedules, by name, or one of them whole.

        :raises InvalidInput: if there is none of that name.
        """
        if request.name is not None:
            return self._told(self._image.read(book.load, request.name))
        return {"type": "schedules", "schedules": self._image.read(self._lines)}

    @handles(schemas.ScheduleAddRequest)
    async def add(self, request: schemas.ScheduleAddRequest, client: Recipient) -> Reply:
        """Add a schedule; return it with its next times. One that says the same is returned as it is.

        :raises InvalidInput: if a part of it is not valid.
        """
        from batos.schedules import grammar, times  # late: see `_alarm`

        now, persona = time.time(), self._router.known(request.persona) if request.persona else ""
        zone = request.zone or times.local_zone()
        rule = grammar.rule_of(request.when, zone, now)
        times.Timing(rule, zone)
        said = (" ".join(request.when.split()), rule, zone, request.brief, persona, request.missed, request.stop_after or 0)
        spec = book.ScheduleSpec(request.name or "", *said, request.overlap)
        made = await self._image.system(book.add, spec, now, mission="operator")
        log.info("schedule_added", name=made.spec.name, when=made.spec.words, zone=zone)
        return self._changed(made)

    @handles(schemas.SchedulePauseRequest)
    async def pause(self, request: schemas.SchedulePauseRequest, client: Recipient) -> Reply:
        """Pause a schedule; return it."""
        return self._changed(await self._image.system(book.pause, request.name, mission="operator"))

    @handles(schemas.ScheduleResumeRequest)
    async def resume(self, request: schemas.ScheduleResumeRequest, client: Recipient) -> Reply:
        """Let a schedule go on; return it."""
        return self._changed(await self._image.system(book.resume, request.name, time.time(), mission="operator"))

    @handles(schemas.ScheduleRemoveRequest)
    async def remove(self, request: schemas.ScheduleRemoveRequest, client: Recipient) -> Reply:
        """Remove a schedule; return those that are left."""
        await self._image.system(book.remove, request.name, mission="operator")
        log.info("schedule_removed", name=request.name)
        self._alarm().changed(request.name)
        return {"type": "schedules", "schedules": self._image.read(self._lines)}

    @handles(schemas.ScheduleRunRequest)
    async def run(self, request: schemas.ScheduleRunRequest, client: Recipient) -> Reply:
        """Make a mission of a schedule now; return the schedule, with `id`, the mission.

        :raises BatosError: if the mission cannot be accepted.
        """
        await self._alarm().run_now(request.name, request.id)
        return {**self._told(self._image.read(book.load, request.name)), "id": request.id}

    def _changed(self, held: book.KeptSchedule) -> Reply:
        self._alarm().changed(held.spec.name)
        return self._told(held)

    def _told(self, held: book.KeptSchedule) -> Reply:
        """Return one schedule, whole."""
        from batos.schedules.times import Timing  # late: see `_alarm`

        now = time.time()
        told = self._image.read(self._line, held)
        since = min(held.settled, now)
        runs = [{"id": run.mission, "planned": run.planned, "state": self._state(run.mission)} for run in reversed(held.runs)]
        times = [] if held.paused else Timing(held.spec.rule, held.spec.zone).next_times(since, NEXT_TOLD)
        return {"type": "schedules", "schedules": [{**told, "brief": held.spec.brief, "times": times, "runs": runs}]}

    def _lines(self, root: Root) -> list[Reply]:
        return [self._line(root, held) for held in book.load_some(root, book.names(root))]

    def _line(self, root: Root, held: book.KeptSchedule) -> Reply:
        spec, due = held.spec, self._alarm().next_run(held)
        last = held.runs[-1] if held.runs else None
        told: Reply = {
            "name": spec.name,
            "when": spec.words,
            "rule": spec.rule,
            "zone": spec.zone,
            "brief": spec.brief[:_LISTED_CHARS],
            "persona": spec.persona or None,
            "missed": spec.missed,
            "overlap": spec.overlap,
            "stop_after": spec.stop_after or None,
            "next": None if due == math.inf else due,
            "last": None if last is None else {"id": last.mission, "planned": last.planned, "state": self._state(last.mission)},
            "failures": book.failures(root, held),
            "paused": held.paused,
        }
        return {**told, "why": held.why} if held.why else told

    def _state(self, mission: str) -> str:
        recorded = self._image.read(outcome, mission)[0]
        return recorded if recorded in ledger.FINAL else self._scheduler.state(mission) or recorded
