"""Numbers of documents, sections and chunks: handed out by the process, so that nothing in the image is written for them by all."""

from __future__ import annotations

import threading
from typing import Any

from persistent import Persistent

EPOCH = 1 << 32
"""Numbers that one run of the process may hand out."""


class Epoch(Persistent):
    """How many runs of the process have stored something; the numbers of each lie apart from those of all others."""

    __module__ = "batos.memory"
    value: int = 0

    def _p_resolveConflict(self, old: Any, saved: dict[str, int], new: dict[str, int]) -> dict[str, int]:
        """Two units of one run stored its first things at once: they say the same."""
        return max(saved, new, key=lambda state: state["value"])


class Numbers:
    """Hands out numbers of documents and chunks. May be asked by any thread."""

    def __init__(self, epoch: int) -> None:
        """
        :param epoch: of this run of the process (`epoch_of`).
        """
        self._next, self._end = max(1, epoch * EPOCH), (epoch + 1) * EPOCH
        self._lock = threading.Lock()

    def take(self, count: int = 1) -> int:
        """The first of `count` consecutive numbers that nobody has."""
        with self._lock:
            first = self._next
            self._next += count
        assert self._next <= self._end, "a run of the process hands out at most 2**32 numbers"
        return first
