"""Schedule of the backups: it makes those that are due, drops outdated ones, and reports failures.

The names of the backup files tell the time of the last one. So the schedule survives restarts without a record of its
own, and a folder that was emptied gets a new backup. No mission waits for a backup, and no backup for a mission.
"""

from __future__ import annotations

import asyncio
import calendar
import math
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from batos import private_files
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import Busy, ImageError
from batos.image.storage import file_path
from batos.image.upkeep import Upkeep

log = structlog.get_logger("batos.image")
BACKUP_LOOK_S = 60.0  # between two looks at the clock: it may be set, and the plan too
BUSY_S = 5.0  # after which a backup that met other upkeep is tried again
_FILE = re.compile(r"(\d{4}(?:-\d\d){5})\.(fs|deltafs|dat|index)\Z")  # as repozo names them, in UTC
_DAY_S = 86400.0
_MARGIN_S = 3600.0  # names of backups made within one second are of later ones


@dataclass(frozen=True, slots=True)
class BackupLimits(Limits):
    """Limits of backups."""

    full_h: float = limit(168.0, ge=0, le=8760)
    """Hours after which the next backup is a full one; after a pack it always is."""
    first_s: float = limit(300.0, ge=0, le=30 * 86400)
    """Seconds from the start to a backup that is due then."""
    retry_s: float = limit(900.0, ge=0.05, le=30 * 86400)
    """Seconds after which a failed backup is tried again."""


class BackupPlan(NamedTuple):
    """Settings of the schedule, in seconds; `every_s` 0 makes no backups."""

    every_s: float
    full_s: float
    keep_s: float
    keep_fulls: int
    retry_s: float


class BackupSet(NamedTuple):
    """Whole backup with its increments."""

    begun: float
    """Time of the whole backup, in seconds since the epoch; 0 for increments whose whole one is gone. It comes from the names, which are in
    order also after a clock was ahead. For names from the future, it comes from the times of the files."""
    newest: float
    files: tuple[pathlib.Path, ...]
    """The newest first, so that a half removed set is still one."""


def plan_of(settings: Settings, uri: str) -> BackupPlan:
    """Return the plan of the settings for the image at a URI. The plan is empty for an image on a server, which is backed up there."""
    every_h = settings.backup.every_h if file_path(uri) is not None else 0.0
    keep_s = settings.backup.keep_days * _DAY_S
    return BackupPlan(
        every_h * 3600, BackupLimits.of(settings).full_h * 3600, keep_s, settings.backup.keep_fulls, BackupLimits.of(settings).retry_s
    )


def sets_of(folder: pathlib.Path) -> list[BackupSet]:
    """Return the backups in a folder, the oldest first; files with other names are ignored."""
    try:
        found = sorted((match[1], match[2], path) for path in folder.iterdir() if (match := _FILE.match(path.name)))
    except (FileNotFoundError, NotADirectoryError):  # whether one can be there is for `hindrance` to say
        return []
    listed = {stamp for stamp, kind, _ in found if kind == "dat"}  # the others were being made when their daemon was killed
    begins = sorted({stamp for stamp, kind, _ in found if kind == "fs" and stamp in listed})
    lots: dict[str, list[tuple[str, pathlib.Path]]] = {}
    for stamp, _, path in found:
        lots.setdefault(max((begin for begin in begins if begin <= stamp), default=""), []).append((stamp, path))
    return [
        BackupSet(_made(*lot[0]) if begin else 0.0, _made(*lot[-1]), tuple(path for _, path in reversed(lot)))
        for begin, lot in sorted(lots.items())
    ]


def hindrance(folder: pathlib.Path) -> str:
    """Return the reason why no backup can be written into a folder, with the remedy; empty if one can."""
    there = next(one for one in (folder, *folder.parents) if os.path.exists(one))
    if not os.path.isdir(there):
        return f"{there} is a file, not a folder; name another backup.folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written by this user; change its owner, or name another backup.folder"
    try:
        private_files.fit(folder)
    except private_files.Exposed as e:
        return e.why
    except OSError as e:  # links that lead to each other, say
        return f"{folder} cannot be looked at: {e.strerror}; name another backup.folder"
    return ""


def outdated(sets: list[BackupSet], plan: BackupPlan, now: float) -> list[BackupSet]:
    """Return the sets to drop: all but the newest `keep_fulls`, and those older than `keep_s`. The newest whole one
    always stays."""
    whole = [one for one in sets if one.begun]
    kept = [one for one in whole[-plan.keep_fulls :] if now - one.newest <= plan.keep_s] or whole[-1:]
    return [one for one in sets if one not in kept] if kept else []


