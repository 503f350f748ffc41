"""Connections of the console: a bounded number of places, and a time limit for each request (slow-loris protection).

Signed-in browsers have reserved places: a request with a session seats its connection. All other connections stand: new ones, and those
whose last request had no session. If too many stand, the one with the oldest arrival or request is closed. So an incomplete or slow
request cannot keep a place from others.

`WebServer` serves them, for the console and for the doors.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Generator
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

_STRANGERS = 256  # connections that are not admitted; one more cuts off the oldest
_ARRIVALS = 64  # connections accepted at once, before they are served: fewer than strangers, so that none is cut off before its request
_TICK_S = 1.0  # seconds between two ticks of the server's clock, which dates its answers


class ConnectionSlots:
    """Those of one console. On the loop's thread."""

    def __init__(self, standing: int, seats: int) -> None:
        """
        :param standing: most connections without a session.
        :param seats: most connections with one.
        """
        self._standing_limit, self._seats = standing, seats
        self._standing: dict[ConnectionSlot, None] = {}  # in the order of their last request
        self._seated: set[ConnectionSlot] = set()

    def stand(self, place: ConnectionSlot) -> None:
        """Let a connection without a session stand; it has just come, or made a request."""
        self._seated.discard(place)
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

    def sit(self, place: ConnectionSlot) -> bool:
        """Seat a connection with a session. Return True if there was a seat; otherwise it keeps standing."""
        if place not in self._seated:
            if len(self._seated) >= self._seats:
                return False
            self._standing.pop(place, None)
            self._seated.add(place)
        return True

    def leave(self, place: ConnectionSlot) -> None:
        """Release the place of a closed connection."""
        self._standing.pop(place, None)
        self._seated.discard(place)


class ConnectionSlot:
    """That of one connection."""

    def __init__(self, places: ConnectionSlots, cut_off: Callable[[], None]) -> None:
        """:param cut_off: ends the connection."""
        self._places, self.cut_off = places, cut_off
        self._left = False

    def ask(self) -> None:
        """Record a request whose session is not yet known."""
        if not self._left:
            self._places.ask(self)

    def stand(self) -> None:
        """Let the connection stand, because it has no session."""
        if not self._left:
            self._places.stand(self)

    def sit(self) -> bool:
        """Seat the connection, because it has a session. Return True if there was a seat."""
        return self._left or self._places.sit(self)

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
        self._place = ConnectionSlot(places, lambda: self.transport.abort())
        self.app_state = {**self.app_state, "place": self._place}  # part of the scope of each request
        self._due: asyncio.TimerHandle | None = None

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
            self._due = self.loop.call_later(self._within_s, self.transport.abort)

    def _leave_be(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def web_config(app: ASGIApp, *, request_s: float, seats: int, linger_s: float) -> uvicorn.Config:
    """Return the configuration of a server for an application.

    :param request_s: seconds in which a request must have arrived.
    :param seats: most connections that are admitted.
    :param linger_s: seconds that answers under way have at the end.
    """
    places = ConnectionSlots(_STRANGERS, seats)
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
