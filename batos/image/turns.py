"""Python code that goes on for long: in a thread of its own, and so that the loop has its turn.

Otherwise each read of the loop waits out the interpreter's switch interval (5 ms), some ten times a mission. Questions that somebody waits
for have threads of their own, and what goes on in the background gives way to them: else they would wait behind a pack for a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from batos import processor

T = TypeVar("T")
_SWITCH_S = 0.0005  # how long a helper thread may keep the interpreter while the loop wants it
_helpers: list[float] = []  # one a helper under way; the first is the interpreter's own interval
_TURN_S = 0.0005  # of Python code between two turns of the loop
_GIVE_WAY_S = 0.002  # for which background work rests at each of its turns while a question is answered
_QUESTIONS = 4  # threads
_answering = 0  # questions under way
_threads = ThreadPoolExecutor(_QUESTIONS, thread_name_prefix="question")


class Turns:
    """Asked between two small pieces of work."""

    def __init__(self) -> None:
        self._next = time.perf_counter()

    def take(self) -> None:
        """Let others run, if it is time."""
        if time.perf_counter() >= self._next:
            time.sleep(_GIVE_WAY_S if _answering else 0)
            self._next = time.perf_counter() + _TURN_S


async def in_helper(function: Callable[..., T], *args: Any) -> T:
    """Run `function` in a thread of its own that gives way to the loop quickly. To be called on the loop's thread."""
    with _switching_quickly():
        return await asyncio.to_thread(processor.elsewhere(function), *args)


async def answering(function: Callable[..., T], *args: Any) -> T:
    """As `in_helper`, for what somebody waits for: it waits for no other work's thread, and background work gives way to it."""
    global _answering  # asked by other threads
    context = contextvars.copy_context()
    _answering += 1
    try:
        with _switching_quickly():
            return await asyncio.get_running_loop().run_in_executor(_threads, lambda: context.run(processor.elsewhere(function), *args))
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
