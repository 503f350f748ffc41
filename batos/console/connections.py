"""Connections of the HTTP server: a bounded number of places, and a time limit for each request (slow-loris protection).

Signed-in browsers and clients with the token have reserved places, each kind its own: a request that is admitted seats its connection.
All other connections stand: new ones, and those whose last request was refused. If too many stand, the one with the oldest arrival or
request is closed. So an incomplete or slow request cannot keep a place from others.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Literal, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

STRANGERS = 256  # connections that are not admitted; one more cuts off the oldest
_ARRIVALS = 64  # connections accepted at once, before they are served: fewer than strangers, so that none is cut off before its request
_TICK_S = 1.0  # seconds between two ticks of the server's clock, which dates its answers


SeatKind = Literal["page", "client"]
"""Kind of a place: of a browser with a session, or of a client with the token."""


class ConnectionSlots:
    """Those of one server. On the loop's thread."""

    def __init__(self, standing: int, seats: int, clients: int = 0) -> None:
        """
        :param standing: most connections that are not admitted.
        :param seats: most connections with a session.
        :param clients: most connections with the token.
        """
        self._standing_limit = standing
        self._seats: dict[SeatKind, int] = {"page": seats, "client": clients}
        self._standing: dict[ConnectionSlot, None] = {}  # in the order of their last request
        self._seated: dict[SeatKind, set[ConnectionSlot]] = {"page": set(), "client": set()}

    def stand(self, place: ConnectionSlot) -> None:
        """Let a connection that is not admitted stand; it has just come, or made a request."""
        self._rise(place)
        self._standing.pop(place, None)
        self._standing[place] = None
        while len(self._standing) > self._standing_limit:
            first = next(iter(self._standing))
            del self._standing[first]
            first.cut_off()

    def ask(self, place: ConnectionSlot) -> None:
        """Record a request; the connection keeps its place until its session is known."""
        if place in self._standing:
            self.stand(place)

    def sit(self, place: ConnectionSlot, kind: SeatKind) -> bool:
        """SeatKind a connection that is admitted. Return True if there was a seat; otherwise it keeps the place that it has."""
        if place not in self._seated[kind]:
            if len(self._seated[kind]) >= self._seats[kind]:
                return False
            self.leave(place)
            self._seated[kind].add(place)
        return True

    def leave(self, place: ConnectionSlot) -> None:
        """Release the place of a closed connection."""
        self._standing.pop(place, None)
        self._rise(place)

    def _rise(self, place: ConnectionSlot) -> None:
        for seated in self._seated.values():
            seated.discard(place)


class ConnectionSlot:
    """That of one connection."""

    def __init__(self, places: ConnectionSlots, cut_off: Callable[[], None], allow: Callable[[float], None] = lambda seconds: None) -> None:
        """
        :param cut_off: ends the connection.
        :param allow: gives the request under way this number of seconds, from its beginning.
        """
        self._places, self.cut_off, self.allow = places, cut_off, allow
        self._left = False

    def ask(self) -> None:
        """Record a request of which it is not yet known whether it is admitted."""
        if not self._left:
            self._places.ask(self)

    def stand(self) -> None:
        """Let the connection stand, because it is not admitted."""
        if not self._left:
            self._places.stand(self)

    def sit(self, kind: SeatKind = "page") -> bool:
        """SeatKind the connection, because it is admitted. Return True if there was a seat."""
        return self._left or self._places.sit(self, kind)

    def leave(self) -> None:
        """Release the place."""
        self._left = True
        self._places.leave(self)


_ASKING = (h11.IDLE, h11.SEND_BODY)


class BrowserConnection(H11Protocol):
    """Connection on which each request, form included, must arrive within a time limit. Uvicorn limits the pauses between requests."""

    def __init__(self, within_s: float, places: ConnectionSlots, **given: Any) -> None:
        super().__init__(**given)
        self._within_s = within_s
        self._place = ConnectionSlot(places, lambda: self.transport.abort(), self._allow)
        self.app_state = {**self.app_state, "place": self._place}  # part of the scope of each request
        self._due: asyncio.TimerHandle | None = None
        self._begun = 0.0  # time on the loop's clock at which the present request began

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place.stand()
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look(between=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_be()
        self._place.leave()
        super().connection_lost(exc)

    def _look(self, between: bool = False) -> None:
        """Begin to count where a request is on its way, and end where it is there.

        :param between: the last one is answered; if there is nothing of the next one yet, uvicorn counts.
        """
        state = self.conn.their_state
        if state not in _ASKING or (between and state is h11.IDLE):
            self._leave_be()
        elif self._due is None:
            self._begun = self.loop.time()
            self._due = self.loop.call_later(self._within_s, self.transport.abort)

    def _allow(self, seconds: float) -> None:
        """Give the present request `seconds` seconds, where it is still on its way."""
        if self._due is not None:
            self._due.cancel()
            self._due = self.loop.call_at(self._begun + seconds, self.transport.abort)

    def _leave_be(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def web_config(app: ASGIApp, *, request_s: float, seats: int, clients: int, linger_s: float) -> uvicorn.Config:
    """Return the configuration of a server for an application.

    :param request_s: seconds in which a request that is not admitted must have arrived.
    :param seats: most connections with a session.
    :param clients: most connections with the token.
    :param linger_s: seconds that answers under way have at the end.
    """
    places = ConnectionSlots(STRANGERS, seats, clients)
    return uvicorn.Config(
        app,
        loop="none",
        http=cast(type[asyncio.Protocol], functools.partial(BrowserConnection, request_s, places)),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no client may claim the address of another one
        backlog=_ARRIVALS,
        timeout_graceful_shutdown=max(1, int(linger_s)),
    )


class WebServer(uvicorn.Server):
    """Server without the parts that belong to the daemon: signals, and a loop that checks ten times a second whether it must end."""

    def __init__(self, config: uvicorn.Config, look: Callable[[], Awaitable[None]]) -> None:
        """:param look: called now and then."""
        super().__init__(config)
        self._look = look
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._leaving.wait()
