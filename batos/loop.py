"""The part of the composition root that puts the autotelic loop together: what the system does of its own accord."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from batos.autotelic.heartbeat import Heartbeat
from batos.config import Settings
from batos.image.costs import Meter
from batos.image.integrity import Walk
from batos.image.living import LivingImage
from batos.image.turns import in_helper
from batos.mind.scheduler import Scheduler

log = structlog.get_logger("batos")
Record = dict[str, Any]
Measure = Callable[[], Awaitable[Record]]


class Loop:
    """The heartbeat, and all that it goes by. With `autotelic = "off"` it does nothing."""

    def __init__(self, settings: Settings, image: LivingImage) -> None:
        self._settings, self._image = settings, image
        self.on = settings.autotelic == "on"
        self.heartbeat: Heartbeat | None = None

    def begin(self, scheduler: Scheduler, measure: Measure, background: Callable[[Any, str], None]) -> None:
        """Let it beat.

        :param measure: the facts that an audit's brief names.
        :param background: runs something until the daemon ends.
        """
        if not self.on:
            return

        async def submit(id: str, brief: str) -> None:
            await scheduler.submit(id, brief, {"origin": "system"})

        settings = self._settings
        heartbeat = self.heartbeat = Heartbeat(
            self._image,
            interval_s=settings.heartbeat_s,
            jitter=settings.heartbeat_jitter,
            first_s=settings.heartbeat_first_s,
            submit=submit,
            measure=measure,
            quiet=scheduler.quiet,
        )
        background(heartbeat.run(), "heartbeat")

    def facts(self) -> Record:
        """What `info` says of it."""
        return {"state": self._settings.autotelic, **({"heartbeat": self.heartbeat.facts()} if self.heartbeat is not None else {})}


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
