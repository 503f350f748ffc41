"""Stages of the daemon's start: async context managers that yield a frozen dataclass of the parts they made, and end these when left.

take_addresses ─ open_storage ─ connect_models ─ keep_image ─ open_memory ─ open_tools ─ build_missions ─ open_transport ─ start_work

Stages are left in reverse order: the system's own work ends first, then missions, so that their last results still leave through the
transport. The image is closed when no part uses it. A stage takes what it needs from earlier stages, never from later ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

import batos
from batos.api.administration import FactRequests, ModelRequests, PersonaRequests, UndoRequests, UpkeepRequests
from batos.api.comparisons import ComparisonRequests
from batos.api.dispatcher import Dispatcher
from batos.api.folders import FolderRequests
from batos.api.hooks import HookRequests
from batos.api.kernels import KernelRequests
from batos.api.memory import MemoryRequests
from batos.api.missions import MessageRequests, MissionRequests, ReplayRequests
from batos.api.notices import NoticeRequests
from batos.api.queries import Queries, QueryRequests
from batos.api.schedules import Schedules
from batos.api.stepping import StepRequests
from batos.api.tools import EffectRequests, GrantRequests, ToolRequests
from batos.api.uploads import UploadLimits, Uploads
from batos.app.autonomy import Autonomy, ImprovementLoop, measured
from batos.app.door_services import DirectModel, SharedTurns
from batos.app.draining import Drain
from batos.app.inference import ModelRuntime
from batos.app.lead_work import LeadWork
from batos.app.memory import MemoryRuntime
from batos.app.mirrors import MirrorParts
from batos.app.model_provision import ModelProvisioning
from batos.app.notices import notice_requests
from batos.app.other_kernels import OtherKernels
from batos.app.tools import ToolStage
from batos.app.undo import UndoRunner
from batos.autotelic import change_types, entropy_records, schema
from batos.bridge.downloads import ProvisionLimits
from batos.bridge.inference import Inference
from batos.bridge.selection import named_models
from batos.bus import EventBus, InferencePaid
from batos.cluster.membership import Alone, Membership
from batos.comparisons import records as comparison_records
from batos.comparisons.runner import CompareRunner
from batos.concurrency import Lifetime, Share
from batos.config import Settings
from batos.doors.server import Doors
from batos.forge import machine, versions
from batos.image import daemon_files, ledger, model_registry, notice_channels, retention
from batos.image.backup_schedule import BackupLimits, Backups, plan_of
from batos.image.journal import InferenceRecord
from batos.image.kernels import KernelTerms
from batos.image.living_image import ImageLimits, LivingImage
from batos.image.scrubber import Walk
from batos.image.storage import FORMAT
from batos.image.upkeep import Upkeep, UpkeepLimits, UpkeepPlan
from batos.image.usage_totals import CostMeter, count_stepped
from batos.memory import objects as memory_objects
from batos.methods.runtime import MethodRuntime
from batos.mind import description_writer, incarnation, memory_primitives, messages, psm, tool_messages, tool_plans
from batos.mind.attempt_services import AttemptServices, AttemptTerms
from batos.mind.codex import Codex, load_codex, with_roles
from batos.mind.events import Events
from batos.mind.evidence import EvidenceLimits
from batos.mind.router import Likeness, Router, RoutingLimits
from batos.mind.text_likeness import TextLikeness
from batos.missions.fitness import Fitness
from batos.missions.mirror_stage import Staging
from batos.missions.mission_queue import AttemptLimits
from batos.missions.replay import Replays
from batos.missions.scheduler import Scheduler
from batos.objects import Root
from batos.schedules import book
from batos.stepping.continuation import StepContinuation
from batos.stepping.session import StepParts
from batos.stepping.step_sessions import StepSessions
from batos.triggers import folders, hooks
from batos.wire import endpoints
from batos.wire.endpoints import WireLimits
from batos.wire.listener import Listener

if TYPE_CHECKING:
    from batos.metrics import Metrics

log = structlog.get_logger("batos")
Record = dict[str, Any]
_INSTALL = (
    psm.install,
    machine.install,
    versions.install,
    messages.install_grants,
    model_registry.install_experts,
    memory_objects.install,
    memory_primitives.install_memory,
    memory_primitives.install_summaries,
    memory_primitives.install_gists,
    schema.install,
    entropy_records.install_weights,
    change_types.install_voices,
    tool_messages.install,
    tool_plans.install,
    description_writer.install,
    book.install,
    notice_channels.install,
    hooks.install,
    folders.install,
    comparison_records.install,
)
"""Steps that add to a new image, or to one of an earlier version, in this order. Each step is idempotent."""


class DaemonSettings:
    """The settings in force. A reload and a choice of models change some of them while the daemon runs."""

    def __init__(self, settings: Settings) -> None:
        self.now = settings

    def choose(self, chosen: Record) -> None:
        """Take over settings that were chosen while the daemon runs: a reload does not find them changed."""
        self.now = self.now.model_copy(update=chosen)


class StopRequest:
    """Request to stop the daemon, made once: by its user, or by a failure."""

    def __init__(self) -> None:
        self._made: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    @property
    def is_made(self) -> bool:
        """Return whether the daemon was asked to stop."""
        return self._made.done()

    def make(self, failure: BaseException | None = None) -> None:
        """Ask the daemon to stop; `wait` raises the failure."""
        if not self._made.done():
            self._made.set_result(failure)

    async def wait(self) -> None:
        """Return when the daemon was asked to stop.

        :raises BatosSignal: if the storage failed for good.
        """
        if (failure := await asyncio.shield(self._made)) is not None:
            raise failure


# --- addresses


@contextlib.asynccontextmanager
async def take_addresses(settings: Settings, *, listen: bool) -> AsyncIterator[Doors | None]:
    """Check the endpoints, and take the addresses of the HTTP server, where there is one, before an image is made and an Ollama started.

    :raises EndpointError: for an address that is taken, or cannot be.
    """
    async with Lifetime() as life:
        doors = None
        if listen:
            for endpoint in settings.endpoints:
                endpoints.check(endpoint, guarded=bool(settings.wire.secret_key))
            if (doors := await Doors.open(settings)) is not None:
                life.push_async_callback(doors.stop)
        yield doors


# --- storage


@dataclass(frozen=True)
class StorageStage:
    """The living image, the codex that it follows, and the channels between the parts of the daemon."""

    image: LivingImage
    codex: Codex
    walk: Walk
    bus: EventBus
    events: Events
    membership: Membership
    lead: LeadWork
    """Takes the work that of several kernels on the image one alone does."""


@contextlib.asynccontextmanager
async def open_storage(settings: Settings, stop: StopRequest) -> AsyncIterator[StorageStage]:
    """Open the image and bring it up to this version."""
    async with Lifetime() as life:
        await asyncio.to_thread(daemon_files.close_files, settings)
        codex = with_roles(load_codex(settings.missions.codex or None), named_models(settings).personas)
        incarnate = incarnation.Incarnation(codex)
        membership = membership_of(settings, codex)
        image = await LivingImage.open(
            settings.image_uri,
            steps=(incarnate, *_INSTALL),
            cache_size=ImageLimits.of(settings).cache,
            units=settings.missions.concurrent,
            batch=ImageLimits.of(settings).batch,
            on_failed=stop.make,
            join=None if isinstance(membership, Alone) else membership.join,
            lease_s=membership.lease_s,
        )
        life.push_async_callback(image.close)
        await life.enter_async_context(membership.running())
        for name, changes in incarnate.changes.items():
            log.info("incarnated", persona=name, changes=changes or "new")
        for name, slots in image.read(lambda root: incarnation.kept(root["lobby"], codex)).items():
            log.warning("codex_not_followed", persona=name, slots=slots, hint="batos personas")
        bus = EventBus()
        yield StorageStage(image, codex, Walk(image.db), bus, Events(bus), membership, LeadWork(image, bus))


def membership_of(settings: Settings, codex: Codex) -> Membership:
    """Return the membership of this daemon, which has not joined yet."""
    if settings.image.kernels == "one":
        return Alone()
    digest = hashlib.sha256(codex.model_dump_json().encode()).hexdigest()[:16]
    terms = KernelTerms(digest, batos.__version__, FORMAT)
    host = settings.image.kernel_name or socket.gethostname()
    return Membership(host, terms, lease_s=settings.image.lease_s, look_s=settings.image.look_s)


# --- inference


@dataclass(frozen=True)
class InferenceStage:
    """The models, and the parts that count what they do."""

    substrate: ModelRuntime
    inference: Inference
    metrics: Metrics
    loop: Autonomy


@contextlib.asynccontextmanager
async def connect_models(settings: DaemonSettings, storage: StorageStage, given: Inference | None) -> AsyncIterator[InferenceStage]:
    """Find or start an Ollama.

    :param given: an inference to use instead, which tests and benches inject.
    :raises OllamaUnavailable: if none answers and none can be started.
    """
    from batos.metrics import Metrics  # imported late: an import of the kernel alone needs no Prometheus library

    async with Lifetime() as life:
        member = storage.membership
        substrate = ModelRuntime(settings.now, storage.image, storage.codex, on_choice=settings.choose, leads=lambda: member.leads)
        loop = Autonomy(settings.now, storage.image, substrate.residency)
        await storage.lead.add(life, loop.sense)
        inference = given or await substrate.connect(life)
        await storage.membership.describe(profile=substrate.profile_name)
        metrics = Metrics(storage.bus)
        yield InferenceStage(substrate, metrics.counted(inference), metrics, loop)


# --- upkeep


@dataclass(frozen=True)
class UpkeepStage:
    """The count of costs, and the upkeep of the image."""

    costs: CostMeter
    upkeep: Upkeep
    backups: Backups


@contextlib.asynccontextmanager
async def keep_image(settings: Settings, storage: StorageStage) -> AsyncIterator[UpkeepStage]:
    """Count costs, and look after the image; both are off it before it is closed."""
    image = storage.image
    async with Lifetime() as life:
        costs = CostMeter(image)
        costs.begin()
        life.push_async_callback(costs.stop)
        storage.bus.subscribe(InferencePaid, lambda paid: costs.add(paid.record))
        keeping = Upkeep(
            image,
            costs,
            upkeep_plan(settings),
            backups=settings.backups,
            free=memory_primitives.remembered_until if settings.memory.remember == "on" else retention.everything,
        )
        life.push_async_callback(keeping.stop)
        plan, reserve = plan_of(settings, image.uri), ProvisionLimits.of(settings).reserve_bytes
        backups = Backups(
            keeping, settings.backups, plan, size=image.db.getSize, reserve=reserve, first_s=BackupLimits.of(settings).first_s
        )

        async def keep(led: Lifetime, bus: EventBus) -> None:
            led.background(keeping.run(), "upkeep")
            led.background(backups.run(), "backups")

        await storage.lead.add(life, keep)
        yield UpkeepStage(costs, keeping, backups)


def upkeep_plan(settings: Settings) -> UpkeepPlan:
    """Return the terms of the image's upkeep."""
    return UpkeepPlan(
        settings.image.history_days,
        settings.image.journal_days,
        UpkeepLimits.of(settings).every_s,
        UpkeepLimits.of(settings).first_s,
        UploadLimits.of(settings).hours,
        retention.FoldTerms(
            settings.image.missions_kept,
            settings.image.mission_days,
            settings.image.history_days,
            EvidenceLimits.of(settings).context_missions,
        ),
    )


