"""The pool of jailed workers, with a few idle ones that have a method loaded.

A run gets a worker whose memory is as the program's image left it: nothing of an earlier run is in it. Loading takes two round trips, so it
is done for the next run right after the last one. A FIFO semaphore with an uncontended fast path limits the number of workers. The
launcher puts up the walls around a worker.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import structlog

from batos.config import Settings
from batos.errors import SandboxFailed
from batos.objects import UvmObject
from batos.sandbox import jail
from batos.sandbox.membrane import HandleName, Handles
from batos.sandbox.run_context import SandboxLimits
from batos.sandbox.worker_calls import WorkerTurns


class FairSemaphore:
    """`await enter()`, and `leave()` when done."""

    def __init__(self, places: int) -> None:
        self._free = places  # free places; 0 while a task waits
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()

    async def enter(self) -> None:
        """Take a place, once there is one."""
        if self._free:
            self._free -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if not waiter.cancel() and not waiter.cancelled():
                self.leave()  # `leave` had just admitted this task
            raise

    def leave(self) -> None:
        """Give a place to the longest-waiting task."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


_SCRIPT = """#!/bin/sh
exec {python} -I -S {jail} {without}{binary} "$@" 2>/dev/null
"""


def standing_walls() -> dict[str, bool]:
    """Return which walls this machine can put up, tried in a separate process."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", jail.__file__, "--probe"], capture_output=True, text=True, timeout=20, check=True, env={}
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        found = {}
    return {wall: bool(found.get(wall)) for wall in jail.WALLS}


def worker_launcher(folder: Path, binary: str, *, without: tuple[str, ...] = ()) -> Path:
    """Return a program, written into `folder`, that locks itself up and becomes the worker.

    A shell script and no Python one: a `#!` line with a path of a virtual environment may be too long or hold a space.
    """
    path = folder / "worker"
    words = "".join(f"--without {wall} " for wall in without)
    path.write_text(
        _SCRIPT.format(python=shlex.quote(sys.executable), jail=shlex.quote(jail.__file__), without=words, binary=shlex.quote(binary))
    )
    path.chmod(0o700)
    return path


_log = structlog.get_logger(__name__)
_GRACE_S = 0.5  # seconds after the limit on computing time until a worker that does not end by itself is killed
_TURN_S = 0.001
_GREETED = "[_b_is(_b_o, _b_a), [['', 0]]]"  # calls, compares, answers what a run may, and leaves nothing behind
_OUTPUT = 64 * 1024  # bytes that code that bypassed the rewriter may print; print() itself does nothing
_TRIES = 8  # tries to have a worker do its first turn: idle workers may have died unnoticed
_CLOCKS = {"datetime": "call_host", "sleep": "zero", "process_time": "zero", "random_start": "call_host"}
_FALLBACKS: tuple[tuple[str, ...] | None, ...] = ((), ("seccomp",), ("seccomp", "landlock"), None)


def _nobody(number: int) -> HandleName:
    return HandleName(number.to_bytes(16, "big"))


class WorkerSession:
    """A worker for a run. What the client does for it blocks, so it does it in `turn`s."""

    def __init__(self, turns: WorkerTurns, checkout: Callable[[], Any]) -> None:
        self._turns, self._checkout = turns, checkout
        self._one_at_a_time = threading.Lock()
        self._held: Any = None
        self._worker: int | None = None
        self.monty: Any = None
        self.output: Any = None
        """Receives the output of the one run that this worker serves."""

    def enter(self) -> None:
        """Check out a fresh worker, and let go of the one before. It blocks, as the next two do."""
        self.exit()
        held = self._checkout()
        self.monty, self._held = held.__enter__(), held
        self._worker = self.monty.worker_pid

    def load(self, image: bytes, greeting: Any = None) -> None:
        """Have a fresh worker with a program loaded, which has had a first feed if it is given something to greet with. Then the pages and
        the code that a feed needs are at hand, where the next one is waited for."""
        from pydantic_monty import CollectString

        self.enter()
        self.output = CollectString(_OUTPUT)
        self.monty.load_session(image)
        if greeting is not None:
            self.monty.feed_start(_GREETED, inputs=greeting)

    def exit(self) -> None:
        """Hand the worker back; one that is dead or in the middle of something is replaced by the pool."""
        from pydantic_monty import MontyError

        held, self._held, self._worker = self._held, None, None
        if held is not None:
            with contextlib.suppress(MontyError, RuntimeError, OSError):
                held.__exit__(None, None, None)

    async def turn(self, call: Callable[[], Any], *, stand_by: bool = True) -> Any:
        """Return the result of a blocking call for this worker. A cancellation kills the worker."""
        return await self._turns.of(functools.partial(self._alone, call), self.kill, stand_by=stand_by)

    async def short_turn(self, call: Callable[[], Any]) -> Any:
        """Return the same, for a call that is taken to be short and may be made again. The call runs here, on the loop's own thread, if the
        thread is free for that.

        :raises Overdue: if it was not short. The worker is dead.
        """
        if not self._turns.may_stand_by():
            return await self.turn(call)
        with self._one_at_a_time:
            return self._turns.watch.over(call, self.kill)

    async def leave(self) -> None:
        """Check the worker in again, within a turn, as `exit` does."""
        await self.turn(self.exit, stand_by=False)

    def _alone(self, call: Callable[[], Any]) -> Any:
        with self._one_at_a_time:
            return call()

    def kill(self) -> None:
        if self._worker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGKILL)


class Workers:
    """A pool of workers. `start`, then `take` one for each run."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._limits = settings, SandboxLimits.of(settings)
        self._pool: Any = None
        self._turns = WorkerTurns()
        self._folder: Path | None = None
        self._ready: collections.OrderedDict[str, WorkerSession] = collections.OrderedDict()
        self._used: dict[str, WorkerSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.chains = FairSemaphore(self._limits.parallel)
        """Semaphore for chains of nested sends. The pool has workers for all chains at full depth. So a send within a chain never waits for
        a worker that waits for that send."""
        self.walls: dict[str, bool] = {}
        self.limits: Any = {
            "max_feed_duration_secs": settings.methods.time_s,
            "max_memory": settings.methods.memory_bytes,
            "max_recursion_depth": self._limits.recursion,
            "max_suspensions": self._limits.host_calls + 1,
        }

    async def start(self) -> None:
        """Start the first workers, behind every wall that this machine has.

        :raises SandboxFailed: if not even an unjailed worker runs.
        """
        if self._pool is not None:
            return
        if importlib.util.find_spec("opentelemetry") is None:
            # The client tries to import opentelemetry at every feed. Searching all of sys.path took a fifth of a warm run.
            # The client imports the second name; without the first, the importer takes its locks to look for the parent package.
            for name in ("opentelemetry", "opentelemetry.context"):
                sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # as documented: the import fails at once
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="batos-sandbox-"))
        self.walls = await asyncio.to_thread(standing_walls)
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
        path = binary if without is None else str(await asyncio.to_thread(lambda: worker_launcher(assert_folder, binary, without=without)))
        pool = Monty(
            binary_path=path,
            min_processes=2,
            max_processes=self._limits.parallel * self._limits.depth + self._limits.ready + 2,
            checkout_timeout=self._limits.start_s,
            request_timeout=settings.methods.time_s + 2 * _GRACE_S + self._limits.start_s,
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
        used = list(self._used.values())
        self._used.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for session in (*used, *self._ready.values()):
            await session.leave()
        self._ready.clear()
        if pool is not None:
            await asyncio.to_thread(pool.__exit__, None, None, None)
        self._turns.close()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._folder = None

    async def take(self, key: str, image: bytes) -> WorkerSession:
        """Return a worker with the program of `key` loaded, for one run; to be given back by `give_back`."""
        return self.ready(key) or await self._loaded(image, self._used.pop(key, None))

    def ready(self, key: str) -> WorkerSession | None:
        """Return the same, if one waits."""
        session = self._ready.pop(key, None)
        if session is not None and session.monty.worker_pid is None:
            self.spawn(session.leave())
            return None
        return session

    async def load(self, session: WorkerSession, image: bytes) -> None:
        """Have a fresh worker with a program loaded, for a run whose own has died.

        :raises SandboxFailed: if there is none.
        """
        await self._loaded(image, session, stand_by=False)

    def give_back(self, session: WorkerSession, key: str, image: bytes) -> None:
        """Let go of a used worker and make the next one ready, once the chain of sends that is under way has had its turn. The next one is
        made ready sooner if the chain needs one."""
        other = self._used.pop(key, None)
        if other is not None:
            self.spawn(other.leave())
        self._used[key] = session
        self._turns.afterwards(functools.partial(self._soon, session, key, image))

    def _soon(self, session: WorkerSession, key: str, image: bytes) -> None:
        asyncio.get_running_loop().call_later(_TURN_S, self._renew, session, key, image)

    def _renew(self, session: WorkerSession, key: str, image: bytes) -> None:
        if self._used.get(key) is session:
            self.spawn(self._next(self._used.pop(key), key, image))

    async def _next(self, used: WorkerSession, key: str, image: bytes) -> None:
        if key in self._ready or self._pool is None or not self._limits.ready:
            await used.leave()
            return
        try:
            session = await self._loaded(image, used, stand_by=False, greeting=self._greeting())
        except SandboxFailed as e:
            _log.warning("sandbox_worker_not_loaded", error=str(e))  # the next run tries again
            return
        if self._pool is None or key in self._ready:
            await session.leave()
            return
        self._ready[key] = session
        while len(self._ready) > self._limits.ready:
            await self._ready.popitem(last=False)[1].leave()

    async def idle(self) -> None:
        """Return when every worker that is being made ready is."""
        while self._tasks or self._used:
            await (asyncio.wait(self._tasks) if self._tasks else asyncio.sleep(_TURN_S))

    def _greeting(self) -> dict[str, Any]:
        """Return placeholder arguments of a run, which refer to nothing that a run may name."""
        return {"_b_o": Handles(_nobody).give(UvmObject()), "_b_a": (0,), "_b_known": {"": [0]}, "_b_kw": {}}

    async def _loaded(
        self, image: bytes, used: WorkerSession | None = None, *, stand_by: bool = True, greeting: Any = None
    ) -> WorkerSession:
        """Return a worker with a program, in one turn; `used` lets go of the one it had for it."""
        from pydantic_monty import MontyError

        error: Exception | None = None
        session = used or self._session({})
        for _ in range(_TRIES):
            try:
                await session.turn(functools.partial(session.load, image, greeting), stand_by=stand_by)
                return session
            except (MontyError, RuntimeError) as e:
                error = e
            except (TimeoutError, OSError) as e:
                self.spawn(session.leave())
                raise self._none_free(e) from e
            except BaseException:
                self.spawn(session.leave())
                raise
        self.spawn(session.leave())
        raise SandboxFailed(f"no worker of the sandbox took its program: {error}") from error

    def _session(self, options: Mapping[str, Any]) -> WorkerSession:
        if self._pool is None:
            raise SandboxFailed("the sandbox is not running")
        return WorkerSession(
            self._turns,
            functools.partial(self._pool.checkout, limits=self.limits, os_policy=_CLOCKS, assert_message_annotations=False, **options),
        )

    async def session(self, **options: Any) -> WorkerSession:
        """Return a fresh worker; the caller hands it back.

        :raises SandboxFailed: if no worker becomes available in time.
        """
        from pydantic_monty import MontyError

        error: Exception | None = None
        session = self._session(options)
        for _ in range(_TRIES):
            try:
                await session.turn(session.enter, stand_by=False)
                return session
            except (MontyError, RuntimeError) as e:
                error = e
            except (TimeoutError, OSError) as e:
                raise self._none_free(e) from e
            except asyncio.CancelledError:
                self.spawn(session.leave())
                raise
        raise SandboxFailed(f"no worker of the sandbox starts: {error}") from error

    def _none_free(self, error: Exception) -> SandboxFailed:
        return SandboxFailed(f"no worker of the sandbox came free within {self._limits.start_s:g} s ({error})")

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
