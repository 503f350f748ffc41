"""Missions that wait for their next attempt, or for a model: others have their places meanwhile, and they have one before the queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable


class Resting:
    """Who rests, and who has rested long enough and wants a place."""

    def __init__(self, places: Callable[[], int], dispatch: Callable[[], None]) -> None:
        """
        :param places: how many places are free; who rests holds none.
        :param dispatch: hands out free places, those who `come_back` first.
        """
        self._places, self._dispatch = places, dispatch
        self._ids: set[str] = set()
        self._back: deque[tuple[str, asyncio.Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def wanting(self) -> int:
        """How many of them wait for a place by now."""
        return len(self._back)

    async def rest(self, id: str, seconds: float) -> None:
        """Wait without a place; return with one."""
        await self.during(id, asyncio.sleep(seconds))

    async def during(self, id: str, work: Awaitable[None]) -> None:
        """Wait for some work without a place; return with one. Raises what the work raises."""
        self._ids.add(id)
        self._dispatch()
        try:
            await work
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._back.append((id, place))
            self._dispatch()
            await place
        finally:
            self._ids.discard(id)

    def come_back(self) -> None:
        """Give free places to those who want one, in order."""
        while self._back and self._places() > 0:
            id, place = self._back.popleft()
            if not place.done():  # it may have been cancelled meanwhile
                self._ids.discard(id)
                place.set_result(None)
