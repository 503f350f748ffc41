"""Upkeep that lets an image live for years: pack, retention and backup. One at a time, and none on the committer.

* pack: drops history older than `image.history_days`, never past the start of the oldest open unit; of a file, or in PostgreSQL.
* retention: drops the texts of journals older than `image.journal_days`, and folds missions that are older still, or too many, into lines.
* backup: writes one by repozo beside the running daemon, and proves it by restoring it (`batos.image.backup`).
"""

from __future__ import annotations

import asyncio
import pathlib
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from batos.concurrency import in_helper
from batos.config.limits import Limits, limit
from batos.errors import BatosError, Busy, ImageError
from batos.image import blobs, packing, retention, server
from batos.image.backup import FORK_PART, UpkeepProgress, fork, growing_size
from batos.image.history import Moment, seconds_of
from batos.image.living_image import LivingImage
from batos.image.storage import file_path, shown_uri
from batos.image.usage_totals import CostMeter
from batos.resources import give_memory_back

log = structlog.get_logger("batos.image")
T = TypeVar("T")
_SAME_S = 1e-3  # transactions that are named after the last one are 14 ns apart: in seconds since the epoch as a float that is nothing
_BY_POSTGRES = "it is looked after where its server runs, by `pg_dump` or `pg_basebackup` (docs/several-machines.md, Backups)"
_BY_SERVER = "it is looked after where its server runs (ZEO: `zeopack`, and `repozo` with the server's file)"
_AHEAD_S = 3600.0  # by which a transaction's time may be ahead without a word
FOLD_S = 60.0  # between two looks at whether the total of costs should move up


@dataclass(frozen=True, slots=True)
class UpkeepLimits(Limits):
    """Limits of the upkeep of the image: retention, then pack."""

    every_s: float = limit(86_400.0, ge=0.05, le=30 * 86400)
    """Time between two runs of upkeep: retention, then pack."""
    first_s: float = limit(3600.0, ge=0.05, le=30 * 86400)
    """Time from start to the first run of upkeep."""


@dataclass(frozen=True)
class UpkeepPlan:
    """Terms of the upkeep of an image."""

    history_days: float
    """Days of history that a pack leaves."""
    journal_days: float
    """Days for which journals keep their texts."""
    interval_s: float
    """Seconds between two runs of retention and pack."""
    first_s: float
    """Seconds from the start to the first run."""
    upload_hours: float = 24
    """Hours for which a picture that no mission holds is kept."""
    missions: retention.FoldTerms = retention.FoldTerms()  # noqa: RUF009  # frozen
    """The missions that stay whole."""