# --- memory


@dataclass(frozen=True)
class MemoryStage:
    """The memory, and the router of briefs, which learns from exemplars."""

    likeness: Likeness
    router: Router
    memory: MemoryRuntime


@contextlib.asynccontextmanager
async def open_memory(settings: Settings, storage: StorageStage, models: InferenceStage) -> AsyncIterator[MemoryStage]:
    """Load the search index, and begin to embed exemplars and documents."""
    image, embedder = storage.image, models.substrate.profile.embedder

    def exemplars(root: Root) -> dict[str, incarnation.Exemplars]:
        there = incarnation.present(root["lobby"], storage.codex)
        return {name: incarnation.exemplars_of(persona) for name, persona in there.items()}

    async with Lifetime() as life:
        likeness = Likeness(
            image,
            models.inference,
            embedder,
            limit_s=RoutingLimits.of(settings).look_s,
            pause_s=RoutingLimits.of(settings).pause_s,
            deadline_s=settings.inference.deadline_s,
        )
        life.push_async_callback(likeness.stop)
        now = image.kept(exemplars)
        router = Router(storage.codex, now, likeness, chars=RoutingLimits.of(settings).chars)
        life.background(likeness.warm({name: own.texts for name, own in now().items()}), "exemplars")
        recollection = MemoryRuntime(image, settings, storage.bus)
        await recollection.open(models.inference, embedder, life=life, asked_only=models.substrate.asked_only, at_once=False)
        storage.membership.on_look(recollection.look)
        if not storage.lead.is_alone:
            life.push_async_callback(recollection.curator.stop)  # each kernel counts what is read there
        await storage.lead.add(life, recollection.work)
        yield MemoryStage(likeness, router, recollection)


