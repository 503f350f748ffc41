"""Concurrency primitives of the house: supervised background tasks, single flight, turns, shares of time, helper threads.

A helper thread gives way to the event loop quickly. Otherwise each read of the loop would wait out the interpreter's switch interval
(5 ms), some ten times a mission. Queries that a client waits for have threads of their own, and background threads give way to them.
Otherwise such queries would wait for a thread behind a pack.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial, wraps
from typing import Any, Generic, TypeVar

import structlog

from batos import resources
from batos.errors import Busy

T = TypeVar("T")
log = structlog.get_logger("batos")


class Background:
    """Supervisor of tasks that no caller awaits. A failure of a task is logged as `background_failed` and ends nothing else.

    An `asyncio.TaskGroup` does not fit: it cancels all its tasks when one fails, and must be left in the task that entered it. But a
    daemon is started in one task and stopped in another. All methods are called on the loop's thread.
    """

    def __init__(self, on_failed: Callable[[str, BaseException], object] | None = None) -> None:
        """
        :param on_failed: takes the part and the exception of a task that failed, in place of the log.
        """
        self._on_failed = on_failed or _log_failure
        self._tasks: dict[asyncio.Task[Any], str] = {}

    def start(self, work: Coroutine[Any, Any, T], name: str, part: str = "", context: contextvars.Context | None = None) -> asyncio.Task[T]:
        """Start a task.

        :param name: the name of the task.
        :param part: the part of the daemon that the log names if the task fails; by default `name`.
        :param context: the context variables of the task; by default a copy of the caller's.
        """
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks[task] = part or name
        task.add_done_callback(self._ended)
        return task

    async def run(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run `work` to its end, even if the caller is cancelled meanwhile; return its result, or raise its exception."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = ""  # the caller gets the failure
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait until the tasks that are under way now have ended."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def stop(self) -> None:
        """Cancel the tasks, one after the other; return when all have ended."""
        for task in list(self._tasks):
            await cancel_and_wait(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        part = self._tasks.pop(task)
        if part and not task.cancelled() and (failure := task.exception()) is not None:
            self._on_failed(part, failure)


def _log_failure(part: str, failure: BaseException) -> None:
    log.error("background_failed", part=part, error=repr(failure))


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel a task; return when it has ended. Its failure is not raised."""
    task.cancel()
    await asyncio.wait([task])


class Lifetime(contextlib.AsyncExitStack):
    """Lifetime of one stage of the daemon: its resources and background tasks, ended in reverse order when the block is left.

    Each task has the context variables of the code that made the lifetime, not those of the code that begins the task.
    """

    def __init__(self, on_failed: Callable[[str, BaseException], object] | None = None) -> None:
        """
        :param on_failed: see `Background`.
        """
        super().__init__()
        self._tasks, self._context = Background(on_failed), contextvars.copy_context()

    def background(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run `work` until the lifetime ends; see `Background`."""
        self.push_async_callback(cancel_and_wait, self._tasks.start(work, name, context=self._context.copy()))


PASSES = 16
"""Short calls in a row that may overtake one waiting long call."""


class ShortFirst:
    """Queue for a resource that serves one caller at a time. Short calls go before long ones. At most `PASSES` short calls overtake a
    long one. All methods are called on the loop's thread."""

    def __init__(self) -> None:
        self._taken = False
        self._passed = 0
        self._short: deque[asyncio.Future[None]] = deque()
        self._long: deque[asyncio.Future[None]] = deque()

    @contextlib.asynccontextmanager
    async def turn(self, *, short: bool) -> AsyncIterator[None]:
        """Wait for a turn; the block is the turn."""
        if self._taken:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._short if short else self._long).append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():  # cancelled just when its turn came
                    self._next()
                raise
        self._taken = True
        try:
            yield
        finally:
            self._next()

    def _next(self) -> None:
        while self._short or self._long:
            first = bool(self._short) and (not self._long or self._passed < PASSES)
            self._passed = self._passed + 1 if first and self._long else 0
            place = (self._short if first else self._long).popleft()
            if not place.done():
                self._taken = True  # later callers have to wait until this one runs
                place.set_result(None)
                return
        self._taken = False


