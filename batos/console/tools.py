"""The page of tools: connections, grants, and what missions did outside, with what is in doubt."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batos.console.access import ConsoleLimits
from batos.console.pages import PageContext, form_of, needed, see_mission, url, whole

_WORDS_CHARS = 200


async def overview(seat: PageContext, request: Request) -> Response:
    """Return the connections, the grants, the effects in doubt, and the last ones that ended."""
    rows = ConsoleLimits.of(seat.settings).rows
    told = await seat.asker.ask("tools")
    grants = (await seat.asker.ask("tool_grants"))["grants"]
    doubts = (await seat.asker.ask("effects", doubt=True, limit=rows))["effects"]
    effects = (await seat.asker.ask("effects", limit=rows))["effects"]
    keys = {one["key"] for one in doubts}
    words = request.query_params.get("q", "").strip()[:_WORDS_CHARS]
    return await seat.show(
        "tools.html",
        "tools",
        "Tools",
        connections=[_with_tools_found(one, words, rows) for one in told["connections"]],
        words=words,
        tied=told["tied"],
        grants=grants,
        doubts=doubts,
        effects=[one for one in effects if one["key"] not in keys],
    )


def _with_tools_found(connection: dict[str, Any], words: str, most: int) -> dict[str, Any]:
    """Return a connection with those of its tools whose lines have all words (`found`), at most `most` (`listed`)."""
    sought = words.casefold().split()
    found = [one for one in connection["tools"] if all(word in f"{one['line']} {one['class']}".casefold() for word in sought)]
    return {**connection, "found": len(found), "listed": found[:most]}


async def settle(seat: PageContext, request: Request) -> Response:
    """Settle an effect in doubt, as the user said; return to the page on which that was said."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    done = await seat.asker.ask("effect_settle", key=needed(form, "key"), how=needed(form, "how"))
    if form.get("page") == "mission":
        return see_mission(done["effects"][0]["mission"], "settled")
    return RedirectResponse(url("/tools"), 303)


async def ungrant(seat: PageContext, request: Request) -> Response:
    """Remove a grant."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    await seat.asker.ask("tool_ungrant", number=whole(needed(form, "number"), "number"))
    return RedirectResponse(url("/tools"), 303)