# --- missions


@dataclass(frozen=True)
class MissionStage:
    """The missions: their methods, their undo, and the scheduler, which has taken up what an earlier daemon left."""

    undoing: UndoRunner
    providing: ModelProvisioning | None
    """Provides models for missions. None where there is no Ollama."""
    methods: MethodRuntime
    improving: ImprovementLoop
    scheduler: Scheduler
    fitness: Fitness
    attempt_services: AttemptServices
    replays: Replays
    staging: Staging
    """Makes the parts for thinking in a mirror."""
    comparing: CompareRunner
    resumed: int
    """Number of missions that the start resumed."""


@contextlib.asynccontextmanager
async def build_missions(
    settings: DaemonSettings, storage: StorageStage, models: InferenceStage, mind: MemoryStage, tools: ToolStage, stop: StopRequest
) -> AsyncIterator[MissionStage]:
    """Recover the missions that an earlier daemon left. None is thought about before `start_work`."""
    image, substrate, fixed = storage.image, models.substrate, settings.now
    async with Lifetime() as life:
        providing = ModelProvisioning(fixed, image, substrate, models.loop.budget) if substrate.places else None
        undoing = UndoRunner(image, mind.memory, fixed, models.loop, None if providing is None else providing.withdraw)
        life.push_async_callback(undoing.stop)
        methods = MethodRuntime(
            image,
            fixed,
            forge=machine.forge,
            deliver=messages.deliver,
            bus=storage.bus,
            writers_known=substrate.experts_known,
        )
        life.push_async_callback(methods.close)
        curate = functools.partial(mind.memory.curator.round, "it was proposed") if fixed.memory.curate == "on" else None
        improving = ImprovementLoop(fixed, image, models.inference, storage.codex, audit=methods.audit, substrate=substrate, curate=curate)

        def terms() -> AttemptTerms:
            """Return the settings and models in force now."""
            now, profile = settings.now, substrate.profile
            return AttemptTerms(
                settings=now,
                model_of=profile.model_of,
                base_of=substrate.base_of,
                parameters=substrate.parameters,
                learn=substrate.learn,
                uses_tools=substrate.uses_tools,
                options=substrate.chat_options,
                direct={} if now.inference.answer_tokens else profile.direct,
                plain=profile.plain,
            )

        services = AttemptServices(
            image=image,
            inference=models.inference,
            events=storage.events,
            router=mind.router,
            methods=methods,
            terms=terms,
            memory=mind.memory,
            sight=substrate.sight,
            nearness=mind.likeness.nearest,
            provider=providing,
            on_paid=lambda paid: storage.bus.publish(InferencePaid(paid)),
            outage=substrate.outage,
            toolbox=tools.toolbox,
            on_called=storage.bus.publish,
            text_likeness=TextLikeness(models.inference, substrate.profile.embedder, deadline_s=RoutingLimits.of(fixed).look_s),
            propose=improving.propose,
            ruled=improving.ruled,
        )
        fitness = Fitness(image, substrate.needed(mind.memory.embedder_name), storage.membership.describe)
        fitness.hindrance = tools.hindrance
        await storage.membership.describe(unfit=fitness.reasons)
        fitness.loads = substrate.loads(mind.router.guess)
        storage.membership.on_renamed(substrate.republish)
        scheduler = Scheduler(image, storage.events, fixed, services, stop.make, substrate.grouping(mind.router.guess), storage.membership)
        scheduler.sweep.may_claim, scheduler.sweep.nearness, scheduler.sweep.hindrance = fitness.may_claim, fitness.nearness, fitness.waits
        scheduler.sweep.recheck = fitness.look
        scheduler.sweep.patience_s = AttemptLimits.of(fixed).background_wait_s
        substrate.preload(scheduler.queue.models)
        replays = Replays(services, digest_s=WireLimits.of(fixed).probe_s, limit_s=fixed.missions.deadline_s)
        staging = MirrorParts(fixed, models.inference, storage.codex, substrate).staging(services)
        comparing = CompareRunner(
            image,
            models.inference,
            fixed,
            staging,
            models=substrate.models.there,
            quiet=Share(scheduler.quiet, AttemptLimits.of(fixed).background_wait_s).turn,
        )
        await storage.lead.add(life, lambda led, bus: models.loop.hold(undoing.undo_change, led))
        resumed = await scheduler.recover()
        yield MissionStage(undoing, providing, methods, improving, scheduler, fitness, services, replays, staging, comparing, resumed)


