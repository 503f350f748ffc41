"""Committer: the one thread that commits everything, in order.

Two kinds of work arrive from the loop:

* *system transactions*, short functions of the root that are committed as a group (those that arrived during the last round);
* the commits of *units of work*.

A round commits one group, then the waiting units, then syncs the file once for all of them. The loop's futures are resolved when the
round's work is durable.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import structlog
import ZODB
from transaction import TransactionManager
from transaction.interfaces import TransientError
from ZODB.POSException import ConflictError

from batos.errors import Busy, ImageAway, ImageError, ImageFailed
from batos.image import storage, zodb_patches
from batos.image.checksummed_storage import base_of
from batos.image.ownership import Overtaken
from batos.image.server import MARK, ExclusiveUse, NoServer, answers, away_error, find_commit, no_room
from batos.image.storage import is_broken
from batos.objects import Root

log = structlog.get_logger("batos.image")

SystemFunction = Callable[..., Any]
_CONFLICTS_S = 20.0  # for which a group that meets conflicts with other processes on the same storage is tried again
_PAUSES_S = (0.0, 0.0, 0.002, 0.005, 0.01, 0.02)  # greatest pauses between two tries; the last one from then on
_AWAY_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # pauses between two looks at a server that is away; the last one from then on
_CLOSING_S = 10.0  # that a daemon which is stopped waits for its image's server
_NOTE_BYTES = 1024  # of mission ids in the metadata of one group


class _System:
    __slots__ = ("args", "failed", "function", "future", "mission", "result")

    def __init__(self, function: SystemFunction, args: tuple[Any, ...], mission: str, future: asyncio.Future[Any] | None) -> None:
        self.function, self.args, self.mission, self.future = function, args, mission, future
        self.result: Any = None
        self.failed: BaseException | None = None


class _Commit:
    __slots__ = ("failed", "future", "result", "tm", "written")

    def __init__(self, tm: TransactionManager, future: asyncio.Future[Any], written: asyncio.Future[None]) -> None:
        self.tm, self.future, self.written = tm, future, written
        self.result: Any = None
        self.failed: BaseException | None = None


class Committer:
    """Owner of the commit thread and its connection. All methods are called on the loop's thread."""

    def __init__(self, db: ZODB.DB, *, batch: int, on_failed: Callable[[BaseException], None], use: ExclusiveUse | None = None) -> None:
        """
        :param batch: maximum number of system transactions in one group.
        :param on_failed: called on the loop when the storage failed for good; the process must end.
        :param use: exclusive use of a server's image; nothing is committed after the server was away unless it is held still.
        """
        self._use = use or NoServer()
        self._on_server = not isinstance(self._use, NoServer)
        self._db, self._batch, self._on_failed = db, batch, on_failed
        self.loop = asyncio.get_running_loop()
        self._systems: collections.deque[_System] = collections.deque()
        self._commits: collections.deque[_Commit] = collections.deque()
        self.deferred: collections.deque[_System] = collections.deque()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # of all the ways to wake a thread the cheapest
        self._roused = False
        self._closing = self._ending = False
        self._failure: ImageFailed | None = None
        self._storage = base_of(db.storage)
        self._syncer = zodb_patches.Syncer(self._storage)
        self.turn: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        """Holds back a group until other kernels have committed theirs; set where this kernel is registered."""
        self.stats = {"rounds": 0, "groups": 0, "system": 0, "units": 0, "aborts": 0, "conflicts": 0}
        self._trouble = ("", b"")  # why a commit could not be written, and the last transaction that was
        self._away = ""  # why the server of the image does not answer
        self._left = _CLOSING_S  # seconds that all that waits for the server may still wait, once the daemon is stopped
        self._tm = zodb_patches.Transactions()
        self.connection = db.open(transaction_manager=self._tm)
        self.thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self.thread.start()

    # --- on the loop

    async def system(self, function: SystemFunction, *args: Any, mission: str = "") -> Any:
        """Run `function(root, *args)` in the next group; return its result, once durable.

        The function must be short, must not await, and may run more than once. Its result holds plain values only.
        Cancelling the caller does not undo it.
        """
        self._check()
        future: asyncio.Future[Any] = self.loop.create_future()
        self._systems.append(_System(function, args, mission, future))
        self._rouse()
        return await future  # a caller that is cancelled cancels the future; the work goes on

    def defer(self, function: SystemFunction, *args: Any) -> None:
        """Run `function(root, *args)` with the next group that a caller waits for, or at close. Only for work that
        recovery can redo."""
        self.deferred.append(_System(function, args, "", None))
        if len(self.deferred) >= self._batch:
            self.flush()

    def flush(self) -> None:
        """Commit the deferred work without waiting for another group."""
        if self.deferred:  # only the thread takes from it: the deferred ride along with a group that does nothing else
            self._systems.append(_System(_nothing, (), "", None))
            self._rouse()

    async def commit(self, tm: TransactionManager) -> None:
        """Commit a unit's transaction.

        If the caller is cancelled meanwhile, this still returns (or raises) only after the thread is done with the
        unit's connection, and then raises CancelledError. No task may touch a connection that is being committed.
        """
        self._check()
        future: asyncio.Future[Any] = self.loop.create_future()
        written: asyncio.Future[None] = self.loop.create_future()  # no caller's cancellation reaches it
        self._commits.append(_Commit(tm, future, written))
        self._rouse()
        try:
            await future
        except asyncio.CancelledError:
            await outlast(written)
            raise

    def _rouse(self) -> None:
        # At the end of the loop's turn: what the turn brings is one group, and the threads change places once for all of it.
        if not self._roused:
            self._roused = True
            self.loop.call_soon(self._call_thread)

    def _call_thread(self) -> None:
        self._roused = False
        self._wake.put(None)

    async def barrier(self) -> None:
        """Wait until everything visible is durable. Await it before anything read is shown outside."""
        if self._syncer.behind:
            await self.system(_nothing)

    async def told(self) -> None:
        """Wait until every commit visible now has been acknowledged to its submitter."""
        await self.system(_nothing)

    @property
    def trouble(self) -> str:
        """Return the reason why the last commit could not be written, such as a full disk; empty once a commit
        succeeded."""
        if self._away:
            return self._away
        why, last = self._trouble
        return why if why and self._db.lastTransaction() == last else ""

    def give_up(self, failure: ImageFailed) -> None:
        """Commit nothing more: another daemon has the image."""
        self._failure = self._failure or failure
        self._on_failed(failure)

    def hurry(self) -> None:
        """Wait for a server that is away for some seconds more, in all: the daemon ends."""
        self._ending = True

    async def close(self) -> None:
        """Commit the queued and deferred work, then end the thread."""
        self.flush()
        self._closing = True
        self._wake.put(None)
        while self.thread.is_alive():
            await asyncio.to_thread(self.thread.join)

    # --- on the committer thread

    def _run(self) -> None:
        zodb_patches.leave_out_syncs()
        try:
            while True:
                self._wake.get()
                while self._systems or self._commits:
                    done: list[_System | _Commit] = []
                    group = [self._systems.popleft() for _ in range(min(len(self._systems), self._batch))]
                    commits = [self._commits.popleft() for _ in range(len(self._commits))]
                    if group:
                        riding = [self.deferred.popleft() for _ in range(len(self.deferred))]
                        self._group([*riding, *group])
                        done.extend(group)
                    for commit in commits:
                        self._unit(commit)
                    done.extend(commits)
                    self._sync(done)
                    if self._failure is not None or is_broken(self._db):
                        self._die(done)
                        self.loop.call_soon_threadsafe(_settle, done)
                        return
                    self.loop.call_soon_threadsafe(_settle, done)
                # In this order: nothing is queued once `_closing` is set, and what was queued just before it has its wake-up.
                if self._closing and not self._systems and not self._commits:
                    return
        finally:
            self.connection.close()

    def _sync(self, done: list[_System | _Commit]) -> None:
        try:
            self.stats["rounds"] += self._syncer.sync()
        except (OSError, ValueError) as e:
            for job in done:
                job.failed = job.failed or e

    def _group(self, group: list[_System]) -> None:
        try:
            self._try_group(group)
        except BaseException as e:  # also a signal: this thread must live, or all that wait for it wait for ever
            if self._failure is not None or isinstance(e, ImageAway) or is_broken(self._db):
                for job in group:
                    job.failed = e
            elif len(group) == 1:
                if group[0].future is None and not isinstance(e, Overtaken):  # what was to be kept of another kernel's mission is its own
                    log.error("deferred_failed", function=group[0].function.__qualname__, error=repr(e))
                group[0].failed = e
            else:  # isolate the one that fails; nothing of the group was committed
                for job in group:
                    self._group([job])

    def _try_group(self, group: list[_System]) -> None:
        until, tries = time.monotonic() + _CONFLICTS_S, 0
        while True:
            mark, since = self._new_mark(), b""
            try:
                with self.turn():
                    transaction = self._tm.begin()  # inside: where it fails, only abort() makes the next one possible
                    root = self.connection.root()
                    before = self._since()
                    for job in group:
                        job.result = job.function(root, *job.args)
                    transaction.user = _note(group)
                    if mark:
                        transaction.setExtendedInfo(MARK, mark)
                    since = before
                    self._tm.commit()
            except BaseException as e:
                if (away := away_error(e) if self._on_server else None) is not None:
                    self._abort()
                    if not self._came_through(away, mark, since):
                        continue
                elif isinstance(e, TransientError):
                    self._tm.abort()
                    self.stats["conflicts"] += 1
                    if time.monotonic() >= until:
                        raise Busy(f"the image was written by others for {_CONFLICTS_S:.0f} s without a pause; try again") from e
                    time.sleep(random.uniform(0, _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]))
                    tries += 1
                    continue
                elif (full := no_room(e)) is not None:
                    self._clean_up(full)
                    raise full from e
                else:
                    self._clean_up(e)
                    raise
            self.stats["groups"] += 1
            self.stats["system"] += len(group)
            return

    def _unit(self, commit: _Commit) -> None:
        mark, since = self._new_mark(), b""
        try:
            since = self._since()
            if mark:
                commit.tm.get().setExtendedInfo(MARK, mark)
            commit.tm.commit()
            self.stats["units"] += 1
        except BaseException as e:
            commit.failed = e
            if (away := away_error(e) if self._on_server else None) is not None:
                commit.failed = self._outcome(away, mark, since)
            elif isinstance(e, TransientError):
                self.stats["conflicts"] += 1
            else:
                commit.failed = no_room(e) or e
                self._drop(commit.failed)

    def _outcome(self, away: ImageAway, mark: str, since: bytes) -> BaseException | None:
        """Wait for the server; return None for a commit that came through, and a conflict, after which it is tried again, for another."""
        try:
            if self._came_through(away, mark, since):
                self.stats["units"] += 1
                return None
        except BaseException as e:
            return e
        lost: BaseException = ConflictError("the server of the image was away, and did not get this commit")
        return lost

    # --- a server that is away

    def _new_mark(self) -> str:
        return uuid.uuid4().hex if self._on_server else ""

    def _since(self) -> bytes:
        """Return the last transaction that the committer's connection knows: a commit that begins now is later."""
        return zodb_patches.last_known(self.connection) if self._on_server else b""

    def _came_through(self, away: ImageAway, mark: str, since: bytes) -> bool:
        """Wait until the server answers again; return True if the commit that it was lost in is in the image all the same.

        :param since: empty: the commit had not begun.
        :raises ImageAway: if the daemon is stopped meanwhile.
        :raises ImageFailed: if another daemon took the image meanwhile, or a storage without history cannot tell.
        """
        self._away = away.message
        log.error("image_away", error=away.message)
        began, tries = time.monotonic(), 0
        try:
            while True:
                try:
                    if answers(self._db) and self._use.ensure():
                        found = bool(since) and find_commit(self._db, mark, since)
                        log.warning("image_back", away_s=round(time.monotonic() - began, 1), commit="found" if found else "tried again")
                        return found
                except ImageFailed as e:
                    self._failure = e
                    raise
                except Exception as e:
                    if away_error(e) is None:
                        raise  # else it went away again between two questions
                pause = _AWAY_S[min(tries, len(_AWAY_S) - 1)]
                if self._closing or self._ending:
                    self._left -= pause
                    if self._left <= 0:
                        raise away
                time.sleep(pause)
                tries += 1
        finally:
            self._away = ""

    def _abort(self) -> None:
        with contextlib.suppress(Exception):  # what is left is on the server, which drops it with the session
            self._tm.abort()

    def _clean_up(self, failure: BaseException) -> None:
        try:
            self._tm.abort()
        except OSError as e:  # of a full disk, once more; the transaction is over all the same
            log.warning("abort_failed", error=repr(e))
        self._drop(failure)

    def _drop(self, failure: BaseException) -> None:
        if isinstance(failure, OSError):
            self._trouble = (
                str(storage.disk_full_error(failure) or f"the image could not be written: {failure}"),
                self._db.lastTransaction(),
            )
        storage.drop_unwritten(self._storage, failure)

    def _die(self, done: list[_System | _Commit]) -> None:
        cause = next((job.failed for job in done if job.failed is not None), None)
        log.critical("storage_failed", error=repr(cause))
        self._failure = self._failure or ImageFailed(
            f"the storage failed while committing ({cause!r}); whether that commit is on disk shows at the next start"
        )
        for job in done:
            if job.failed is not None:  # no caller may take the storage's own error for a commit that did not happen
                job.failed = self._failure
        self.loop.call_soon_threadsafe(self._refuse_all)

    def _refuse_all(self) -> None:
        assert self._failure is not None
        waiting: list[_System | _Commit] = [*self._systems, *self._commits]
        self._systems.clear()
        self._commits.clear()
        for job in waiting:
            job.failed = self._failure
        _settle(waiting)
        self._on_failed(self._failure)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise ImageError("the image is closed; nothing was changed")


async def outlast(future: asyncio.Future[Any]) -> None:
    """Wait until a future is done, even if the caller is cancelled meanwhile; the caller then raises its
    CancelledError."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue


def _nothing(root: Root) -> None:
    """Do nothing: a group that carries the deferred functions when no caller waits for one."""


def _settle(done: list[_System | _Commit]) -> None:
    for job in done:
        if isinstance(job, _Commit) and not job.written.done():
            job.written.set_result(None)
        if job.future is not None and not job.future.done():
            if job.failed is None:
                job.future.set_result(job.result)
            else:
                job.future.set_exception(job.failed)
                job.future.exception()  # a caller that was cancelled must not leave a "never retrieved" warning


def _note(group: list[_System]) -> str:
    missions = " ".join(dict.fromkeys(job.mission for job in group if job.mission))
    return missions if len(missions) <= _NOTE_BYTES else missions[:_NOTE_BYTES].rsplit(" ", 1)[0] + " …"
