"""Who is writing which method: concurrent sends of the same missing message have it written once.

A method is seen by others when the mission that wrote it has committed. So whoever comes second leaves its unit of work, waits
for that mission's end, and begins again with a view that has the method. Where waiting could go round in a circle, nobody
waits: both write, and the database's own conflict settles it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from batos.errors import BatosSignal


class BeingWritten(BatosSignal):
    """Another mission is writing the method that this one needs: its cycle begins again when that one has ended."""

    def __init__(self, other: str) -> None:
        super().__init__(other)
        self.other = other


class WriterAwaited(BatosSignal):
    """The expert that writes methods may be there soon: the cycle that needs one begins again when that is known."""


class Claims:
    """The methods that are being written, each by one attempt (named by its mission)."""

    def __init__(self) -> None:
        self._owners: dict[Hashable, str] = {}
        self._ended: dict[str, asyncio.Event] = {}
        self._waiting: dict[str, str] = {}

    def claim(self, key: Hashable, owner: str) -> None:
        """Claim a method for a mission, until `release`.

        :raises BeingWritten: if another mission has claimed it, and can be waited for.
        """
        other = self._owners.setdefault(key, owner)
        if other == owner:
            self._ended.setdefault(owner, asyncio.Event())
        elif not self._leads_to(other, owner):
            raise BeingWritten(other)

    async def ended(self, other: str, owner: str) -> None:
        """Wait, for the mission `owner`, until the mission `other` has let go."""
        event = self._ended.get(other)
        if event is None or self._leads_to(other, owner):
            return
        self._waiting[owner] = other
        try:
            await event.wait()
        finally:
            del self._waiting[owner]

    def release(self, owner: str) -> None:
        """Let go of all that a mission had claimed: its attempt has ended."""
        for key in [key for key, holder in self._owners.items() if holder == owner]:
            del self._owners[key]
        event = self._ended.pop(owner, None)
        if event is not None:
            event.set()

    def _leads_to(self, other: str, owner: str) -> bool:
        """Whether `other` waits, by however many steps, for `owner`."""
        seen = {other}
        while (other := self._waiting.get(other, "")) and other not in seen:
            if other == owner:
                return True
            seen.add(other)
        return False
