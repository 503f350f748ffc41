"""What missions did to the image, and taking it back: first what that would do, then, when it was agreed to, the doing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from batos.console.forms import form_of, needed
from batos.console.seat import Seat, see_mission
from batos.errors import UndoConflict


async def overview(seat: Seat, request: Request) -> Response:
    """The missions whose work is in the image, or was."""
    listed = (await seat.asker.ask("missions", state="COMPLETE", limit=seat.settings.console_rows))["missions"]
    return await seat.show("changes.html", "changes", "Changes", missions=listed)


async def preview(seat: Seat, request: Request) -> Response:
    """What an undo, or a redo, would do: a dry run. Where later work stands in its way, which."""
    query = request.query_params
    id, redo, cascade = needed(query, "id"), query.get("redo") == "1", query.get("cascade") == "1"
    status = await seat.asker.ask("status", id=id)
    told, conflict = None, None
    try:
        told = await seat.asker.ask("undo", id=id, redo=redo, cascade=cascade, dry=True)
    except UndoConflict as e:
        conflict = {"message": e.message, "conflicts": e.context.get("conflicts", []), "missions": e.context.get("missions", [])}
    return await seat.show(
        "undo.html",
        "changes",
        "Redo" if redo else "Undo",
        id=id,
        brief=status["brief"],
        redo=redo,
        cascade=cascade,
        told=told,
        conflict=conflict,
    )


async def undo(seat: Seat, request: Request) -> Response:
    """Undo what was agreed to, and no more: the form names the missions that the preview showed."""
    form = await form_of(request, seat.settings.console_form_bytes)
    id, redo = needed(form, "id"), form.get("redo") == "1"
    done = await seat.asker.ask(
        "undo", id=id, redo=redo, cascade=(form.get("cascade") == "1" and not redo), expect=form.getlist("expect") or None
    )
    said = "already" if done.get("already") else "redone" if redo else "undone"
    return see_mission(id, said)
