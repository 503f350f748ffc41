"""Requests about the daemon itself: facts and metrics, models, personas and experts, upkeep, undo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import structlog

from batos.api.dispatcher import handles
from batos.bridge.model_management import ModelManager
from batos.bridge.profiles import Profile
from batos.concurrency import answering
from batos.image import model_registry
from batos.image.living_image import LivingImage
from batos.image.upkeep import Upkeep
from batos.mind import incarnation
from batos.mind.codex import Codex
from batos.mind.router import Likeness, Router
from batos.wire import schemas
from batos.wire.outbox import Recipient

log = structlog.get_logger("batos")
Reply = dict[str, Any]
REPORT_WAIT_S = 30.0
"""Seconds that a report waits for models. The embedded models take seconds. A pull takes longer than a user looks at an empty terminal."""


class FactRequests:
    """Handlers of the requests for facts about the daemon and for its metrics."""

    def __init__(self, info: Callable[[], Reply], metrics: Callable[[], list[Reply]]) -> None:
        """
        :param info: facts about the daemon.
        :param metrics: its metrics; called in a thread of its own.
        """
        self._info, self._metrics = info, metrics

    @handles(schemas.InfoRequest)
    async def info(self, request: schemas.InfoRequest, client: Recipient) -> Reply:
        """Return facts about the daemon."""
        return {"type": "info", **self._info()}

    @handles(schemas.MetricsRequest)
    async def metrics(self, request: schemas.MetricsRequest, client: Recipient) -> Reply:
        """Return each metric as data."""
        return {"type": "metrics", "metrics": await answering(self._metrics)}


class ModelRequests:
    """Handler of the requests about models."""

    def __init__(self, models: ModelManager) -> None:
        self._models = models
        self._watched: set[Recipient] = set()

    @handles(schemas.ModelsRequest)
    async def models(self, request: schemas.ModelsRequest, client: Recipient) -> None:
        """Send the list of models. If the client watches, send the list at first, then events, then the list at the end."""
        if request.use is not None or request.fit:
            done = await self._models.fit(request.names) if request.use is None else await self._models.use(request.use)
            client.send({"type": "models", **done})
            return
        stop = None
        await self._models.refresh()
        if request.watch:
            client.send({"type": "models", "watching": True, **self._models.describe(request.names)})
            if client in self._watched:
                return  # a repeated request means the same watch
            self._watched.add(client)
            stop = self._models.watch(lambda event: client.send(event, event=True))
        try:
            if request.watch and not request.ensure:
                await self._models.settled()
            found = await self._models.ensure(request.names) if request.ensure else self._models.describe(request.names)
        finally:
            if stop is not None:
                stop()
                self._watched.discard(client)
        client.send({"type": "models", **found})


class ModelsInForce(Protocol):
    """The models with which personas speak now, and their experts."""

    @property
    def profile(self) -> Profile:
        """Return the profile in force."""

    async def experts(self, scan: bool, patience_s: float, /) -> Reply:
        """Return facts about the experts, after a scan if one is asked for."""


class PersonaRequests:
    """Handlers of the requests about personas and their experts."""

    def __init__(self, image: LivingImage, codex: Codex, router: Router, likeness: Likeness, models: ModelsInForce) -> None:
        self._image, self._codex, self._router, self._likeness, self._models = image, codex, router, likeness, models

    def describe(self) -> Reply:
        """Return the facts about personas, and the state of the embedder by which briefs are routed."""
        told = self._image.read(incarnation.describe_personas, self._codex, lambda role: self._models.profile.model_of(role))
        return {"personas": told, "embedder": {"model": self._likeness.model, "state": self._likeness.state}}

    @handles(schemas.PersonasRequest)
    async def personas(self, request: schemas.PersonasRequest, client: Recipient) -> Reply:
        """Accept the codex's values where that is asked for; return the facts about personas."""
        if (accept := request.accept) is not None:
            name = accept.persona.strip().lower()
            done = await self._image.system(incarnation.accept, self._codex, name, accept.slot, mission="operator")
            log.info("codex_accepted", persona=name, slots=done)
        return {"type": "personas", **self.describe()}

    @handles(schemas.ExpertsRequest)
    async def experts(self, request: schemas.ExpertsRequest, client: Recipient) -> Reply:
        """Choose a persona's voice or scan the staging folder where that is asked for; return the facts about experts.

        Without an Ollama these are the facts that the image has.
        """
        persona, voice = request.persona, request.voice
        if persona is not None and voice is not None:
            await self._image.system(model_registry.choose_voice, self._router.known(persona), voice, mission="operator")
            log.info("voice_choice", persona=persona, choice=voice)
        return {"type": "experts", **await self._models.experts(request.scan, REPORT_WAIT_S)}


class UpkeepRequests:
    """Handlers of the requests to pack, fork and back up the image."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep

    @handles(schemas.PackRequest)
    async def pack(self, request: schemas.PackRequest, client: Recipient) -> Reply:
        """Drop old history."""
        return {"type": "pack", **await self._upkeep.pack(request.days)}

    @handles(schemas.ForkRequest)
    async def fork(self, request: schemas.ForkRequest, client: Recipient) -> Reply:
        """Copy the image, as of a moment, into a folder for another daemon."""
        return {"type": "fork", **await self._upkeep.fork(request.folder, request.at)}

    @handles(schemas.BackupRequest)
    async def backup(self, request: schemas.BackupRequest, client: Recipient) -> Reply:
        """Add a backup to a folder, and prove it."""
        return {"type": "backup", **await self._upkeep.backup(request.folder, full=request.full)}


class UndoService(Protocol):
    """Undo of missions, and of changes that the system made by itself."""

    async def undo(self, asked: schemas.UndoRequest, /) -> Reply:
        """Undo a mission, or do it again."""

    async def undo_change(self, number: int, why: str, /, *, dry: bool) -> Reply:
        """Take back a change."""


class UndoRequests:
    """Handlers of the requests to undo."""

    def __init__(self, undoing: UndoService) -> None:
        self._undoing = undoing

    @handles(schemas.UndoRequest)
    async def undo(self, request: schemas.UndoRequest, client: Recipient) -> Reply:
        """Undo a mission, or do it again."""
        return {"type": "undo", **await self._undoing.undo(request)}

    @handles(schemas.UndoChangeRequest)
    async def undo_change(self, request: schemas.UndoChangeRequest, client: Recipient) -> Reply:
        """Take back a change that the system made by itself."""
        why = request.why or "taken back by its user"
        return {"type": "undo_change", **await self._undoing.undo_change(request.number, why, dry=request.dry)}
