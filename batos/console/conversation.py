"""The page of a conversation: missions that follow one another, and a box to go on."""

from __future__ import annotations

import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from batos.console.asking import Reply
from batos.console.forms import needed
from batos.console.missions import FINAL, SAID, answer_of
from batos.console.seat import Seat

TURNS = 50
"""Missions that one page shows at most, the newest; a link leads to those before."""


async def conversation(seat: Seat, request: Request) -> Response:
    """The conversation that a mission is part of: what it follows, and what has followed it since."""
    listed = (await seat.asker.ask("missions", limit=seat.settings.console_rows, system=False))["missions"]
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
    """The last mission that this one leads to, as far as the newest missions tell; of several that follow one it is the newest."""
    seen = {id}
    while id in followers and (following := followers[id][0]["id"]) not in seen:
        id = following
        seen.add(id)
    return id


async def _path(seat: Seat, id: str) -> list[Reply]:
    """The states of a mission and of those before it, the oldest first."""
    path: list[Reply] = []
    seen: set[str] = set()
    before: str | None = id
    while before is not None and before not in seen and len(path) < TURNS:
        seen.add(before)
        path.append(await seat.asker.ask("status", id=before))
        before = path[-1].get("context")
    return path[::-1]


def _turn(status: Reply, followers: dict[str, list[Reply]], path: list[Reply]) -> dict[str, Any]:
    """What the page shows of a mission. `others` have followed it, too, and are not on the page."""
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
        "told": told,
        "others": others,
    }
