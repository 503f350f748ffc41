"""The path `/mcp` of the doors: the MCP server over streamable HTTP, with and without sessions.

The SDK is the extra `mcp`. It is loaded with the first request to this path, in a thread, and with it the sessions' manager.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from batos.config import MIB
from batos.console.api_client import Asker, Heard, Reply
from batos.doors.access import DoorLimits
from batos.doors.mcp_missions import STOPPED, McpPace
from batos.doors.routes import INTERNAL, DoorServices, refusal
from batos.errors import Busy

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

log = structlog.get_logger("batos.doors")
PATH = "/mcp"
INSTALL = "pip install 'batos[mcp]'"
_BODY_BYTES = 4 * MIB
_END_S = 2.0  # seconds in which calls under way may still be answered when the doors close


class AskedDaemon:
    """This daemon, asked as a client on the wire asks it."""

    def __init__(self, asker: Asker, limits: DoorLimits) -> None:
        self._asker, self._limits = asker, limits
        self._open: set[Heard] = set()
        self._stopping = False

    def stop(self) -> None:
        """End the watches; refuse what is asked from now on."""
        self._stopping = True
        for heard in list(self._open):
            heard.close()

    async def ask(self, op: str, /, **fields: Any) -> Reply:
        """Return the reply to one request; see `McpDaemon`."""
        if self._stopping:
            raise Busy(STOPPED)
        heard = Heard(1, "client")
        await self._asker.tell(heard, op, **fields)
        reply = await heard.next()
        assert reply is not None
        return reply

    @contextlib.asynccontextmanager
    async def watch(self, id: str, /) -> AsyncIterator[Heard]:
        """Return the events of a mission; see `McpDaemon`."""
        if self._stopping:
            raise Busy(STOPPED)
        heard = Heard(self._limits.events, "client")
        self._open.add(heard)
        try:
            await self._asker.tell(heard, "watch", id=id)
            yield heard
        finally:
            self._open.discard(heard)
            self._asker.forget(heard)
            heard.close()


class McpEndpoint:
    """MCP server over streamable HTTP: its tools submit missions and ask about them."""

    def __init__(self, services: DoorServices) -> None:
        self._limits = services.limits
        self._daemon = AskedDaemon(services.asker, services.limits)
        self._starting: asyncio.Task[StreamableHTTPSessionManager] | None = None
        self._life: asyncio.Task[None] | None = None
        self._stopping, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._calls = 0

    def stop(self) -> None:
        """Answer the calls under way, whose missions go on; then end the sessions."""
        self._daemon.stop()
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        begun = False

        async def told(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        counts = scope["method"] == "POST"
        if counts:
            self._calls += 1
            self._idle.clear()
        try:
            answer = await self._served(scope, receive, told)
        except ClientDisconnect:  # the client left in the middle of its request and reads no answer
            answer = Response(status_code=400)
        except Exception:
            log.exception("a door failed", path=PATH)
            answer = refusal(PATH, 500, INTERNAL["message"])
        finally:
            if counts:
                self._calls -= 1
                if not self._calls:
                    self._idle.set()
        if answer is not None and not begun:
            await answer(scope, receive, send)

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Serve a request; return the answer where that has not been sent."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._started())
        try:
            manager = await asyncio.shield(self._starting)
        except ImportError as e:
            return refusal(PATH, 501, f"{PATH} needs the SDK of MCP ({e}); install it beside BAT OS, and restart the daemon: {INSTALL}")
        if self._stopping.is_set():
            return refusal(PATH, 503, STOPPED)
        await manager.handle_request(scope, receive, send)
        return None

    async def _started(self) -> StreamableHTTPSessionManager:
        manager = await asyncio.to_thread(self._loaded)
        ready = asyncio.Event()
        self._life = asyncio.create_task(self._kept(manager, ready))
        await ready.wait()
        return manager

    def _loaded(self) -> StreamableHTTPSessionManager:
        """Load the SDK. Does file work; in a thread."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from batos.doors.mcp_server import mcp_server
        from batos.doors.mcp_tools import McpTools

        tools = McpTools(self._daemon, McpPace(self._limits.beat_s, self._limits.repeat_s))
        return StreamableHTTPSessionManager(
            mcp_server(tools),
            max_request_body_size=min(self._limits.body_bytes, _BODY_BYTES),
            session_idle_timeout=self._limits.mcp_session_s,
            max_sessions=self._limits.mcp_sessions,
        )

    async def _kept(self, manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
        """Keep the sessions until the doors close: they belong to one task, which begins and ends them."""
        async with manager.run():
            ready.set()
            await self._stopping.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._idle.wait()


def mcp_routes(services: DoorServices) -> Iterator[BaseRoute]:
    """Yield the route of the MCP server."""
    endpoint = McpEndpoint(services)
    services.at_stop.append(endpoint.stop)
    for path in (PATH, f"{PATH}/"):
        yield Route(path, endpoint, methods=["GET", "POST", "DELETE"])
