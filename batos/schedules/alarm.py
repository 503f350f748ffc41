"""Alarm of the schedules: one task that sleeps until the next planned time, and makes a mission of each schedule that is due.

schedule ─ planned time ─ `Scheduler.submit(id of schedule and time)` ─ accepted and settled in one transaction ─ mission

It wakes at least every `LOOK_S`, so it notices a clock that was set and a machine that was suspended. Where the clock was set back, times
come again, and so do their ids: a mission that is known is not made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from batos.bus import EventBus, MissionEnded, ScheduleStopped
from batos.errors import InvalidInput, MissionIdTaken
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.schedules import book
from batos.schedules.book import ALL, LEAVE, ORIGIN, PREFIX, SKIP, KeptSchedule, ScheduleChanged, ScheduledRun
from batos.schedules.times import Timing

log = structlog.get_logger("batos.schedules")
LOOK_S = 30.0
"""Longest time between two looks at the clock, in seconds."""
LATE_S = 60.0
"""A run that begins later than this was missed, in seconds."""
MOST_MISSED = 100
"""Missed runs of one schedule that are made up for, at most."""
AGAIN_S = 5.0
"""Seconds after which a run that could not be accepted is tried again."""
_STEP_S = 1.0  # a clock that is set back by less changes no plan
_AT_ONCE = 64  # schedules that fall due together: their missions are accepted in one commit
_LOADED = 10  # schedules that are read in one turn of the loop


class Submit(Protocol):
    """Accepts a mission, as `batos.missions.scheduler.Scheduler.submit` does."""

    def __call__(
        self, id: str, brief: str, options: dict[str, Any], first: Callable[[Any], object] | None = None, /
    ) -> Awaitable[tuple[bool, Any]]: ...


@dataclass(frozen=True)
class AlarmClock:
    """Clock of the alarm; a test has its own."""

    now: Callable[[], float] = time.time
    """Returns the seconds since the epoch."""
    wait: Callable[[asyncio.Event, float | None], Awaitable[object]] | None = None
    """Waits for an event, for at most the given number of seconds."""
    look_s: float = LOOK_S


class Alarm:
    """Makes missions of schedules: `await run()` until cancelled. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage, submit: Submit, bus: EventBus, clock: AlarmClock | None = None) -> None:
        """
        :param bus: reports missions that ended, and takes reports of schedules that stopped.
        """
        clock = clock or AlarmClock()
        self._image, self._submit, self._bus = image, submit, bus
        self._now, self._wait, self._look_s = clock.now, clock.wait or _wait, clock.look_s
        self._heap: list[tuple[float, str]] = []
        self.planned: dict[str, tuple[float, float]] = {}  # when to wake for which time; other entries of the heap are outdated
        self._timings: dict[tuple[str, str], Timing] = {}
        self._changed: set[str] = set()
        self._failed: set[str] = set()
        self._stirred = asyncio.Event()
        bus.subscribe(MissionEnded, self._ended)

    async def run(self) -> None:
        """Make missions of schedules as they fall due."""
        await self._load()
        seen = self._now()
        while True:
            self._stirred.clear()
            now = self._now()
            if now < seen - _STEP_S:
                log.info("clock_set_back", seconds=round(seen - now, 1))
                await self._load()
            seen = now
            while self._changed:
                self._plan(self._changed.pop())
            await self._stop_failing()
            await self._fire_due()
            due = self._heap[0][0] if self._heap else math.inf
            wait_s = min(self._look_s, max(0.0, due - self._now())) if self.planned else None
            await self._wait(self._stirred, wait_s)

    def changed(self, name: str) -> None:
        """Read a schedule anew: it was added, changed or removed."""
        self._changed.add(name)
        self._stirred.set()

    def next_run(self, held: KeptSchedule) -> float:
        """Return the next planned time of a schedule, as seconds since the epoch; infinite if there is none, or it is paused."""
        # A time that was settled while the clock was ahead is none.
        return math.inf if held.paused else self._timing(held).after(min(held.settled, self._now()))

    async def run_now(self, name: str, mission: str) -> str:
        """Make a mission of a schedule now; what is planned stays. Return its id.

        :param mission: id of the mission; the same id again means the same run.
        :raises InvalidInput: if there is no schedule of that name.
        :raises BatosError: if the mission cannot be accepted.
        """
        held = self._image.read(book.load, name)
        planned = self._now()
        if not self._image.read(ledger.is_known, mission):
            await self._accept(held, mission, planned, lambda root: book.note_run(root, held, ScheduledRun(mission, planned)))
        return mission

    # --- planning

    async def _load(self) -> None:
        """Read all schedules."""
        wanted = self._image.read(book.names)
        self._heap.clear()
        self.planned.clear()
        for begin in range(0, len(wanted), _LOADED):
            for name in wanted[begin : begin + _LOADED]:
                self._plan(name)
            await asyncio.sleep(0)  # the loop has other work, too
        self._failed |= set(wanted)

    def _plan(self, name: str, not_before: float = -math.inf) -> None:
        """Put a schedule into the heap at its next time."""
        self.planned.pop(name, None)
        found = self._image.read(book.load_some, [name])
        if not found:
            return
        try:
            due = self.next_run(found[0])
        except InvalidInput as e:  # a zone that this machine does not know any more
            log.error("schedule_not_planned", name=name, error=str(e))
            return
        if due < math.inf:
            wake = max(due, not_before)
            self.planned[name] = wake, due
            heapq.heappush(self._heap, (wake, name))

    def _timing(self, held: KeptSchedule) -> Timing:
        key = held.spec.rule, held.spec.zone
        if key not in self._timings:
            if len(self._timings) >= book.MOST_SCHEDULES:
                self._timings.clear()
            self._timings[key] = Timing(*key)
        return self._timings[key]

    # --- running

    async def _fire_due(self) -> None:
        while due := self._take_due():
            await asyncio.gather(*(self._fire_and_plan(name, planned) for name, planned in due))

    def _take_due(self) -> list[tuple[str, float]]:
        """Take schedules that are due from the heap, `_AT_ONCE` at most, each with its planned time."""
        found: list[tuple[str, float]] = []
        while self._heap and self._heap[0][0] <= self._now() and len(found) < _AT_ONCE:
            wake, name = heapq.heappop(self._heap)
            if name in self.planned and self.planned[name][0] == wake:
                found.append((name, self.planned.pop(name)[1]))
        return found

    async def _fire_and_plan(self, name: str, due: float) -> None:
        try:
            await self._fire(name, due)
        except ScheduleChanged:
            self._plan(name)
        except Exception as e:  # a full queue or a full disk, say: no other schedule waits for it
            log.warning("schedule_run_delayed", name=name, error=str(e), again_s=AGAIN_S)
            self._plan(name, self._now() + AGAIN_S)
        else:
            self._plan(name)

    async def _fire(self, name: str, due: float) -> None:
        """Make the missions of a schedule that is due.

        :param due: the first of its planned times.
        :raises ScheduleChanged: if it was paused, changed or removed meanwhile.
        :raises BatosError: if a mission cannot be accepted.
        """
        found = self._image.read(book.load_some, [name])
        if not found or found[0].paused:
            return
        held, now = found[0], self._now()
        since = min(held.settled, due - 1)
        times = self._timing(held).passed(since, now, MOST_MISSED if held.spec.missed == ALL else 1)
        if not times or await self._stopped(held):
            return
        if held.spec.missed == SKIP and now - times[-1] > LATE_S:
            log.info("schedule_runs_skipped", name=name, until=times[-1])
            await self._image.system(book.settle, held, times[-1], mission="schedules")
            return
        for planned in times:
            await self._run(held, planned)

    async def _run(self, held: KeptSchedule, planned: float) -> None:
        """Make the mission of one planned time, and settle that time in the same transaction."""
        mission = held.mission_at(planned)
        if self._image.read(ledger.is_known, mission):  # the clock was set back, or the schedule was undone
            await self._image.system(book.settle, held, planned, mission, mission="schedules")
            return
        if held.spec.overlap == LEAVE and self._image.read(lambda root: book.is_running(root, book.load(root, held.spec.name))):
            log.info("schedule_run_left_out", name=held.spec.name, planned=planned, why="the last run has not ended")
            await self._image.system(book.settle, held, planned, mission="schedules")
            return
        try:
            await self._accept(held, mission, planned, lambda root: book.settle(root, held, planned, mission))
        except MissionIdTaken:
            log.error("schedule_run_taken", name=held.spec.name, mission=mission, hint="a mission of a user's has this id")
            await self._image.system(book.settle, held, planned, mission="schedules")
            return
        log.info("schedule_ran", name=held.spec.name, mission=mission, late_s=round(self._now() - planned, 3))

    async def _accept(self, held: KeptSchedule, mission: str, planned: float, first: Callable[[Any], object]) -> None:
        day = self._timing(held).local(planned).date().isoformat()
        now = self._image.read(book.load, held.spec.name)  # an earlier run of this turn may have ended
        brief = self._image.read(book.prepared, now, day)
        options = {"persona": held.spec.persona or None, "origin": ORIGIN, "context": brief.follows}
        await self._submit(mission, brief.text, options, first)

    # --- failures

    def _ended(self, event: MissionEnded) -> None:
        if event.state == ledger.FAILED and event.mission.startswith(PREFIX):
            self._failed.add(event.mission.removeprefix(PREFIX).rsplit("-", 2)[0])
            self._stirred.set()

    async def _stop_failing(self) -> None:
        """Stop the schedules whose runs failed too often in a row."""
        while self._failed:
            for held in self._image.read(book.load_some, [self._failed.pop()]):
                await self._stopped(held)

    async def _stopped(self, held: KeptSchedule) -> bool:
        """Stop a schedule if its runs failed too often in a row; return True if so."""
        spec = held.spec
        if held.paused or not spec.stop_after:
            return held.paused
        count = self._image.read(book.failures, held)
        if count < spec.stop_after:
            return False
        why = f"its last {count} runs failed; `batos schedule resume {spec.name}` lets it go on"
        await self._image.system(book.pause, spec.name, why, mission="schedules")
        self.planned.pop(spec.name, None)
        log.error("schedule_stopped", name=spec.name, failures=count, hint=why)
        self._bus.publish(ScheduleStopped(spec.name, why))
        return True


async def _wait(stirred: asyncio.Event, wait_s: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await stirred.wait()
