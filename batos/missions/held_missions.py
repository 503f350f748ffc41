"""Missions that have no place: those in retry back-off, and those that are held back.

`RestingMissions` keeps missions in retry back-off, or waiting for a model: they release their places and get one again before
the queue. `HeldMissions` keeps those that are paused, wait for an answer, or follow a mission that has not ended. The reason is in their
records, so they wait on after a restart.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

from batos.errors import ImageDamaged
from batos.image.mission_record import MissionRecord


class RestingMissions:
    """Missions in retry back-off, and those whose back-off is over and that want a place."""

    def __init__(self, places: Callable[[], int], dispatch: Callable[[], None]) -> None:
        """
        :param places: counts the free places; a resting mission holds none.
        :param dispatch: hands out free places; missions that `come_back` get one first.
        """
        self._places, self._dispatch = places, dispatch
        self._ids: set[str] = set()
        self._back: deque[tuple[str, asyncio.Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def wanting(self) -> int:
        """Return the number of missions whose rest is over and that wait for a place."""
        return len(self._back)

    async def rest(self, id: str, seconds: float) -> None:
        """Wait some seconds without a place; return with one."""
        await self.during(id, asyncio.sleep(seconds))

    async def during(self, id: str, work: Awaitable[None]) -> None:
        """Wait for some work without a place; return with one.

        :raises Exception: as the work does; the mission has no place then.
        """
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
        """Give free places to the missions that want one, in order."""
        while self._back and self._places() > 0:
            id, place = self._back.popleft()
            if not place.done():  # it may have been cancelled meanwhile
                self._ids.discard(id)
                place.set_result(None)


PAUSED, NEEDS_INPUT = "PAUSED", "NEEDS_INPUT"


def held_state(record: MissionRecord) -> str | None:
    """Return PAUSED or NEEDS_INPUT for a mission that its user holds back, else None; None for one that is to be ended."""
    if record.cancelled:
        return None
    if record.paused:
        return PAUSED
    return NEEDS_INPUT if record.open_question else None


class HeldMissions:
    """Missions that are held back."""

    def __init__(self, has_ended: Callable[[str], bool]) -> None:
        """
        :param has_ended: returns True for a mission that has ended; raises ImageDamaged where that cannot be read.
        """
        self._has_ended = has_ended
        self._records: dict[str, MissionRecord] = {}

    def holds(self, record: MissionRecord) -> bool:
        """Return True if a mission has to be held back, and keep it from now on."""
        if record.cancelled or (held_state(record) is None and not self.waits_for(record.context)):
            return False
        self._records[record.id] = record
        return True

    def waits_for(self, context: str | None) -> bool:
        """Return True if a mission with this context has to wait until that one has ended."""
        try:
            return context is not None and not self._has_ended(context)
        except ImageDamaged:
            return False  # the attempt will say so

    def record(self, id: str) -> MissionRecord | None:
        """Return the record of a held mission as it was when it was held back; None if it is not held."""
        return self._records.get(id)

    def ids(self) -> list[str]:
        """Return the ids of the held missions."""
        return list(self._records)

    def take(self, id: str) -> MissionRecord | None:
        """Remove a mission and return its record; None if it was not held back."""
        return self._records.pop(id, None)

    def followers(self, id: str) -> list[MissionRecord]:
        """Remove and return the missions that waited for one which has ended."""
        found = [record for record in self._records.values() if record.context == id]
        return [] if not found or self.waits_for(id) else [self._records.pop(record.id) for record in found]

    def state(self, id: str) -> str | None:
        """Return the reason why its user holds a mission back, else None; None, too, for one that follows another."""
        record = self._records.get(id)
        return None if record is None else held_state(record)

    def live(self, id: str) -> dict[str, Any] | None:
        """Return the facts that `status` adds for a held mission: its open `question`, or the mission that it
        `waits_for`."""
        record = self._records.get(id)
        if record is None:
            return None
        question = record.open_question
        facts: dict[str, Any] = {"question": question} if question else {}
        return facts if held_state(record) else {**facts, "waits_for": record.context}

    def facts(self) -> dict[str, Any]:
        """Count the held missions by reason."""
        counts = Counter(held_state(record) for record in self._records.values())
        return {"paused": counts[PAUSED], "needs_input": counts[NEEDS_INPUT], "following": counts[None]}
