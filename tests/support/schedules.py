"""What the tests of schedules share: an alarm over a real image, a clock that a test turns, and the missions that came of it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from batos.bus import EventBus
from batos.image import LivingImage, ledger
from batos.schedules import book
from batos.schedules.alarm import Alarm, AlarmClock
from batos.schedules.book import ScheduleSpec

_PLANNED = re.compile(r"-(\d{8}T\d{6}Z)\Z")


class HandClock:
    """A clock that goes as fast as its alarm sleeps, up to an end; `turns` sets it in between."""

    def __init__(self, now: float, end: float) -> None:
        self.at, self.over, self._left = now, asyncio.Event(), end - now
        self.turns: list[tuple[float, float]] = []  # when, and by how many seconds it is set
        self._slept = 0.0

    def now(self) -> float:
        return self.at

    async def wait(self, stirred: asyncio.Event, wait_s: float | None) -> None:
        await asyncio.sleep(0)
        if stirred.is_set():
            return
        if self._left <= 0 or wait_s is None:
            self.over.set()
            await stirred.wait()
            return
        slept = min(max(wait_s, 0.001), self._left)
        self._left -= slept
        self.at += slept
        self._slept += slept
        while self.turns and self._slept >= self.turns[0][0]:
            self.at += self.turns.pop(0)[1]


class Book:
    """An image with schedules."""

    def __init__(self, image: LivingImage) -> None:
        self.image, self.bus = image, EventBus()
        self.busy = 0  # submissions that are refused

    async def add(self, rule: str, now: float, **said: Any) -> book.KeptSchedule:
        spec = ScheduleSpec(**{"name": "", "words": rule, "rule": rule, "zone": "UTC", "brief": "What is new?", **said})
        return await self.image.system(book.add, spec, now)

    async def submit(self, id: str, brief: str, options: dict[str, Any], first: Callable[[Any], object] | None = None) -> tuple[bool, Any]:
        if self.busy:
            self.busy -= 1
            raise OSError("no room")
        return await self.image.system(ledger.accept, id, brief, options, False, first)

    @contextlib.asynccontextmanager
    async def alarm(self, clock: HandClock, look_s: float = 3600.0) -> AsyncIterator[Alarm]:
        """An alarm at work, until the clock has come to its end."""
        made = Alarm(self.image, self.submit, self.bus, AlarmClock(clock.now, clock.wait, look_s))
        task = asyncio.create_task(made.run())
        try:
            yield made
            over = asyncio.create_task(clock.over.wait())
            await asyncio.wait([over, task], return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def missions(self) -> list[str]:
        """The ids of all missions, in the order of their acceptance."""
        return self.image.read(lambda root: [one.id for one in ledger.newest_first(root)][::-1])

    def planned(self) -> list[str]:
        """The times that the missions were planned for."""
        return [found[1] for id in self.missions() if (found := _PLANNED.search(id))]

    async def end(self, mission: str, text: str | None) -> None:
        """End a mission: with a text, or failed."""

        def over(root: Any) -> None:
            if text is None:
                ledger.fail(root, mission, {"code": "inference_failed", "message": "no"}, {}, True)
            else:
                held = ledger.mission_of(root, mission)
                held.state, held.result = ledger.COMPLETE, ledger.compact({"text": text})

        await self.image.system(over)


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Book]:
    image = await LivingImage.open(f"file://{folder / 'live_image.fs'}", steps=(book.install,))
    try:
        yield Book(image)
    finally:
        await image.close()
