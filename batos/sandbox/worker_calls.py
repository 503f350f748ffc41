"""Calls of workers: the client's blocking calls, on a helper thread or on the loop's own.

Most turns take less time than a switch to another task and back. So the loop stands by for `_ON_THE_SPOT_S`, and awaits calls that take
longer. After it has stood by for `_AT_A_TIME_S` in a row, other tasks get their turn first.

A short call runs on the loop's own thread: a change of thread takes longer than most methods compute. Such a call must be one that can
be cut off. After `_AT_MOST_S` a watch cuts it off, on a thread of its own. The watch checks regularly while there are such calls, and
rests otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import threading
import time
from collections.abc import Callable
from typing import Any

_AT_MOST_S = 0.02  # seconds that one call may hold the loop
_LOOKS_IN_VAIN = 10  # looks without a running call until the watch rests
_SHORT_S = 0.002
AFTER_A_LONG_ONE, AFTER_A_CUT = 4, 64  # short turns in a helper thread, until a turn is tried on the loop's thread again
_LOOPS = re.compile(r"\b(for|while)\b")


class Overdue(Exception):
    """The call was cut off, and all that it did has to be done again."""


class Pace:
    """Estimate of the length of a program's turns, from its earlier turns. A new program without loops counts as fast."""

    __slots__ = ("_wary",)

    def __init__(self, source: str = "") -> None:
        self._wary = AFTER_A_LONG_ONE if _LOOPS.search(source) else 0

    @property
    def short(self) -> bool:
        return self._wary == 0

    def took(self, seconds: float) -> None:
        if seconds > _SHORT_S:
            self._wary = max(self._wary, AFTER_A_LONG_ONE)
        elif self._wary:
            self._wary -= 1

    def cut(self) -> None:
        self._wary = AFTER_A_CUT


class CallWatch:
    """Calls of one thread, one at a time. The watch's own thread is made with the first; `close` ends it."""

    def __init__(self) -> None:
        self._lock, self._go = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._calls = 0
        self._due: float | None = None
        self._cut: Callable[[], None] | None = None
        self._was_cut = self._started = self.resting = self._closed = False

    def over(self, call: Callable[[], Any], cut: Callable[[], None]) -> Any:
        """Return the result of a blocking call.

        :param cut: makes the call end soon; called on another thread, and only during the call.
        :raises Overdue: if the call was cut off.
        """
        with self._lock:
            self._calls += 1
            self._cut, self._was_cut, self._due = cut, False, time.perf_counter() + _AT_MOST_S
            if self.resting or not self._started:
                self._wake()
        try:
            return call()
        finally:
            with self._lock:
                self._cut = self._due = None
            if self._was_cut:
                raise Overdue

    def close(self) -> None:
        """End the thread, soon."""
        with self._lock:
            self._closed = True
            if self._started:
                self._wake()

    def _wake(self) -> None:
        if not self._started:
            self._started = True
            threading.Thread(target=self._work, name="batos-sandbox-watch", daemon=True).start()
        elif self.resting:
            self.resting = False
            self._go.release()

    def _work(self) -> None:
        seen = in_vain = 0
        while not self._closed:
            with self._lock:
                wait = self._look()
                in_vain = 0 if seen != self._calls or self._due is not None else in_vain + 1
                seen = self._calls
                rest = self.resting = in_vain > _LOOKS_IN_VAIN and not self._closed
            if rest:
                self._go.acquire()
            else:
                time.sleep(wait)

    def _look(self) -> float:
        """Cut off overdue calls. Return the seconds until the next one can be overdue."""
        left = _AT_MOST_S if self._due is None else self._due - time.perf_counter()
        if left > 0:
            return left
        self._due, self._was_cut = None, True
        if self._cut is not None:
            self._cut()
        return _AT_MOST_S


_ON_THE_SPOT_S = 0.001
_AT_A_TIME_S = 0.004


