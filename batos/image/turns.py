"""Python code that goes on for long: in a thread of its own, and so that the loop has its turn.

Otherwise each read of the loop waits out the interpreter's switch interval (5 ms), some ten times a mission.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from batos import processor

T = TypeVar("T")
_SWITCH_S = 0.0005  # how long a helper thread may keep the interpreter while the loop wants it
_helpers: list[float] = []  # one a helper under way; the first is the interpreter's own interval
_TURN_S = 0.0005  # of Python code between two turns of the loop


class Turns:
    """Asked between two small pieces of work."""

    def __init__(self) -> None:
        self._next = time.perf_counter()

    def take(self) -> None:
        """Let others run, if it is time."""
        if time.perf_counter() >= self._next:
            time.sleep(0)
            self._next = time.perf_counter() + _TURN_S


async def in_helper(function: Callable[..., T], *args: Any) -> T:
    """Run `function` in a thread of its own that gives way to the loop quickly. To be called on the loop's thread."""
    _helpers.append(_helpers[0] if _helpers else sys.getswitchinterval())
    sys.setswitchinterval(_SWITCH_S)
    try:
        return await asyncio.to_thread(processor.elsewhere(function), *args)
    finally:
        interval = _helpers.pop()
        if not _helpers:
            sys.setswitchinterval(interval)
