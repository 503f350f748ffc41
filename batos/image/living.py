"""LivingImage: the image as the rest of BAT OS uses it."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import structlog

from batos.errors import BatosSignal
from batos.image import genesis, ledger
from batos.image.committer import Committer, SystemFunction, outlast
from batos.image.kept import Kept
from batos.image.storage import check_format, file_path, not_writable, open_database, require_checksums, sync_to_disk
from batos.image.unit import Idle, Unit, Views, snapshot, unit_of_work

log = structlog.get_logger("batos.image")
T = TypeVar("T")


class LivingImage:
    """The open image: one committer, many units of work.

    `await LivingImage.open(...)` makes or recovers it; `await close()` commits what is queued and lets go of the file.
    """

    def __init__(self, uri: str, db: Any, committer: Committer) -> None:
        self.uri, self.db, self.committer = uri, db, committer
        self._idle: Idle = collections.deque()
        self._views: Views = set()
        self._kept: list[Kept[Any]] = []
        self.reach = asyncio.Lock()
        """Held by a pack, and by who brings back what may be out of reach: a pack takes that, and does not see what comes meanwhile."""

    @classmethod
    async def open(
        cls,
        uri: str,
        *,
        steps: Sequence[genesis.Step] = (),
        cache_size: int = 2000,
        units: int = 64,
        batch: int = 512,
        on_failed: Callable[[BaseException], None] | None = None,
    ) -> LivingImage:
        """
        :param steps: what each layer adds at genesis.
        :param units: units of work open at once.
        :param on_failed: called once the storage failed for good (see `Committer`).
        :raises ImageError: one of its kinds.
        """
        db = await _opened(uri, cache_size, units + 16)
        try:
            with snapshot(db) as root:
                check_format(root, uri)
            committer = Committer(db, batch=batch, on_failed=on_failed or _raise)
        except BaseException:
            db.close()
            raise
        image = cls(uri, db, committer)
        try:
            new = await image.system(genesis.awaken, tuple(steps), mission="genesis")
            image.read(require_checksums)
            path = file_path(uri)
            if new and path:
                await asyncio.to_thread(sync_to_disk, path)
        except BaseException as e:
            await image.close()
            if isinstance(e, OSError):
                raise not_writable(uri, e) from e
            raise
        log.info("image_open", uri=uri, objects=len(db.storage), new=new)
        return image

    def system(self, function: SystemFunction, *args: Any, mission: str = "") -> Coroutine[Any, Any, Any]:
        """Run `function(root, *args)` as a system transaction; its result, once durable."""
        return self.committer.system(function, *args, mission=mission)

    def later(self, function: SystemFunction, *args: Any) -> None:
        """Have `function(root, *args)` committed soon, in order with what follows, without waiting for it."""
        self.committer.defer(function, *args)
        self.committer.flush()

    def unit(self) -> contextlib.AbstractAsyncContextManager[Unit]:
        """One unit of work: commits at a normal exit unless doomed, aborts otherwise."""
        return unit_of_work(self._idle, self._views, self.db, self.committer)

    def snapshot(self, *, at: Any = None) -> contextlib.AbstractContextManager[Any]:
        """The root as of now, for reading."""
        return snapshot(self.db, at=at, views=self._views)

    def read(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(root, *args)` on a snapshot."""
        with self.snapshot() as root:
            return function(root, *args)

    def kept(self, function: Callable[[Any], T]) -> Callable[[], T]:
        """What answers `function(root)` of the image as it is now, and reads only where something has changed; for the loop's thread."""
        kept = Kept(self.db, self._views, function)
        self._kept.append(kept)
        return kept.get

    async def barrier(self) -> None:
        """Return when all that can be read now is durable: before it is told to the world outside."""
        await self.committer.barrier()

    async def told(self) -> None:
        """Return when whoever committed what can be read now was told so: before it is put beside what he does about it then."""
        await self.committer.told()

    def oldest_view(self) -> bytes | None:
        """The first transaction id that the oldest of all open units and snapshots does not see; None if none is open."""
        # MVCC's own mark, set when a transaction begins; a snapshot of the past has none, and history is its own risk.
        starts = [getattr(connection._storage, "_start", None) for connection in tuple(self._views)]
        return min((start for start in starts if start is not None), default=None)

    def facts(self) -> dict[str, Any]:
        """What `info` says of the image."""
        return {
            "uri": self.uri,
            "objects": len(self.db.storage),
            "bytes": self.db.getSize(),
            **self.read(ledger.counts),
            "folded": self.read(lambda root: len(ledger.ledger_of(root).folded)),
            **self.committer.stats,
            "trouble": self.committer.trouble,
        }

    async def close(self) -> None:
        """Commit what is queued, then close the storage."""
        await self.committer.close()
        for _, connection in self._idle:
            connection.close()
        for kept in self._kept:
            kept.close()
        self.db.close()


async def _opened(uri: str, cache_size: int, pool_size: int) -> Any:
    """The database; if the caller is cancelled meanwhile, its lock is let go before he hears of it: the thread cannot be stopped."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_database, uri, cache_size=cache_size, pool_size=pool_size))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await outlast(opening)
        if opening.exception() is None:
            opening.result().close()
        raise
    finally:
        del opening  # an error that it holds holds the half-made storage, and that the lock


def _raise(failure: BaseException) -> None:
    assert isinstance(failure, BatosSignal)
    raise failure
