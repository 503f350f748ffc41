"""The composition root: what parts there are, and how they are put together. Nothing else wires.

client ─ wire.Listener ─ desk.Desk ─ mind.Scheduler.submit ─ image.ledger.accept ─ durable ─ `accepted`
                                          │
                                 mind.Attempts.run ─ one image.Unit ─ mind.run_cycle ─ states ─ Thinking.chat ─ bridge
                                          │
                                 commit ─ `result`
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog

import batos
from batos import logs, preflight
from batos.api.dispatcher import Dispatcher
from batos.api.uploads import UploadLimits, Uploads
from batos.app.autonomy import Autonomy, Improving, each, measured
from batos.app.inference import Substrate
from batos.app.memory import Recollection
from batos.app.model_choice import Providing
from batos.app.undo import Undoing
from batos.autotelic import change_types, entropy_records, schema
from batos.bridge.downloads import ProvisionLimits
from batos.bridge.inference import Inference
from batos.bridge.profiles import Profile
from batos.bridge.selection import named_models
from batos.concurrency import Share
from batos.config import Settings
from batos.forge import machine, versions
from batos.image import daemon_files, model_registry, retention
from batos.image.backup_schedule import BackupLimits, Backups, plan_of
from batos.image.living_image import ImageLimits, LivingImage
from batos.image.scrubber import Walk
from batos.image.upkeep import Upkeep, UpkeepLimits
from batos.image.usage_totals import CostMeter
from batos.memory import objects as memory
from batos.methods.runtime import MethodRuntime
from batos.mind import incarnation, memory_primitives, messages, psm
from batos.mind.attempt_context import Thinking
from batos.mind.codex import load_codex, with_roles
from batos.mind.events import Events
from batos.mind.evidence import EvidenceLimits
from batos.mind.limits import ThinkingLimits
from batos.mind.messages import deliver
from batos.mind.router import Likeness, Router, RoutingLimits, shares
from batos.missions.mission_queue import AttemptLimits
from batos.missions.replay import Replaying, Replays
from batos.missions.scheduler import Scheduler
from batos.wire import endpoints
from batos.wire.admin_schemas import Accepting
from batos.wire.endpoints import WireLimits
from batos.wire.listener import Listener

if TYPE_CHECKING:
    from batos.console.server import Console
    from batos.metrics import Metrics

log = structlog.get_logger("batos")
_INSTALL = (
    psm.install,
    machine.install,
    versions.install,
    messages.install_grants,
    model_registry.install_experts,
    memory.install,
    memory_primitives.install_memory,
    memory_primitives.install_summaries,
    memory_primitives.install_gists,
    schema.install,
    entropy_records.install_weights,
    change_types.install_voices,
)
"""What adds to a new image, or to that of an earlier version, in this order."""

REPORT_WAIT_S = 30.0  # for models: the embedded ones take seconds, a pull takes longer than anyone looks at an empty terminal


class Kernel:
    """A running BAT OS. Made by `Kernel.start`, ended by `stop`; `ended` waits for a reason to stop."""

    image: LivingImage
    scheduler: Scheduler
    events: Events
    metrics: Metrics

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.begun = time.monotonic()
        self.endpoints: list[str] = []
        self.reloaded: dict[str, Any] = {}  # how the last reload went
        self._stack = contextlib.AsyncExitStack()
        self._end: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.console: Console | None = None
        self.providing: Providing | None = None  # where there is an Ollama

    @classmethod
    async def start(
        cls,
        settings: Settings,
        *,
        inference: Inference | None = None,
        listen: bool = True,
        on_recovered: Callable[[], object] = lambda: None,
    ) -> Kernel:
        """Put the parts together and let missions in.

        :param inference: takes the place of Ollama: what the benches inject.
        :param listen: whether to open the endpoints.
        :param on_recovered: called when the image is open and recovered, before any mission is thought about.
        :raises BatosError: with what stands in the way and the remedy; nothing stays running then.
        """
        kernel = cls(settings)
        try:
            await kernel._start(inference, listen, on_recovered)
        except BaseException:
            await kernel._stack.aclose()
            raise
        return kernel

    async def _start(self, inference: Inference | None, listen: bool, on_recovered: Callable[[], object]) -> None:
        settings = self.settings
        log.info("starting", version=batos.__version__, data=str(settings.data))
        preflight.check(settings)  # refused before an image is made and an Ollama started; so are addresses that are taken
        if listen:
            for endpoint in settings.endpoints:
                endpoints.check(endpoint, guarded=bool(settings.wire.secret_key))
            if settings.console.enabled == "on":
                await self._take_console_address()
        await asyncio.to_thread(daemon_files.close_files, settings)
        self.codex = with_roles(load_codex(settings.missions.codex or None), named_models(settings).personas)
        self.events = Events()
        incarnate = incarnation.Incarnation(self.codex)
        self.image = await LivingImage.open(
            settings.image_uri,
            steps=(incarnate, *_INSTALL),
            cache_size=ImageLimits.of(settings).cache,
            units=settings.missions.concurrent,
            batch=ImageLimits.of(settings).batch,
            on_failed=self.request_stop,
        )
        self._stack.push_async_callback(self.image.close)
        self._tell_of(incarnate)
        self.walk = Walk(self.image.db)
        self.substrate = Substrate(
            settings, self.image, self.codex, stack=self._stack, background=self._background, on_choice=self._take_choice
        )
        self.loop = Autonomy(settings, self.image, self.events, self._residency, stack=self._stack)
        grouping = None
        if inference is None:
            inference, grouping = await self.substrate.connect(
                guess=lambda record: self.router.guess(record), waiting=lambda count: self.scheduler.queue.models(count)
            )
        inference = self._count(inference)
        self._look_after_image()
        self._on_paid = each(self.costs.add, *self.loop.hearers("paid"))
        self._route_with(inference)
        self.memory = Recollection(self.image, settings, each(*self._hearers("retrieved")))
        asked_only = self.substrate.asked_only
        await self.memory.open(inference, self.profile.embedder, asked_only=asked_only, stack=self._stack, background=self._background)
        self.undoing = Undoing(self.image, self.memory, settings, self.loop)
        self._stack.push_async_callback(self.undoing.stop)
        if self.substrate.places:
            self.providing = Providing(settings, self.image, self.substrate, self.loop.budget)
            self.undoing.withdrawn = self.providing.withdrawn
        self.methods = MethodRuntime(
            self.image,
            settings,
            forge=machine.forge,
            deliver=deliver,
            on_verdict=each(*self._hearers("verdict")),
            on_run=each(*self._hearers("ran")),
            writers_known=self.substrate.experts_known,
        )
        self._stack.push_async_callback(self.methods.close)
        parts = (self.image, inference, self.profile.embedder, self.codex)
        curate = (lambda: self.memory.curator.round("it was proposed")) if settings.memory.curate == "on" else None
        audit = self.methods.audit
        self.improving = Improving(settings, *parts, host=self._host, audit=audit, substrate=self.substrate, curate=curate)
        self.scheduler = Scheduler(self.image, self.events, settings, self._thinking(inference), self.request_stop, grouping)
        await self.loop.hold(self.undoing.undo_change)
        resumed = await self.scheduler.recover()
        on_recovered()
        if listen:
            desk = Dispatcher(
                image=self.image,
                scheduler=self.scheduler,
                events=self.events,
                router=self.router,
                info=self.info,
                metrics=self.metrics.told,
                models=self.substrate.models,
                experts=self._experts,
                personas=self._personas,
                upkeep=self.upkeep,
                replays=self._replays(inference),
                memory=self.memory,
                undoing=self.undoing,
                uploads=Uploads(self.image, settings),
                assessed=self.loop.assessed,
                rate=self.loop.rate,
                watches_per_client=WireLimits.of(settings).watches,
            )
            listener = Listener(settings.endpoints, settings, desk)
            await listener.start()
            self._stack.push_async_callback(listener.stop)
            self.endpoints = list(listener.bound)
            if self.console is not None:
                # Where it fails, that is logged, and nothing else ends.
                self._background(self.console.run(desk, self.events.listen), "console")
                self._stack.push_async_callback(self.console.stop)
        if settings.wire.metrics:
            self._stack.push_async_callback(asyncio.to_thread, self.metrics.serve(settings.wire.metrics))
        self.memory.remember(self.events)
        curators = Share(self.scheduler.quiet, AttemptLimits.of(settings).background_wait_s)
        self.memory.curate(curators.turn, memory_primitives.gist_source(self.scheduler, self.events))
        # Stopped before the listener, so that the last results still leave.
        self._stack.push_async_callback(self.scheduler.stop, settings.daemon.shutdown_s)
        self.scheduler.begin()
        log.info("started", endpoints=self.endpoints, profile=self.profile.name, resumed=resumed)
        measure = measured(settings, self.image, self.scheduler, self.costs, self.walk, lambda: self.uptime_s)
        self.loop.begin(self.scheduler, inference, self.profile.embedder, measure, self._background)
        self.improving.begin(self.scheduler, self.events, self.loop.budget, self._background)
        if self.providing is not None:
            self._background(self.providing.run(self.events), "models provided")
        self._background(machine.warm_up(settings, self.scheduler.quiet, self._methods_written), "handbook")

    async def _methods_written(self) -> bool:
        """Whether an expert for methods is there, once that is known."""
        await self.substrate.experts_known()
        return bool(self.image.read(machine.is_warm_up_wanted, self.settings.methods.writer))

    async def _take_console_address(self) -> None:
        from batos.console.server import Console  # late: only who asks for it pays for a web server

        self.console = await Console.open(self.settings)
        self._stack.push_async_callback(self.console.stop)

    def _tell_of(self, incarnate: incarnation.Incarnation) -> None:
        """Log what the codex has changed in the image, and what it has not."""
        for name, changes in incarnate.changes.items():
            log.info("incarnated", persona=name, changes=changes or "new")
        for name, slots in self.image.read(lambda root: incarnation.kept(root["lobby"], self.codex)).items():
            log.warning("codex_not_followed", persona=name, slots=slots, hint="batos personas")

    def _route_with(self, inference: Inference) -> None:
        settings, codex = self.settings, self.codex

        def examples(root: Any) -> dict[str, incarnation.Exemplars]:
            there = incarnation.present(root["lobby"], codex)
            return {name: incarnation.exemplars_of(persona) for name, persona in there.items()}

        self.likeness = Likeness(
            self.image,
            inference,
            self.profile.embedder,
            limit_s=RoutingLimits.of(settings).look_s,
            pause_s=RoutingLimits.of(settings).pause_s,
            deadline_s=settings.inference.deadline_s,
        )
        self._stack.push_async_callback(self.likeness.stop)
        now = self.image.kept(examples)
        self.router = Router(codex, now, self.likeness, chars=RoutingLimits.of(settings).chars)
        self._background(self.likeness.warm({name: own.texts for name, own in now().items()}), "exemplars")

    def personas(self) -> dict[str, Any]:
        """What there is to say of the personas, as the wire's `personas` gives it."""
        told = self.image.read(incarnation.describe_personas, self.codex, lambda role: self.profile.model_of(role))
        return {"personas": told, "embedder": {"model": self.likeness.model, "state": self.likeness.state}}

    async def _personas(self, accept: Accepting | None) -> dict[str, Any]:
        """Answers the op `personas`."""
        if accept is not None:
            name = accept.persona.strip().lower()
            done = await self.image.system(incarnation.accept, self.codex, name, accept.slot, mission="operator")
            log.info("codex_accepted", persona=name, slots=done)
        return self.personas()

    def _count(self, inference: Inference) -> Inference:
        from batos.metrics import Metrics  # late: whoever only imports the kernel needs no library for them

        self.metrics = Metrics(self.events, self.info)
        return self.metrics.counted(inference)

    def _thinking(self, inference: Inference) -> Callable[[dict[str, Any]], Thinking]:
        return lambda mission: Thinking(
            mission,
            inference=inference,
            events=self.events,
            on_paid=self._on_paid,
            outage=self.substrate.outage,
            propose=self.improving.propose,
            provider=self.providing,
            ruled=self.improving.ruled,
            **self._host(self.image, self.methods, self.router),
        )

    def _replays(self, inference: Inference) -> Replays:
        host = self._host(self.image, self.methods, self.router)
        return Replays(
            self.image,
            inference,
            lambda mission, offline: Replaying(mission, inference=offline, events=Events(), **host),  # heard by nobody
            digest_s=WireLimits.of(self.settings).probe_s,
            limit_s=self.settings.missions.deadline_s,
        )

    def _host(self, image: LivingImage, methods: MethodRuntime, router: Router) -> dict[str, Any]:
        """What every attempt is given, whoever infers for it, and in whichever image it is thought."""
        return {
            "image": image,
            "settings": self.settings,
            "models": self.profile.model_of,  # of the profile in force now: an attempt ends with the models it began with
            "options": self.substrate.chat_options,
            "direct": {} if self.settings.inference.answer_tokens else self.profile.direct,
            "plain": self.profile.plain,
            "parameters": self.substrate.parameters,
            "base_of": self.substrate.base_of,
            "nearness": self.likeness.nearest,
            "sight": self.substrate.sight,
            "share_out": lambda brief: shares(brief, router.weights, ThinkingLimits.of(self.settings).voices),
            "router": router,
            "methods": methods,
            "memory": self.memory,
        }

    def _look_after_image(self) -> None:
        """Upkeep and the count of costs; both are off the image before it is closed."""
        settings = self.settings
        self.costs = CostMeter(self.image)
        self.costs.begin()
        self._stack.push_async_callback(self.costs.stop)
        self.upkeep = Upkeep(
            self.image,
            self.costs,
            history_days=settings.image.history_days,
            journal_days=settings.image.journal_days,
            backups=settings.backups,
            interval_s=UpkeepLimits.of(settings).every_s,
            first_s=UpkeepLimits.of(settings).first_s,
            upload_hours=UploadLimits.of(settings).hours,
            missions=_kept_whole(settings),
            free=memory_primitives.lived_through if settings.memory.remember == "on" else retention.everything,
        )
        self._stack.push_async_callback(self.upkeep.stop)
        self._background(self.upkeep.run(), "upkeep")
        plan = plan_of(settings, self.image.uri)
        reserve, first_s = ProvisionLimits.of(settings).reserve_bytes, BackupLimits.of(settings).first_s
        self.backups = Backups(self.upkeep, settings.backups, plan, size=self.image.db.getSize, reserve=reserve, first_s=first_s)
        self._background(self.backups.run(), "backups")

    def _background(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)

        def done(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and (failure := task.exception()) is not None:
                log.error("background_failed", part=name, error=repr(failure))

        async def stop() -> None:
            task.cancel()
            await asyncio.wait([task])

        task.add_done_callback(done)
        self._stack.push_async_callback(stop)

    # --- while it runs

    @property
    def profile(self) -> Profile:
        """The profile in force."""
        return self.substrate.profile

    @property
    def uptime_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.begun

    def info(self) -> dict[str, Any]:
        """Facts about the daemon, as the wire's `info` gives them."""
        return {
            "version": batos.__version__,
            "pid": os.getpid(),
            "uptime_s": round(self.uptime_s, 1),
            **({"reloaded": self.reloaded} if self.reloaded else {}),
            "profile": self.profile.name,
            "model": self.profile.base,
            "why_model": self.substrate.chosen.why,
            "endpoints": self.endpoints,
            "console": self.console.address if self.console is not None else None,
            "data": str(self.settings.data),
            "personas": list(self.router.personas),
            "image": self.image.facts(),
            "missions": self.scheduler.facts(),
            "costs": self.costs.facts(),
            "upkeep": {**self.upkeep.facts(), "backups": self.backups.facts()},
            "integrity": self.walk.facts(),
            "autotelic": self.loop.facts(),
            "memory": self.memory.facts(),
            "ollama": self.substrate.facts(),
            "residency": self._residency(),
            "models": self.substrate.models.listed(),
        }

    def _hearers(self, what: str) -> list[Callable[..., None]]:
        """Who counts it: the loop's senses, and the metrics."""
        return [*self.loop.hearers(what), getattr(self.metrics, what)]

    def _residency(self) -> dict[str, Any]:
        return self.substrate.places[0].residency.facts() if self.substrate.places else {}

    async def _experts(self, scan: bool, persona: str | None, voice: str | None) -> dict[str, Any]:
        """Answers the op `experts`. Without an Ollama it says what the image knows."""
        if persona is not None and voice is not None:
            await self.image.system(model_registry.choose_voice, self.router.known(persona), voice, mission="operator")
            log.info("voice_choice", persona=persona, choice=voice)
        return await self.substrate.experts(scan, REPORT_WAIT_S)

    async def models_settled(self) -> None:
        """Wait until each model of the profile is there or was found not to be had, once."""
        await self.substrate.settled()

    def reload(self, settings: Settings) -> dict[str, Any]:
        """Take over new settings, as far as a running daemon can: those of `config.RELOADED`, and some limits by their former names.

        :returns: `at`, the names that were `applied`, and those that differ and wait for a `restart`.
        """
        settings, applied, waiting = self.settings.reloaded(settings)
        self.settings = settings
        logs.set_level(settings.daemon.log_level)
        self.scheduler.settings = settings
        plan = {
            "history_days": settings.image.history_days,
            "journal_days": settings.image.journal_days,
            "interval_s": UpkeepLimits.of(settings).every_s,
        }
        self.upkeep.plan(**plan, missions=_kept_whole(settings))
        self.backups.plan = plan_of(settings, self.image.uri)
        self.reloaded = {"at": round(time.time(), 3), "applied": applied, "restart": waiting}
        log.info("reloaded", applied=applied, restart=self.reloaded["restart"])
        return self.reloaded

    def _take_choice(self, chosen: dict[str, Any]) -> None:
        """Settings were chosen while the daemon runs: a reload does not find them changed."""
        self.settings = self.settings.model_copy(update=chosen)

    def request_stop(self, failure: BaseException | None = None) -> None:
        """Let `ended` return; with a failure, let it raise that."""
        if not self._end.done():
            self._end.set_result(failure)

    async def ended(self) -> None:
        """Wait until somebody asks for the end.

        :raises BatosSignal: if the storage failed for good.
        """
        failure = await asyncio.shield(self._end)
        if failure is not None:
            raise failure

    async def stop(self) -> None:
        """Stop in order: no new missions, those under way end or wait for the next start, the image is closed."""
        await self._stack.aclose()
        log.info("stopped", uptime_s=round(self.uptime_s, 1))


def _kept_whole(settings: Settings) -> retention.FoldTerms:
    return retention.FoldTerms(
        settings.image.missions_kept,
        settings.image.mission_days,
        settings.image.history_days,
        EvidenceLimits.of(settings).context_missions,
    )
