"""The console's pages as a part of the daemon's HTTP server, loaded when the first of them is asked for."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from batos.config import Settings
from batos.console.access import Access, ConsoleLimits, Sessions
from batos.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from batos.console.api_client import Asker
    from batos.console.live_events import Feed

log = structlog.get_logger("batos.console")

REQUESTS = 64  # connections of signed-in browsers, without live pages; a request on one more is answered 503
_NEEDED = "jinja2"

Listen = Callable[[str, Callable[[dict[str, Any]], None]], Callable[[], None]]
"""Subscribes to a kind of events of all missions; returns the function that ends that."""


def is_installed() -> bool:
    """Return True if what the pages need is installed."""
    return importlib.util.find_spec(_NEEDED) is not None


def check_installed() -> None:
    """Check that what the pages need is installed.

    :raises ConfigError: if it is not.
    """
    if not is_installed():
        raise ConfigError(
            f"the console needs {_NEEDED}, which is not installed: pip install 'batos[console]', or run without --console "
            "(console.enabled = off)"
        )


class ConsolePages:
    """The pages, as an ASGI application. On the loop's thread."""

    def __init__(self, settings: Settings, access: Access, asker: Asker, listen: Listen, clients: Sequence[tuple[str, str]] = ()) -> None:
        """
        :param asker: asks the daemon.
        :param listen: subscribes to a kind of events of all missions (`Events.listen`).
        :param clients: chat clients, each with its settings; none where the daemon has no interfaces for them.
        """
        limits = self._limits = ConsoleLimits.of(settings)
        self._settings, self._access, self._asker, self._listen, self._clients = settings, access, asker, listen, clients
        self._sessions = Sessions(settings.data, access.token, limits.session_s, limits.sessions)
        self._application: ASGIApp | None = None
        self._feed: Feed | None = None
        self._loading = asyncio.Lock()
        self._closed = False

    @property
    def seats(self) -> int:
        """Return how many connections of signed-in browsers there may be."""
        return self._limits.pages + REQUESTS

    @property
    def request_s(self) -> float:
        """Return the seconds that a browser may take to send its request."""
        return self._limits.request_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await (self._application or await self._loaded())(scope, receive, send)

    async def _loaded(self) -> ASGIApp:
        async with self._loading:
            if self._application is None:
                application, feed = await asyncio.to_thread(self._load)
                for kind in ("state", "result", "needs_input"):
                    self._listen(kind, feed.touch)
                if self._closed:
                    feed.close()
                self._application, self._feed = application, feed
                log.info("console", address=self._access.address)
        return self._application

    def _load(self) -> tuple[ASGIApp, Feed]:
        """Load the pages. Does file work; in a thread."""
        from batos.console.app import application  # imported late: only a daemon that is asked for a page loads them

        return application(self._asker, self._settings, self._access, self._sessions, self._clients)

    async def look(self) -> None:
        """Close the live pages of sessions that have ended, also of those that were ended from a terminal."""
        if self._feed is not None:
            await self._feed.shut_ended(self._sessions.is_open)

    def close(self) -> None:
        """End the live pages. May be called again."""
        self._closed = True
        if self._feed is not None:
            self._feed.close()
