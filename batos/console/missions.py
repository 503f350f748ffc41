"""The missions page, and the page of one mission: its thought, what it recalled, what it cost."""

from __future__ import annotations

import json
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from batos.config import Settings
from batos.console.asking import Asker, Reply
from batos.console.feed import EventStream, Rows
from batos.console.forms import needed
from batos.console.seat import Seat
from batos.console.views import THINKING, Views
from batos.errors import InvalidInput

FINAL = ("COMPLETE", "FAILED")
STATES = ("ACCEPTED", *THINKING, "NEEDS_INPUT", "PROVISIONING", "PAUSED", *FINAL)
WORDS_CHARS = 1000
SAID = {
    "accepted": "The mission is accepted, and on disk.",
    "cancelled": "The mission was cancelled.",
    "paused": "The mission rests until you resume it.",
    "resumed": "The mission goes on.",
    "ended": "The mission had ended before, and stays as it is.",
    "answered": "The mission has your answer, and goes on.",
    "rated": "Thank you: your rating is kept with the mission.",
    "undone": "What the mission did is taken back.",
    "redone": "What the mission did is done again.",
    "already": "It was so before; nothing had to be done.",
}
"""What a page says after something was done."""


async def overview(seat: Seat, request: Request) -> Response:
    """The missions, and a form for a new one; those that the system gave itself where they are asked for."""
    state, before = (request.query_params.get(name) or None for name in ("state", "before"))
    words, everyone = (request.query_params.get("q") or "")[:WORDS_CHARS], bool(request.query_params.get("all"))
    rows = seat.settings.console_rows
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
    """The rows of the missions page as they are now, by mission."""
    listed = (await asker.ask("missions", limit=settings.console_rows, system=False))["missions"]
    made = await views.each("parts.html", "row", listed)
    return dict(zip((one["id"] for one in listed), made, strict=True))


async def live(seat: Seat, request: Request) -> Response:
    """The stream of the missions page."""
    page = seat.feed.open(request.state.session)
    seat.feed.follow(page)
    return EventStream(seat.feed, page)


async def mission(seat: Seat, request: Request) -> Response:
    """One mission."""
    id = needed(request.query_params, "id")
    status = await seat.asker.ask("status", id=id)
    shown = await seat.asker.ask("show", target=id)
    if "record" not in shown:
        raise InvalidInput(f"the mission {id!r} has the name of an object, which is shown in its place; look for it with `batos status`")
    record = shown["record"]
    ended = status["state"] in FINAL
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
        question=next((asked for asked in record["questions"] if asked["answer"] is None), None) if not ended else None,
        said=SAID.get(request.query_params.get("said", ""), ""),
        dearest=max((row["model_ms"] for row in record["cost"]), default=0) or 1,
    )


def answer_of(result: Reply) -> tuple[str, Any]:
    """What to show of a result: its text, and its value where that says more than the text."""
    text, value = str(result.get("text") or ""), result.get("value")
    if not isinstance(value, dict | list):
        return text, None
    try:
        same = json.loads(text) == value
    except ValueError:
        same = False
    return "" if same else text, value


async def mission_live(seat: Seat, request: Request) -> Response:
    """The stream of one mission's page."""
    page = seat.feed.open(request.state.session)
    try:
        await seat.asker.tell(page, "watch", id=needed(request.query_params, "id"))
    except BaseException:
        seat.feed.shut(page)
        raise
    return EventStream(seat.feed, page)