class Share:
    """Share of time for background work. The work waits for quiet, but gets its turn even under constant load.

    After one second of work it waits for quiet for at most nine seconds, and never longer than `longest_s`.
    """

    PART = 0.1

    def __init__(self, quiet: Callable[[], Awaitable[object]], longest_s: float, now: Callable[[], float] = time.monotonic) -> None:
        """
        :param quiet: returns when no mission needs the system.
        """
        self._quiet, self._longest, self._now = quiet, longest_s, now
        self._begun: float | None = None

    async def turn(self) -> None:
        """Wait for the next turn; the time since the last one counts as work."""
        worked = self._longest if self._begun is None else self._now() - self._begun
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._longest, worked * (1 / self.PART - 1))):
                await self._quiet()
        self._begun = self._now()


class SingleFlight(Generic[T]):
    """Deduplication of work: callers that ask for the same key while its work is under way share one task. All methods are called on the
    loop's thread.

    A caller that is cancelled does not cancel the work. Work that has ended is no longer under way, even before its callbacks have run. A
    caller in the very turn of the loop in which the work ends begins it anew. So no caller ever waits for a task that is done. An await of
    such a task (or of a `shield` around it) does not yield. A loop around it would keep the callbacks from running for ever.
    """

    def __init__(self, name: str) -> None:
        """
        :param name: the name of the work, in the names of its tasks and in the error of callers whose work is given up.
        """
        self._name = name
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}

    def begin(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Return the task that is under way for `key`, or start `work()` as a new one. Wait for it with `asyncio.wait`."""
        task = self._under_way.get(key)
        if task is None or task.done():
            task = self._under_way[key] = asyncio.create_task(work(), name=self._name)
            task.add_done_callback(partial(self._ended, key))
        return task

    async def of(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the work for `key`, or raise its exception.

        :raises Busy: if `stop` gives it up.
        """
        task = self.begin(key, work)
        await asyncio.wait([task])
        if task.cancelled():
            raise Busy(f"the {self._name} was given up: the daemon is stopping; ask again when it is back")
        return task.result()

    async def give_up(self, key: Hashable) -> None:
        """Cancel the work that is under way for `key`, if there is any; return when it has ended."""
        if (task := self._under_way.get(key)) is not None and not task.done():
            await cancel_and_wait(task)

    async def stop(self) -> None:
        """Cancel the work under way. Return when it has ended."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, key: Hashable, task: asyncio.Task[T]) -> None:
        if self._under_way.get(key) is task:  # else the same work has begun again in the meantime
            del self._under_way[key]
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved: asyncio must not log it if no caller waits for the task


def once(function: Callable[[], T]) -> Callable[[], T]:
    """Call `function` once. A thread that calls meanwhile waits for the result of the first call."""
    lock, found = threading.Lock(), cache(function)

    @wraps(function)
    def locked() -> T:
        with lock:
            return found()

    return locked


_SWITCH_S = 0.0005  # seconds that a helper thread may keep the interpreter while the loop wants it
_helpers: list[float] = []  # switch intervals: one per running helper; the first is the interpreter's own
_TURN_S = 0.0005  # seconds of Python code between two turns of the loop
_GIVE_WAY_S = 0.002  # seconds that background work pauses at each of its turns while a question is answered
_QUESTIONS = 4  # threads that answer questions
_answering = 0  # questions being answered now
_threads = ThreadPoolExecutor(_QUESTIONS, thread_name_prefix="question")


class LoopTurns:
    """Turns of the event loop between small pieces of work in a helper thread."""

    def __init__(self) -> None:
        self._next = time.perf_counter()

    def take(self) -> None:
        """Let other threads run, if it is time."""
        if time.perf_counter() >= self._next:
            time.sleep(_GIVE_WAY_S if _answering else 0)
            self._next = time.perf_counter() + _TURN_S


async def in_helper(function: Callable[..., T], *args: Any) -> T:
    """Run `function` in a thread of its own that gives way to the loop quickly. Call this on the loop's thread."""
    with _switching_quickly():
        return await asyncio.to_thread(resources.charged_thread(function), *args)


async def answering(function: Callable[..., T], *args: Any) -> T:
    """Run `function` as `in_helper` does, for a client that waits: in separate threads, to which background work gives way."""
    global _answering  # helper threads read it
    context = contextvars.copy_context()
    _answering += 1
    try:
        with _switching_quickly():
            return await asyncio.get_running_loop().run_in_executor(
                _threads, lambda: context.run(resources.charged_thread(function), *args)
            )
    finally:
        _answering -= 1


@contextlib.contextmanager
def _switching_quickly() -> Iterator[None]:
    _helpers.append(_helpers[0] if _helpers else sys.getswitchinterval())
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        interval = _helpers.pop()
        if not _helpers:
            sys.setswitchinterval(interval)
