"""The verb `mcp`: an MCP server over the standard streams, for clients that start a program. It asks the running daemon over the wire.

Nothing but the protocol is written to standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, app, check_reachable, endpoint, run_async
from batos.cli.output import Output
from batos.config import Settings, load
from batos.errors import BatosError, ConfigError
from batos.wire import ClientKeys
from batos.wire.connection import Connection

Reply = dict[str, Any]
_INSTALL = "pip install 'batos[mcp]'"


@app.command()
def mcp(
    connect: Connect = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON how a client starts this program, and do not serve.")] = False,
) -> None:
    """Serve an MCP client that starts this program: it speaks the protocol over standard input and output, until they are closed."""
    if as_json:
        from batos.doors.client_settings import own_program

        Output(as_json).document({"type": "mcp", **own_program(connect)})
        return
    address = endpoint(connect)
    check_reachable(address)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread waits for the next line, and Ctrl-C ends nothing that it could lose
    run_async(_served(address, load()))


async def _served(address: str, settings: Settings) -> None:
    try:
        from batos.doors.mcp_server import serve_stdio  # imported late, with the SDK
    except ImportError as e:
        raise ConfigError(f"`batos mcp` needs the SDK of MCP ({e}); install it beside BAT OS: {_INSTALL}") from None
    from batos.doors.access import DoorLimits
    from batos.doors.mcp_missions import McpPace
    from batos.doors.mcp_tools import McpTools

    limits = DoorLimits.of(settings)
    async with DaemonConnection(address, keys=ClientKeys.of(settings)) as daemon:
        await daemon.ask("info")  # keys that are refused end the program, before a client relies on it
        await serve_stdio(McpTools(daemon, McpPace(limits.beat_s, limits.repeat_s)))


class WatchedEvents:
    """Events of one mission that is watched over the wire."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Reply | BatosError | None] = asyncio.Queue()

    def put(self, event: Reply | BatosError | None) -> None:
        """Add an event; an error, or None at the end, is the last one."""
        self._events.put_nowait(event)

    async def next(self) -> Reply | None:
        """Return the next event; None at the end.

        :raises BatosError: if the daemon refuses the watch, or answers no longer.
        """
        event = await self._events.get()
        if isinstance(event, BatosError):
            raise event
        return event


class DaemonConnection(Connection):
    """The daemon behind the wire, as the MCP server asks it (`McpDaemon`)."""

    async def ask(self, op: str, /, **fields: Any) -> Reply:
        """Return the first reply to a request."""
        return await self._ask(op, **fields)

    @contextlib.asynccontextmanager
    async def watch(self, id: str, /) -> AsyncIterator[WatchedEvents]:
        """Return the events of a mission, also over a short restart of the daemon."""
        events = WatchedEvents()

        async def hear() -> None:
            try:
                async with contextlib.aclosing(self._follow("watch", id=id)) as heard:
                    async for event in heard:
                        events.put(event)
                events.put(None)
            except BatosError as e:
                events.put(e)

        hearing = asyncio.create_task(hear())
        try:
            yield events
        finally:
            hearing.cancel()  # it ends by itself: a cancelled task may wait for nothing more
