"""One connection to an MCP server, from its start to its end, owned by one task.

The SDK's contexts are entered and left in the owner's task, whichever task calls: left in another one, they would leave processes behind. A
call is sent once. Where its connection ends in the middle, the call fails with an error that leaves open whether it happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import structlog
from mcp.client import Client, ClientSession
from mcp.client.session import ClientRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from batos import __version__
from batos.errors import BatosError, EgressFailed, ToolFailed
from batos.tools.definitions import ToolLimits
from batos.tools.mcp_transport import Streams

log = structlog.get_logger("batos.tools")
AUTHORIZE_S = 600.0
"""Seconds that a connection waits for its user to log in."""
_ABANDON_S = 2.0  # for the protocol's cancel to be written
_SETTLE_S = 2.0  # for a server to end a call whose question was put off
_PAGES = 200
_LISTEN_S = 2.0  # for a server to take a subscription
_ALL_S = 10.0  # for a server to end
T = TypeVar("T")
for _name in ("mcp", "client"):  # it logs faults of servers with traces, which are told in words here
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class McpTransport(Protocol):
    """The way to a server: a context whose streams carry messages."""

    process: str
    why: str
    ended: Callable[[], None]

    @property
    def refused(self) -> str: ...

    async def __aenter__(self) -> Streams: ...

    async def __aexit__(self, *error: Any) -> None: ...


class AskedInCall(Exception):
    """Signal that a server of an earlier era asked in the middle of a call. The call was ended, and nothing was answered."""

    def __init__(self, form: dict[str, Any]) -> None:
        super().__init__("the server asks")
        self.form = form


class LoginRequired(Exception):
    """Signal that the server wants its user to log in."""


@dataclass(eq=False)
class OpenCall:
    """A call that is under way, as a server's question meets it. `answers` are those that its user gave before, with their forms."""

    answers: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = ()
    asked: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    given: int = 0
    leave: Callable[[], None] = lambda: None
    """called just before the call leaves (`batos.tools.definitions.Delivery`)"""

    def respond(self, form: dict[str, Any]) -> ElicitResult:
        """Return the response to a question: the one that its user gave to the same one before, else `cancel`, which ends the call."""
        for at, (known, response) in enumerate(self.answers):
            if at >= self.given and known == form:
                self.given = at + 1
                return ElicitResult.model_validate(response)
        if not self.asked.done():
            self.asked.set_result(form)
        return ElicitResult(action="cancel")


