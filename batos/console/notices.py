"""Pages of notices: the channels with what waits for each, and the messages with what became of them; test, pause, resume, remove."""

from __future__ import annotations

import time
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batos.console.access import ConsoleLimits
from batos.console.pages import PageContext, form_of, needed, url

_KEPT = 500
_WEEK_S = 7 * 86400.0
_UNSURE = ("FAILED", "IN_DOUBT")
_SAID = {
    "paused": "It rests. Its notices wait.",
    "resumed": "It goes on, with the notices that waited.",
    "removed": "It is removed, with its waiting notices and its secret.",
    "told": "The test was sent; see whether it arrived.",
    "untold": "The test was not sent for sure; the first message below says why.",
}


async def overview(seat: PageContext, request: Request) -> Response:
    """Return the channels, the messages that may not have arrived, and the last other ones."""
    told = await seat.asker.ask("notices")
    messages = await _messages(seat)
    lost = [one for one in messages if one["unsure"]]
    rest = [one for one in messages if not one["unsure"]]
    rows = ConsoleLimits.of(seat.settings).rows
    return await seat.show(
        "notices.html",
        "notices",
        "Notices",
        channels=told["channels"],
        tied=told["tied"],
        lost=lost[:rows],
        lost_count=len(lost),
        messages=rest[:rows],
        count=len(rest),
        said=_SAID.get(request.query_params.get("said", ""), ""),
    )


async def one(seat: PageContext, request: Request) -> Response:
    """Show a channel: its place and rule, what waits for it, and its last messages."""
    told = await seat.asker.ask("notices", name=needed(request.query_params, "name"))
    found = told["channels"][0]
    messages = await _messages(seat, found["name"])
    rows, said = ConsoleLimits.of(seat.settings).rows, request.query_params.get("said", "")
    return await seat.show(
        "notice.html",
        "notices",
        found["name"],
        channel=found,
        tied=told["tied"],
        messages=messages[:rows],
        count=len(messages),
        said=_SAID.get(said, ""),
        failed=said == "untold",
        new_id=str(uuid.uuid4()),
    )


async def _messages(seat: PageContext, name: str | None = None) -> list[dict[str, Any]]:
    """Return the messages that are kept, the newest first; `unsure` is True for one of the last week that may not have arrived."""
    messages = (await seat.asker.ask("notice_log", name=name, limit=_KEPT))["messages"]
    since = time.time() - _WEEK_S
    return [{**one, "unsure": one["state"] in _UNSURE and not one["again"] and one["at"] > since} for one in messages]


async def test(seat: PageContext, request: Request) -> Response:
    """Send a test to a channel, and show what became of it. The same form, sent again, sends no other one."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    name = needed(form, "name")
    done = await seat.asker.ask("notice_test", name=name, id=needed(form, "id"))
    return _see(name, "told" if done["messages"][0]["state"] == "DONE" else "untold")


async def pause(seat: PageContext, request: Request) -> Response:
    """Let a channel rest."""
    name = await _name(seat, request)
    await seat.asker.ask("notice_pause", name=name)
    return _see(name, "paused")


async def resume(seat: PageContext, request: Request) -> Response:
    """Let a channel go on."""
    name = await _name(seat, request)
    await seat.asker.ask("notice_resume", name=name)
    return _see(name, "resumed")


async def remove(seat: PageContext, request: Request) -> Response:
    """Remove a channel, its waiting notices and its secret."""
    await seat.asker.ask("notice_remove", name=await _name(seat, request))
    return RedirectResponse(url("/notices", said="removed"), 303)


async def _name(seat: PageContext, request: Request) -> str:
    return needed(await form_of(request, ConsoleLimits.of(seat.settings).form_bytes), "name")


def _see(name: str, said: str) -> Response:
    return RedirectResponse(url("/notice", name=name, said=said), 303)
