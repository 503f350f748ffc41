"""Room for so many at a time. Who finds a place takes it without a detour; who does not waits, first come, first served."""

from __future__ import annotations

import asyncio
import collections


class Room:
    """`await enter()`, and `leave()` when done."""

    def __init__(self, places: int) -> None:
        self._free = places  # none, as long as anybody waits
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()

    async def enter(self) -> None:
        """Take a place, once there is one."""
        if self._free:
            self._free -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if not waiter.cancel() and not waiter.cancelled():
                self.leave()  # it had been let in just then
            raise

    def leave(self) -> None:
        """Give a place to whoever has waited longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1