class WorkerTurns:
    """Blocking calls for one loop. Each call under way has a thread, started on demand; `close` ends the threads."""

    def __init__(self) -> None:
        self.idle: list[_Helper] = []  # a stack: the helper used last is taken first
        self._standing: float | None = None
        self._afterwards: list[Callable[[], None]] = []
        self._closed = False
        self.watch = CallWatch()

    async def of(self, call: Callable[[], Any], given_up: Callable[[], None], *, stand_by: bool = True) -> Any:
        """Return the result of `call`.

        :param given_up: called if the caller is cancelled; it has to make `call` end soon.
        :param stand_by: True if the loop stands by for a short time.
        """
        helper = self.idle.pop() if self.idle else _Helper()
        helper.begin(call)
        if not (stand_by and self.may_stand_by() and helper.done.acquire(timeout=_ON_THE_SPOT_S)):
            await self._woken(helper, given_up)
        result, error = helper.result, helper.error
        helper.result = helper.error = None
        self._back(helper)
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """End the threads: those that are at rest now, the others when they are."""
        self._closed = True
        self.watch.close()
        while self.idle:
            self.idle.pop().end()

    def _back(self, helper: _Helper) -> None:
        if self._closed:
            helper.end()
        else:
            self.idle.append(helper)

    def may_stand_by(self) -> bool:
        """Return True if the loop may be held for a moment: not after `_AT_A_TIME_S` without a turn for other tasks."""
        now = time.perf_counter()
        if self._standing is None:
            self._standing = now
            asyncio.get_running_loop().call_soon(self._others_had_theirs)
        return now - self._standing < _AT_A_TIME_S

    def afterwards(self, call: Callable[[], None]) -> None:
        """Call it when others have had their turn."""
        self._afterwards.append(call)
        if self._standing is None:
            self._standing = time.perf_counter()
            asyncio.get_running_loop().call_soon(self._others_had_theirs)

    def _others_had_theirs(self) -> None:
        self._standing = None
        calls, self._afterwards = self._afterwards, []
        for call in calls:
            call()

    async def _woken(self, helper: _Helper, given_up: Callable[[], None]) -> None:
        """Return when the helper is done. It says so first, and looks for a waiter then; so it may also wake the next one for nothing."""
        waiter = helper.waited_for(asyncio.get_running_loop())
        while not helper.done.acquire(blocking=False):
            try:
                await waiter
            except asyncio.CancelledError:
                given_up()
                self._abandon(helper)
                raise
            waiter = helper.waited_for(asyncio.get_running_loop())

    def _abandon(self, helper: _Helper, _: object = None) -> None:
        """Take the helper back when its call has ended, with or without an error."""
        waiter = helper.waited_for(asyncio.get_running_loop())
        if helper.done.acquire(blocking=False):
            helper.result = helper.error = None
            self._back(helper)
        else:
            waiter.add_done_callback(functools.partial(self._abandon, helper))


class _Helper:
    """A thread that runs one call after another."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.done, self._go = threading.Lock(), threading.Lock()
        self.done.acquire()
        self._go.acquire()
        self._call: Callable[[], Any] | None = None
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        threading.Thread(target=self._work, name="batos-sandbox", daemon=True).start()

    def begin(self, call: Callable[[], Any]) -> None:
        self._call, self._waiter = call, None
        self._go.release()

    def end(self) -> None:
        self._go.release()

    def waited_for(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future that is done soon after `done` is, if it was not already."""
        future = loop.create_future()
        self._waiter = loop, future
        return future

    def _work(self) -> None:
        while True:
            self._go.acquire()
            call, self._call = self._call, None
            if call is None:
                return
            try:
                self.result = call()
            except BaseException as e:  # raised again on the loop's thread
                self.error = e
            del call
            self.done.release()
            waiter = self._waiter
            if waiter is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
                    waiter[0].call_soon_threadsafe(_wake, waiter[1])


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
