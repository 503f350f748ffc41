"""A loop whose time passes by itself: where nothing is to be done before the next timer, it is that time already.

The clock is the loop's, `time.time` and `time.monotonic`. Threads work in real time; the loop waits a moment for what one may say.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

MOMENT_S = 0.001  # real time in which a thread may still say something
_wall, _steady = time.time, time.monotonic


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= MOMENT_S:
            return super().select(timeout)
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
