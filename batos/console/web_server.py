"""Web server of the daemon, as the console and the doors use it: bounded connections, and signals left to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Generator
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from batos.console.connections import BrowserConnection, ConnectionSlots

_STRANGERS = 256  # connections that are not admitted; one more cuts off the oldest
_ARRIVALS = 64  # connections accepted at once, before they are served: fewer than strangers, so that none is cut off before its request
_TICK_S = 1.0  # seconds between two ticks of the server's clock, which dates its answers


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
