"""In and out: the page that asks for the token, and what ends a session."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batos.console.access import TOKEN_NAME
from batos.console.forms import form_of
from batos.console.guard import let_in
from batos.console.seat import Seat


async def page(seat: Seat, why: str) -> Response:
    """The page that asks for the token, for who has no session."""
    return await seat.views.page("entrance.html", 401, why=why, file=str(seat.settings.data / TOKEN_NAME))


async def ask(seat: Seat, request: Request) -> Response:
    return await page(seat, "")


async def enter(seat: Seat, request: Request) -> Response:
    """Let in who has the token."""
    form = await form_of(request, seat.settings.console_form_bytes)
    if not seat.access.is_token(form.get("token", "").strip()):
        return await page(seat, "That is not the token of this data folder.")
    return await let_in(seat.access, seat.sessions, request.headers, "/")


async def leave(seat: Seat, request: Request) -> Response:
    """End the session of this browser: who has a copy of its cookie has nothing."""
    await asyncio.to_thread(seat.sessions.end, request.state.session)
    return await _left(seat)


async def leave_all(seat: Seat, request: Request) -> Response:
    """End every session."""
    await asyncio.to_thread(seat.sessions.end_all)
    return await _left(seat)


async def _left(seat: Seat) -> Response:
    await seat.feed.shut_ended(seat.sessions.is_open)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(seat.access.cookie_name, path="/", httponly=True, samesite="strict")
    return answer
