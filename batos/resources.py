"""Resources of this process: processor time by account, and the C library's allocator.

A thread computes for one account at a time, or for none. Waiting costs nothing: while a piece of work yields the loop, the loop's thread
computes for others, and work in another thread is measured there.

glibc gives threads that allocate at the same time an arena each, and memory freed in one arena serves no other. So helper threads that
each once held much memory would keep all of it. Python's threads hardly ever allocate at the same moment: one arena is enough.
"""

from __future__ import annotations

import ctypes
import threading
import time
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

_M_ARENA_MAX = -8  # parameter of mallopt(3)
_libc = ctypes.CDLL(None)


def one_arena() -> bool:
    """Let all threads share one arena, from now on; whether that could be said. To be called before there are threads."""
    mallopt = getattr(_libc, "mallopt", None)  # glibc has it; musl and macOS do not need it
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, 1))


def give_memory_back() -> bool:
    """Return free memory between used blocks to the system. Return True if there was any.

    Call it after work that used much memory for a while. Without this, the process would keep its freed memory as long as anything above it
    is used.
    """
    trim = getattr(_libc, "malloc_trim", None)
    return trim is not None and bool(trim(0))


T = TypeVar("T")


class ProcessorAccount:
    """Account of processor time: `seconds`, as of the last switch between accounts."""

    __slots__ = ("_elsewhere", "_here", "_lock")

    def __init__(self) -> None:
        self._here = self._elsewhere = 0.0
        self._lock = threading.Lock()  # two helper threads may end at the same time

    @property
    def seconds(self) -> float:
        return self._here + self._elsewhere

    def add(self, seconds: float) -> None:
        """Charge what another thread has computed."""
        with self._lock:
            self._elsewhere += seconds


class _Thread(threading.local):
    account: ProcessorAccount | None = None
    since = 0.0


_thread = _Thread()


def charge(account: ProcessorAccount | None) -> ProcessorAccount | None:
    """Let this thread compute for `account` from now on; for whom it did until now."""
    before = _thread.account
    if before is not account:
        now = time.thread_time()
        if before is not None:
            before._here += now - _thread.since
        _thread.account = account
        if account is not None:
            _thread.since = now
    return before


def computes_for(account: ProcessorAccount) -> bool:
    """Return True if this thread computes for `account` now."""
    return _thread.account is account


@types.coroutine
def charged(work: Awaitable[T], account: ProcessorAccount | None) -> Generator[Any, Any, T]:
    """Await `work`, and charge this thread's computing for it to `account`, or to none.

    Anything that it awaits in the same task is part of it, unless charged to another account itself.
    """
    steps = work.__await__()
    sent, thrown = None, None
    while True:
        before = charge(account)
        try:
            waits_for = next(steps) if thrown is None and sent is None else steps.send(sent) if thrown is None else steps.throw(thrown)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            charge(before)
        sent = thrown = None
        try:
            sent = yield waits_for
        except BaseException as e:  # for example a cancellation: the work has to receive it
            thrown = e


def charged_task(work: Awaitable[T]) -> Awaitable[T]:
    """Wrap work for another task, charged to whom this thread computes for now."""
    account = _thread.account
    return work if account is None else _awaited(work, account)


async def _awaited(work: Awaitable[T], account: ProcessorAccount) -> T:
    return await charged(work, account)


def charged_thread(function: Callable[..., T]) -> Callable[..., T]:
    """Wrap a function for another thread, charged to whom this thread computes for now."""
    account = _thread.account
    if account is None:
        return function

    def measured(*args: Any) -> T:
        begun = time.thread_time()
        try:
            return function(*args)
        finally:
            account.add(time.thread_time() - begun)

    return measured