class Backups:
    """Task that makes backups when they are due, and drops old ones. All methods are called on the loop's thread;
    await `run()` until cancelled."""

    def __init__(
        self, upkeep: Upkeep, folder: pathlib.Path, plan: BackupPlan, *, size: Callable[[], int], reserve: int, first_s: float
    ) -> None:
        """
        :param folder: folder of backups that name no other.
        :param size: returns the size of the image in bytes.
        :param reserve: bytes that a backup must leave free on the disk.
        :param first_s: seconds from the start to the first backup that is due.
        """
        self.plan = plan
        self._upkeep, self._folder, self._size, self._reserve = upkeep, folder, size, reserve
        self._not_before = time.monotonic() + first_s  # the clock may be set back
        self._sets: list[BackupSet] = []  # as of the last look
        self._good: float | None = None  # when this process proved the last one
        self._failures, self._ever_failed, self._error = 0, 0, ""

    async def run(self) -> None:
        """Make backups as they come due. A folder that cannot be written is reported at once, not in the night when a
        backup is due."""
        if self.plan.every_s and (why := await asyncio.to_thread(hindrance, self._folder)):
            self.note_failure(ImageError(why))
        while True:
            try:
                await self.look()
                wait_s = self.due() - time.time()
                if wait_s <= 0:
                    await self.make()
                    continue
            except Busy:
                wait_s = BUSY_S
            except (ImageError, OSError) as e:
                wait_s = self.note_failure(e)
            await asyncio.sleep(min(wait_s, BACKUP_LOOK_S))

    def due(self) -> float:
        """Return the time of the next backup in seconds since the epoch; infinite if there are none."""
        if not self.plan.every_s:
            return math.inf
        return max((self._last() or 0.0) + self.plan.every_s, time.time() + self._not_before - time.monotonic())

    async def look(self) -> None:
        """Read the folder, in a thread: it may be remote, or its disk asleep."""
        self._sets = await asyncio.to_thread(sets_of, self._folder)

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info`: folder, number of whole backups, times of the last and the next one, and the
        last failure."""
        due = self.due()
        return {
            "folder": str(self._folder),
            "kept": sum(1 for one in self._sets if one.begun),
            "last": self._last(),
            "next": None if due == math.inf else due,
            "failures": self._failures,  # in a row
            "failed": self._ever_failed,  # by this process
            "error": self._error or None,
        }

    async def make(self) -> None:
        """
        :raises Busy: while other upkeep is under way.
        :raises ImageError, OSError: if there is no good backup now.
        """
        begun = time.time()
        # after a failure too: what it failed of may be in what was to be added to
        full = self._failures > 0 or begun - max((one.begun for one in self._present()), default=0.0) >= self.plan.full_s
        await asyncio.to_thread(self._check_room)
        found = await self._upkeep.backup(full=full)
        self._good, self._failures, self._error = begun, 0, ""
        if found["damaged"]:
            log.warning("backups_kept", why="the image has damage, and so has its newest backup", damaged=found["damaged"])
        elif dropped := await asyncio.to_thread(self._drop):
            log.info("backups_dropped", folder=str(self._folder), sets=dropped)

    def note_failure(self, error: Exception) -> float:
        """Note a failure; return the seconds until the next attempt."""
        self._failures, self._ever_failed, self._error = self._failures + 1, self._ever_failed + 1, str(error)
        self._not_before = time.monotonic() + self.plan.retry_s
        log.error("backup_failed", folder=str(self._folder), error=str(error), failures=self._failures, again_s=self.plan.retry_s)
        return self.plan.retry_s

    def _check_room(self) -> None:
        """
        :raises ImageError: if the folder cannot be written, or a whole backup and the copy that proves it would fill
            the disk.
        """
        if why := hindrance(self._folder):
            raise ImageError(why)
        there = next(folder for folder in (self._folder, *self._folder.parents) if folder.exists())
        free, needed = shutil.disk_usage(there).free, 2 * self._size() + self._reserve
        if free < needed:
            raise ImageError(
                f"{free} bytes are free in {there}, and a backup with its proof needs {needed}, a reserve included; "
                "make room, or name another backup.folder"
            )

    def _drop(self) -> list[str]:
        """Remove outdated backups; return the names of the whole ones."""
        from batos.image.backup import BLOBS  # late: repozo is needed for backups only

        gone = outdated(sets_of(self._folder), self.plan, time.time())
        for one in gone:
            for path in one.files:
                path.unlink(missing_ok=True)
        if gone:
            _drop_blobs(self._folder / BLOBS, min(map(_needed_from, sets_of(self._folder))) - _MARGIN_S)
        return [one.files[-1].name for one in gone]

    def _present(self) -> list[BackupSet]:
        """Return the backups that are not from the future: a clock was wrong when those were named."""
        return [one for one in self._sets if one.newest <= time.time() + _DAY_S]

    def _last(self) -> float | None:
        """Return the time of the last good backup; None if there is none.

        A backup that found nothing new left no file, so its time is kept in memory. A time from before the clock was
        set back does not count.
        """
        good = [] if self._good is None or self._good > time.time() + _DAY_S else [self._good]
        return max([one.newest for one in self._present()] + good, default=None)


def _drop_blobs(folder: pathlib.Path, before: float) -> None:
    """Remove the blobs that no backup has needed since a moment: each backup touches those that it needs."""
    for path in folder.rglob("*.blob"):
        if path.stat().st_mtime < before:
            path.unlink()


def _needed_from(one: BackupSet) -> float:
    """Return the time from which a set needs its blobs; after a fast clock, names are later than their contents."""
    return min(one.begun, *(path.stat().st_mtime for path in one.files))


def _made(stamp: str, path: pathlib.Path) -> float:
    """Return the time at which a file of that name was made, in seconds since the epoch."""
    named = float(calendar.timegm(time.strptime(stamp, "%Y-%m-%d-%H-%M-%S")))
    return named if named <= time.time() else min(named, path.stat().st_mtime)
