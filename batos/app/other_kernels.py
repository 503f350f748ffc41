"""Other kernels of the image: what this daemon hears of their missions, and what it tells them of itself.

    Membership ─ each look ─ MissionNews (ends, pauses, questions, by the image) ─ Relay (states and text, by their endpoints) ─ Events

Where a daemon has its image to itself, nothing is heard and nothing is asked.
"""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from batos.api.kernels import KernelRequests, places_of
from batos.api.relay import Relay
from batos.app.draining import Drain
from batos.cluster.membership import Alone, Membership
from batos.config import Settings
from batos.image.mission_record import MissionRecord
from batos.mind.events import Events
from batos.missions.mission_news import MissionNews
from batos.missions.scheduler import Scheduler
from batos.objects import Root
from batos.wire.endpoints import to_tell
from batos.wire.listener import Listener

Facts = dict[str, Any]


class OtherKernels:
    """The other kernels, as this daemon hears of them. All methods are called on the loop's thread."""

    def __init__(self, membership: Membership, events: Events, scheduler: Scheduler, settings: Settings, drain: Drain) -> None:
        self._membership = membership
        self._listener: Listener | None = None
        self._relay = Relay(events, settings)
        self._news: MissionNews | None = None
        if not isinstance(membership, Alone):
            self._news = MissionNews(events, scheduler.tells_of, self._relay.comes_live, scheduler.was_written)
        self.requests = KernelRequests(membership, drain.begin, self.owners, lambda: self._relay.unreached)

    @contextlib.asynccontextmanager
    async def heard(self, listener: Listener | None, doors: str) -> AsyncIterator[None]:
        """Tell the others where this kernel answers, and hear of their missions, while the block runs.

        :param doors: address of the HTTP server; "" if there is none.
        """
        self._listener = listener
        if self._news is None:
            yield
            return
        bound = [] if listener is None else listener.bound
        self._admit()  # before they hear where to come
        await self._membership.describe(
            endpoint=to_tell(bound, socket.gethostname()), doors=doors, wire_key="" if listener is None else listener.wire_key
        )
        stop = self._membership.on_look(self.look)
        try:
            yield
        finally:
            stop()
            await self._relay.stop()

    def look(self, root: Root) -> None:
        """Publish what others wrote since the last look, and follow what is watched here."""
        assert self._news is not None
        self._news.look(root)
        self._relay.look(self._news.owners, places_of(self._membership.others()))
        self._admit()

    def _admit(self) -> None:
        """Let the others in by their keys, to read."""
        if self._listener is not None:
            self._listener.admit_kernels({one.wire_key: one.name for one in self._membership.others()})

    def owners(self) -> dict[str, str]:
        """Return the kernels that think missions through, by mission, as of the last look."""
        return {} if self._news is None else self._news.owners

    async def live(self, record: MissionRecord) -> Facts:
        """Return the facts about a mission that only its kernel knows, where another kernel thinks it through, with that kernel's name as
        `kernel`. Return nothing for any other mission."""
        name = record.kernel
        if self._news is None or record.is_final or name in ("", self._membership.name):
            return {}
        place = places_of(self._membership.others()).get(name)
        facts: Facts = {"running": place is not None, "kernel": name}
        return facts if place is None else {**facts, **await self._relay.status(record.id, place)}

    def facts(self) -> Facts:
        """Return the facts about this kernel among the others that `info` shows; empty where a daemon has the image to itself."""
        if self._news is None:
            return {}
        mine, told = self._membership, self.requests.describe()["kernels"]
        return {
            "name": mine.name,
            "leads": mine.leads,
            "draining": mine.draining,
            "states": dict(Counter(one["state"] for one in told)),
            "missions": {one["name"]: one["missions"] for one in told if not one["gone"]},
            "relayed": self._relay.facts(),
        }
