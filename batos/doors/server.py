"""The doors as a part of the daemon: their socket, their server, their end.

At rest there is only a socket that listens. The web server and what is behind it are loaded when somebody connects for the first time.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from batos.config import Settings
from batos.errors import EndpointError
from batos.loopback import address_of, bound, bracketed

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from batos.console.api_client import DaemonHandler
    from batos.console.connections import WebServer
    from batos.doors.turn_log import TurnLog
    from batos.doors.turns import PlainModel

log = structlog.get_logger("batos.doors")
_SETTING = "doors.listen"


class Doors:
    """Made by `open`, which takes the address; `run` serves there until `stop`."""

    def __init__(self, settings: Settings, host: str, listening: socket.socket) -> None:
        self._settings, self._host, self._listening = settings, host, listening
        self._port: int = listening.getsockname()[1]
        self.address = f"http://{bracketed(host)}:{self._port}"
        self._called, self._ended = asyncio.Event(), asyncio.Event()
        self._stopping = self._running = False
        self._server: WebServer | None = None
        self._at_stop: list[Callable[[], object]] = []
        self._turns: TurnLog | None = None

    @classmethod
    async def open(cls, settings: Settings) -> Doors | None:
        """Bind the address; connections wait until `run` answers. Return None where the setting asks for no doors, or for doors where the
        address is free, and it is not.

        :raises EndpointError: if the address is not on loopback; if it is taken and the setting asks for doors.
        """
        wanted = settings.doors.enabled
        if wanted == "off":
            return None
        host, port = door_address(settings)
        try:
            return cls(settings, host, bound(host, port, _SETTING, "the doors"))
        except EndpointError as e:
            if wanted == "on":
                raise
            log.info("doors_not_served", why=e.message)
            return None

    async def run(self, handler: DaemonHandler, plain: PlainModel) -> None:
        """Serve until `stop`.

        :param handler: answers requests: the dispatcher.
        :param plain: the model that is asked where a request is no mission.
        """
        self._running = True
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._listening, self._called.set)
            try:
                await self._called.wait()
            finally:
                loop.remove_reader(self._listening)
            if not self._stopping:
                await self._serve(handler, plain)
        finally:
            self._end_answers()
            for listener in getattr(self._server, "servers", ()):  # after a failure they are still open
                listener.close()
            self._listening.close()
            if self._turns is not None:
                await asyncio.shield(asyncio.to_thread(self._turns.close))
            self._ended.set()

    async def _serve(self, handler: DaemonHandler, plain: PlainModel) -> None:
        app = await asyncio.to_thread(self._loaded, handler, plain)
        from batos.console.connections import WebServer, web_config  # imported late: only a daemon that is called loads a web server
        from batos.doors.access import DoorLimits
        from batos.wire.endpoints import WireLimits

        limits = DoorLimits.of(self._settings)
        linger_s = WireLimits.of(self._settings).linger_s

        async def look() -> None:
            """Do nothing: the doors have no clock of their own."""

        self._server = WebServer(web_config(app, request_s=limits.request_s, seats=limits.connections, linger_s=linger_s), look)
        if not self._stopping:
            await self._server.serve([self._listening])

    def _loaded(self, handler: DaemonHandler, plain: PlainModel) -> ASGIApp:
        """Load what is behind the socket. Does file work; in a thread."""
        from batos.console.access import token_of
        from batos.console.api_client import Asker
        from batos.doors.access import TOKEN_NAME, DoorGuard, DoorLimits
        from batos.doors.app import application
        from batos.doors.hooks import hosts_of
        from batos.doors.missions import TurnMissions
        from batos.doors.routes import DoorServices, refusal
        from batos.doors.turn_log import TurnLog

        asker = Asker(handler, self._settings)
        self._turns = TurnLog(self._settings.data, DoorLimits.of(self._settings).turns)
        services = DoorServices(asker, TurnMissions(asker, self._settings, self._turns), plain, self._settings)
        services.at_stop.append(services.missions.stop)
        app = application(services)
        self._at_stop = services.at_stop
        log.info("doors", address=self.address)
        token, hosts = token_of(self._settings.data, TOKEN_NAME), functools.partial(hosts_of, asker)
        return DoorGuard(app, token, self._host, self._port, refusal, hosts)

    async def stop(self) -> None:
        """End answers under way, whose missions go on; close the socket. May be called again."""
        self._stopping = True
        self._called.set()
        if not self._running:
            self._listening.close()
            return
        self._end_answers()
        if self._server is not None:
            self._server.leave()
        await self._ended.wait()

    def _end_answers(self) -> None:
        for end in self._at_stop:
            end()


def door_address(settings: Settings) -> tuple[str, int]:
    """Return host and port of the doors.

    :raises EndpointError: if the setting is invalid, or other machines could reach the address.
    """
    return address_of(settings.doors.listen, _SETTING, "the doors are")


def token_file(data: Path) -> Path:
    """Return the file with the doors' token."""
    from batos.doors.access import TOKEN_NAME

    return data / TOKEN_NAME
