"""Preloading: in a pause, the model that is likely to be needed next is brought into memory. Never in a real request's way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import NamedTuple

import structlog

from batos.bridge.loads import Load
from batos.bridge.residency import Residency

log = structlog.get_logger(__name__)


class Expected(NamedTuple):
    """Names of models: `needed` by missions that wait, in their order; `likely` to be needed after those, the likeliest first."""

    needed: list[str]
    likely: list[str]


class Preloader:
    """Loads what is expected when no inference has been under way for a while."""

    def __init__(self, residency: Residency, idle_s: float, expected: Callable[[], Expected]) -> None:
        """
        :param idle_s: seconds without an inference before anything is preloaded.
        """
        self._residency, self._idle_s, self._expected = residency, idle_s, expected
        self._task: asyncio.Task[None] | None = None
        self._loading: Load | None = None

    def rest(self) -> None:
        """No inference is under way: begin to wait for the pause to be long enough."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="preload")
            self._task.add_done_callback(self._ended)

    async def give_way(self, load: Load) -> None:
        """An inference comes: what is being preloaded is given up, unless it is what the inference needs."""
        if self._loading != load:
            await self.stop()

    async def stop(self) -> None:
        """Give up what is being preloaded; returns when that is over."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._task is task:  # else it was begun anew before this ran
            self._task = self._loading = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("background_failed", part="preload", error=repr(failure))

    async def _run(self) -> None:
        await asyncio.sleep(self._idle_s)
        tried: set[Load] = set()
        while self._residency.gate.idle and (chosen := self._choose(tried)) is not None:
            self._loading, kept = chosen
            tried.add(self._loading)
            await self._residency.preload(self._loading, kept)

    def _choose(self, tried: Set[Load]) -> tuple[Load, set[Load]] | None:
        """What to load next, and what must not be thrown out for it: what is in use, what waiting missions need, what is likelier."""
        residency, (needed, likely) = self._residency, self._expected()
        waited_for = [load for model in needed if (load := residency.load_of(model))]
        kept = {*residency.gate.in_use, *waited_for}
        for load in [*waited_for, *(load for model in likely if (load := residency.load_of(model)))]:
            thrown_out = any(load.evicts(other) and residency.is_resident(other) for other in kept)
            if not (residency.is_resident(load) or load in tried or thrown_out) and residency.victims(load, kept)[1]:
                return load, kept
            kept.add(load)
        return None