class McpSession:
    """A connection. `alive` is False once it takes no more calls; another one takes them then."""

    def __init__(self, name: str, transport: McpTransport, limits: ToolLimits, changed: Callable[[], None]) -> None:
        """
        :param transport: not yet entered.
        :param changed: hears that the server's tools may have changed.
        """
        self._name, self._transport, self._limits, self._changed = name, transport, limits, changed
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self._ended: asyncio.Future[None] = loop.create_future()
        self._wake, self._hearing = asyncio.Event(), asyncio.Event()
        self._client: Client | None = None
        self._closing = self._leaving = self._asks = False
        self._open: list[OpenCall] = []
        self._turn = asyncio.Lock()
        self._active, self._used = 0, time.monotonic()
        self._clock = asyncio.timeout(limits.connect_s)
        self.login = ""
        """the page where its user logs in, while the connection waits for that"""
        self.why = ""
        self._cause: BaseException | None = None
        self._call_refused = False
        self.listed = False
        """True once the server's tools were asked for on this connection"""
        transport.ended = self.lost
        self._owner = asyncio.create_task(self._own())

    @property
    def alive(self) -> bool:
        """Return True while the connection takes calls, or is being made."""
        return not self._closing and not self._ended.done()

    @property
    def established(self) -> bool:
        """Return True once the server has said what it offers."""
        return self._ready.done()

    @property
    def ended(self) -> bool:
        """Return True once nothing of the connection is left."""
        return self._owner.done()

    @property
    def process(self) -> str:
        """Return the server's process as `PID START`; empty where it is none of this machine's."""
        return self._transport.process

    @property
    def reason(self) -> str:
        """Return why the connection ended, or is about to; empty where that is not known."""
        return self.why or self._transport.why

    async def ready(self) -> None:
        """Wait until the server has said what it offers.

        :raises ToolFailed: if the server never says so, or its user has to log in first.
        """
        while not self._ready.done():
            if self.login:
                then = f"run `batos tools test {self._name}`, or the same again"
                raise ToolFailed(f"{self._name} wants its user to log in: open {self.login} and then {then}")

            ends: list[asyncio.Future[Any]] = [self._ready, asyncio.ensure_future(self._wake.wait())]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ends[1].cancel()
            self._wake.clear()
        await asyncio.shield(self._ready)

    async def settled(self) -> None:
        """Wait until the connection is made or has failed, its user's login included."""
        await asyncio.wait([self._ready])

    def told_to_log_in(self, url: str) -> None:
        """Let those who wait know where its user logs in, and wait for him instead of the server."""
        self.login = url
        self._clock.reschedule(asyncio.get_running_loop().time() + AUTHORIZE_S)
        self._wake.set()

    def must_log_in(self) -> LoginRequired:
        """Note that the login does not suffice any more, and return the signal that ends the connection."""
        self._cause = LoginRequired(f"{self._name} wants its user to log in again: run `batos tools test {self._name}`")
        self._call_refused = self._transport.refused == "tools/call" and len(self._open) == 1
        return self._cause

    def logged_in(self) -> None:
        """Go back to waiting for the server."""
        self.login = ""
        self._clock.reschedule(asyncio.get_running_loop().time() + self._limits.connect_s)

    async def tools(self) -> list[Tool]:
        """Return the server's tools, one more than is allowed at most.

        :raises ToolFailed: if it does not tell them.
        """
        found: list[Tool] = []
        cursor: str | None = None
        seen: set[str] = set()
        try:
            async with asyncio.timeout(self._limits.connect_s):
                for _ in range(_PAGES):
                    params = PaginatedRequestParams(cursor=cursor) if cursor else None
                    page = await self._request(lambda session, params=params: session.list_tools(params=params))  # type: ignore[misc]
                    found += page.tools
                    cursor = page.next_cursor
                    if not cursor or cursor in seen or len(found) > self._limits.tools:
                        break
                    seen.add(cursor)
        except MCPError as e:
            if e.code == METHOD_NOT_FOUND:
                return []
            raise ToolFailed(f"{self._name} does not tell its tools: {e.message}") from None
        except TimeoutError:
            raise ToolFailed(f"{self._name} did not tell its tools within {self._limits.connect_s:g} s") from None
        except EgressFailed as e:
            raise ToolFailed(e.message) from None
        except ValueError as e:
            raise ToolFailed(f"{self._name} tells its tools in a form that is not valid: {str(e)[:400]}") from None
        self.listed = True
        return found[: self._limits.tools + 1]

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        call: OpenCall,
        tell: ProgressFnT,
        responses: dict[str, Any] | None = None,
        state: str | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Send a call once and return its answer.

        :raises MCPError: if the server answers with an error of the protocol.
        :raises AskedInCall: if it asks its user, in the way of an earlier era.
        :raises EgressFailed: if the connection ended; `sent` says whether the call had left.
        """

        async def send(session: ClientSession) -> CallToolResult | InputRequiredResult:
            call.leave()
            return await session.call_tool(
                tool, arguments, None, tell, input_responses=responses, request_state=state, allow_input_required=True
            )

        async with self._turn if self._asks else contextlib.nullcontext():
            self._open.append(call)
            try:
                return await self._request(send, call)
            finally:
                self._open.remove(call)

    async def close(self) -> None:
        """End the connection and the server's process, calls that are under way included."""
        self._closing = True
        self.why = self.why or "it was closed"
        if not self._leaving:
            self._owner.cancel()
        await asyncio.wait({self._owner}, timeout=_ALL_S)

    def retire(self, why: str = "") -> None:
        """Take no more calls, and end once those that are under way have ended."""
        self._closing = True
        self.why = self.why or why
        self._wake.set()

    async def _request(self, send: Callable[[ClientSession], Awaitable[T]], call: OpenCall | None = None) -> T:
        if self._client is None or self._ended.done():
            raise EgressFailed(f"{self._name} is not connected: {self.reason or 'the connection ended'}", sent=False)
        self._active += 1
        work = asyncio.ensure_future(send(self._client.session))
        ends: list[asyncio.Future[Any]] = [work, self._ended, *([call.asked] if call else [])]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if call is not None and call.asked.done():
                await asyncio.wait(ends[:2], timeout=_SETTLE_S, return_when=asyncio.FIRST_COMPLETED)
                raise AskedInCall(call.asked.result())
            if not work.done():
                raise self._cut(self.reason)
            try:
                return work.result()
            except MCPError as e:
                if e.code == CONNECTION_CLOSED:
                    self.retire("" if isinstance(self._cause, LoginRequired) else e.message)
                    if isinstance(self._cause, LoginRequired):
                        raise self._cut(str(self._cause)) from None
                raise
        finally:
            if not work.done():
                work.cancel()  # the SDK sends the protocol's cancel then
                await asyncio.wait({work}, timeout=_ABANDON_S)
            if work.done() and not work.cancelled():
                work.exception()  # it is told above, or has no waiting caller any more
            self._active -= 1
            self._used = time.monotonic()
            self._wake.set()

    def _cut(self, why: str) -> BatosError:
        """Return what befell a request whose connection ended. One that was refused for want of a login surely was not carried out."""
        if self._call_refused:
            return ToolFailed(str(self._cause))
        return EgressFailed(f"{self._name}: the connection ended in the middle of a call: {why}", sent=True)

    async def _own(self) -> None:
        try:
            async with self._clock:
                client = Client(
                    self._transport,
                    cache=None,
                    elicitation_callback=self._elicited,
                    message_handler=self._heard,
                    client_info=Implementation(name="batos", version=__version__),
                )
                async with client:
                    self._clock.reschedule(None)
                    self._client = client
                    listening = asyncio.create_task(self._listen(client))
                    try:
                        await self._until_heard(listening)  # before tools are listed: no change is missed between the two
                        self._used = time.monotonic()
                        self._ready.set_result(None)
                        await self._until_idle()
                        self._leaving = True
                    finally:
                        listening.cancel()
                        await asyncio.wait({listening})
        except TimeoutError:
            self.why = f"it did not say what it offers within {self._limits.connect_s:g} s"
            if self.login:
                self.why = f"its user did not log in within {AUTHORIZE_S:g} s"
        except BaseException as e:
            self._cause = self._cause or _leaf(e)
            self.why = self.why or self._transport.why or _words(self._cause)
            if isinstance(e, asyncio.CancelledError) and not self._closing:
                raise
        finally:
            self.why = self.why or self._transport.why
            self._closing = True
            self._client = None
            if not self._ready.done():
                self._ready.set_exception(ToolFailed(f"{self._name} cannot be reached: {self.why}"))
            self._ended.set_result(None)
            log.debug("mcp_session_ended", connection=self._name, why=self.why)

    async def _until_idle(self) -> None:
        while True:
            self._wake.clear()
            if not self._active:
                rest = self._used + self._limits.idle_s - time.monotonic()
                if rest <= 0:
                    self._closing = True
                if self._closing:
                    return
            else:
                rest = self._limits.idle_s
            if self._transport.why:
                self._closing = True
                self.why = self._transport.why
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._wake.wait()

    async def _until_heard(self, listening: asyncio.Task[None]) -> None:
        ends: list[asyncio.Future[Any]] = [listening, asyncio.ensure_future(self._hearing.wait())]
        try:
            await asyncio.wait(ends, timeout=_LISTEN_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ends[1].cancel()

    def lost(self) -> None:
        """Notice that the transport has ended."""
        self._closing = True
        self._wake.set()

    async def _listen(self, client: Client) -> None:
        """Hear of changed tools, where the server tells them by a subscription."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        with contextlib.suppress(MCPError, RuntimeError, TimeoutError):  # a subscription that is lost: tools are listed anew at each start
            async with client.listen(tools_list_changed=True) as events:
                self._hearing.set()
                async for _ in events:
                    self._changed()

    async def _heard(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._changed()

    async def _elicited(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Answer a question that comes in the middle of a call. Which call it belongs to is known only where one is under way."""
        self._asks = True  # from now on one call at a time
        if len(self._open) != 1:
            return ElicitResult(action="cancel")
        return self._open[0].respond(form_of(params))


def form_of(params: ElicitRequestParams) -> dict[str, Any]:
    """Return a question as the wire has it, without what differs each time."""
    return params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta", "task", "elicitation_id"})


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _words(error: BaseException) -> str:
    if isinstance(error, BatosError):
        return error.message
    if isinstance(error, (MCPError, LoginRequired)):
        told = str(error)
        if "validation error" not in told:
            return told
        return f"what answers there does not speak the Model Context Protocol ({told.splitlines()[0]})"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:400]
