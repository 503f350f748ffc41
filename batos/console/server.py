"""The console as a part of the daemon: its socket, its server, its end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import structlog

from batos.config import Settings
from batos.console.access import ConsoleLimits
from batos.console.api_client import Asker, DaemonHandler
from batos.errors import ConfigError
from batos.loopback import address_of, bound
from batos.wire.endpoints import WireLimits

try:
    from batos.console.access import Access, Sessions, token_of
    from batos.console.app import application
    from batos.console.connections import WebServer, web_config
    from batos.console.live_events import Feed
except ModuleNotFoundError as e:
    if e.name is not None and e.name.startswith("batos"):
        raise
    raise ConfigError(
        f"the console needs {e.name}, which is not installed: pip install 'batos[console]', or run without --console"
    ) from None

log = structlog.get_logger("batos.console")

_REQUESTS = 64  # connections of signed-in browsers, without live pages; a request on one more is answered 503


class Console:
    """Made by `open`, which takes the address; `run` serves there until `stop`."""

    def __init__(self, settings: Settings, access: Access, sessions: Sessions, listening: socket.socket) -> None:
        self.link, self.address = access.link, access.address
        self._settings, self._access, self._sessions, self._listening = settings, access, sessions, listening
        self._feed: Feed | None = None
        self._server: WebServer | None = None
        self._ended = asyncio.Event()

    @classmethod
    async def open(cls, settings: Settings) -> Console:
        """Bind the address. Connections wait until `run` answers.

        :raises EndpointError: if the address is not on loopback, or is taken.
        :raises ConfigError: if the token cannot be read or created.
        """
        host, port = loopback(settings.console.listen)
        token = await asyncio.to_thread(token_of, settings.data)
        listening = bound(host, port, "console.listen", "the console")
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
        limits = ConsoleLimits.of(self._settings)
        config = web_config(
            app, request_s=limits.request_s, seats=limits.pages + _REQUESTS, linger_s=WireLimits.of(self._settings).linger_s
        )
        server = self._server = WebServer(config, lambda: feed.shut_ended(self._sessions.is_open))
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


def loopback(address: str) -> tuple[str, int]:
    """Return host and port of the setting `console.listen`.

    :raises EndpointError: if the setting is invalid, or other machines could reach the address.
    """
    return address_of(address, "console.listen", "the console is")
