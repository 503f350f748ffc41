"""The part of the composition root that puts the autotelic loop together: what the system does of its own accord."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from batos.autotelic import assessments, effect, ring, training, triggers, usage, weights
from batos.autotelic.alarms import Alarms, Spans
from batos.autotelic.assessor import Assessor, Limits
from batos.autotelic.budget import Budget, Spent
from batos.autotelic.heartbeat import Heartbeat
from batos.autotelic.leash import Leash, Undo
from batos.autotelic.senses import Levels, Senses, told
from batos.bridge.types import Inference
from batos.concurrency import Share
from batos.config import Settings
from batos.errors import BatosError
from batos.image import ledger
from batos.image.costs import Meter
from batos.image.integrity import Walk
from batos.image.living import LivingImage
from batos.image.turns import in_helper
from batos.memory import origins
from batos.memory.embedders import normalised
from batos.mind import tentative
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
        self._settings, self._image, self._events, self._residency, self._stack = settings, image, events, residency, stack
        self.budget = Budget(image, Spent(*(getattr(settings, f"loop_{name}") for name in Spent._fields)))
        self.leash: Leash | None = None
        self.heartbeat: Heartbeat | None = None
        self.assessor: Assessor | None = None
        self.alarms: Alarms | None = None
        self._ticked = asyncio.Event()
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

    async def hold(self, undo: Undo) -> None:
        """Put it on its leash. To be called before any mission goes on: what a daemon dies of is taken back first."""
        if self.senses is None:
            return
        settings = self._settings
        limits = effect.Limits(*(getattr(settings, f"leash_{name}") for name in effect.Limits._fields))
        self.leash = Leash(self._image, limits, period_s=settings.leash_s, deaths=settings.crash_limit, undo=undo)
        await self.leash.begin()
        self._stack.push_async_callback(self.leash.end)

    def begin(
        self, scheduler: Scheduler, inference: Inference, embedder: str, measure: Measure, background: Callable[[Any, str], None]
    ) -> None:
        """Let it beat.

        :param embedder: the model that embeds what missions ask and answer.
        :param measure: the facts that an audit's brief names.
        :param background: runs something until the daemon ends.
        """
        if self.senses is None:
            return
        settings = self._settings

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            plain = [normalised(text) for text in texts]
            return await inference.embed(embedder, plain, deadline_s=settings.inference_deadline_s)

        async def submit(id: str, brief: str) -> None:
            await scheduler.submit(id, brief, {"origin": "system"})

        def ready() -> Callable[[], Awaitable[None]]:
            share = Share(scheduler.quiet, settings.background_wait_s)

            async def wait() -> None:
                await self.budget.ready()
                await share.turn()

            return wait

        async def sensed() -> Record:
            return {**await measure(), "sensed": await self._sensed()}

        assessor = self.assessor = Assessor(self._image, self._events, embed, _limits(settings))
        self._stack.callback(assessor.flush)
        background(assessor.run(), "assessor")
        heartbeat = self.heartbeat = Heartbeat(
            self._image,
            interval_s=settings.heartbeat_s,
            jitter=settings.heartbeat_jitter,
            first_s=settings.heartbeat_first_s,
            submit=submit,
            measure=sensed,
            quiet=ready(),
        )
        background(heartbeat.run(), "heartbeat")
        self.alarms = Alarms(
            self._image,
            _trigger_limits(settings),
            Spans(settings.trigger_recent_s, settings.trigger_window_s, settings.senses_keys),
            submit=submit,
            since=self.senses.since,
            entropy=lambda: _standing(assessor),
        )
        background(self._watching(self.alarms, ready()), "triggers")
        background(self._ticking(), "senses")

    async def _watching(self, alarms: Alarms, ready: Callable[[], Awaitable[None]]) -> None:
        """Look at the triggers after each interval, when nobody else needs the system and the loop may spend something."""
        while True:
            await self._ticked.wait()
            self._ticked.clear()
            try:
                await ready()
                await alarms.look()
            except (BatosError, OSError) as e:
                log.warning("triggers_not_looked_at", error=str(e))

    async def _ticking(self) -> None:
        while True:
            await asyncio.sleep(self._settings.senses_s)
            try:
                await self.tick()
            except (BatosError, OSError) as e:
                log.warning("senses_not_kept", error=str(e))

    async def tick(self) -> None:
        """End an interval: what was noted and measured in it is kept."""
        if self.senses is not None and self.assessor is not None:
            self.assessor.flush()
            bucket = await self.senses.flush()
            if bucket is not None and usage.concerns(bucket):
                self._image.later(usage.note, bucket)
            self._ticked.set()
        if self.leash is not None:
            await self.leash.look()

    async def _sensed(self) -> str:
        """What the senses noted lately, and how it stands with entropy, in words."""
        assert self.senses is not None
        assert self.assessor is not None
        buckets = await self.senses.since(time.time() - self._settings.audit_window_s)
        words = [told(ring.summed(buckets, self._settings.senses_keys), self._settings.audit_keys), self.assessor.told()]
        return " ".join(filter(None, words))

    def assessed(self, root: Any, number: int) -> Record | None:
        """What the entropy metric said of the mission of that number, for its record."""
        found = assessments.of(root, number) if self.assessor is None else self.assessor.of(root, number)
        return None if found is None else found.to_wire()

    async def rate(self, id: str, rating: int, why: str) -> None:
        """Keep what a user thinks of a mission, and learn from it, in one transaction.

        :raises UnknownMission: if there is none of that id.
        :raises InvalidInput: if it has not ended.
        """
        bounds = None
        if self.assessor is not None:
            bounds = _bounds(self._settings)
            self.assessor.flush()  # what was said of the mission is in the image before the rating is
        await self._image.system(_rate, id, rating, why, bounds, mission=id)
        log.info("rated", mission=id, rating=rating)

    async def settled(self) -> None:
        """Return when what was measured so far is in the image."""
        if self.assessor is not None:
            self.assessor.flush()
            await self._image.system(lambda root: None)  # in order with what was just handed over

    def undone(self, root: Any, number: int, redo: bool) -> None:
        """Part of the transaction that undoes the mission of that number, or does it again: learn from that."""
        if self.assessor is None:
            return
        if redo:
            weights.unlearn(root, number, _bounds(self._settings))
        elif (found := assessments.of(root, number)) is not None:  # else it is learned from when the mission is measured
            weights.learn(root, found, weights.UNDONE, _bounds(self._settings))

    def facts(self) -> Record:
        """What `info` says of it."""
        facts: Record = {"state": self._settings.autotelic}
        if self.leash is not None:
            facts |= {"budget": self.budget.facts(), "leash": self.leash.facts()}
        if self.heartbeat is not None and self.assessor is not None and self.alarms is not None:
            facts |= {"heartbeat": self.heartbeat.facts(), "cem": self.assessor.facts(), "triggers": self.alarms.facts()}
        return facts


def _rate(root: Any, id: str, rating: int, why: str, bounds: weights.Bounds | None) -> None:
    if not ledger.rate(root, id, rating, why):
        return
    origins.vouch(root, id, rating)
    tentative.keep(ledger.mission_of(root, id), rating)
    if bounds is None:
        return
    found = assessments.of(root, ledger.mission_of(root, id).number)
    if found is not None:  # else it is learned from when the mission is measured
        weights.learn(root, found, weights.RATED_UP if rating > 0 else weights.RATED_DOWN, bounds)


def _limits(settings: Settings) -> Limits:
    return Limits(
        window=settings.cem_window,
        baseline=settings.cem_baseline,
        queue=settings.cem_queue,
        kept=settings.cem_missions,
        chars=settings.routing_chars,
        pause_s=settings.routing_pause_s,
        bounds=_bounds(settings),
    )


def _trigger_limits(settings: Settings) -> triggers.Limits:
    limits = triggers.Limits(*(getattr(settings, f"trigger_{name}") for name in triggers.Limits._fields))
    return limits._replace(syntheses=0) if training.why_not(settings) else limits


def _standing(assessor: Assessor) -> triggers.Entropy:
    rolling = None if assessor.usual is None else assessor.rolling
    return triggers.Entropy(assessor.watch.fallen, assessor.usual or 0.0, rolling, assessor.spread)


def _bounds(settings: Settings) -> weights.Bounds:
    return weights.Bounds(settings.weights_step, settings.weights_least, settings.weights_most)


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
