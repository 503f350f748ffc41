"""Missions of watched folders: one task that makes a mission of each new or changed file, a few at a time.

file ─ memory (waits until it is written, reads it) ─ due? ─ `Scheduler.submit(id of folder, path and content)` ─ mission

Files wait here, not in the queue of missions, so that a thousand of them keep no other mission waiting. What waits is not stored: it
follows from what the memory holds and what is settled (`batos.triggers.folders`), and is found anew at each start.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import structlog

from batos.bus import EventBus, FolderStopped, MissionEnded
from batos.concurrency import in_helper
from batos.config.limits import Limits, limit
from batos.errors import MissionIdTaken
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.triggers import folders
from batos.triggers.deliveries import SubmitMission
from batos.triggers.folders import ORIGIN, PREFIX, DueFile, FolderChanged, KeptFolder
from batos.triggers.register import TriggeredRun

log = structlog.get_logger("batos.folders")
_STORED = ("added", "updated", "unchanged")
_BEYOND_TEXT = 4096  # bytes of a brief for all but the text of the file and the user's words
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class FolderLimits(Limits):
    """Limits of watched folders with missions."""

    open: int = limit(4, ge=1, le=20)
    """Most missions of one folder that have not ended."""
    hourly: int = limit(500, ge=1, le=1_000_000)
    """Most missions that one folder makes in an hour."""
    again_s: float = limit(5.0, ge=0.01, le=3600)
    """Seconds after which a file whose mission could not be accepted is tried again."""


class FolderMissions:
    """Those of one daemon: `await run()` until cancelled. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage, submit: SubmitMission, bus: EventBus, limits: FolderLimits, brief_bytes: int) -> None:
        """
        :param bus: reports missions that ended, and takes reports of folders that stopped.
        :param brief_bytes: most bytes of a brief.
        """
        self._image, self._submit, self._bus, self._limits, self._brief_bytes = image, submit, bus, limits, brief_bytes
        self._places = image.kept(folders.places)
        self._waiting: dict[str, dict[str, None]] = {}
        self.unread: dict[str, set[str] | None] = {}  # files to look at; None: all of the folder
        self._made: dict[str, deque[float]] = {}
        self._failed: set[str] = set()
        self._stirred = asyncio.Event()
        bus.subscribe(MissionEnded, self._ended)

    async def run(self) -> None:
        """Make missions of files as they come."""
        for name in self._places():
            self.look(name)
            self._failed.add(name)
        while True:
            self._stirred.clear()
            try:
                await self._stop_failing()
                await self._sort_out()
                again_s = min([await self._begin(name) for name in list(self._waiting)], default=math.inf)
            except Exception as e:  # a full disk, say
                log.warning("folder_missions_delayed", error=str(e), again_s=self._limits.again_s)
                again_s = self._limits.again_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if again_s == math.inf else again_s):
                    await self._stirred.wait()

    def look(self, name: str) -> None:
        """Look at all files of a folder: it was added, resumed or changed."""
        self.unread[name] = None
        self._stirred.set()

    def heard(self, event: dict[str, Any]) -> None:
        """Take note of a file that the memory has read."""
        if event["state"] not in _STORED:
            return
        for name, folder in self._places().items():
            if folders.is_within(folder, event["path"]):
                if (paths := self.unread.setdefault(name, set())) is not None:
                    paths.add(event["path"])
                self._stirred.set()

    def waiting(self, name: str) -> int:
        """Return the number of files that wait to become missions."""
        return len(self._waiting.get(name, ()))

    # --- files

    async def _sort_out(self) -> None:
        while self.unread:
            name, paths = self.unread.popitem()
            try:
                held = self._image.read(folders.find, name)
                due, settled = await in_helper(self._image.read, folders.sort_out, name, paths if paths is None else sorted(paths))
                if held is not None and settled:
                    await self._image.system(folders.settle, name, held.number, settled, mission="folders")
            except Exception:
                self.unread[name] = None
                raise
            if due:
                self._waiting.setdefault(name, {}).update(dict.fromkeys(due))

    async def _begin(self, name: str) -> float:
        """Make missions of files that wait, as many as there may be now. Return the seconds after which to try again."""
        files = self._waiting[name]
        while files:
            held = self._image.read(folders.find, name)
            if held is None or await self._stopped(held):
                del self._waiting[name]
                return math.inf
            if self._image.read(folders.open_missions, held) >= self._limits.open:
                return math.inf  # the end of one of them is heard
            if (again_s := self._rest_s(name)) > 0:
                return again_s
            path = next(iter(files))
            try:
                await self._make(held, path)
            except FolderChanged:
                continue
            except Exception as e:  # a full queue or a full disk, say: the file waits
                log.warning("folder_mission_delayed", name=name, path=path, error=str(e), again_s=self._limits.again_s)
                return self._limits.again_s
            files.pop(path, None)
        del self._waiting[name]
        return math.inf

    async def _make(self, held: KeptFolder, path: str) -> None:
        """Make the mission of a file, and settle the file in the same transaction."""
        spec = held.spec
        chars = max(0, min(folders.TEXT_CHARS, (self._brief_bytes - len(spec.brief.encode()) - _BEYOND_TEXT) // 4))
        file = await in_helper(self._image.read, folders.due_file, spec.name, path, chars)
        if file is None:
            return
        mission = held.mission_of(file.path, file.digest)
        if self._image.read(ledger.is_known, mission):  # the file has a content again that it had before
            await self._settle(held, file)
            return
        run = TriggeredRun(mission, time.time())
        brief, options = folders.brief_of(spec, file, chars), spec.terms.options(ORIGIN)
        try:
            await self._submit(mission, brief, options, lambda root: folders.note(root, held, file, run))
        except MissionIdTaken:
            log.error("folder_mission_taken", name=spec.name, mission=mission, hint="a mission of a user's has this id")
            await self._settle(held, file)
            return
        self._made.setdefault(spec.name, deque()).append(time.monotonic())
        log.info("folder_mission", name=spec.name, path=path, mission=mission)

    async def _settle(self, held: KeptFolder, file: DueFile) -> None:
        await self._image.system(folders.settle, held.spec.name, held.number, {file.path: file.digest}, mission="folders")

    def _rest_s(self, name: str) -> float:
        """Return the seconds until a folder may make another mission."""
        made, now = self._made.get(name, deque()), time.monotonic()
        while made and made[0] <= now - _HOUR_S:
            made.popleft()
        return 0.0 if len(made) < self._limits.hourly else max(0.01, made[0] + _HOUR_S - now)

    # --- failures

    def _ended(self, event: MissionEnded) -> None:
        if event.mission.startswith(PREFIX):
            if event.state == ledger.FAILED:
                self._failed.add(event.mission.removeprefix(PREFIX).rsplit("-", 2)[0])
            self._stirred.set()

    async def _stop_failing(self) -> None:
        """Stop the folders whose missions failed too often in a row."""
        while self._failed:
            name = self._failed.pop()
            held = self._image.read(folders.find, name)
            try:
                if held is not None:
                    await self._stopped(held)
            except Exception:
                self._failed.add(name)
                raise

    async def _stopped(self, held: KeptFolder) -> bool:
        """Stop a folder if its missions failed too often in a row; return True if so."""
        spec = held.spec
        if held.paused:
            return True
        if not spec.stop_after or (count := self._image.read(folders.failures, held)) < spec.stop_after:
            return False
        why = f"its last {count} missions failed; `batos folders resume {spec.name}` lets it go on"
        await self._image.system(folders.pause, spec.name, why, mission="folders")
        log.error("folder_stopped", name=spec.name, failures=count, hint=why)
        self._bus.publish(FolderStopped(spec.name, why))
        return True
