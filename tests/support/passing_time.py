"""A loop whose time passes by itself: where nothing is to be done before the next timer, it is that time already.

The clock is the loop's, `time.time` and `time.monotonic`. Threads work in real time: while one does, no time passes by itself; then
the loop waits a moment for what one may say.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

MOMENT_S = 0.001  # real time in which a thread may still say something
_wall, _steady = time.time, time.monotonic


def _others_work() -> bool:
    """Return True while another thread of this process has something to compute or to write, or waits for a core."""
    own = str(threading.get_native_id())
    return any(task != own and _state(task) in b"RD" for task in os.listdir("/proc/self/task"))


def _state(task: str) -> bytes:
    """Return the letter of a thread's state; of one that has ended, that it sleeps."""
    try:
        file = os.open(f"/proc/self/task/{task}/stat", os.O_RDONLY)
        try:
            told = os.read(file, 1024)
        finally:
            os.close(file)
    except (FileNotFoundError, ProcessLookupError):
        return b"S"
    at = told.rindex(b")") + 2
    return told[at : at + 1]


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= MOMENT_S:
            return super().select(timeout)
        found = super().select(MOMENT_S)
        while not found and _others_work():  # on a busy machine a commit takes longer than a moment, and no deadline passes meanwhile
            found = super().select(MOMENT_S)
        if not found:
            self.passed += timeout - MOMENT_S
        return found


class PassingLoop(asyncio.SelectorEventLoop):
    """An event loop whose waits take no time."""

    def __init__(self) -> None:
        self._its = _Selector()
        super().__init__(self._its)

    @property
    def passed(self) -> float:
        """Seconds that were left out."""
        return self._its.passed

    def time(self) -> float:
        return _steady() + self.passed


def run(work: Callable[[], Coroutine[Any, Any, None]], *parts: type) -> None:
    """Run a test's coroutine in time that passes by itself.

    :param parts: classes that are given a clock, and would have the real one if they are given none.
    """
    loop = PassingLoop()
    with pytest.MonkeyPatch.context() as patched, asyncio.Runner(loop_factory=lambda: loop) as runner:
        patched.setattr(time, "time", lambda: _wall() + loop.passed)
        patched.setattr(time, "monotonic", lambda: _steady() + loop.passed)
        for part in parts:
            defaults = part.__init__.__kwdefaults__  # type: ignore[misc]
            patched.setitem(defaults, "now", lambda: _wall() + loop.passed)
        runner.run(work())