# --- transport


@dataclass
class StartedStages:
    """The reply to `info`, put together from the stages."""

    settings: DaemonSettings
    doors: Doors | None
    storage: StorageStage
    models: InferenceStage
    upkeep: UpkeepStage
    memory: MemoryStage
    tools: ToolStage
    missions: MissionStage
    drain: Drain
    begun: float
    """The time of the start, on the monotonic clock."""
    endpoints: list[str] = field(default_factory=list)
    others: OtherKernels | None = None
    """The other kernels of the image, once they are heard."""
    reloaded: Record = field(default_factory=dict)
    """The outcome of the last reload; empty before the first."""

    def uptime_s(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.begun

    def pages(self) -> str:
        """Return the address of the console's pages; "" if none are served."""
        return self.doors.console.address if self.doors is not None and self.doors.console is not None else ""

    def info(self) -> Record:
        """Return facts about the daemon, as the wire's `info` gives them."""
        substrate, image = self.models.substrate, self.storage.image
        return {
            "version": batos.__version__,
            "pid": os.getpid(),
            "uptime_s": round(self.uptime_s(), 1),
            **({"reloaded": self.reloaded} if self.reloaded else {}),
            "profile": substrate.profile.name,
            "model": substrate.profile.base,
            "why_model": substrate.chosen.why,
            "endpoints": self.endpoints,
            "console": self.pages() or None,
            "doors": (self.doors.address or None) if self.doors is not None else None,
            "sendable": list(self.settings.now.doors.send),
            "data": str(self.settings.now.data),
            "personas": list(self.memory.router.personas),
            "image": image.facts(),
            "missions": self.missions.scheduler.facts(),
            **(
                {"kernel": {**told, **self.missions.fitness.facts()}}
                if (told := {} if self.others is None else self.others.facts())
                else {}
            ),
            "tools": self.tools.facts(),
            "costs": self.upkeep.costs.facts(),
            "upkeep": {**self.upkeep.upkeep.facts(), "backups": self.upkeep.backups.facts()},
            "integrity": self.storage.walk.facts(),
            "autotelic": self.models.loop.facts(),
            "memory": self.memory.memory.facts(),
            "ollama": substrate.facts(),
            "residency": substrate.residency(),
            "models": substrate.models.listed(),
        }


@dataclass(frozen=True)
class TransportStage:
    """Transport of the daemon. Without endpoints the dispatcher answers its own process only."""

    dispatcher: Dispatcher
    missions: MissionRequests
    personas: PersonaRequests
    schedules: Schedules
    folders: FolderRequests
    notices: NoticeRequests
    kernels: KernelRequests
    listener: Listener | None
    stepping: StepSessions


@contextlib.asynccontextmanager
async def open_transport(facts: StartedStages, *, listen: bool) -> AsyncIterator[TransportStage]:
    """Answer requests: over the endpoints, over HTTP, and where the setting names one, at the address of the metrics."""
    settings, storage, models, mind, work = facts.settings.now, facts.storage, facts.models, facts.memory, facts.missions
    image, scheduler, substrate = storage.image, work.scheduler, models.substrate
    models.metrics.show(facts.info)
    async with Lifetime() as life:
        uploads, leader = Uploads(image, settings), storage.membership
        others = OtherKernels(storage.membership, storage.events, scheduler, settings, facts.drain)
        facts.others = others
        accepting = MissionRequests(
            image,
            scheduler,
            storage.events,
            mind.router,
            uploads,
            ratings=models.loop,
            watches_per_client=WireLimits.of(settings).watches,
            elsewhere=others.live,
        )
        schedules = Schedules(image, scheduler, mind.router, storage.bus)
        watched = FolderRequests(
            image, scheduler, mind.router, storage.bus, settings, mind.memory.watcher, mind.memory.ingest.listen, leader
        )
        notices = notice_requests(settings, image, storage.bus, facts.tools.toolbox, facts.pages, leader, mind.router.known)
        parts = StepParts(settings, models.inference, work.staging, work.improving.ground, functools.partial(_count_stepped, storage))
        stepping = StepSessions(image, parts)
        life.push_async_callback(stepping.stop)
        life.background(stepping.run(), "stepping")
        storage.membership.on_look(facts.tools.toolbox.look)
        personas = PersonaRequests(image, storage.codex, mind.router, mind.likeness, substrate)
        dispatcher = Dispatcher(
            image,
            [
                accepting,
                MessageRequests(image, scheduler, accepting),
                ReplayRequests(work.replays),
                QueryRequests(Queries(image.db, image.snapshot, accepting.state_of, models.loop.assessed)),
                uploads,
                MemoryRequests(mind.memory, leader),
                personas,
                ModelRequests(substrate.models),
                FactRequests(facts.info, models.metrics.told),
                UpkeepRequests(facts.upkeep.upkeep),
                UndoRequests(work.undoing),
                ToolRequests(image, facts.tools.toolbox, facts.tools.resume),
                GrantRequests(image),
                EffectRequests(image, scheduler),
                schedules,
                watched,
                others.requests,
                HookRequests(image, scheduler, mind.router, settings),
                notices,
                ComparisonRequests(image, work.comparing, settings, mind.router.window),
                StepRequests(stepping, StepContinuation(scheduler.go_on, functools.partial(mind.memory.stored, None))),
            ],
        )
        listener = None
        if listen:
            listener = Listener(settings.endpoints, settings, dispatcher)
            await listener.start()
            life.push_async_callback(listener.stop)
            facts.endpoints = list(listener.bound)
            if facts.doors is not None:  # its failure is logged and ends nothing else
                follow = storage.events.follow_with(functools.partial(image.read, ledger.origin_of_mission))
                plain = DirectModel(models.inference, lambda: substrate.profile, lambda: substrate.options)
                turns = _shared_turns(image, settings) if image.kernel else None
                life.background(facts.doors.run(dispatcher, plain, storage.events.listen, follow, turns), "doors")
                life.push_async_callback(facts.doors.stop)
        address = facts.doors.address if facts.doors is not None else ""
        await life.enter_async_context(others.heard(listener, address))
        if settings.wire.metrics:
            life.push_async_callback(asyncio.to_thread, models.metrics.serve(settings.wire.metrics))
        yield TransportStage(dispatcher, accepting, personas, schedules, watched, notices, others.requests, listener, stepping)


def _shared_turns(image: LivingImage, settings: Settings) -> SharedTurns:
    from batos.doors.access import DoorLimits  # imported late: a web server comes with it, which else the first connection loads

    return SharedTurns(image, DoorLimits.of(settings).turns)


async def _count_stepped(storage: StorageStage, paid: InferenceRecord) -> None:
    storage.bus.publish(InferencePaid(paid))
    await storage.image.system(count_stepped, paid)


# --- autonomy


@contextlib.asynccontextmanager
async def start_work(facts: StartedStages, transport: TransportStage) -> AsyncIterator[None]:
    """Start missions, and the system's own work."""
    settings, storage, models, mind, work = facts.settings.now, facts.storage, facts.models, facts.memory, facts.missions
    image, scheduler, substrate = storage.image, work.scheduler, models.substrate

    async def methods_written() -> bool:
        """Return whether methods are written here, once that is known."""
        await substrate.experts_known()
        return bool(image.read(machine.is_warm_up_wanted, facts.settings.now.methods.writer))

    async def look_after_memory(led: Lifetime, bus: EventBus) -> None:
        mind.memory.remember(led, bus)
        curators = Share(scheduler.quiet, AttemptLimits.of(settings).background_wait_s)
        mind.memory.curate(led, curators.turn, memory_primitives.gist_source(scheduler, storage.events))

    async def improve(led: Lifetime, bus: EventBus) -> None:
        measure = measured(settings, image, scheduler, facts.upkeep.costs, storage.walk, facts.uptime_s)
        models.loop.begin(scheduler, models.inference, substrate.profile.embedder, measure, bus, led)
        work.improving.begin(scheduler, work.attempt_services, bus, models.loop.budget, led)

    async def keep_appointments(led: Lifetime, bus: EventBus) -> None:
        for requests in (transport.notices, transport.schedules, transport.folders):
            await led.enter_async_context(requests.running())

    def look_at_appointments(root: Root) -> None:
        for requests in (transport.notices, transport.schedules, transport.folders):
            requests.look(root)

    async with Lifetime() as life:
        await storage.lead.add(life, look_after_memory)
        # Stop the scheduler before the listener, so that the last results still leave.
        life.push_async_callback(scheduler.stop, settings.daemon.shutdown_s)
        if work.fitness.name:
            life.background(work.fitness.watch(substrate.settled), "fitness")
        scheduler.begin()
        log.info("started", endpoints=facts.endpoints, profile=substrate.profile.name, resumed=work.resumed)
        await storage.lead.add(life, improve)
        if work.providing is not None:
            life.background(work.providing.run(storage.bus), "models provided")
        life.background(work.comparing.run(), "comparisons")
        life.background(machine.warm_up(settings, scheduler.quiet, methods_written), "handbook")
        await storage.lead.add(life, keep_appointments, look_at_appointments)
        if not storage.lead.is_alone:
            storage.membership.on_lead(storage.lead.led)
            storage.membership.on_look(storage.lead.look)
            life.push_async_callback(facts.drain.leave)
        life.push_async_callback(facts.drain.stop)
        yield
