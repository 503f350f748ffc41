"""Pages that undo: changes of missions and of the autotelic loop, and versions of methods.

Each shows first what the undo would do; after the user has agreed, it does so. An earlier version of a method is restored by a mission.
"""

from __future__ import annotations

import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batos.console.access import ConsoleLimits
from batos.console.api_client import Reply
from batos.console.pages import PageContext, form_of, needed, see_mission, url, whole
from batos.errors import InvalidInput, UndoConflict

_PAIR = 2  # two figures: before and after


STANDING = ("promoted", "kept")
"""States of a change of the autotelic loop that is in effect."""


async def overview(seat: PageContext, request: Request) -> Response:
    """Return the missions that changed the image, undone ones included, and the changes that the autotelic loop proposed or made."""
    listed = (await seat.asker.ask("missions", state="COMPLETE", limit=ConsoleLimits.of(seat.settings).rows))["missions"]
    own = (await seat.asker.ask("changes", limit=ConsoleLimits.of(seat.settings).rows))["changes"]
    return await seat.show("changes.html", "changes", "Changes", missions=listed, own=own)


async def change(seat: PageContext, request: Request) -> Response:
    """Show one change of the loop; if it is in the image, with the effect of its undo."""
    number = whole(needed(request.query_params, "number"), "number")
    (found,) = (await seat.asker.ask("changes", number=number))["changes"]
    told, conflict = None, None
    if found["state"] in STANDING:
        try:
            told = await seat.asker.ask("undo_change", number=number, dry=True)
        except UndoConflict as e:
            conflict = _told(e)
    title = f"{found['kind']} of {found['target']}"
    return await seat.show("change.html", "changes", title, change=found, figures=_figures(found), told=told, conflict=conflict)


async def undo_change(seat: PageContext, request: Request) -> Response:
    """Take a change of the loop's back; it is not made again."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    number = whole(needed(form, "number"), "number")
    await seat.asker.ask("undo_change", number=number, why=form.get("why", "").strip())
    return RedirectResponse(url("/change", number=number), 303)


def _figures(change: Reply) -> list[tuple[str, list[tuple[str, Any, Any]], Reply]]:
    """Return the figures of its rehearsal and its watch: for each its name, rows of before and with it, and further facts."""
    found = []
    for part, name in (("comparison", "Its rehearsal"), ("effect", "Its watch")):
        figures = change.get(part) or {}
        rows = _sides(figures)
        told = {row[0].partition(": ")[0] for row in rows} | {"without", "changed"}
        rest = {key: value for key, value in figures.items() if key not in told and value not in ("", [], None)}
        if rows or rest:
            found.append((name, rows, rest))
    return found


def _sides(figures: Reply) -> list[tuple[str, Any, Any]]:
    without, changed = figures.get("without"), figures.get("changed")
    if isinstance(without, dict) and isinstance(changed, dict):  # figures of a rehearsal
        return [(name, value, changed.get(name)) for name, value in without.items()]
    kinds = ((kind, pairs) for kind, pairs in figures.items() if isinstance(pairs, dict))  # figures of a watch
    return [
        (f"{kind}: {name}", *pair) for kind, pairs in kinds for name, pair in pairs.items() if isinstance(pair, list) and len(pair) == _PAIR
    ]


def _told(error: UndoConflict) -> Reply:
    return {"message": error.message, "conflicts": error.context.get("conflicts", []), "missions": error.context.get("missions", [])}


async def preview_undo(seat: PageContext, request: Request) -> Response:
    """Show the effect of an undo or a redo, by a dry run, and the later work that conflicts with it."""
    query = request.query_params
    id, redo, cascade = needed(query, "id"), query.get("redo") == "1", query.get("cascade") == "1"
    status = await seat.asker.ask("status", id=id)
    told, conflict = None, None
    try:
        told = await seat.asker.ask("undo", id=id, redo=redo, cascade=cascade, dry=True)
    except UndoConflict as e:
        conflict = _told(e)
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


async def undo(seat: PageContext, request: Request) -> Response:
    """Undo only the missions that the user agreed to: the form names the missions of the preview."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    id, redo = needed(form, "id"), form.get("redo") == "1"
    done = await seat.asker.ask(
        "undo", id=id, redo=redo, cascade=(form.get("cascade") == "1" and not redo), expect=form.getlist("expect") or None
    )
    said = "already" if done.get("already") else "redone" if redo else "undone"
    return see_mission(id, said)


BEFORE_ALL = 0
"""Stands for the state before the first version: an intent, or nothing."""


async def preview_revert(seat: PageContext, request: Request) -> Response:
    """Show the version that would be restored, beside the current one."""
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


async def revert(seat: PageContext, request: Request) -> Response:
    """Have a mission restore a former version of a method. The form has its id, so that sending it twice makes one version."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    id = needed(form, "id")
    version = whole(needed(form, "version"), "version")
    await seat.asker.ask("revert", id=id, target=needed(form, "target"), selector=needed(form, "selector"), version=version)
    return see_mission(id, "accepted")
