"""The time for a piece of work that waits for others now and then: its own time is limited, and so is its waiting, each by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from batos.autotelic.preparing import NotYet


class WorkTime:
    """For one piece of work, which may wait in several tasks at once. On the loop's thread."""

    def __init__(self, limit_s: float) -> None:
        """
        :param limit_s: both for its own time and for all its waiting.
        """
        self._left = {True: limit_s, False: limit_s}  # while it waits, and else
        self._waiting = 0
        self._waits = False
        self._timer: asyncio.Timeout | None = None

    @contextlib.asynccontextmanager
    async def limit(self) -> AsyncIterator[WorkTime]:
        """See that the block, which is the work, is done in time.

        :raises TimeoutError: when its own time was up.
        :raises NotYet: when it has waited for as long.
        """
        timer = asyncio.timeout(self._left[False])
        try:
            async with timer:
                self._timer = timer
                try:
                    yield self
                finally:
                    self._timer = None
        except TimeoutError:
            if timer.expired() and self._waits:
                raise NotYet("those that it waits for left no time for it") from None
            raise

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """The block is no work, but waits for others."""
        self._waiting += 1
        self._turn()
        try:
            yield
        finally:
            self._waiting -= 1
            self._turn()

    def _turn(self) -> None:
        waits, timer = self._waiting > 0, self._timer
        if waits is self._waits or timer is None or timer.expired() or (end := timer.when()) is None:
            return
        now = asyncio.get_running_loop().time()
        self._left[self._waits] = end - now
        self._waits = waits
        timer.reschedule(now + self._left[waits])
