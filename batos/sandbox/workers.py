"""The pool of jailed workers, and the few of them that wait with a method loaded.

A run gets a worker whose memory is as the program's image left it: nothing of an earlier run is there. Loading takes two round
trips, so it is done for the next run right after the last one.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import structlog

from batos.config import Settings
from batos.errors import SandboxFailed
from batos.sandbox import walls
from batos.sandbox.turns import Turns

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")
_GRACE_S = 0.5  # past the limit on computing time, until a worker that does not end by itself is killed
_TURN_S = 0.001
_TRIES = 3  # to load a program: a worker may have died while nobody looked
_CLOCKS = {"datetime": "call_host", "sleep": "zero", "process_time": "zero", "random_start": "call_host"}
_FALLBACKS: tuple[tuple[str, ...] | None, ...] = ((), ("seccomp",), ("seccomp", "landlock"), None)


class Session:
    """One worker, checked out, with a program loaded or none. What its client does, it does in `turn`s."""

    def __init__(self, turns: Turns, checkout: Any) -> None:
        self._turns, self._checkout = turns, checkout
        self._one_at_a_time = threading.Lock()
        self.monty: Any = None
        self._worker: int | None = None

    def enter(self) -> None:
        """Check the worker out. It blocks."""
        self.monty = self._checkout.__enter__()
        self._worker = self.monty.worker_pid

    @property
    def alive(self) -> bool:
        return self.monty.worker_pid is not None

    async def turn(self, call: Callable[[], Any], *, stand_by: bool = True) -> Any:
        """Answer what `call`, a blocking call of the client's for this worker, does. Cancelled, it costs the worker its life."""
        return await self._turns.of(functools.partial(self._alone, call), self._kill, stand_by=stand_by)

    def _alone(self, call: Callable[[], Any]) -> Any:
        with self._one_at_a_time:
            return call()

    def _kill(self) -> None:
        if self._worker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGKILL)

    async def leave(self) -> None:
        """Hand the worker back; one that is dead or in the middle of something is replaced by the pool."""
        from pydantic_monty import MontyError

        with contextlib.suppress(MontyError, RuntimeError, OSError):
            await self.turn(lambda: self._checkout.__exit__(None, None, None), stand_by=False)


