"""Client of the dispatcher for the console, in this process. Its requests pass the schemas and limits of the wire, so that it can do only
what a client on the socket can.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, Protocol

from batos.config import Settings
from batos.wire.fields import Request
from batos.wire.outbox import Recipient
from batos.wire.payloads import PayloadLimits, RefusedPayload, parse_request

Reply = dict[str, Any]


class DaemonHandler(Protocol):
    """Handler of requests: the dispatcher."""

    async def handle(self, request: Request, client: Recipient) -> None:
        """Answer `request` through `client`, now or later; raises BatosError for one that cannot be served."""

    def forget(self, client: Recipient) -> None:
        """Watch nothing for this client any more."""


class Heard:
    """Recipient that is read in this process. Like a slow client on the socket, it loses events when it falls behind."""

    def __init__(self, limit: int, origin: str = "console") -> None:
        """
        :param limit: replies that wait; past it, events are dropped.
        :param origin: the origin of missions that it gives.
        """
        self._replies: asyncio.Queue[Reply | None] = asyncio.Queue()
        self._limit = limit
        self._key = secrets.token_bytes(8)
        self.closed = False
        self.operates = True  # a user with the console's token has the role `operate`
        self.origin = origin

    @property
    def key(self) -> bytes:
        return self._key

    @property
    def full(self) -> bool:
        """Return True if an event would be dropped now."""
        return self._replies.qsize() >= self._limit

    def send(self, reply: Reply, *, event: bool = False) -> None:
        if not (self.closed or (event and self.full)):
            self._replies.put_nowait(reply)

    def close(self) -> None:
        """Stop receiving; a task that waits for a reply gets None."""
        self.closed = True
        self._replies.put_nowait(None)

    async def next(self) -> Reply | None:
        """Return the next reply; None once it is closed."""
        return await self._replies.get()


class Asker:
    """Asks the desk. On the loop's thread."""

    def __init__(self, handler: DaemonHandler, settings: Settings) -> None:
        self._handler, self._limits = handler, PayloadLimits.of(settings)

    async def ask(self, op: str, **fields: Any) -> Reply:
        """Return the reply to one request; fields that are None are left out.

        :raises BatosError: as the desk, or the schema, refused it.
        """
        heard = Heard(1)
        await self.tell(heard, op, **fields)
        reply = await heard.next()
        assert reply is not None
        return reply

    async def tell(self, heard: Recipient, op: str, **fields: Any) -> None:
        """Send the replies of a request to another recipient. Raises as `ask` does."""
        given = {name: value for name, value in fields.items() if value is not None}
        try:
            request = parse_request(json.dumps({"op": op, **given}).encode(), self._limits)
        except RefusedPayload as e:
            raise e.error from None
        await self._handler.handle(request, heard)

    def forget(self, heard: Recipient) -> None:
        """Stop sending to a recipient."""
        self._handler.forget(heard)
