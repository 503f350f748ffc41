"""Short calls on the loop's own thread, and a watch that cuts off one that is not short after all.

A blocking call is made where its answer is wanted, with no change of place: that takes longer than most methods compute. It must be
one that can be cut off. Past `_AT_MOST_S` the watch does that, on a thread of its own, which sleeps from one look to the next while
there are such calls, and for good when there are none.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

_AT_MOST_S = 0.02  # for which one call may hold the loop
_LOOKS_IN_VAIN = 10  # until the watch goes to rest
_SHORT_S = 0.002
_AFTER_A_LONG_ONE, _AFTER_A_CUT = 4, 64  # short turns elsewhere, until one is tried on the loop's thread again
_LOOPS = re.compile(r"\b(for|while)\b")


class Overdue(Exception):
    """The call was cut off, and whatever it did has to be done again."""


class Pace:
    """Whether the turns of a program are short, as far as those before tell. A new program's are taken to be, if it has no loops."""

    __slots__ = ("_wary",)

    def __init__(self, source: str = "") -> None:
        self._wary = _AFTER_A_LONG_ONE if _LOOPS.search(source) else 0

    @property
    def short(self) -> bool:
        return self._wary == 0

    def took(self, seconds: float) -> None:
        if seconds > _SHORT_S:
            self._wary = max(self._wary, _AFTER_A_LONG_ONE)
        elif self._wary:
            self._wary -= 1

    def cut(self) -> None:
        self._wary = _AFTER_A_CUT


class Watch:
    """Calls of one thread, one at a time. The watch's own thread is made with the first; `close` ends it."""

    def __init__(self) -> None:
        self._lock, self._go = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._calls = 0
        self._due: float | None = None
        self._cut: Callable[[], None] | None = None
        self._was_cut = self._started = self._resting = self._closed = False

    def over(self, call: Callable[[], Any], cut: Callable[[], None]) -> Any:
        """Answer what a blocking call answers.

        :param cut: makes the call end soon, in whatever way; called on another thread, and only while the call is under way.
        :raises Overdue: if it was cut off.
        """
        with self._lock:
            self._calls += 1
            self._cut, self._was_cut, self._due = cut, False, time.perf_counter() + _AT_MOST_S
            if self._resting or not self._started:
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
        elif self._resting:
            self._resting = False
            self._go.release()

    def _work(self) -> None:
        seen = in_vain = 0
        while not self._closed:
            with self._lock:
                wait = self._look()
                in_vain = 0 if seen != self._calls or self._due is not None else in_vain + 1
                seen = self._calls
                rest = self._resting = in_vain > _LOOKS_IN_VAIN and not self._closed
            if rest:
                self._go.acquire()
            else:
                time.sleep(wait)

    def _look(self) -> float:
        """Cut off what is overdue. For how long, in seconds, nothing can be."""
        left = _AT_MOST_S if self._due is None else self._due - time.perf_counter()
        if left > 0:
            return left
        self._due, self._was_cut = None, True
        if self._cut is not None:
            self._cut()
        return _AT_MOST_S
