"""How far a piece of upkeep is: written by the thread that does it, read by the loop's whenever somebody asks."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any


class Progress:
    """The step under way and how much of it is done, in bytes."""

    def __init__(self) -> None:
        self._now: tuple[str, int, Callable[[], int]] = ("", 0, int)

    def begin(self, step: str, total: int = 0, done: Callable[[], int] = int) -> None:
        """Say that a step begins.

        :param total: bytes that it takes altogether; 0: nobody knows.
        :param done: how many are done; asked from another thread.
        """
        self._now = (step, total, done)

    def facts(self) -> dict[str, Any]:
        """`step`, and `done` of `total` bytes where they are known."""
        step, total, done = self._now
        return {"step": step, **({"done": min(done(), total), "total": total} if total else {})}


def size_of(path: pathlib.Path) -> int:
    """The size of a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def growing(path: pathlib.Path) -> Callable[[], int]:
    """The size of a file that is being written."""
    return lambda: size_of(path)