class Workers:
    """A pool of workers. `start`, then `take` one for each run."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: Any = None
        self._turns = Turns()
        self._folder: Path | None = None
        self._ready: collections.OrderedDict[str, Session] = collections.OrderedDict()
        self._wanted: dict[str, bytes] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.chains = asyncio.Semaphore(settings.sandbox_parallel)
        """Room for chains of sends inside one another. The pool has workers for all that may be under way at once, each at full
        depth: so a send within a chain never waits for a worker that waits for it."""
        self.walls: dict[str, bool] = {}
        self.limits: Any = {
            "max_feed_duration_secs": settings.sandbox_time_s,
            "max_memory": settings.sandbox_memory,
            "max_recursion_depth": settings.sandbox_recursion,
            "max_suspensions": settings.sandbox_host_calls + 1,
        }

    async def start(self) -> None:
        """Start the first workers, behind every wall that this machine has.

        :raises SandboxFailed: if not even an unjailed worker runs.
        """
        if self._pool is not None:
            return
        if importlib.util.find_spec("opentelemetry") is None:
            # The client tries to import it at every feed; looking through all of sys.path for it took a fifth of a warm run.
            sys.modules.setdefault("opentelemetry", None)  # type: ignore[arg-type]  # as documented: the import fails at once
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="batos-sandbox-"))
        self.walls = await asyncio.to_thread(walls.standing)
        error: Exception | None = None
        for without in _FALLBACKS:
            try:
                await self._open(without)
            except (OSError, RuntimeError, TimeoutError) as e:
                error = e
                continue
            down = list(self.walls) if without is None else list(without)
            self.walls.update(dict.fromkeys(down, False))
            missing = [wall for wall, stands in self.walls.items() if not stands]
            if missing:
                _log.warning("sandbox_wall_missing", walls=missing, hint="generated methods run behind fewer walls: see SECURITY.md")
            return
        await self.close()
        raise SandboxFailed(f"no worker of the sandbox runs: {error}; `batos doctor` says what is missing")

    async def _open(self, without: tuple[str, ...] | None) -> None:
        from pydantic_monty import Monty, MontyError
        from pydantic_monty._binary import find_monty_binary

        settings, assert_folder = self._settings, self._folder
        assert assert_folder is not None
        binary = await asyncio.to_thread(find_monty_binary)
        path = binary if without is None else str(await asyncio.to_thread(lambda: walls.launcher(assert_folder, binary, without=without)))
        pool = Monty(
            binary_path=path,
            min_processes=2,
            max_processes=settings.sandbox_parallel * settings.sandbox_depth + settings.sandbox_ready + 2,
            checkout_timeout=settings.sandbox_start_s,
            request_timeout=settings.sandbox_time_s + 2 * _GRACE_S + settings.sandbox_start_s,
            feed_duration_limit_grace=_GRACE_S,
            turn_duration_limit_grace=_GRACE_S,
        )
        self._pool = await asyncio.to_thread(pool.__enter__)
        try:
            session = await self.session()
            await session.turn(functools.partial(session.monty.feed_start, "1"))
            await session.leave()
        except (MontyError, SandboxFailed) as e:
            self._pool = None
            await asyncio.to_thread(pool.__exit__, None, None, None)
            raise RuntimeError(str(e)) from e

    async def close(self) -> None:
        """Hand back and end all workers. Safe to call twice."""
        pool, self._pool = self._pool, None
        self._wanted.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)
        while self._ready:
            await self._ready.popitem()[1].leave()
        if pool is not None:
            await asyncio.to_thread(pool.__exit__, None, None, None)
        self._turns.close()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._folder = None

    async def take(self, key: str, image: bytes) -> Session:
        """A worker with the program of `key` loaded, for one run; to be given back by `give_back`."""
        session = self._ready.pop(key, None)
        if session is None or not session.alive:
            if session is not None:
                self._spawn(session.leave())
            session = await self._loaded(image)
        return session

    def give_back(self, session: Session, key: str, image: bytes) -> None:
        """Let go of a used worker and make the next one ready, once the chain of sends that is under way has had its turn."""

        async def next_one() -> None:
            await asyncio.sleep(_TURN_S)
            await self._next(session, key, image)

        self._spawn(next_one())

    async def _next(self, used: Session, key: str, image: bytes) -> None:
        await used.leave()
        if key in self._ready or self._pool is None or not self._settings.sandbox_ready:
            return
        try:
            session = await self._loaded(image)
        except SandboxFailed as e:
            _log.warning("sandbox_worker_not_loaded", error=str(e))  # the next run tries itself
            return
        if self._pool is None or key in self._ready:
            await session.leave()
            return
        self._ready[key] = session
        while len(self._ready) > self._settings.sandbox_ready:
            await self._ready.popitem(last=False)[1].leave()

    async def idle(self) -> None:
        """Return when every worker that is being made ready is."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _loaded(self, image: bytes) -> Session:
        from pydantic_monty import MontyError

        error: Exception | None = None
        for _ in range(_TRIES):
            session = await self.session()
            try:
                await session.turn(functools.partial(session.monty.load_session, image), stand_by=False)
                return session
            except (MontyError, RuntimeError) as e:
                self._spawn(session.leave())
                error = e
            except BaseException:
                self._spawn(session.leave())
                raise
        raise SandboxFailed(f"no worker of the sandbox took its program: {error}") from error

    async def session(self, **options: Any) -> Session:
        """A fresh worker; the caller hands it back.

        :raises SandboxFailed: if none can be had in time.
        """
        if self._pool is None:
            raise SandboxFailed("the sandbox is not running")
        checkout = self._pool.checkout(limits=self.limits, os_policy=_CLOCKS, **options)
        entering = self._spawn(self._entered(Session(self._turns, checkout)))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(self._unwanted)
            raise

    async def _entered(self, session: Session) -> Session:
        from pydantic_monty import MontyError

        try:
            await session.turn(session.enter, stand_by=False)
        except (TimeoutError, MontyError, OSError, RuntimeError) as e:
            raise SandboxFailed(f"no worker of the sandbox came free within {self._settings.sandbox_start_s:g} s ({e})") from e
        return session

    def _unwanted(self, entering: asyncio.Task[Session]) -> None:
        if not entering.cancelled() and entering.exception() is None:
            self._spawn(entering.result().leave())

    def _spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
