"""The part of the composition root that puts the autotelic loop together: what the system does of its own accord."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from batos.autotelic import ring
from batos.autotelic.heartbeat import Heartbeat
from batos.autotelic.senses import Levels, Senses, told
from batos.config import Settings
from batos.errors import BatosError
from batos.image.costs import Meter
from batos.image.integrity import Walk
from batos.image.living import LivingImage
from batos.image.turns import in_helper
from batos.mind.events import Events
from batos.mind.scheduler import Scheduler

log = structlog.get_logger("batos")
Record = dict[str, Any]
Measure = Callable[[], Awaitable[Record]]


class Loop:
    """The heartbeat, and all that it goes by. With `autotelic = "off"` it does nothing."""

    def __init__(
        self, settings: Settings, image: LivingImage, events: Events, residency: Callable[[], Record], *, stack: contextlib.AsyncExitStack
    ) -> None:
        """
        :param residency: what there is to say of the models in memory; empty where that is not known.
        :param stack: what was begun here ends with it.
        """
        self._settings, self._image, self._residency = settings, image, residency
        self.heartbeat: Heartbeat | None = None
        self.senses: Senses | None = None
        if settings.autotelic == "off":
            return
        self.senses = Senses(image, events, length=settings.senses_intervals, keys=settings.senses_keys, levels=self._levels)
        stack.push_async_callback(self.senses.flush)

    def hearers(self, what: str) -> list[Callable[..., None]]:
        """Who of the loop is to be told of `paid`, `verdict`, `ran` or `retrieved` (see `Senses`); nobody where it is off."""
        return [getattr(self.senses, what)] if self.senses is not None else []

    def _levels(self) -> Levels:
        image, models = self._image.facts(), self._residency()
        counters = {"transactions": {name: image[name] for name in ("conflicts", "units", "aborts")}}
        levels = {"image_bytes": image["bytes"], "image_objects": image["objects"]}
        if models:
            counters["models"] = {name: models[name] for name in ("loads", "unloads", "preloads")}
            levels["models_bytes"] = models["bytes"]
        return Levels(counters, levels)

    def begin(self, scheduler: Scheduler, measure: Measure, background: Callable[[Any, str], None]) -> None:
        """Let it beat.

        :param measure: the facts that an audit's brief names.
        :param background: runs something until the daemon ends.
        """
        if self.senses is None:
            return
        senses, settings = self.senses, self._settings

        async def submit(id: str, brief: str) -> None:
            await scheduler.submit(id, brief, {"origin": "system"})

        async def sensed() -> Record:
            buckets = await senses.since(time.time() - settings.audit_window_s)
            return {**await measure(), "sensed": told(ring.summed(buckets, settings.senses_keys), settings.audit_keys)}

        async def tick() -> None:
            while True:
                await asyncio.sleep(settings.senses_s)
                try:
                    await senses.flush()
                except (BatosError, OSError) as e:
                    log.warning("senses_not_kept", error=str(e))

        heartbeat = self.heartbeat = Heartbeat(
            self._image,
            interval_s=settings.heartbeat_s,
            jitter=settings.heartbeat_jitter,
            first_s=settings.heartbeat_first_s,
            submit=submit,
            measure=sensed,
            quiet=scheduler.quiet,
        )
        background(heartbeat.run(), "heartbeat")
        background(tick(), "senses")

    def facts(self) -> Record:
        """What `info` says of it."""
        return {"state": self._settings.autotelic, **({"heartbeat": self.heartbeat.facts()} if self.heartbeat is not None else {})}


def each(*hearers: Callable[..., None]) -> Callable[..., None]:
    """What tells all of them."""

    def tell(*args: Any) -> None:
        for hear in hearers:
            hear(*args)

    return tell


def measured(
    settings: Settings, image: LivingImage, scheduler: Scheduler, costs: Meter, walk: Walk, uptime_s: Callable[[], float]
) -> Measure:
    """What an audit measures: a stretch of the image is checked for damage, the rest was counted before."""

    async def measure() -> Record:
        for damage in await in_helper(walk.step, settings.audit_records, settings.audit_bytes):
            log.error("image_damaged", record=damage.record, what=damage.what)
        missions = scheduler.facts()
        counted = {"complete": missions["COMPLETE"], "failed": missions["FAILED"], "checked": walk.checked, "damaged": len(walk.damaged)}
        return {"uptime_s": uptime_s(), **counted, **costs.facts(), **image.facts()}

    return measure
