"""Part of the composition root for the autotelic loop, by which the system measures and changes itself.

`Autonomy` measures: senses, heartbeat, entropy, triggers, and the monitor that rolls back a harmful change. `ImprovementLoop`
changes the system: proposals, their rehearsal in a mirror of the image, their promotion.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import structlog

from batos.app.inference import ModelRuntime
from batos.app.mirrors import MirrorParts
from batos.autotelic import change_preparation, entropy_records, telemetry, triggers, writer_evaluation
from batos.autotelic.audit import AUDIT, IMPROVEMENT, Audits, SelfAuditLimits
from batos.autotelic.budget import Budget, DaySpending
from batos.autotelic.change_preparation import ModelPreparation, Preparation
from batos.autotelic.change_types import Ground
from batos.autotelic.entropy_records import WeightBounds
from batos.autotelic.entropy_worker import Assessor, AssessorLimits, EntropyLimits
from batos.autotelic.heartbeat import Heartbeat, HeartbeatLimits, Rhythm
from batos.autotelic.improver import Improver, ImproverParts
from batos.autotelic.rehearsal import Rehearsals
from batos.autotelic.rollback_monitor import ChangeReversal, EffectLimits, Leash
from batos.autotelic.telemetry import Levels, Senses, SensesLimits, tallies_in_words
from batos.autotelic.trigger_missions import Spans, TriggerMonitor
from batos.autotelic.triggers import TriggerLimits
from batos.bridge.inference import Inference
from batos.bridge.lora.staging import staging_folder
from batos.bus import EventBus, MissionEnded
from batos.concurrency import Lifetime, Share, in_helper
from batos.config import Settings
from batos.errors import BatosError
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.image.scrubber import Walk
from batos.image.usage_totals import CostMeter
from batos.memory import objects
from batos.memory.embedders import normalised
from batos.mind.attempt_services import AttemptServices
from batos.mind.codex import Codex
from batos.mind.events import Propose, Ruled, nothing_proposed, nothing_ruled
from batos.mind.router import RoutingLimits
from batos.missions import execution
from batos.missions.mission_queue import AttemptLimits
from batos.missions.scheduler import Scheduler
from batos.objects import Root
from batos.synthesis.handbook import handbook

log = structlog.get_logger("batos")
Record = dict[str, Any]
Measure = Callable[[], Awaitable[Record]]


class Autonomy:
    """Senses, heartbeat, entropy metric, triggers and leash. With `autonomy.mode = "off"` it does nothing."""

    def __init__(self, settings: Settings, image: LivingImage, residency: Callable[[], Record]) -> None:
        """
        :param residency: returns the facts about the models in memory; empty without an Ollama.
        """
        self._settings, self._image, self._residency = settings, image, residency
        self._is_on = settings.autonomy.mode != "off"
        may = settings.autonomy
        spending = DaySpending(may.tokens, may.minutes, may.bytes, may.changes, may.pull_bytes, may.training_minutes)
        self.budget = Budget(image, spending)
        self.leash: Leash | None = None
        self.heartbeat: Heartbeat | None = None
        self.assessor: Assessor | None = None
        self.alarms: TriggerMonitor | None = None
        self._ticked = asyncio.Event()
        self.senses: Senses | None = None

    def _levels(self) -> Levels:
        image, models = self._image.facts(), self._residency()
        counters = {"transactions": {name: image[name] for name in ("conflicts", "units", "aborts")}}
        levels = {"image_bytes": image["bytes"], "image_objects": image["objects"]}
        if models:
            counters["models"] = {name: models[name] for name in ("loads", "unloads", "preloads")}
            levels["models_bytes"] = models["bytes"]
        return Levels(counters, levels)

    async def hold(self, undo: ChangeReversal, life: Lifetime) -> None:
        """Start the rollback monitor. Call this before missions resume: a change that ends the daemon is rolled back first.

        :param life: ends it in order; if that does not happen, the daemon counts as dead.
        """
        if not self._is_on:
            return
        settings = self._settings
        limits = EffectLimits.of(settings)
        self.leash = Leash(self._image, limits, period_s=limits.period_s, deaths=limits.deaths, undo=undo)
        await self.leash.begin()
        life.push_async_callback(self.leash.end)

    async def sense(self, life: Lifetime, bus: EventBus) -> None:
        """Start the senses.

        :param life: ends them; what they noted is stored then.
        """
        if self._is_on:
            life.callback(self._leave)
            limits = SensesLimits.of(self._settings)
            self.senses = Senses(self._image, bus, length=limits.intervals, keys=limits.keys, levels=self._levels)
            life.push_async_callback(self.senses.flush)

    def _leave(self) -> None:
        self.leash = self.heartbeat = self.assessor = self.alarms = self.senses = None

    def begin(self, scheduler: Scheduler, inference: Inference, embedder: str, measure: Measure, bus: EventBus, life: Lifetime) -> None:
        """Start the heartbeat. Call this after `sense`.

        :param embedder: the model that embeds briefs and answers.
        :param measure: the facts that an audit's brief names.
        :param life: ends the tasks begun here.
        """
        if self.senses is None:
            return
        settings = self._settings

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            plain = [normalised(text) for text in texts]
            return await inference.embed(embedder, plain, deadline_s=settings.inference.deadline_s)

        async def submit(id: str, brief: str) -> None:
            await scheduler.submit(id, brief, {"origin": "system"})

        def ready() -> Callable[[], Awaitable[None]]:
            share = Share(scheduler.quiet, AttemptLimits.of(settings).background_wait_s)

            async def wait() -> None:
                await self.budget.ready()
                await share.turn()

            return wait

        async def sensed() -> Record:
            return {**await measure(), "sensed": await self._sensed()}

        assessor = self.assessor = Assessor(self._image, bus, embed, _limits(settings))
        life.callback(assessor.flush)
        life.background(assessor.run(), "assessor")
        heartbeat = self.heartbeat = Heartbeat(
            self._image,
            Rhythm(settings.autonomy.heartbeat_s, HeartbeatLimits.of(settings).jitter, HeartbeatLimits.of(settings).first_s),
            submit=submit,
            measure=sensed,
            quiet=ready(),
        )
        life.background(heartbeat.run(), "heartbeat")
        self.alarms = TriggerMonitor(
            self._image,
            _trigger_limits(settings),
            Spans(TriggerLimits.of(settings).recent_s, TriggerLimits.of(settings).window_s, SensesLimits.of(settings).keys),
            submit=submit,
            since=self.senses.since,
            entropy=lambda: _standing(assessor),
        )
        life.background(self._watching(self.alarms, ready()), "triggers")
        life.background(self._ticking(), "senses")

    async def _watching(self, alarms: TriggerMonitor, ready: Callable[[], Awaitable[None]]) -> None:
        """Check the triggers after each interval, when no mission needs the system and the loop has budget left."""
        while True:
            await self._ticked.wait()
            self._ticked.clear()
            try:
                await ready()
                await alarms.check()
            except (BatosError, OSError) as e:
                log.warning("triggers_not_looked_at", error=str(e))

    async def _ticking(self) -> None:
        while True:
            await asyncio.sleep(SensesLimits.of(self._settings).every_s)
            try:
                await self.tick()
            except (BatosError, OSError) as e:
                log.warning("senses_not_kept", error=str(e))

    async def tick(self) -> None:
        """End an interval: store its notes and measurements."""
        if self.senses is not None and self.assessor is not None:
            self.assessor.flush()
            bucket = await self.senses.flush()
            if bucket is not None and telemetry.concerns_methods(bucket):
                self._image.later(telemetry.note_method_use, bucket)
            self._ticked.set()
        if self.leash is not None:
            await self.leash.check()

    async def _sensed(self) -> str:
        """Return the recent tallies of the senses, and the state of the entropy metric, in words."""
        assert self.senses is not None
        assert self.assessor is not None
        buckets = await self.senses.since(time.time() - SelfAuditLimits.of(self._settings).window_s)
        words = [
            tallies_in_words(
                telemetry.summed_buckets(buckets, SensesLimits.of(self._settings).keys), SelfAuditLimits.of(self._settings).keys
            ),
            self.assessor.told(),
        ]
        return " ".join(filter(None, words))

    def assessed(self, root: Root, number: int) -> Record | None:
        """Return the assessment of the mission of that number, for its record; None if it was not measured."""
        found = entropy_records.assessment_of(root, number) if self.assessor is None else self.assessor.of(root, number)
        return None if found is None else found.to_wire()

    async def rate(self, id: str, rating: int, why: str) -> None:
        """Store a user's rating of a mission, and learn from it, in one transaction.

        :raises UnknownMission: if there is none of that id.
        :raises InvalidInput: if it has not ended.
        """
        bounds = _bounds(self._settings) if self._is_on else None
        if self.assessor is not None:
            self.assessor.flush()  # the measurements of the mission reach the image before the rating
        await self._image.system(_rate, id, rating, why, bounds, mission=id)
        log.info("rated", mission=id, rating=rating)

    async def settled(self) -> None:
        """Wait until all measurements so far are in the image."""
        if self.assessor is not None:
            self.assessor.flush()
            # the committer works in order: this returns after the measurements just handed over
            await self._image.system(lambda root: None)

    def undone(self, root: Root, number: int, redo: bool) -> None:
        """Learn from an undo of the mission of that number, or from its redo, in the transaction that does it."""
        if not self._is_on:
            return
        if redo:
            entropy_records.unlearn_weights(root, number, _bounds(self._settings))
        # else the undo is learned from when the mission is measured
        elif (found := entropy_records.assessment_of(root, number)) is not None:
            entropy_records.learn_weights(root, found, entropy_records.UNDONE, _bounds(self._settings))

    def facts(self) -> Record:
        """Return the facts for `info`."""
        facts: Record = {"state": self._settings.autonomy.mode}
        if self.leash is not None:
            facts |= {"budget": self.budget.facts(), "leash": self.leash.facts()}
        if self.heartbeat is not None and self.assessor is not None and self.alarms is not None:
            facts |= {"heartbeat": self.heartbeat.facts(), "cem": self.assessor.facts(), "triggers": self.alarms.facts()}
        return facts


def _rate(root: Root, id: str, rating: int, why: str, bounds: entropy_records.WeightBounds | None) -> None:
    if not ledger.rate(root, id, rating, why):
        return
    objects.vouch(root, id, rating)
    execution.keep_rated(ledger.mission_of(root, id), rating)
    if bounds is None:
        return
    found = entropy_records.assessment_of(root, ledger.mission_of(root, id).number)
    if found is not None:  # else the rating is learned from when the mission is measured
        entropy_records.learn_weights(root, found, entropy_records.RATED_UP if rating > 0 else entropy_records.RATED_DOWN, bounds)


def _limits(settings: Settings) -> AssessorLimits:
    limits = EntropyLimits.of(settings)
    return AssessorLimits(
        window=limits.window,
        baseline=limits.baseline,
        queue=limits.queue,
        kept=limits.missions,
        chars=RoutingLimits.of(settings).chars,
        pause_s=RoutingLimits.of(settings).pause_s,
        bounds=_bounds(settings),
    )


def _trigger_limits(settings: Settings) -> triggers.TriggerLimits:
    limits = TriggerLimits.of(settings)
    return dataclasses.replace(limits, syntheses=0) if change_preparation.why_no_training(settings) else limits


def _standing(assessor: Assessor) -> triggers.Entropy:
    rolling = None if assessor.usual is None else assessor.rolling
    return triggers.Entropy(assessor.watch.fallen, assessor.usual or 0.0, rolling, assessor.spread)


def _bounds(settings: Settings) -> entropy_records.WeightBounds:
    return WeightBounds.of(settings)


def measured(
    settings: Settings, image: LivingImage, scheduler: Scheduler, costs: CostMeter, walk: Walk, uptime_s: Callable[[], float]
) -> Measure:
    """Make the measurement of an audit: it checks a stretch of the image for damage, and takes the counts of the rest."""

    async def measure() -> Record:
        for damage in await in_helper(walk.step, SelfAuditLimits.of(settings).records, SelfAuditLimits.of(settings).bytes):
            log.error("image_damaged", record=damage.record, what=damage.what)
        missions = scheduler.facts()
        counted = {"complete": missions["COMPLETE"], "failed": missions["FAILED"], "checked": walk.checked, "damaged": len(walk.damaged)}
        return {"uptime_s": uptime_s(), **counted, **costs.facts(), **image.facts()}

    return measure


TASKS_SEED = 1
Curate = Callable[[], Awaitable[Mapping[str, Any]]]


class ImprovementLoop:
    """Proposals and what becomes of them. With `autonomy.mode = "off"` there are none."""

    def __init__(
        self,
        settings: Settings,
        image: LivingImage,
        inference: Inference,
        codex: Codex,
        *,
        audit: Callable[[str, str], Any],
        substrate: ModelRuntime,
        curate: Curate | None = None,
    ) -> None:
        """
        :param audit: the guardian's verdict of a source and its selector.
        :param substrate: knows the models.
        :param curate: runs the memory's curator.
        """
        self._settings, self._image, self._inference, self._codex = settings, image, inference, codex
        self.curate, self._substrate = curate, substrate
        self.ground = Ground(
            settings,
            audit,
            lambda: substrate.models.there(),
            curates=curate is not None,
            trains=lambda: change_preparation.why_no_training(settings, substrate.profile),
        )
        self._audits, off = Audits(self.ground, substrate.why_unfit), settings.autonomy.mode == "off"
        self.propose: Propose = nothing_proposed if off else self._audits.propose
        self.ruled: Ruled = nothing_ruled if off else self._audits.ruled
        self.improver: Improver | None = None

    def begin(self, scheduler: Scheduler, services: AttemptServices, bus: EventBus, leash: Budget, life: Lifetime) -> None:
        """Process proposals until the daemon ends.

        :param services: the services of live attempts.
        :param life: ends the tasks begun here.
        """
        if self._settings.autonomy.mode == "off":
            return
        settings, image = self._settings, self._image
        staging = MirrorParts(settings, self._inference, self._codex, self._substrate).staging(services)
        rehearsals = Rehearsals(image, self._inference, settings, staging, self.ground, self._tasks)
        experts = staging_folder(settings.inference.staging, settings.data)
        preparations: dict[str, Preparation] = {
            "model": ModelPreparation(image, self._substrate.models, leash),
            writer_evaluation.KIND: change_preparation.TrainingPreparation(
                image, settings, leash, lambda: self._substrate.factory, experts
            ),
        }
        parts = ImproverParts(self.ground, self._audits, rehearsals, preparations, self.curate)
        improver = self.improver = Improver(image, self._inference, leash, parts, quiet=scheduler.quiet)

        def hear(ended: MissionEnded) -> None:
            if ended.mission.startswith((AUDIT, IMPROVEMENT)):
                improver.wake()

        bus.subscribe(MissionEnded, hear)
        life.background(improver.run(), "improver")

    @contextlib.asynccontextmanager
    async def _tasks(self, count: int) -> AsyncIterator[Sequence[writer_evaluation.WritingTask]]:
        """Return tasks of families that no training uses, spread over these families."""
        from batos.training.dataset import (
            Prover,
            generate,  # imported late: there are many, and only training needs them
        )

        found = await asyncio.to_thread(generate, "validation", TASKS_SEED, each=1)
        async with Prover(self._settings) as prover:

            def right(task: Any) -> Callable[[str], Awaitable[bool]]:
                async def is_right(source: str) -> bool:
                    return (await prover.judge(task, source)).right

                return is_right

            chosen = found[:: max(1, len(found) // count)][:count]
            book = await asyncio.to_thread(handbook)
            yield [writer_evaluation.WritingTask(task.selector, task.prompt(example=True, book=book), right(task)) for task in chosen]
