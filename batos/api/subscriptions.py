"""Subscriptions of clients to the events of missions."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from batos.errors import BatosError, Busy
from batos.mind.events import Event, Events
from batos.wire.outbox import Recipient

_QUIET_S = 600.0  # seconds without an event after which a watch checks that its client is still there
_SEEN_AT_A_TIME = 8


class Subscriptions:
    """The open watches. All methods are called on the loop's thread."""

    def __init__(self, events: Events, per_client: int, status: Callable[[str], dict[str, Any]]) -> None:
        """
        :param per_client: the most watches of one client.
        :param status: returns the status of a mission, as a reply of the wire.
        """
        self._events, self._limit, self._status = events, per_client, status
        self._open: dict[tuple[str, Recipient], Subscription] = {}
        self._count: collections.Counter[bytes] = collections.Counter()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def clients(self) -> int:
        """Return the number of clients that watch something."""
        return len(self._count)

    def __contains__(self, watched: tuple[str, Recipient]) -> bool:
        return watched in self._open

    def open(self, id: str, client: Recipient) -> Subscription:
        """Open the client's watch of a mission; asked for twice, it stays one.

        :raises Busy: past `WireLimits.watches`.
        """
        found = self._open.get((id, client))
        if found is not None:
            return found
        self._look_after()
        if self._count[client.key] >= self._limit:
            raise Busy(f"this client watches {self._limit} missions already; let one end first")
        self._count[client.key] += 1
        watch = self._open[id, client] = Subscription(client, self._events, id, closed=lambda: self._closed(id, client))
        return watch

    def forget(self, client: Recipient) -> None:
        """End the watches of a client that has left, also those of missions without events."""
        for watch in [watch for (_, watcher), watch in self._open.items() if watcher is client]:
            watch.stop()

    def _closed(self, id: str, client: Recipient) -> None:
        if self._open.pop((id, client), None) is not None:
            self._count[client.key] -= 1
            if not self._count[client.key]:
                del self._count[client.key]

    def _look_after(self) -> None:
        """End the watches of some clients that have left; each call checks the next ones.

        The daemon notices that a client has left only by sending to it. A mission that is paused or asks its user sends nothing. So clients
        that watched such a mission and left would be kept, and counted, for as long as it waits.
        """
        now = asyncio.get_running_loop().time()
        for (id, client), watch in list(itertools.islice(self._open.items(), _SEEN_AT_A_TIME)):
            if client.closed:
                watch.stop()
                continue
            self._open[id, client] = self._open.pop((id, client))
            if now - watch.told >= _QUIET_S:
                with contextlib.suppress(BatosError):  # a fault of that mission must not reach a client that opens another watch
                    watch.tell(self._status(id))


class Subscription:
    """One client's watch of one mission. It holds events back until `release`, and ends with the result."""

    def __init__(self, client: Recipient, events: Events, id: str, closed: Callable[[], object]) -> None:
        self._client, self._closed = client, closed
        self._held: list[Event] | None = []
        self._unwatch = events.watch(id, self._hear)
        self._loop = asyncio.get_running_loop()
        self.told = self._loop.time()

    def release(self) -> None:
        """Send the events that came so far, and from now on each at once."""
        held, self._held = self._held or [], None
        for event in held:
            self._hear(event)

    def tell(self, event: Event) -> None:
        """Send an event that may be lost."""
        self.told = self._loop.time()
        self._client.send(event, event=True)

    def stop(self) -> None:
        """End the watch."""
        self._unwatch()
        self._closed()

    def _hear(self, event: Event) -> None:
        if self._held is not None:
            self._held.append(event)
            return
        final = event["type"] == "result"
        if final or self._client.closed:
            self.stop()
        if final:
            self._client.send(event)
        else:
            self.tell(event)
