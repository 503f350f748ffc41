"""Missions that are taken back, also while the disk is too full to record it: who asked is told, and it is done once there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from batos.errors import ImageError
from batos.mind.ending import Endings

log = structlog.get_logger("batos.mind")


class Cancelling:
    """Each in a task of its own, so that it comes to its end when who asked is gone."""

    def __init__(self, cancel: Callable[[str], Coroutine[Any, Any, bool]], endings: Endings) -> None:
        """
        :param cancel: ends a mission of which nothing waits to be recorded; whether there was anything to end.
        """
        self._cancel, self._endings = cancel, endings
        self._under_way: dict[str, asyncio.Task[bool]] = {}

    async def of(self, id: str) -> bool:
        """Take a mission back; whether there was anything to end.

        :raises ImageError: where the disk has no room to record it; it is done once there is.
        """
        work = self._under_way.get(id)
        if work is None:
            work = self._under_way[id] = asyncio.create_task(self._once_recorded(id), name=f"cancels mission {id}")
            work.add_done_callback(lambda work: self._done(id, work))
        held_up = asyncio.create_task(self._endings.until(id, waits=True))
        try:
            await asyncio.wait([work, held_up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            held_up.cancel()
        if work.done():
            return work.result()
        why = f"nothing can be recorded of mission {id!r} now: {self._endings.trouble}"
        raise ImageError(f"{why}; if it has not ended by itself, it is cancelled as soon as there is room", cause="disk_full")

    async def _once_recorded(self, id: str) -> bool:
        await self._endings.until(id, waits=False)  # a failure that waits for room comes first: interrupted, it would be lost
        return await self._cancel(id)

    def _done(self, id: str, work: asyncio.Task[bool]) -> None:
        del self._under_way[id]
        if not work.cancelled() and (failure := work.exception()) is not None:
            log.error("mission_not_cancelled", mission=id, error=repr(failure))

    async def stop(self) -> None:
        """Give up those that are under way: their missions go on at the next start, unless it was recorded."""
        works = list(self._under_way.values())
        for work in works:
            work.cancel()
        if works:
            await asyncio.wait(works)
