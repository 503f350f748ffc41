"""Step sessions: all that are open, bounded in number and in time. A session that is left is dropped with its mirror."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

import structlog
from ZODB.POSException import POSKeyError

from batos.errors import Busy, HistoryGone, InvalidInput, UnknownSession
from batos.image.living_image import LivingImage
from batos.stepping.session import FAILURE, StepLimits, StepParts, SteppedMission, StepSession, method_mission, stepped_mission

log = structlog.get_logger("batos.stepping")
_REMEMBERED = 32  # replies to continuations, for a client that asks again


class StepSessions:
    """Sessions of one daemon. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage, parts: StepParts) -> None:
        self._image, self._parts = image, parts
        self._limits = StepLimits.of(parts.settings)
        self._open: OrderedDict[str, StepSession] = OrderedDict()
        self._opening: set[str] = set()
        self.continued: OrderedDict[str, dict[str, Any]] = OrderedDict()
        """Replies to the last continuations, by session."""

    def __len__(self) -> int:
        return len(self._open)

    def listed(self) -> list[StepSession]:
        """Return the sessions that are open, the last opened last."""
        return list(self._open.values())

    async def open_mission(self, name: str, id: str, at: int | str | None, inferences: int) -> None:
        """Open a session for a mission and go to where it failed, or to a place; nothing if the session is open already.

        :raises UnknownMission: if there is none of that id.
        :raises MissionFolded: if only a line of it is left.
        :raises Busy: if as many are open as may be.
        :raises InvalidInput: if the session of that name is of another mission.
        """
        self._check_of(name, id)
        if name not in self._open:
            mission = await asyncio.to_thread(self._image.read, stepped_mission, self._image, id)
            await self._opened(name, mission, FAILURE if at is None else at, inferences)

    async def open_method(self, name: str, message: tuple[str, str, list[Any], dict[str, Any]], inferences: int) -> None:
        """Open a session for one message to an object, and send it there: target, selector, arguments, and those by name."""
        mission = self._image.read(method_mission, *message)
        held = self._open.get(name)
        if held is None:
            await self._opened(name, mission, "end", inferences)
        elif not held.is_of_method or held.mission.record.brief != mission.record.brief:
            self._check_of(name, mission.record.id)

    def _check_of(self, name: str, id: str) -> None:
        held = self._open.get(name)
        if held is not None and held.id != id:
            raise InvalidInput(f"the session {name!r} is of {held.id!r}; choose another name for one of {id!r}")

    async def _opened(self, name: str, mission: SteppedMission, at: int | str, inferences: int) -> None:
        if len(self._open) + len(self._opening) >= self._limits.sessions or name in self._opening:
            raise Busy(f"{len(self._open)} sessions are open, and at most {self._limits.sessions} may be; close one first")
        self._opening.add(name)
        try:
            session = await StepSession.open(name, self._image, mission, self._parts)
            try:
                await session.go(at, inferences)
            except BaseException:
                await session.close()
                raise
            self._open[name] = session
            self.continued.pop(name, None)  # of an earlier session of this name
        finally:
            self._opening.discard(name)

    @contextlib.asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[StepSession]:
        """Yield a session for exclusive use meanwhile.

        :raises UnknownSession: if it is not open, or no longer.
        """
        session = self._found(name)
        async with session.lock:
            self._found(name)  # it may have been closed meanwhile
            try:
                yield session
            except POSKeyError as e:
                raise HistoryGone(
                    f"a record of the image as it was is no longer kept ({e}): a pack went on meanwhile; open the session again"
                ) from None
            finally:
                session.used = time.monotonic()

    def _found(self, name: str) -> StepSession:
        if name not in self._open:
            raise UnknownSession(
                f"there is no session {name!r}: it was closed, or left for {self._limits.idle_s:g} s, or the daemon was started again; "
                "nothing was changed by it. `batos step MISSION` opens another"
            )
        return self._open[name]

    async def close(self, name: str) -> None:
        """Drop a session; nothing if it is not open."""
        session = self._open.pop(name, None)
        if session is not None:
            await session.close()

    async def sweep(self) -> None:
        """Drop the sessions that were left."""
        now = time.monotonic()
        for name, session in list(self._open.items()):
            if not session.lock.locked() and now - session.used > self._limits.idle_s:
                log.info("step_left", session=name, mission=session.id)
                await self.close(name)

    async def run(self) -> None:
        """Drop sessions that were left, until cancelled."""
        while True:
            await asyncio.sleep(min(60.0, self._limits.idle_s / 4))
            await self.sweep()

    async def stop(self) -> None:
        """Drop all sessions."""
        for name in list(self._open):
            await self.close(name)

    def remember(self, name: str, reply: dict[str, Any]) -> None:
        """Keep the reply to a continuation."""
        self.continued[name] = reply
        while len(self.continued) > _REMEMBERED:
            self.continued.popitem(last=False)
