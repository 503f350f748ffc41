"""Access to the doors, checked before any route, and the way of each request to a page of the console or an interface for clients.

A page wants the session of a browser, and no interface takes one. So no page of another site can use what a browser holds. An interface
wants the token. Chat clients send it in different ways: as an API key (`Authorization: Bearer`), or as the password of the address
(`http://batos:TOKEN@127.0.0.1:5758`). Clients that know neither send it in the path (`http://127.0.0.1:5758/token/TOKEN`).

Below `/hooks/` no token is asked for: each hook has a secret of its own, which is checked where its body is. There, and only there, names
are valid, too, that the hook's user gave it: what a tunnel brings in carries the tunnel's name.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batos.config import MIB
from batos.config.limits import Limits, limit
from batos.console.access import Access
from batos.console.connections import ConnectionSlot

_REFUSED = "the token of this daemon is missing or wrong; `batos doors` prints it: send it as the API key (Authorization: Bearer TOKEN)"
_IN_PATH = "/token/"
_HOOKS = "/hooks/"
_LONGEST = 1024  # characters of a header that is decoded

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address may hold the token
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer of an interface, where it has no others of these names."""

Refusal = Callable[[str, int, str], Response]
"""Makes the answer to a refused request of a path, with its status and the reason."""
HookHosts = Callable[[str], Awaitable[Collection[str]]]
"""Returns the names, in lower case, under which a tunnel or proxy may bring requests to a hook; none for one that is not there."""


@dataclass(frozen=True, slots=True)
class DoorLimits(Limits):
    """Limits of the doors."""

    connections: int = limit(128, ge=1, le=10_000)
    """Most connections with the token at the same time."""
    request_s: float = limit(60.0, ge=0.05, le=3600)
    """Seconds that a client may take to send its request."""
    body_bytes: int = limit(32 * MIB, ge=1024, le=256 * MIB)
    """Largest request in bytes."""
    messages: int = limit(2000, ge=1, le=100_000)
    """Most messages of one conversation."""
    texts: int = limit(2048, ge=1, le=100_000)
    """Most texts that one request embeds."""
    depth: int = limit(64, ge=8, le=500)
    """Deepest nesting of a request's JSON."""
    conversation_chars: int = limit(16_000, ge=100, le=1_000_000)
    """Most characters of a conversation that a brief repeats, where the missions that answered it are not known."""
    repeat_s: float = limit(600.0, ge=0, le=7 * 86400)
    """Seconds in which the same request without an id of its own counts as the same turn, sent again."""
    follow_s: float = limit(60.0, ge=0, le=3600)
    """Seconds that a turn waits for the mission of the turn before, where that still runs."""
    beat_s: float = limit(10.0, ge=0.05, le=600)
    """Seconds of silence after which a stream shows that it goes on."""
    events: int = limit(10_000, ge=10, le=1_000_000)
    """Events of a mission that wait for a reader; past it, some are lost, and the reader gets the answer whole at its end."""
    plan_questions: bool = limit(False)
    """True: missions ask also for what their plan lacks, which takes an inference more; for leave they always ask."""
    turns: int = limit(20_000, ge=10, le=1_000_000)
    """Turns whose missions are remembered; the oldest are forgotten first."""
    plain_s: float = limit(600.0, ge=1, le=86_400)
    """Seconds for an inference that is not a mission."""
    mcp_sessions: int = limit(200, ge=1, le=10_000)
    """Most sessions of MCP clients at the same time."""
    mcp_session_s: float = limit(1800.0, ge=0.05, le=7 * 86400)
    """Seconds without a request after which a session of an MCP client ends; the client begins another one."""


