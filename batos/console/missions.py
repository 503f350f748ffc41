"""Pages of missions: the list, one mission, and a conversation.

The page of a mission shows its thought, its recalled passages and its cost, with forms to cancel, pause, answer and rate it. A conversation
shows missions that follow one another, and a box for the next.
"""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from batos.config import Settings
from batos.console.access import ConsoleLimits
from batos.console.api_client import Asker, Reply
from batos.console.live_events import EventStream, Rows
from batos.console.pages import THINKING, PageContext, Views, form_of, needed, see_mission, whole
from batos.errors import InvalidInput

FINAL = ("COMPLETE", "FAILED")
STATES = ("ACCEPTED", *THINKING, "NEEDS_INPUT", "PROVISIONING", "PAUSED", *FINAL)
WORDS_CHARS = 1000
IMAGE_FORMATS = ("image/png", "image/jpeg", "image/webp")
"""Formats of images that the console serves; none of them holds a script."""
SAID = {
    "accepted": "The mission is accepted, and on disk.",
    "cancelled": "The mission was cancelled.",
    "paused": "The mission rests until you resume it.",
    "resumed": "The mission goes on.",
    "ended": "The mission had already ended and is unchanged.",
    "answered": "The mission has your answer, and goes on.",
    "rated": "Thank you: your rating is kept with the mission.",
    "undone": "What the mission did is taken back.",
    "redone": "What the mission did is done again.",
    "already": "It was already so; nothing was changed.",
    "continued": "The mission goes on with what was changed, and with all that it has paid for.",
    "settled": "The effect's end is recorded as you said.",
}
"""Messages that a page shows after an action."""


async def overview(seat: PageContext, request: Request) -> Response:
    """Return the missions, and a form for a new one; those that the system gave itself where they are asked for."""
    state, before = (request.query_params.get(name) or None for name in ("state", "before"))
    words, everyone = (request.query_params.get("q") or "")[:WORDS_CHARS], bool(request.query_params.get("all"))
    rows = ConsoleLimits.of(seat.settings).rows
    wanted = {"state": state, "before": before, "words": words or None, "system": everyone}
    listed = (await seat.asker.ask("missions", limit=rows, **wanted))["missions"]
    info = await seat.asker.ask("info")
    return await seat.show(
        "missions.html",
        "missions",
        "Missions",
        missions=listed,
        info=info,
        state=state,
        everyone=everyone,
        states=STATES,
        words=words,
        before=before,
        older=listed[-1]["id"] if len(listed) == rows else None,
        new_id=str(uuid.uuid4()),
        brief=request.query_params.get("brief", ""),
        context=request.query_params.get("context", ""),
    )


async def rows(asker: Asker, views: Views, settings: Settings) -> Rows:
    """Return the rows of the missions page as they are now, by mission."""
    listed = (await asker.ask("missions", limit=ConsoleLimits.of(settings).rows, system=False))["missions"]
    made = await views.each("parts.html", "row", listed)
    return dict(zip((one["id"] for one in listed), made, strict=True))


async def live(seat: PageContext, request: Request) -> Response:
    """Return the stream of the missions page."""
    page = seat.feed.open(request.state.session)
    seat.feed.follow(page)
    return EventStream(seat.feed, page)


async def mission(seat: PageContext, request: Request) -> Response:
    """Show one mission."""
    id = needed(request.query_params, "id")
    status = await seat.asker.ask("status", id=id)
    shown = await seat.asker.ask("show", target=id)
    if "record" not in shown:
        raise InvalidInput(f"the mission {id!r} has the name of an object, which is shown in its place; look for it with `batos status`")
    record = shown["record"]
    ended = status["state"] in FINAL
    effects = (await seat.asker.ask("effects", mission=id, limit=ConsoleLimits.of(seat.settings).rows))["effects"]
    text, value = answer_of(record.get("result") or {})
    return await seat.show(
        "mission.html",
        "missions",
        record["brief"][:80],
        mission={**record, "state": status["state"], "persona": status.get("persona") or record["persona"], "oid": shown["oid"]},
        place=status.get("place"),
        why=status.get("why"),
        text=text,
        value=value,
        ended=ended,
        effects=effects,
        question=next((asked for asked in record["questions"] if asked["answer"] is None), None) if not ended else None,
        said=SAID.get(request.query_params.get("said", ""), ""),
        dearest=max((row["model_ms"] for row in record["cost"]), default=0) or 1,
    )


def answer_of(result: Reply) -> tuple[str, Any]:
    """Return the text of a result, and its value if that says more than the text."""
    text, value = str(result.get("text") or ""), result.get("value")
    if not isinstance(value, dict | list):
        return text, None
    try:
        same = json.loads(text) == value
    except ValueError:
        same = False
    return "" if same else text, value


async def mission_live(seat: PageContext, request: Request) -> Response:
    """Return the stream of one mission's page."""
    page = seat.feed.open(request.state.session)
    try:
        await seat.asker.tell(page, "watch", id=needed(request.query_params, "id"))
    except BaseException:
        seat.feed.shut(page)
        raise
    return EventStream(seat.feed, page)


