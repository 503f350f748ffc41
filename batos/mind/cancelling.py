"""Missions that are taken back, also while the disk is too full to record it: who asked is told, and it is done once there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from batos.concurrency import SingleFlight
from batos.errors import BatosSignal, ImageError
from batos.mind.ending import Endings

log = structlog.get_logger("batos.mind")


class Cancelling:
    """Each in a task of its own, so that it comes to its end when who asked is gone."""

    def __init__(self, cancel: Callable[[str], Coroutine[Any, Any, bool]], endings: Endings) -> None:
        """
        :param cancel: ends a mission of which nothing waits to be recorded; whether there was anything to end.
        """
        self._cancel, self._endings = cancel, endings
        self._works: SingleFlight[bool] = SingleFlight("cancellation")

    async def of(self, id: str) -> bool:
        """Take a mission back; whether there was anything to end.

        :raises ImageError: where the disk has no room to record it; it is done once there is.
        """
        work = self._works.begin(id, lambda: self._once_recorded(id))
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
        try:
            await self._endings.until(id, waits=False)  # a failure that waits for room comes first: interrupted, it would be lost
            return await self._cancel(id)
        except (Exception, BatosSignal) as e:  # who asked may be gone
            log.error("mission_not_cancelled", mission=id, error=repr(e))
            raise

    async def stop(self) -> None:
        """Give up those that are under way: their missions go on at the next start, unless it was recorded."""
        await self._works.stop()
