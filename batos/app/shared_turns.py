"""Turns of the doors where several kernels answer them: the log of turns that all of them share, in the image."""

from __future__ import annotations

import structlog

from batos.doors.turn_log import LoggedTurn
from batos.errors import BatosError
from batos.image import answered_turns
from batos.image.living_image import LivingImage

log = structlog.get_logger("batos.doors")


class SharedTurns:
    """Log of turns in the image, as `batos.doors.turn_log.TurnLog` is one in a file."""

    def __init__(self, image: LivingImage, limit: int) -> None:
        """:param limit: turns that are kept."""
        self._image, self._limit = image, limit

    async def find(self, kind: str, key: str, count: int = 1) -> list[LoggedTurn]:
        """Return the newest turns of a key."""
        return [LoggedTurn(*one) for one in self._image.read(answered_turns.find, kind, key, count)]

    async def add(self, kind: str, key: str, mission: str, at: float) -> None:
        """Log a turn: it is durable, and seen by the other kernels, when this returns. One that cannot be logged costs only a link."""
        try:
            await self._image.system(answered_turns.add, kind, key, (mission, at), self._limit, mission=mission)
        except (BatosError, OSError) as e:
            log.warning("turn_not_logged", mission=mission, error=str(e)[:200])

    def close(self) -> None:
        """Do nothing: the image is another part's."""
