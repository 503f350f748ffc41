"""LivingImage: the image as the rest of BAT OS uses it.

The *Prototypal Awakening* (`awaken`) creates what every image holds from its first moment, in one transaction,
idempotent and versioned. Each layer that needs objects of its own hands in a *step*, a function of the lobby. A newer
genesis runs the steps again; they add what is missing and never overwrite what the image changed.

A *mirror* is the image as of now, or as of an earlier moment, for trying something before it is done. It has changes of its own that only
the mirror sees. It is a DemoStorage over a view of the very storage. Nothing is copied and nothing is opened. So it costs the same whatever
the image holds, and commits go on meanwhile. Its commits are in memory, and gone with it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import structlog
import ZODB
from ZODB.DemoStorage import DemoStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import load_current, newTid, p64, u64

from batos import scope
from batos.config.limits import Limits, limit
from batos.errors import BatosSignal, ImageAway, ImageFailed
from batos.image import kernels, ledger, server, zodb_patches
from batos.image.checksummed_storage import reading
from batos.image.committer import Committer, SystemFunction, outlast
from batos.image.fence import Fence
from batos.image.ledger import Ledger
from batos.image.mission_record import DEFAULTS
from batos.image.ownership import Lease
from batos.image.pack_lock import PackLock
from batos.image.server import ExclusiveUse, NoServer
from batos.image.storage import (
    CHECKED_AFTER,
    FORMAT,
    check_format,
    file_path,
    not_writable,
    open_database,
    require_checksums,
    shown_uri,
    sync_to_disk,
)
from batos.image.unit_of_work import CachedQuery, Idle, Unit, Views, snapshot, unit_of_work
from batos.objects import Root, UvmObject
from batos.objects import add_missing as add_missing

AGAIN_S = 1.0
"""Seconds before a part is run again that met a server that is away."""


async def run_through_outages(run: Callable[[], Coroutine[Any, Any, None]], part: str) -> None:
    """Run a part of the daemon until it ends; run it again where the server of the image could not be reached.

    :param run: makes the coroutine of the part, which may be run again.
    :param part: its name for the log.
    """
    while True:
        try:
            await run()
            return
        except ImageAway as e:
            log.warning("part_waits_for_image", part=part, error=e.message, again_s=AGAIN_S)
        await asyncio.sleep(AGAIN_S)


VERSION = 1
GenesisStep = Callable[[UvmObject], None]


def awaken(root: Root, steps: Sequence[GenesisStep]) -> bool:
    """Make sure that the image holds what this version of BAT OS begins with; return True if anything was added."""
    new = "lobby" not in root
    if new:
        root["genesis"] = VERSION
        root["lobby"] = _lobby()
    if root.get("format", 0) < FORMAT:  # an earlier version must not write to it any more
        root["format"] = FORMAT
    if CHECKED_AFTER not in root:
        root[CHECKED_AFTER] = root._p_jar.db().lastTransaction()
    lobby = root["lobby"]
    add_missing(lobby.traits.mission, **DEFAULTS)  # an image of an earlier version lacks the newer ones
    if "ledger" not in root:
        root["ledger"] = Ledger(lobby.traits.mission)
    ledger.add_missing_indexes(root)
    for step in steps:
        step(lobby)
    if root["genesis"] < VERSION:
        root["genesis"] = VERSION
    return new


def _lobby() -> UvmObject:
    genesis = UvmObject(
        comment="I am the first object. All others that answer messages inherit from me, by however long a way.", name="genesis"
    )
    traits = genesis.derive(
        comment="I hold the prototypes that give objects of one kind their common slots.",
        name="traits",
    )
    traits.mission = genesis.derive(
        comment="I am the prototype of missions. A mission holds its brief, what differs from my slots, and in the end its result.",
        **DEFAULTS,
    )
    return genesis.derive(
        comment="I am the lobby: what is to be found by name in this image is a slot of mine, or of an object that is.",
        name="lobby",
        genesis=genesis,
        traits=traits,
    )


log = structlog.get_logger("batos.image")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ImageLimits(Limits):
    """Limits of connections and commits of the image."""

    cache: int = limit(1000, ge=100, le=1_000_000)
    """Objects that one connection keeps loaded."""
    batch: int = limit(512, ge=1, le=100_000)
    """System transactions in one group commit."""


Join = Callable[["LivingImage"], Awaitable[None]]
"""Registers a daemon as a kernel of an image that is open, and not yet brought up to this version."""


class LivingImage:
    """Open image: one committer, many units of work.

    `await LivingImage.open(...)` makes or recovers it; `await close()` commits what is queued and releases the file.
    """

    def __init__(self, uri: str, db: Any, committer: Committer, use: ExclusiveUse | None = None) -> None:
        """
        :param use: the daemon's exclusive use of the image, released with it.
        """
        self.uri, self.db, self.committer = uri, db, committer
        self.lease = Lease()
        """Of this kernel; it never ends where one daemon has the image to itself."""
        self.use = use or NoServer()
        """The daemon's exclusive use of the image on its server."""
        self.idle: Idle = collections.deque()
        """Connections that no unit of work holds now."""
        self._views: Views = set()
        self._kept: list[CachedQuery[Any]] = []
        self.reach = PackLock(db)
        """Lock of a pack, and of a task that brings back objects out of reach."""
        self.replay_turn: Callable[[], contextlib.AbstractAsyncContextManager[None]] = contextlib.nullcontext
        """Holds back a replay until other kernels have made theirs; set where this kernel is registered."""

    @classmethod
    async def open(
        cls,
        uri: str,
        *,
        steps: Sequence[GenesisStep] = (),
        cache_size: int = 2000,
        units: int = 64,
        batch: int = 512,
        on_failed: Callable[[BaseException], None] | None = None,
        join: Join | None = None,
        lease_s: float = server.IDLE_S,
    ) -> LivingImage:
        """
        :param steps: additions of each layer at genesis.
        :param units: maximum number of units of work open at once.
        :param on_failed: called once the storage failed for good (see `Committer`).
        :param join: registers this daemon as one of the image's kernels, before anything else is written; None: it has the image to itself.
        :param lease_s: seconds of silence after which the other kernels count this one as gone.
        :raises ImageError: one of its kinds; `ImageLocked` if another daemon uses it.
        """
        loop, failed = asyncio.get_running_loop(), on_failed or _raise
        prepare = server.bound_sessions if join is None else partial(server.share_storage, lease_s=lease_s)
        db: ZODB.DB = await _taken(partial(open_database, uri, cache_size=cache_size, pool_size=units + 16, prepare=prepare), ZODB.DB.close)
        use: ExclusiveUse = NoServer()
        try:
            with snapshot(db) as root:
                check_format(root, uri)

            def lost(failure: BaseException) -> None:
                loop.call_soon_threadsafe(failed, failure)

            take = server.use_exclusively if join is None else server.use_together
            use = await _taken(partial(take, db, shown_uri(uri), lost), lambda taken: taken.release())
            committer = Committer(db, batch=batch, on_failed=failed, use=use)
        except BaseException:
            await asyncio.to_thread(use.release)
            db.close()
            raise
        image = cls(uri, db, committer, use)
        try:
            if join is not None:
                await join(image)
            elif server.is_served(db):
                await image.system(kernels.end_all)
            new = await image.system(awaken, tuple(steps), mission="genesis")
            image.read(require_checksums)
            path = file_path(uri)
            if new and path:
                await asyncio.to_thread(sync_to_disk, path)
        except BaseException as e:
            await image.close()
            if isinstance(e, OSError):
                raise not_writable(uri, e) from e
            raise
        log.info("image_open", uri=shown_uri(uri), objects=len(db.storage), new=new)
        return image

    @property
    def kernel(self) -> str:
        """Return the name of this kernel among those of the image; empty where one daemon has it to itself."""
        return kernels.name_of(self.db)

    def system(self, function: Callable[..., T], *args: Any, mission: str = "") -> Coroutine[Any, Any, T]:
        """Run `function(root, *args)` as a system transaction; return its result, once durable.

        :raises LeadLost: inside a fence (`batos.image.fence`), if the lead is not held any more.
        """
        if (fence := self._fence()) is not None:
            return self.committer.system(fence.run, function, *args, mission=mission)
        return self.committer.system(function, *args, mission=mission)

    def defer(self, function: SystemFunction, *args: Any) -> None:
        """Commit `function(root, *args)` with the next transaction that a caller waits for, or at the close."""
        if (fence := self._fence()) is not None:
            self.committer.defer(fence.run_or_drop, function, *args)
        else:
            self.committer.defer(function, *args)

    def later(self, function: SystemFunction, *args: Any) -> None:
        """Commit `function(root, *args)` soon, in order with what follows, without waiting for it."""
        self.defer(function, *args)
        self.committer.flush()

    def unit(self) -> contextlib.AbstractAsyncContextManager[Unit]:
        """Return a unit of work: it commits at a normal exit unless doomed, and aborts otherwise.

        :raises LeadLost: out of its entry, inside a fence, if the lead is not held any more.
        """
        fence = self._fence()
        return unit_of_work(self.idle, self._views, self.db, self.committer, None if fence is None else fence.check)

    def _fence(self) -> Fence | None:
        fence: Fence | None = scope.current().lead
        return fence if fence is not None and fence.db is self.db else None

    def snapshot(self, *, at: Any = None) -> contextlib.AbstractContextManager[Root]:
        """Return the root as of now, for reading."""
        return snapshot(self.db, at=at, views=self._views)

    def read(self, function: Callable[..., T], *args: Any) -> T:
        """Return `function(root, *args)` on a snapshot.

        :raises ImageAway: if the server of the image cannot be reached.
        """
        try:
            with self.snapshot() as root:
                return function(root, *args)
        except Exception as e:
            server.raise_if_away(e)
            raise

    def kept(self, function: Callable[[Any], T]) -> Callable[[], T]:
        """Return a cached query of `function(root)` for the loop's thread: it reads again only after what it read has
        changed."""
        kept = CachedQuery(self.db, self._views, function)
        self._kept.append(kept)
        return kept.get

    async def barrier(self) -> None:
        """Wait until everything readable now is durable. Await it before anything read is shown outside."""
        await self.committer.barrier()

    async def told(self) -> None:
        """Wait until every commit visible now has been acknowledged to its submitter."""
        await self.committer.told()

    def give_up(self, failure: ImageFailed) -> None:
        """Commit nothing more, and have the daemon end."""
        self.committer.give_up(failure)

    def oldest_view(self) -> bytes | None:
        """Return the first transaction id that the oldest open unit or snapshot does not see; None if none is open."""
        starts = [zodb_patches.view_start(connection) for connection in tuple(self._views)]  # history is its own risk
        return min((start for start in starts if start is not None), default=None)

    def facts(self) -> dict[str, Any]:
        """Return the facts about the image that `info` shows."""
        return {
            "uri": shown_uri(self.uri),
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
        for _, connection in self.idle:
            connection.close()
        for kept in self._kept:
            kept.close()
        await asyncio.to_thread(self.use.release)
        self.db.close()


async def _taken(take: Callable[[], T], give_back: Callable[[T], object]) -> T:
    """Run a function that takes a lock, in a thread, which cannot be stopped. If the caller is cancelled meanwhile, the lock is given back
    before the cancellation is raised.
    """
    taking = asyncio.ensure_future(asyncio.to_thread(take))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        await outlast(taking)
        if taking.exception() is None:
            await asyncio.to_thread(give_back, taking.result())
        raise
    finally:
        del taking  # an error that it holds holds the half-made storage, and that the lock


def _raise(failure: BaseException) -> None:
    assert isinstance(failure, BatosSignal)
    raise failure


URI = "memory://mirror"
_CONNECTIONS = 8
_BATCH = 64


class _View:
    """Read-only storage as of a moment."""

    def __init__(self, storage: Any, before: bytes, fresh: Collection[bytes] = (), now: bytes = b"") -> None:
        """
        :param before: the first transaction that is not seen.
        :param fresh: records that are seen as of `now`, a later moment.
        """
        self._storage, self.before, self._lock = storage, before, threading.Lock()
        self._fresh, self._now = frozenset(fresh), now
        for name in ("loadBlob", "openCommittedBlobFile"):
            if hasattr(storage, name):
                setattr(self, name, getattr(storage, name))

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        """Return the data of a record as of before a transaction; later writes are not seen."""
        is_fresh = oid in self._fresh
        with self._lock:
            found = self._storage.loadBefore(oid, self._now if is_fresh else min(tid, self.before))
        if found is None:
            return None
        data, since, until = found
        if is_fresh:
            return data, since, None
        return data, since, None if until is not None and until >= self.before else until

    def getTid(self, oid: bytes) -> bytes:
        """Return the transaction that wrote the visible revision of a record, which a commit in a mirror compares
        with what it read.

        :raises POSKeyError: if there is no record of that id.
        """
        return bytes(load_current(self, oid)[1])

    def lastTransaction(self) -> bytes:
        """Return the last transaction that is seen."""
        return bytes(p64(u64(self.before) - 1))

    def registerDB(self, db: Any) -> None:
        """Do nothing: a view never changes."""

    def getName(self) -> str:
        """Return the name for messages."""
        return str(self._storage.getName())


class _Changes(MappingStorage):
    """Commits of a mirror. They come after the transactions of the original, also where the clock was set back."""

    def __init__(self, before: bytes) -> None:
        super().__init__()
        self._begin = before

    def tpc_begin(self, transaction: Any, tid: bytes | None = None) -> None:
        """Begin a commit, with a transaction id of its own."""
        super().tpc_begin(transaction, tid or newTid(max(self._begin, self._ltid)))

    def loadBlob(self, oid: bytes, serial: bytes) -> str:
        """Refuse: no blob is committed to a mirror, which reads those of its original.

        :raises POSKeyError: always; it tells a DemoStorage where to look.
        """
        raise POSKeyError(oid, serial)

    def openCommittedBlobFile(self, oid: bytes, serial: bytes, blob: Any = None) -> Any:
        """Refuse, as `loadBlob`.

        :raises POSKeyError: always.
        """
        raise POSKeyError(oid, serial)


@contextlib.asynccontextmanager
async def mirror(
    image: LivingImage, *, cache_size: int, of: LivingImage | None = None, before: bytes | None = None, fresh: Collection[bytes] = ()
) -> AsyncIterator[LivingImage]:
    """Open a mirror of an image as it is now. A pack leaves what it sees, but not what only an earlier moment had.

    :param of: another mirror of that image: this one begins as that one began.
    :param before: the first transaction that it does not see; None: it sees all that are there.
    :param fresh: ids of records that it sees as they are now all the same.
    """
    with image.snapshot() as root, reading(image.db.storage) as storage:
        now = zodb_patches.first_unseen(root._p_jar)
        seen = before or (now if of is None else of.db.storage.base.before)
        layers = DemoStorage(base=_View(storage, seen, fresh, now), changes=_Changes(now), close_base_on_close=False)
        db = ZODB.DB(layers, cache_size=cache_size, pool_size=_CONNECTIONS)
        made = LivingImage(URI, db, Committer(db, batch=_BATCH, on_failed=_failed))
        try:
            yield made
        finally:
            await made.close()


def _failed(failure: BaseException) -> None:
    """Do nothing: a mirror has no disk to fail. Should it fail all the same, the trial in it reports the error."""
    log.error("mirror_failed", error=repr(failure))
