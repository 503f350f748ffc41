"""Login and guard of the console: the checks of `Access`, sessions, places, the headers of every answer, and the login and logout pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batos.console.access import TOKEN_NAME, Access, ConsoleLimits, Sessions
from batos.console.connections import ConnectionSlot
from batos.console.pages import PageContext, form_of

# Pages need only their own files: no inline script or style, no frame around a page, no form that goes to another site.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would hide the Origin of the console's own forms, too
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
PUBLIC = ("/static/", "/login")
"""Paths that need no session: the page that asks for the token, and its static files."""

Page = Callable[[int, str], Awaitable[Response]]


class Guard:
    """An ASGI application in front of another one."""

    def __init__(self, app: ASGIApp, access: Access, sessions: Sessions, refused: Page, request_s: float) -> None:
        """
        :param refused: makes the page for a status and a reason; 401 asks for the token.
        :param request_s: seconds in which a request with a session must have arrived.
        """
        self._app, self._access, self._sessions, self._refused, self._request_s = app, access, sessions, refused, request_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # no websockets and no lifespan: the server is configured likewise

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = await self._checked(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    async def _checked(self, scope: Scope) -> Response | None:
        """Return the refusal of a request; None if it is admitted."""
        access, headers, query = self._access, Headers(scope=scope), QueryParams(scope["query_string"])
        place: ConnectionSlot = scope["state"]["place"]
        place.ask()
        if refusal := access.refusal(scope["method"], headers):
            return await self._refused(access.foreignness(headers)[0] or 403, refusal)
        if scope["path"].startswith(PUBLIC):
            return None
        if "token" in query:  # a link from the terminal: remove the token from the address bar
            if not access.is_token(query["token"]):
                return await self._refused(401, "That is not the token of this data folder.")
            left = urlencode([(name, value) for name, value in query.multi_items() if name != "token"])
            return await let_in(access, self._sessions, headers, scope["path"] + (f"?{left}" if left else ""))
        session = cookie_of(headers, access.cookie_name)
        if not await asyncio.to_thread(self._sessions.is_open, session):
            place.stand()
            return await self._refused(401, "")
        if not place.sit("page"):
            return await self._refused(503, "Too many connections of browsers that are signed in; close some of their pages.")
        place.allow(self._request_s)
        scope["state"]["session"] = session
        return None


async def let_in(access: Access, sessions: Sessions, headers: Headers, path: str) -> Response:
    """Return a redirect to a page, with the cookie of a new session, which takes the place of the one that the browser had."""
    session = await asyncio.to_thread(sessions.begin, instead=cookie_of(headers, access.cookie_name))
    answer = RedirectResponse(path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/", 303)
    answer.set_cookie(access.cookie_name, session, max_age=access.session_s, httponly=True, samesite="strict", path="/")
    return answer


def cookie_of(headers: Headers, name: str) -> str:
    """Return the value of a cookie; "" if there is none."""
    # Parse cookies as browsers do: other programs of this machine set cookies that come here, too.
    # The standard library returns no cookie at all if one of those is malformed.
    return cookie_parser(headers.get("cookie", "")).get(name, "")


async def login_page(seat: PageContext, why: str) -> Response:
    """Return the page that asks a user without a session for the token."""
    return await seat.views.page("entrance.html", 401, why=why, file=str(seat.settings.data / TOKEN_NAME))


async def ask_token(seat: PageContext, request: Request) -> Response:
    """Ask for the token."""
    return await login_page(seat, "")


async def enter(seat: PageContext, request: Request) -> Response:
    """Begin a session for a user who has the token."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    if not seat.access.is_token(form.get("token", "").strip()):
        return await login_page(seat, "That is not the token of this data folder.")
    return await let_in(seat.access, seat.sessions, request.headers, "/")


async def leave(seat: PageContext, request: Request) -> Response:
    """End the session of this browser. Copies of its cookie become useless."""
    await asyncio.to_thread(seat.sessions.end, request.state.session)
    return await _left(seat)


async def leave_all(seat: PageContext, request: Request) -> Response:
    """End every session."""
    await asyncio.to_thread(seat.sessions.end_all)
    return await _left(seat)


async def _left(seat: PageContext) -> Response:
    await seat.feed.shut_ended(seat.sessions.is_open)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(seat.access.cookie_name, path="/", httponly=True, samesite="strict")
    return answer
