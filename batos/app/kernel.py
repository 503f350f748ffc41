"""Kernel: a running daemon, put together in stages (`batos.app.stages`). Nothing but this package puts parts together.

client ─ wire.Listener ─ api.Dispatcher ─ missions.Scheduler.submit ─ image.ledger.accept ─ durable ─ `accepted`
                                                   │
                          missions.Attempts.run ─ one image.Unit ─ mind.run_cycle ─ states ─ Attempt.chat ─ bridge
                                                   │
                                           commit ─ `result`
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import structlog

import batos
from batos import logs, preflight
from batos.app import stages
from batos.app.draining import Drain
from batos.app.tools import open_tools
from batos.bridge.inference import Inference
from batos.bridge.profiles import Profile
from batos.config import Settings
from batos.image import server
from batos.image.backup_schedule import plan_of

log = structlog.get_logger("batos")


class Kernel:
    """A running BAT OS. `Kernel.start` makes it, `stop` ends it; `ended` waits for a reason to stop.

    Its attributes are the parts that the stages made, for inspection of a running daemon.
    """

    def __init__(
        self,
        life: contextlib.AsyncExitStack,
        facts: stages.StartedStages,
        transport: stages.TransportStage,
        stop: stages.StopRequest,
    ) -> None:
        """
        :param life: ends the stages.
        """
        self._life, self._facts, self._stop, self._settings = life, facts, stop, facts.settings
        self.transport, self.doors, self.stepping = transport, facts.doors, transport.stepping
        self.console = self.doors.console if self.doors is not None else None
        storage, models, upkeep, memory, missions = facts.storage, facts.models, facts.upkeep, facts.memory, facts.missions
        self.image, self.codex, self.walk = storage.image, storage.codex, storage.walk
        self.bus, self.events, self.membership, self.lead = storage.bus, storage.events, storage.membership, storage.lead
        self.substrate, self.metrics, self.loop = models.substrate, models.metrics, models.loop
        self.costs, self.upkeep, self.backups = upkeep.costs, upkeep.upkeep, upkeep.backups
        self.likeness, self.router, self.memory = memory.likeness, memory.router, memory.memory
        self.undoing, self.providing, self.methods = missions.undoing, missions.providing, missions.methods
        self.improving, self.scheduler, self.fitness = missions.improving, missions.scheduler, missions.fitness
        self.attempt_services, self.replays = missions.attempt_services, missions.replays

    @classmethod
    async def start(
        cls,
        settings: Settings,
        *,
        inference: Inference | None = None,
        listen: bool = True,
        on_recovered: Callable[[], object] = lambda: None,
    ) -> Kernel:
        """Start the stages in their order, and accept missions.

        :param inference: replaces Ollama; tests and benches inject it.
        :param listen: open the endpoints.
        :param on_recovered: called when the image is open and recovered, before any mission runs.
        :raises BatosError: with the obstacle and the remedy; then nothing stays running.
        """
        begun, live, stop = time.monotonic(), stages.DaemonSettings(settings), stages.StopRequest()
        log.info("starting", version=batos.__version__, data=str(settings.data))
        preflight.check(settings)  # refuse bad settings and taken addresses before an image is made and an Ollama started
        async with contextlib.AsyncExitStack() as life:
            enter = life.enter_async_context
            doors = await enter(stages.take_addresses(settings, listen=listen))
            storage = await enter(stages.open_storage(settings, stop))
            models = await enter(stages.connect_models(live, storage, inference))
            upkeep = await enter(stages.keep_image(settings, storage))
            memory = await enter(stages.open_memory(settings, storage, models))
            tools = await enter(open_tools(settings, storage.image, storage.membership))
            missions = await enter(stages.build_missions(live, storage, models, memory, tools, stop))
            on_recovered()
            drain = Drain(storage.membership, missions.scheduler, stop.make, settings.daemon.shutdown_s)
            facts = stages.StartedStages(live, doors, storage, models, upkeep, memory, tools, missions, drain, begun)
            transport = await enter(stages.open_transport(facts, listen=listen))
            await enter(stages.start_work(facts, transport))
            return cls(life.pop_all(), facts, transport, stop)

    # --- the running daemon

    @property
    def settings(self) -> Settings:
        """Return the settings in force."""
        return self._settings.now

    @property
    def profile(self) -> Profile:
        """Return the profile in force."""
        return self.substrate.profile

    @property
    def endpoints(self) -> list[str]:
        """Return the endpoints, with the ports that the system assigned."""
        return self._facts.endpoints

    @property
    def uptime_s(self) -> float:
        """Return the seconds since the start."""
        return self._facts.uptime_s()

    def info(self) -> dict[str, Any]:
        """Return facts about the daemon, as the wire's `info` gives them."""
        return self._facts.info()

    def personas(self) -> dict[str, Any]:
        """Return facts about the personas, as the wire's `personas` gives them."""
        return self.transport.personas.describe()

    async def models_settled(self) -> None:
        """Wait until each model of the profile has been provided, or found to be unavailable, once."""
        await self.substrate.settled()

    def reload(self, settings: Settings) -> dict[str, Any]:
        """Apply the new settings that a running daemon can apply: those of `config.RELOADED`, and some limits by their former names.

        :returns: `at`, the names that were `applied`, and those that differ and wait for a `restart`.
        """
        _, applied, waiting = self.settings.reloaded(settings)
        self._settings.choose({name: settings.value(name) for name in applied})
        settings = self.settings
        logs.set_level(settings.daemon.log_level)
        self.scheduler.settings = settings
        self.upkeep.plan = stages.upkeep_plan(settings)
        self.backups.plan = plan_of(settings, self.image.uri)
        self._facts.reloaded = {"at": round(time.time(), 3), "applied": applied, "restart": waiting}
        log.info("reloaded", applied=applied, restart=waiting)
        return self._facts.reloaded

    # --- the end

    @property
    def is_stop_requested(self) -> bool:
        """Return True if a caller or a failure has requested the end."""
        return self._stop.is_made

    def request_stop(self, failure: BaseException | None = None) -> None:
        """Make `ended` return; with a failure, make it raise that failure."""
        self._stop.make(failure)

    def drain(self, grace_s: float | None = None) -> int:
        """Take up no missions any more, and leave the lead and all that waits to other kernels. Let the missions under way end, then make
        `ended` return.

        :param grace_s: seconds for the missions under way; None: the setting `daemon.shutdown_s`.
        :returns: the number of missions under way.
        """
        return self._facts.drain.begin(grace_s)

    async def ended(self) -> None:
        """Wait until a caller or a failure requests the end.

        :raises BatosSignal: if the storage failed for good.
        """
        await self._stop.wait()

    async def stop(self) -> None:
        """Stop in order: accept no new missions, let those under way end or wait for the next start, close the image."""
        self.image.committer.hurry()
        try:
            await self._life.aclose()
        except Exception as e:
            if (away := server.away_error(e)) is None:
                raise
            log.warning("stopped_without_its_image", error=away.message)  # what was on its way is found at the next start
        log.info("stopped", uptime_s=round(self.uptime_s, 1))
