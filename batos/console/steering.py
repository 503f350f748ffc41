"""What can be done to missions: give one, cancel it, let it rest, answer what it asks, say what you think of it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from batos.console.forms import form_of, needed, whole
from batos.console.seat import Seat, see_mission
from batos.errors import InvalidInput

_RATINGS = {"up": 1, "down": -1}


async def submit(seat: Seat, request: Request) -> Response:
    """Accept a brief. The form has the mission's id, so that sending it twice makes one mission."""
    form = await form_of(request, seat.settings.console_form_bytes)
    accepted = await seat.asker.ask(
        "submit",
        id=needed(form, "id"),
        brief=form.get("brief", ""),
        persona=form.get("persona") or None,
        context=form.get("context") or None,
        priority=whole(form.get("priority", ""), "priority"),
        may_ask=form.get("may_ask") == "yes" or None,
    )
    return see_mission(accepted["id"], "accepted", form.get("page", ""))


async def cancel(seat: Seat, request: Request) -> Response:
    return await _do(seat, request, "cancel", "cancelled")


async def pause(seat: Seat, request: Request) -> Response:
    return await _do(seat, request, "pause", "paused")


async def resume(seat: Seat, request: Request) -> Response:
    return await _do(seat, request, "resume", "resumed")


async def answer(seat: Seat, request: Request) -> Response:
    """Answer the question of a mission."""
    form = await form_of(request, seat.settings.console_form_bytes)
    id, text = needed(form, "id"), form.get("text", "").strip()
    await seat.asker.ask("answer", id=id, text=text, number=whole(form.get("number", ""), "number"))
    return see_mission(id, "answered", form.get("page", ""))


async def rate(seat: Seat, request: Request) -> Response:
    """Keep what the user thinks of a mission."""
    form = await form_of(request, seat.settings.console_form_bytes)
    id, given = needed(form, "id"), form.get("rating", "")
    if given not in _RATINGS:
        raise InvalidInput(f"a rating is {' or '.join(_RATINGS)}, not {given[:40]!r}")
    await seat.asker.ask("rate", id=id, rating=_RATINGS[given], why=form.get("why", "").strip())
    return see_mission(id, "rated")


async def _do(seat: Seat, request: Request, op: str, said: str) -> Response:
    form = await form_of(request, seat.settings.console_form_bytes)
    id = needed(form, "id")
    reply = await seat.asker.ask(op, id=id)
    return see_mission(id, "ended" if reply.get("already") else said, form.get("page", ""))
