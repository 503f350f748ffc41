"""The daemon's HTTP server: its sockets on loopback, what is served there, its end.

At rest there are only sockets that listen. The web server and what is behind it are loaded with the first connection. The console's pages
are loaded when the first page is asked for.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import structlog

from batos.config import Settings
from batos.console.access import Access, ConsoleLimits, token_of
from batos.console.server import ConsolePages, Listen, check_installed, is_installed
from batos.errors import EndpointError
from batos.loopback import address_of, bound, bracketed, names_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from batos.console.api_client import DaemonHandler
    from batos.console.connections import WebServer
    from batos.doors.turn_log import TurnKeeper
    from batos.doors.turns import PlainModel

log = structlog.get_logger("batos.doors")


class WebAddress(NamedTuple):
    """Address at which the server is to listen."""

    setting: str
    host: str
    port: int
    needed: bool
    """True if the daemon does not start where the address is taken."""


class Doors:
    """Made by `open`, which takes the addresses; `run` serves there until `stop`.

    `address` is that of the interfaces for clients, "" if there are none; `console` knows that of the pages, None if there are none.
    """

    def __init__(self, settings: Settings, token: str, sockets: dict[str, socket.socket]) -> None:
        """
        :param sockets: those that listen, by the setting with their address.
        """
        self._settings, self._sockets = settings, list(sockets.values())
        at = {setting: listening.getsockname()[:2] for setting, listening in sockets.items()}
        host, port = at.get("doors.listen") or next(iter(at.values()))
        self.address = f"http://{bracketed(host)}:{port}" if has_interfaces(settings) else ""
        names = [name for place in at.values() for name in names_of(*place)]
        host, port = at.get("console.listen") or (host, port)
        self._access = Access(token, host, port, ConsoleLimits.of(settings).session_s, names)
        self.console = self._access if has_pages(settings) else None
        self._called, self._ended = asyncio.Event(), asyncio.Event()
        self._stopping = self._running = False
        self._server: WebServer | None = None
        self._pages: ConsolePages | None = None
        self._at_stop: list[Callable[[], object]] = []
        self._turns: TurnKeeper | None = None

    @classmethod
    async def open(cls, settings: Settings) -> Doors | None:
        """Bind the addresses; connections wait until `run` answers. Return None where the settings ask for no server, or for one where its
        address is free, and it is not.

        :raises EndpointError: if an address is not on loopback; if it is taken and the settings ask for what is served there.
        :raises ConfigError: if the settings ask for the console and what it needs is not installed; if the token cannot be read or made.
        """
        check_pages(settings)
        wanted = _addresses(settings)
        if not wanted:
            return None
        token = await asyncio.to_thread(token_of, settings.data)
        sockets: dict[str, socket.socket] = {}
        for one in wanted:
            try:
                sockets[one.setting] = bound(one.host, one.port, one.setting, "the HTTP server")
            except EndpointError as e:
                if one.needed:
                    for taken in sockets.values():
                        taken.close()
                    raise
                log.info("doors_not_served", why=e.message)
        return cls(settings, token, sockets) if sockets else None

    async def run(
        self, handler: DaemonHandler, plain: PlainModel, listen: Listen, follow: Listen | None = None, turns: TurnKeeper | None = None
    ) -> None:
        """Serve until `stop`.

        :param handler: answers requests: the dispatcher.
        :param plain: the model that is asked where a request is not a mission.
        :param listen: subscribes to a kind of events of all missions (`Events.listen`).
        :param follow: likewise, also to thoughts under way at other kernels (`Events.follow`); None: there are none.
        :param turns: log of turns that several kernels share; None: a file of the data folder.
        """
        self._running, self._turns = True, turns
        self._follow = follow or listen
        loop = asyncio.get_running_loop()
        try:
            for one in self._sockets:
                loop.add_reader(one, self._called.set)
            try:
                await self._called.wait()
            finally:
                for one in self._sockets:
                    loop.remove_reader(one)
            if not self._stopping:
                await self._serve(handler, plain, listen)
        finally:
            self._end_answers()
            for listener in getattr(self._server, "servers", ()):  # after a failure they are still open
                listener.close()
            self._close_sockets()
            if self._turns is not None:
                await asyncio.shield(asyncio.to_thread(self._turns.close))
            self._ended.set()

    async def _serve(self, handler: DaemonHandler, plain: PlainModel, listen: Listen) -> None:
        app = await asyncio.to_thread(self._loaded, handler, plain, listen)
        from batos.console.connections import WebServer, web_config  # imported late: only a daemon that is called loads a web server
        from batos.doors.access import DoorLimits
        from batos.wire.endpoints import WireLimits

        limits, pages, linger_s = DoorLimits.of(self._settings), self._pages, WireLimits.of(self._settings).linger_s
        times = [*([limits.request_s] if self.address else ()), *([pages.request_s] if pages is not None else ())]
        seats = pages.seats if pages is not None else 0

        async def look() -> None:
            if pages is not None:
                await pages.look()

        config = web_config(app, request_s=min(times), seats=seats, clients=limits.connections, linger_s=linger_s)
        self._server = WebServer(config, look)
        if not self._stopping:
            await self._server.serve(self._sockets)

    def _loaded(self, handler: DaemonHandler, plain: PlainModel, listen: Listen) -> ASGIApp:
        """Load what is behind the sockets. Does file work; in a thread."""
        from batos.console.api_client import Asker

        asker = Asker(handler, self._settings)
        log.info("doors", address=self.address or self._access.address)
        if self.console is not None:
            from batos.doors.client_settings import settings_of_clients

            clients = settings_of_clients(self.address, self._access.token) if self.address else ()
            self._pages = ConsolePages(self._settings, self._access, asker, listen, clients)
            self._at_stop = [self._pages.close]
            if not self.address:
                return self._pages
        from batos.doors.access import DoorGuard, DoorLimits, FrontDoor
        from batos.doors.app import application
        from batos.doors.hooks import hosts_of
        from batos.doors.missions import TurnMissions
        from batos.doors.routes import DoorServices, refusal
        from batos.doors.turn_log import TurnLog

        limits = DoorLimits.of(self._settings)
        self._turns = self._turns or TurnLog(self._settings.data, limits.turns)
        services = DoorServices(asker, TurnMissions(asker, self._settings, self._turns), plain, self._settings, self._follow)
        services.at_stop.extend((*self._at_stop, services.missions.stop))
        app = application(services)
        self._at_stop = services.at_stop
        guarded = DoorGuard(app, self._access, refusal, limits.request_s, functools.partial(hosts_of, asker))
        return guarded if self._pages is None else FrontDoor(guarded, self._pages, app.routes, self._access.cookie_name)

    async def stop(self) -> None:
        """End live pages, and answers under way, whose missions go on; close the sockets. May be called again."""
        self._stopping = True
        self._called.set()
        if not self._running:
            self._close_sockets()
            return
        self._end_answers()
        if self._server is not None:
            self._server.leave()
        await self._ended.wait()

    def _end_answers(self) -> None:
        for end in self._at_stop:
            end()

    def _close_sockets(self) -> None:
        for one in self._sockets:
            one.close()


def has_interfaces(settings: Settings) -> bool:
    """Return True if the server has the interfaces for clients."""
    return settings.doors.enabled != "off"


def has_pages(settings: Settings) -> bool:
    """Return True if the server has the console's pages: where they are asked for, or go with the interfaces and can be drawn."""
    return settings.console.enabled == "on" or (settings.console.enabled == "auto" and has_interfaces(settings) and is_installed())


