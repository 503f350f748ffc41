"""Cancellations under way: a mission is ended also when the disk is too full to record it. Its caller gets an error then, and the mission
is ended once there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from batos.concurrency import SingleFlight
from batos.errors import BatosSignal, ImageError
from batos.missions.execution import Endings

log = structlog.get_logger("batos.mind")


class Cancellations:
    """Cancellations under way, each in a separate task, so that it ends its mission even if its caller leaves."""

    def __init__(self, cancel: Callable[[str], Coroutine[Any, Any, bool]], endings: Endings) -> None:
        """
        :param cancel: ends a mission for which no record is pending; returns True if there was anything to end.
        """
        self._cancel, self._endings = cancel, endings
        self._works: SingleFlight[bool] = SingleFlight("cancellation")

    async def of(self, id: str) -> bool:
        """Cancel a mission; return True if there was anything to end.

        :raises ImageError: if the disk has no room to record it; the mission is ended once there is.
        """
        work = self._works.begin(id, lambda: self._once_recorded(id))
        held_up = asyncio.create_task(self._endings.until(id, waits=True))
        try:
            await asyncio.wait([work, held_up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            held_up.cancel()
        if work.done():
            return work.result()
        why = f"mission {id!r} cannot be recorded now: {self._endings.trouble}"
        raise ImageError(f"{why}; if it has not ended by itself, it is cancelled as soon as there is room", cause="disk_full")

    async def _once_recorded(self, id: str) -> bool:
        try:
            await self._endings.until(id, waits=False)  # a failure that waits for room comes first: interrupted, it would be lost
            return await self._cancel(id)
        except (Exception, BatosSignal) as e:  # who asked may be gone
            log.error("mission_not_cancelled", mission=id, error=repr(e))
            raise

    async def stop(self) -> None:
        """Give up the cancellations under way: their missions go on at the next start, unless the end was recorded."""
        await self._works.stop()