class FrontDoor:
    """An ASGI application in front of pages and interfaces."""

    def __init__(self, interfaces: ASGIApp, pages: ASGIApp, routes: Iterable[BaseRoute], cookie_name: str) -> None:
        """
        :param routes: of the interfaces: what they begin with belongs to no page.
        :param cookie_name: name of the cookie with a browser's session.
        """
        self._interfaces, self._pages, self._cookie_name = interfaces, pages, cookie_name
        self._names = {_IN_PATH.strip("/"), *(_first(getattr(route, "path", "")) for route in routes)} - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await (self._pages if scope["type"] == "http" and self._is_for_page(scope) else self._interfaces)(scope, receive, send)

    def _is_for_page(self, scope: Scope) -> bool:
        """Return True if a browser asks for something that is not below a path of the interfaces."""
        path, headers = str(scope["path"]), Headers(scope=scope)
        if _first(path) in self._names:
            return False
        return (
            path.startswith("/static/")
            or "text/html" in headers.get("accept", "")
            or b"token=" in scope["query_string"]
            or self._cookie_name in cookie_parser(headers.get("cookie", ""))
        )


class DoorGuard:
    """An ASGI application in front of the interfaces."""

    def __init__(self, app: ASGIApp, access: Access, refusal: Refusal, request_s: float, hosts_of: HookHosts) -> None:
        """
        :param request_s: seconds in which a request with the token must have arrived.
        """
        self._app, self._access, self._refusal, self._request_s = app, access, refusal, request_s
        self._hosts_of = hosts_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # no websockets and no lifespan: the server is configured likewise
        place: ConnectionSlot = scope["state"]["place"]
        place.ask()
        headers, path = Headers(scope=scope), str(scope["path"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    sent.setdefault(name, value)
            await send(message)

        if path.startswith(_HOOKS):
            place.stand()  # the caller has yet to prove that he may
            status, why = await self._checked_for_hook(headers, path.removeprefix(_HOOKS))
            await (self._refusal(path, status, why) if status else self._app)(scope, receive, send_with_headers)
            return
        given, path = _token_of(headers, path)
        status, why = self._checked(headers, given)
        if not status and not place.sit("client"):
            status, why = 503, "too many connections at once; end some, or try again in a moment"
        if status:
            place.stand()
            answer = self._refusal(path, status, why)
            if status == 401:
                answer.headers["WWW-Authenticate"] = "Bearer"
            await answer(scope, receive, send_with_headers)
            return
        place.allow(self._request_s)
        await self._app({**scope, "path": path, "raw_path": path.encode("utf-8", "replace")}, receive, send_with_headers)

    def _checked(self, headers: Headers, given: str) -> tuple[int, str]:
        """Return the status and the reason of a refusal; 0 if the request is admitted."""
        status, why = self._access.foreignness(headers, links=False)
        if not status and not self._access.is_token(given):
            return 401, _REFUSED
        return status, why

    async def _checked_for_hook(self, headers: Headers, name: str) -> tuple[int, str]:
        """Return the same for a request to a hook, which may come under the names that the hook has."""
        asked = headers.get("host", "").lower()
        if asked not in self._access.hosts and {asked, asked.rpartition(":")[0]} & set(await self._hosts_of(name)):
            return self._access.foreignness(headers, {asked}, links=False)
        status, why = self._access.foreignness(headers, links=False)
        return status, why + (" If a tunnel brings this in, add the hook with --host and the tunnel's name." if status == 421 else "")


def _first(path: str) -> str:
    """Return the first name of a path."""
    return path.removeprefix("/").partition("/")[0]


def _token_of(headers: Headers, path: str) -> tuple[str, str]:
    """Return the token that a request carries, "" if none, and its path without it."""
    if path.startswith(_IN_PATH):
        token, _, rest = path.removeprefix(_IN_PATH).partition("/")
        return token, f"/{rest}"
    kind, _, value = headers.get("authorization", "")[:_LONGEST].partition(" ")
    value = value.strip()
    if kind.lower() == "bearer":
        return value, path
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode("utf-8", "replace").partition(":")[2], path
        except (binascii.Error, ValueError):
            return "", path
    return headers.get("x-api-key", ""), path