_RATINGS = {"up": 1, "down": -1}


async def submit(seat: PageContext, request: Request) -> Response:
    """Accept a brief. The form has the mission's id, so that sending it twice makes one mission."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
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


async def cancel(seat: PageContext, request: Request) -> Response:
    """Cancel a mission."""
    return await _do(seat, request, "cancel", "cancelled")


async def pause(seat: PageContext, request: Request) -> Response:
    """Let a mission rest until it is resumed."""
    return await _do(seat, request, "pause", "paused")


async def resume(seat: PageContext, request: Request) -> Response:
    """Let a paused mission go on."""
    return await _do(seat, request, "resume", "resumed")


async def answer(seat: PageContext, request: Request) -> Response:
    """Answer the question of a mission."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    id, text = needed(form, "id"), form.get("text", "").strip()
    await seat.asker.ask("answer", id=id, text=text, number=whole(form.get("number", ""), "number"))
    return see_mission(id, "answered", form.get("page", ""))


async def rate(seat: PageContext, request: Request) -> Response:
    """Store the user's rating of a mission."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    id, given = needed(form, "id"), form.get("rating", "")
    if given not in _RATINGS:
        raise InvalidInput(f"a rating is {' or '.join(_RATINGS)}, not {given[:40]!r}")
    await seat.asker.ask("rate", id=id, rating=_RATINGS[given], why=form.get("why", "").strip())
    return see_mission(id, "rated")


async def _do(seat: PageContext, request: Request, op: str, said: str) -> Response:
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    id = needed(form, "id")
    reply = await seat.asker.ask(op, id=id)
    return see_mission(id, "ended" if reply.get("already") else said, form.get("page", ""))


TURNS = 50
"""Most missions on one page, the newest ones. A link leads to the earlier missions."""


async def conversation(seat: PageContext, request: Request) -> Response:
    """Return the conversation of a mission: the missions that it follows, and those that follow it."""
    listed = (await seat.asker.ask("missions", limit=ConsoleLimits.of(seat.settings).rows, system=False))["missions"]
    followers: dict[str, list[Reply]] = {}
    for one in listed:
        followers.setdefault(one.get("context", ""), []).append(one)
    path = await _path(seat, _newest(needed(request.query_params, "id"), followers))
    turns = [_turn(status, followers, path) for status in path]
    last = path[-1]
    ended = last["state"] in FINAL
    return await seat.show(
        "conversation.html",
        "missions",
        path[0]["brief"][:80],
        turns=turns,
        last=last,
        ended=ended,
        question=None if ended else last.get("question"),
        earlier=path[0].get("context"),
        personas=(await seat.asker.ask("info"))["personas"],
        new_id=str(uuid.uuid4()),
        said=SAID.get(request.query_params.get("said", ""), ""),
    )


def _newest(id: str, followers: dict[str, list[Reply]]) -> str:
    """Return the last mission that this one leads to, as far as the newest missions tell; of several that follow one it is the newest."""
    seen = {id}
    while id in followers and (following := followers[id][0]["id"]) not in seen:
        id = following
        seen.add(id)
    return id


async def image(seat: PageContext, request: Request) -> Response:
    """Return an image that was given to a mission, as what it was found to be when it was uploaded."""
    named = {name: needed(request.query_params, name) for name in ("id", "digest")}
    data, size = bytearray(), 1
    while len(data) < size:
        part = await seat.asker.ask("image", **named, offset=len(data))
        size = part["bytes"]
        data += base64.b64decode(part["data"])
    if part["format"] not in IMAGE_FORMATS:
        raise InvalidInput(f"the image is {part['format']}, which the console does not show")
    return Response(bytes(data), media_type=part["format"], headers={"Content-Disposition": "inline"})


async def _path(seat: PageContext, id: str) -> list[Reply]:
    """Return the states of a mission and of those before it, the oldest first."""
    path: list[Reply] = []
    seen: set[str] = set()
    before: str | None = id
    while before is not None and before not in seen and len(path) < TURNS:
        seen.add(before)
        path.append(await seat.asker.ask("status", id=before))
        before = path[-1].get("context")
    return path[::-1]


def _turn(status: Reply, followers: dict[str, list[Reply]], path: list[Reply]) -> dict[str, Any]:
    """Return the data of a mission for its page. `others` follow it, too, and are not on the page."""
    result = status.get("result") or {}
    text, value = answer_of(result)
    shown = {one["id"] for one in path}
    others = [one for one in followers.get(status["id"], ()) if one["id"] not in shown]
    told = [one for one in status.get("questions", ()) if one["answer"] is not None]
    return {
        **status,
        "text": text,
        "value": value,
        "citations": result.get("citations"),
        "quoted": bool(result.get("quoted")),
        "by_rule": bool(result.get("by_rule")),
        "told": told,
        "others": others,
    }
