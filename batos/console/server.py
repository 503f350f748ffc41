"""The console as a part of the daemon: its socket, its server, its end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import Any, cast

import structlog

from batos.config import Settings
from batos.console.access import ConsoleLimits
from batos.console.api_client import Asker, DaemonHandler
from batos.errors import ConfigError, EndpointError
from batos.wire.endpoints import WireLimits

try:
    import uvicorn
    from starlette.types import ASGIApp

    from batos.console.access import Access, Sessions, token_of
    from batos.console.app import application
    from batos.console.connections import BrowserConnection, ConnectionSlots
    from batos.console.live_events import Feed
except ModuleNotFoundError as e:
    if e.name is not None and e.name.startswith("batos"):
        raise
    raise ConfigError(
        f"the console needs {e.name}, which is not installed: pip install 'batos[console]', or run without --console"
    ) from None

log = structlog.get_logger("batos.console")

_REQUESTS = 64  # connections of signed-in browsers, without live pages; a request on one more is answered 503
_STRANGERS = 256  # connections without a session; one more cuts off the oldest
_ARRIVALS = 64  # connections accepted at once, before they are served: fewer than strangers, so that none is cut off before its request
_TICK_S = 1.0  # seconds between two ticks of the server's clock, which dates its answers


class Console:
    """Made by `open`, which takes the address; `run` serves there until `stop`."""

    def __init__(self, settings: Settings, access: Access, sessions: Sessions, listening: socket.socket) -> None:
        self.link, self.address = access.link, access.address
        self._settings, self._access, self._sessions, self._listening = settings, access, sessions, listening
        self._feed: Feed | None = None
        self._server: _Server | None = None
        self._ended = asyncio.Event()

    @classmethod
    async def open(cls, settings: Settings) -> Console:
        """Bind the address. Connections wait until `run` answers.

        :raises EndpointError: if the address is not on loopback, or is taken.
        :raises ConfigError: if the token cannot be read or created.
        """
        host, port = loopback(settings.console.listen)
        token = await asyncio.to_thread(token_of, settings.data)
        listening = _bound(host, port, settings.console.listen)
        access = Access(token, host, listening.getsockname()[1], ConsoleLimits.of(settings).session_s)
        limits = ConsoleLimits.of(settings)
        sessions = Sessions(settings.data, token, limits.session_s, limits.sessions)
        return cls(settings, access, sessions, listening)

    async def run(self, desk: DaemonHandler, listen: Callable[[str, Callable[[dict[str, Any]], None]], None]) -> None:
        """Serve until `stop`.

        :param desk: answers the console's requests.
        :param listen: subscribes to a kind of events of all missions (`Events.listen`).
        """
        app, feed = application(Asker(desk, self._settings), self._settings, self._access, self._sessions)
        self._feed = feed
        for kind in ("state", "result", "needs_input"):
            listen(kind, feed.touch)
        server = self._server = _Server(_config(app, self._settings), lambda: feed.shut_ended(self._sessions.is_open))
        log.info("console", address=self.address)
        try:
            await server.serve([self._listening])
        finally:
            feed.close()
            for listener in getattr(server, "servers", ()):  # after a failure they are still open
                listener.close()
            self._listening.close()
            self._ended.set()

    async def stop(self) -> None:
        """Close live pages, let answers under way leave, close the socket. May be called again."""
        if self._server is None or self._feed is None:  # the server never ran
            self._listening.close()
            return
        self._feed.close()
        self._server.leave()
        await self._ended.wait()


def _config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    places = ConnectionSlots(_STRANGERS, ConsoleLimits.of(settings).pages + _REQUESTS)
    return uvicorn.Config(
        app,
        loop="none",
        http=cast(type[asyncio.Protocol], functools.partial(BrowserConnection, ConsoleLimits.of(settings).request_s, places)),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no client may claim the address of another one
        backlog=_ARRIVALS,
        timeout_graceful_shutdown=max(1, int(WireLimits.of(settings).linger_s)),
    )


class _Server(uvicorn.Server):
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


def loopback(address: str) -> tuple[str, int]:
    """Return host and port of the setting `console.listen`.

    :raises EndpointError: if the setting is invalid, or other machines could reach the address.
    """
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        found = None
    if found is None or not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise EndpointError(f"setting console.listen: {address!r} is not a valid host:port; name 127.0.0.1:PORT")
    if not found.is_loopback:
        raise EndpointError(
            f"the console is served on loopback only, and {address!r} can be reached by other machines: name 127.0.0.1:PORT in the setting "
            "console.listen, and come from elsewhere through an SSH tunnel"
        )
    return str(found), int(port)


def _bound(host: str, port: int, address: str) -> socket.socket:
    # Pass the protocol: asyncio switches Nagle's delay of 40 ms off only for sockets that name TCP.
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as e:
        listening.close()
        raise EndpointError(
            f"the console cannot listen at {address}: {e.strerror}; stop who does, or name another port in the setting console.listen"
        ) from None
    return listening
