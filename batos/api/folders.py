"""Requests about watched folders whose files become missions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from batos.api.dispatcher import handles
from batos.api.memory import LeaderGate
from batos.bus import EventBus
from batos.concurrency import Lifetime
from batos.config import Settings
from batos.errors import Unreadable
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.image.record_watch import RecordWatch
from batos.mind.router import Router
from batos.missions.scheduler import Scheduler
from batos.objects import Root
from batos.triggers import folders
from batos.triggers.folder_missions import FolderLimits, FolderMissions
from batos.triggers.folders import FOLDERS, FolderSpec, KeptFolder
from batos.triggers.register import MissionTerms, outcome
from batos.wire import schemas
from batos.wire.outbox import Recipient

log = structlog.get_logger("batos.folders")
Reply = dict[str, Any]
_LISTED_CHARS = 200
Listen = Callable[[Callable[[dict[str, Any]], object]], Callable[[], None]]
"""Calls a listener for every file that the memory has read; returns a function that ends this."""


class FolderWatch(Protocol):
    """The memory's watch over folders."""

    away: dict[str, str]
    """Folders that cannot be read now -> the reason."""

    async def add(self, folder: str, exclude: Sequence[str] = ()) -> None:
        """Watch a folder from now on."""

    async def files(self, folder: str) -> Mapping[str, tuple[int, int]]:
        """Return the files of a watched folder, each with its time and size."""

    def excluded(self, folder: str) -> tuple[str, ...] | None:
        """Return the ignore patterns of a watched folder; None if it is not watched."""


class FolderRequests:
    """The missions of watched folders, which begin with the first such folder; handlers of the requests about them."""

    def __init__(
        self,
        image: LivingImage,
        scheduler: Scheduler,
        router: Router,
        bus: EventBus,
        settings: Settings,
        watch: FolderWatch,
        listen: Listen,
        leader: LeaderGate,
    ) -> None:
        """
        :param listen: tells of files that the memory has read.
        :param leader: refuses what only the kernel that leads can do.
        """
        self._leader = leader
        self._changes = RecordWatch(FOLDERS.holder, FOLDERS.each, folders.said)
        self._image, self._scheduler, self._router, self._watch, self._listen = image, scheduler, router, watch, listen
        self.missions = FolderMissions(image, scheduler.submit, bus, FolderLimits.of(settings), settings.missions.brief_bytes)
        self._begin: Callable[[], None] = lambda: None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make missions of files as long as the block lasts."""
        async with Lifetime() as life:

            def begin() -> None:
                self._begin = lambda: None
                life.callback(self._listen(self.missions.heard))
                life.background(self.missions.run(), "folder missions")

            self._begin = begin
            if not self._image.read(FOLDERS.is_empty):
                begin()
            yield
            self._begin = lambda: None

    def look(self, root: Root) -> None:
        """See what other kernels changed, while this one leads."""
        for name in self._changes.changed(root):
            self._begin()
            self.missions.look(name)

    @handles(schemas.FoldersRequest)
    async def listed(self, request: schemas.FoldersRequest, client: Recipient) -> Reply:
        """Return the watched folders with missions by name, or one of them whole.

        :raises InvalidInput: if there is none of that name.
        """
        if request.name is not None:
            return self._told(self._image.read(folders.load, request.name))
        return {"type": "folders", "folders": self._image.read(self._lines)}

    @handles(schemas.FolderAddRequest)
    async def add(self, request: schemas.FolderAddRequest, client: Recipient) -> Reply:
        """Have the files of a folder become missions; return it. One that says the same is returned as it is.

        :raises Unreadable: if it is not a folder that can be read.
        :raises InvalidInput: if a part of it is not valid.
        """
        self._leader.require_lead("watch folders, those of its machine,")
        persona, folder = self._router.known(request.persona) if request.persona else "", _normal(request.folder)
        terms = MissionTerms(persona, request.depth or "", request.priority)
        spec = FolderSpec(request.name or "", folder, request.brief, terms, request.stop_after)
        if request.exclude is not None or self._watch.excluded(folder) is None:
            try:
                await self._watch.add(folder, request.exclude or ())
            except Unreadable as e:
                raise Unreadable(e.message if folder in e.message else f"{folder}: {e.message}") from None
        there = await self._watch.files(folder)  # after it is watched: what comes from now on is heard of
        self._begin()
        held = await self._image.system(folders.add, spec, {} if request.existing else there, mission="operator")
        log.info("folder_added", name=held.spec.name, folder=folder, present=len(there))
        return {**self._looked_at(held), "present": len(there)}

    @handles(schemas.FolderPauseRequest)
    async def pause(self, request: schemas.FolderPauseRequest, client: Recipient) -> Reply:
        """Pause a folder; return it."""
        return self._told(await self._image.system(folders.pause, request.name, mission="operator"))

    @handles(schemas.FolderResumeRequest)
    async def resume(self, request: schemas.FolderResumeRequest, client: Recipient) -> Reply:
        """Let a folder go on; return it."""
        return self._looked_at(await self._image.system(folders.resume, request.name, mission="operator"))

    @handles(schemas.FolderRemoveRequest)
    async def remove(self, request: schemas.FolderRemoveRequest, client: Recipient) -> Reply:
        """Remove a folder; return those that are left."""
        await self._image.system(FOLDERS.remove, request.name, mission="operator")
        log.info("folder_removed", name=request.name)
        return {"type": "folders", "folders": self._image.read(self._lines)}

    @handles(schemas.FolderRunRequest)
    async def run(self, request: schemas.FolderRunRequest, client: Recipient) -> Reply:
        """Make missions of the files of a folder that became none; return it with their number."""
        self._leader.require_lead("make missions of files")
        reopened = await self._image.system(folders.reopen, request.name, mission="operator")
        return {**self._looked_at(self._image.read(folders.load, request.name)), "reopened": reopened}

    def _looked_at(self, held: KeptFolder) -> Reply:
        self.missions.look(held.spec.name)
        return self._told(held)

    def _told(self, held: KeptFolder) -> Reply:
        """Return one folder, whole."""
        told = self._image.read(self._line, held)
        runs = [{"id": run.mission, "at": run.at, "state": self._state(run.mission)} for run in reversed(held.runs)]
        return {"type": "folders", "folders": [{**told, "brief": held.spec.brief, "runs": runs}]}

    def _lines(self, root: Root) -> list[Reply]:
        return [self._line(root, folders.load(root, name)) for name in FOLDERS.names(root)]

    def _line(self, root: Root, held: KeptFolder) -> Reply:
        spec, last = held.spec, held.runs[-1] if held.runs else None
        told: Reply = {
            "name": spec.name,
            "folder": spec.folder,
            "brief": spec.brief[:_LISTED_CHARS],
            "persona": spec.terms.persona or None,
            "depth": spec.terms.depth or None,
            "priority": spec.terms.priority,
            "stop_after": spec.stop_after or None,
            "watched": folders.is_watched(root, spec.folder),
            "waiting": self.missions.waiting(spec.name),
            "last": None if last is None else {"id": last.mission, "at": last.at, "state": self._state(last.mission)},
            "failures": folders.failures(root, held),
            "paused": held.paused,
        }
        if away := self._watch.away.get(spec.folder):
            told["away"] = away
        return {**told, "why": held.why} if held.why else told

    def _state(self, mission: str) -> str:
        recorded = self._image.read(outcome, mission)[0]
        return recorded if recorded in ledger.FINAL else self._scheduler.state(mission) or recorded


def _normal(folder: str) -> str:
    return os.path.normpath(folder)