class Upkeep:
    """Upkeep of one open image. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        meter: CostMeter,
        plan: UpkeepPlan,
        *,
        backups: pathlib.Path,
        free: retention.Free = retention.everything,
    ) -> None:
        """
        :param backups: folder of backups that name no other.
        :param free: returns the missions with which another part of BAT OS is done, so that they may be folded.
        """
        self._image, self._meter, self._backups, self._free = image, meter, backups, free
        self.plan = plan
        """The terms from the next run on."""
        self._stop = threading.Event()
        self._task: asyncio.Task[Any] | None = None
        self._under_way = ""
        self._progress = UpkeepProgress()
        self._last: dict[str, Any] = {}

    async def run(self) -> None:
        """Look after the image until cancelled."""
        await _or_skipped(retention.complete_index(self._image))
        due = time.monotonic() + self.plan.first_s
        while True:
            await asyncio.sleep(min(FOLD_S, max(0.0, due - time.monotonic())))
            await _or_skipped(self._meter.fold())
            if time.monotonic() < due:
                continue
            due = time.monotonic() + self.plan.interval_s
            await self._in_turn(self.retain)
            if file_path(self._image.uri) or self._is_in_postgres():
                await self._in_turn(self.pack)

    async def pack(self, days: float | None = None) -> dict[str, Any]:
        """Drop the history that is older than `days`, or the setting `image.history_days`.

        :returns: `bytes_before`, `bytes_after`, `objects_before`, `objects_after`, `packed_to` (seconds since the
            epoch), `took_s`.
        :raises Busy: while other upkeep is under way.
        :raises ImageError: for a storage that is neither a file nor PostgreSQL, or a disk without room; the image is as it was.
        """
        path = None if self._is_in_postgres() else self._file("packed")
        return await self._exclusively("pack", self._pack(path, self.plan.history_days if days is None else days))

    async def backup(self, folder: str | None = None, *, full: bool = False) -> dict[str, Any]:
        """Add a backup to a folder (relative to the folder of backups), and prove it.

        :returns: the figures of `batos.image.backup.backup`, and `took_s`.
        :raises Busy: while other upkeep is under way.
        :raises ImageError: for a storage that is not a file, or if there is no good backup now.
        """
        path = self._file("backed up")
        return await self._exclusively("backup", self._backup(path, self._backups / (folder or ""), full))

    async def fork(self, folder: str, at: Moment | None = None) -> dict[str, Any]:
        """Make a folder with the whole image as of a moment, or as it is, for another daemon to work with.

        :param folder: an absolute path; it may exist, an image in it may not.
        :returns: the figures of `batos.image.backup.fork`, and `took_s`.
        :raises Busy: while other upkeep is under way.
        :raises HistoryGone: for a moment before the last pack, or before the image existed.
        :raises ImageError: for a storage that is not a file, or a fork that cannot be written.
        """
        path = self._file("forked")
        return await self._exclusively("fork", self._fork(path, pathlib.Path(folder), at))

    async def retain(self) -> dict[str, Any]:
        """Drop the texts and pictures of journals older than `image.journal_days`, and pictures that no mission came for;
        fold old missions.

        :raises Busy: while other upkeep is under way.
        """
        return await self._exclusively("retention", self._retain())

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info`: the upkeep under way, and the last run of each kind."""
        return {"under_way": self._under_way or None, **({"progress": self._progress.facts()} if self._under_way else {}), **self._last}

    async def stop(self) -> None:
        """Stop the upkeep under way; return when the image is no longer used."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    # --- one at a time

    async def _in_turn(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a task once no other upkeep is under way: a backup that takes an hour must not postpone it for a day."""
        while self._under_way and self._task is not None:
            await asyncio.wait([self._task])
        await _or_skipped(work())

    async def _exclusively(self, name: str, work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        if self._under_way or self._stop.is_set():
            work.close()
            raise Busy(f"a {self._under_way} is under way; one at a time" if self._under_way else "the daemon is stopping")
        self._under_way = name
        self._progress.begin(name)
        self._task = asyncio.create_task(self._timed(name, work), name=f"upkeep {name}")
        return await asyncio.shield(self._task)  # it goes on without the caller

    async def _timed(self, name: str, work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        begun = time.monotonic()
        try:
            found = {**await work, "took_s": round(time.monotonic() - begun, 3)}
        except BaseException as e:
            log.warning("upkeep_failed", what=name, error=str(e) or repr(e))
            raise
        else:
            log.info("upkeep", what=name, **found)
            self._last[name] = {"at": round(time.time(), 3), **found}
            return found
        finally:
            self._under_way = ""

    async def _pack(self, path: pathlib.Path | None, days: float) -> dict[str, Any]:
        db = self._image.db
        before = {"bytes_before": db.getSize(), "objects_before": len(db.storage)}
        if path is None:
            self._progress.begin("in PostgreSQL")
        else:
            self._progress.begin("copying what stays", db.getSize(), growing_size(path.with_name(path.name + ".pack")))
        try:
            async with self._image.reach.alone():
                moment = packing.pack_time(days, self._image.oldest_view(), lambda: self._now(days))
                if path is None:
                    await in_helper(packing.pack_server, db, moment, self._stop)
                else:
                    await in_helper(packing.pack, db, path, moment, self._stop)
                    await in_helper(blobs.sweep, db)
            await in_helper(give_memory_back)
        except packing.PackStopped as e:
            raise Busy(str(e)) from None
        except OSError as e:
            raise ImageError(f"the image was not packed: {e.strerror or e}; a pack needs room for a second copy of it") from e
        return {**before, "bytes_after": db.getSize(), "objects_after": len(db.storage), "packed_to": round(moment, 3)}

    def _now(self, days: float) -> float:
        """Return the moment from which days are counted back.

        If the last transaction is from the future, all since are dated by it. Their age is not known any more, but all of their history can
        be dropped on request.
        """
        now, last = time.time(), seconds_of(self._image.db.lastTransaction())
        if last > now + _AHEAD_S:
            log.warning(
                "clock_was_ahead",
                until=round(last),
                hint="history from then on is not packed until that time; `batos pack --days 0` does it",
            )
        return now if days else max(now, last + _SAME_S)

    async def _backup(self, path: pathlib.Path, folder: pathlib.Path, full: bool) -> dict[str, Any]:
        from batos.image.backup import backup  # late: repozo is needed here only

        before = self._image.db.lastTransaction()
        return await in_helper(lambda: backup(path, folder, full=full, before=before, progress=self._progress))

    async def _fork(self, path: pathlib.Path, folder: pathlib.Path, at: Moment | None) -> dict[str, Any]:
        self._progress.begin("copying", self._image.db.getSize(), growing_size(folder / FORK_PART))
        return await in_helper(fork, self._image.db, path, folder, at, self._stop)

    async def _retain(self) -> dict[str, Any]:
        uploads = await retention.drop_uploads(self._image, self.plan.upload_hours)
        found = {**await retention.retain(self._image, self.plan.journal_days), **({"uploads": uploads} if uploads else {})}
        await retention.complete_index(self._image)  # a full disk may have held it up at the start
        await self._meter.fold()  # what is not in the durable total of costs is not folded
        await self._image.committer.told()
        return {**found, "folded": await retention.fold(self._image, self.plan.missions, self._free)}

    def _is_in_postgres(self) -> bool:
        return server.postgres_of(self._image.db.storage) is not None

    def _file(self, done: str) -> pathlib.Path:
        path = file_path(self._image.uri)
        if path is None:
            how = _BY_POSTGRES if self._is_in_postgres() else _BY_SERVER
            raise ImageError(f"only images in a file are {done} by BAT OS, and {shown_uri(self._image.uri)} is none; {how}")
        if not getattr(self._image.db.storage, "sealing", False):
            raise ImageError(f"BAT OS cannot have an image {done} that is opened with further options; open it without `blobstorage_dir`")
        return path


async def _or_skipped(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except (BatosError, OSError) as e:  # a pack is under way; a full disk; damage, which the walk names: the next run will do
        log.warning("upkeep_skipped", error=str(e))