def check_pages(settings: Settings) -> None:
    """Check that the console can be served where the settings ask for it.

    :raises ConfigError: if what it needs is not installed.
    """
    if settings.console.enabled == "on":
        check_installed()


def web_address(settings: Settings, setting: str) -> WebAddress | None:
    """Return an address at which the server is to listen; None if nothing is served there.

    :param setting: `doors.listen` or `console.listen`.
    :raises EndpointError: if the setting is invalid, or other machines could reach the address.
    """
    console, doors = settings.console, settings.doors
    alone = console.enabled == "on" and not console.listen  # the console is asked for, and has no address but the doors'
    if setting == "doors.listen":
        wanted, needed, given = has_interfaces(settings) or alone, doors.enabled == "on" or alone, doors.listen
    else:
        wanted, needed, given = bool(console.listen) and has_pages(settings), console.enabled == "on", console.listen
    return WebAddress(setting, *address_of(given, setting, "the HTTP server is"), needed) if wanted else None


def _addresses(settings: Settings) -> list[WebAddress]:
    found = [one for one in (web_address(settings, "doors.listen"), web_address(settings, "console.listen")) if one is not None]
    if len({(one.host, one.port or one.setting) for one in found}) == 1:
        return [found[0]._replace(needed=any(one.needed for one in found))]
    return found
