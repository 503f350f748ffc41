"""Giving the loop its turn, for Python code that goes on for long in a thread of its own.

Otherwise each read of the loop waits out the interpreter's switch interval (5 ms), some ten times a mission.
"""

from __future__ import annotations

import time

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
