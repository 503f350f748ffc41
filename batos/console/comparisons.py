"""Pages of comparisons side by side: the list, a new one with its cost, the report, and the judging of pairs without knowing the sides."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batos.console.access import ConsoleLimits
from batos.console.pages import PageContext, form_of, needed, url, whole
from batos.errors import InvalidInput, UnknownPersona

UNDER_WAY = ("waiting", "running")
_FIELDS = ("persona", "other", "missions", "match", "judge", "rules", "inferences")
_SAID = {
    "begun": "It has begun. It takes its turns behind your missions.",
    "resumed": "It goes on where it was.",
    "stopped": "It is stopped; what it has paid for stays.",
    "promoted": "It is so now.",
    "removed": "It is forgotten.",
}


async def overview(seat: PageContext, request: Request) -> Response:
    """Return the comparisons, and a form for a new one."""
    return await _listed(seat, request.query_params)


async def _listed(seat: PageContext, query: Mapping[str, str], why: str = "") -> Response:
    found = (await seat.asker.ask("compare.list", limit=ConsoleLimits.of(seat.settings).rows))["comparisons"]
    info = await seat.asker.ask("info")
    return await seat.show(
        "comparisons.html",
        "compare",
        "Compare",
        400 if why else 200,
        comparisons=found,
        personas=info["personas"],
        models=[one["name"] for one in info["models"]],
        given={name: query.get(name, "") for name in _FIELDS},
        why=why,
        said=_SAID.get(query.get("said", ""), ""),
    )


async def plan(seat: PageContext, request: Request) -> Response:
    """Show what would be compared and what it would cost; return to the form with the reason where that makes no sense."""
    query = request.query_params
    id = f"{query.get('persona', '').strip().lower() or 'c'}-{uuid.uuid4().hex[:6]}"
    try:
        told = await seat.asker.ask("compare.start", id=id, dry=True, **_terms(query))
    except (InvalidInput, UnknownPersona) as e:
        return await _listed(seat, query, e.message)
    given = {name: query.get(name, "") for name in _FIELDS}
    return await seat.show("compare_plan.html", "compare", told["words"], plan=told, given=given, id=id)


def _terms(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the terms of a comparison from the fields of a form."""
    rules = [rule.strip() for rule in fields.get("rules", "").split(",") if rule.strip()]
    terms = {name: fields.get(name, "").strip() or None for name in ("persona", "other", "match", "judge")}
    numbers = {name: whole(fields.get(name, ""), name) for name in ("missions", "inferences")}
    return {**terms, **numbers, "rules": rules if terms["judge"] == "rules" else None}


async def start(seat: PageContext, request: Request) -> Response:
    """Begin a comparison. The form has its id, so that sending it twice begins one."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    id = needed(form, "id")
    await seat.asker.ask("compare.start", id=id, **_terms(form))
    return _see(id, "begun")


async def one(seat: PageContext, request: Request) -> Response:
    """Show the report of a comparison."""
    told = await seat.asker.ask("compare.show", id=needed(request.query_params, "id"))
    said = _SAID.get(request.query_params.get("said", ""), "")
    return await seat.show("comparison.html", "compare", told["words"], one=told, under_way=told["state"] in UNDER_WAY, said=said)


async def judge(seat: PageContext, request: Request) -> Response:
    """Show the next pair to judge, left and right; the report when there is none."""
    id = needed(request.query_params, "id")
    pair = (await seat.asker.ask("compare.next", id=id))["pair"]
    if pair is None:
        return _see(id)
    return await seat.show("compare_judge.html", "compare", f"Pair {pair['judged'] + 1} of {pair['of']}", id=id, pair=pair)


async def judged(seat: PageContext, request: Request) -> Response:
    """Keep a judgement, and go on to the next pair."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    id, verdict = needed(form, "id"), needed(form, "verdict")
    await seat.asker.ask("compare.judge", id=id, number=whole(needed(form, "number"), "number"), verdict=verdict)
    return RedirectResponse(url("/compare/judge", id=id), 303)


async def stop(seat: PageContext, request: Request) -> Response:
    """Stop a comparison."""
    id = needed(await form_of(request, ConsoleLimits.of(seat.settings).form_bytes), "id")
    await seat.asker.ask("compare.stop", id=id)
    return _see(id, "stopped")


async def resume(seat: PageContext, request: Request) -> Response:
    """Let a comparison go on, with another budget or judge where the form says so."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    id = needed(form, "id")
    rules = [rule.strip() for rule in form.get("rules", "").split(",") if rule.strip()]
    more = {"inferences": whole(form.get("inferences", ""), "inferences"), "judge": form.get("judge", "") or None, "rules": rules or None}
    await seat.asker.ask("compare.resume", id=id, **more)
    return _see(id, "resumed")


async def promote(seat: PageContext, request: Request) -> Response:
    """Take the variant of a comparison over, as what is in use."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    id = needed(form, "id")
    await seat.asker.ask("compare.promote", id=id, note=needed(form, "note").strip(), anyway=form.get("anyway") == "1")
    return _see(id, "promoted")


async def remove(seat: PageContext, request: Request) -> Response:
    """Forget a comparison."""
    await seat.asker.ask("compare.remove", id=needed(await form_of(request, ConsoleLimits.of(seat.settings).form_bytes), "id"))
    return RedirectResponse(url("/compare", said="removed"), 303)


def _see(id: str, said: str = "") -> Response:
    return RedirectResponse(url("/comparison", id=id, said=said), 303)
