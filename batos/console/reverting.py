"""Bringing an earlier version of a method back: first what that would change, then, when it was agreed to, a mission that does it."""

from __future__ import annotations

import uuid

from starlette.requests import Request
from starlette.responses import Response

from batos.console.forms import form_of, needed, whole
from batos.console.seat import Seat, see_mission
from batos.errors import InvalidInput

BEFORE_ALL = 0
"""Stands for what was there before the first version: an intent, or nothing."""


async def preview(seat: Seat, request: Request) -> Response:
    """What would be in force instead, beside what is."""
    query = request.query_params
    target, selector = needed(query, "target"), needed(query, "selector")
    version = whole(needed(query, "version"), "version")
    told = await seat.asker.ask("method", target=target, selector=selector)
    newest, *earlier = told["versions"] or [None]
    wanted = next((one for one in earlier if one["version"] == version), None)
    if newest is None or (wanted is None and version != BEFORE_ALL):
        raise InvalidInput(f"{selector!r} has no version {version} that could be brought back")
    return await seat.show(
        "revert.html",
        "objects",
        f"Bring back {selector}",
        target=target,
        selector=selector,
        holder=told["holder"],
        newest=newest,
        wanted=wanted,
        intent=newest["provenance"].get("intent", ""),
        new_id=str(uuid.uuid4()),
    )


async def revert(seat: Seat, request: Request) -> Response:
    """Have it done, by a mission. The form has the mission's id, so that sending it twice makes one version."""
    form = await form_of(request, seat.settings.console_form_bytes)
    id = needed(form, "id")
    version = whole(needed(form, "version"), "version")
    await seat.asker.ask("revert", id=id, target=needed(form, "target"), selector=needed(form, "selector"), version=version)
    return see_mission(id, "accepted")
