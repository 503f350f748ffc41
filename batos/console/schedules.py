"""Pages of schedules: what they are and when they run next; new ones; pause, run now, remove."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batos.console.access import ConsoleLimits
from batos.console.pages import PageContext, form_of, needed, see_mission, url, whole
from batos.errors import InvalidInput, UnknownPersona

_WORDS_CHARS = 200
_NEVER = 2.0**63  # sorts what does not run any more behind all that does
_EXAMPLES = (
    "every weekday at 8:00", "every monday and friday at 9:30", "on the first of each month at 7", "every 2 hours", "tomorrow at 8",
    "0 8 * * 1-5",
)  # fmt: skip
_FIELDS = ("brief", "when", "zone", "name", "persona", "missed", "stop_after")
_SAID = {
    "added": "It is added. It runs at the times below; if they are not meant so, remove it and say it in other words.",
    "paused": "It rests.",
    "resumed": "It goes on.",
    "removed": "It is removed; its missions stay.",
}


async def overview(seat: PageContext, request: Request) -> Response:
    """Return the schedules, those that run next first, and a form for a new one."""
    return await _listed(seat, request.query_params)


async def _listed(seat: PageContext, query: Mapping[str, str], given: Mapping[str, str] | None = None, why: str = "") -> Response:
    """Return the list.

    :param given: the fields of a form that was refused.
    :param why: the reason.
    """
    words = query.get("q", "").strip()[:_WORDS_CHARS]
    found = [one for one in (await seat.asker.ask("schedules"))["schedules"] if _fits(one, words)]
    found.sort(key=lambda one: (one["next"] or _NEVER, one["name"]))
    return await seat.show(
        "schedules.html",
        "schedules",
        "Schedules",
        400 if why else 200,
        schedules=found[: ConsoleLimits.of(seat.settings).rows],
        count=len(found),
        words=words,
        personas=(await seat.asker.ask("info"))["personas"],
        examples=_EXAMPLES,
        given={name: (given or {}).get(name, "") for name in _FIELDS},
        why=why,
        said=_SAID.get(query.get("said", ""), ""),
    )


def _fits(schedule: dict[str, Any], words: str) -> bool:
    text = f"{schedule['name']} {schedule['when']} {schedule['brief']}".casefold()
    return all(word in text for word in words.casefold().split())


async def one(seat: PageContext, request: Request) -> Response:
    """Show a schedule: what it says, its next times and its last runs."""
    found = (await seat.asker.ask("schedules", name=needed(request.query_params, "name")))["schedules"][0]
    said = _SAID.get(request.query_params.get("said", ""), "")
    return await seat.show("schedule.html", "schedules", found["name"], schedule=found, said=said, new_id=str(uuid.uuid4()))


async def add(seat: PageContext, request: Request) -> Response:
    """Add a schedule, and say back when it runs; return the form with the reason where it is refused."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    terms = {name: form.get(name, "").strip() or None for name in ("zone", "name", "persona", "missed")}
    try:
        stop_after = whole(form.get("stop_after", ""), "stop_after")
        made = await seat.asker.ask("schedule_add", when=needed(form, "when"), brief=needed(form, "brief"), stop_after=stop_after, **terms)
    except (InvalidInput, UnknownPersona) as e:
        return await _listed(seat, {}, form, e.message)
    return _see(made["schedules"][0]["name"], "added")


async def pause(seat: PageContext, request: Request) -> Response:
    """Let a schedule rest."""
    name = await _name(seat, request)
    await seat.asker.ask("schedule_pause", name=name)
    return _see(name, "paused")


async def resume(seat: PageContext, request: Request) -> Response:
    """Let a schedule go on."""
    name = await _name(seat, request)
    await seat.asker.ask("schedule_resume", name=name)
    return _see(name, "resumed")


async def run(seat: PageContext, request: Request) -> Response:
    """Make a mission of a schedule now; show it. The same form, sent again, makes no other one."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    done = await seat.asker.ask("schedule_run", name=needed(form, "name"), id=needed(form, "id"))
    return see_mission(done["id"], "accepted")


async def remove(seat: PageContext, request: Request) -> Response:
    """Remove a schedule."""
    await seat.asker.ask("schedule_remove", name=await _name(seat, request))
    return RedirectResponse(url("/schedules", said="removed"), 303)


async def _name(seat: PageContext, request: Request) -> str:
    return needed(await form_of(request, ConsoleLimits.of(seat.settings).form_bytes), "name")


def _see(name: str, said: str) -> Response:
    return RedirectResponse(url("/schedule", name=name, said=said), 303)
