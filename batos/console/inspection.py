"""Pages for inspection: objects, methods, memory and models.

The object browser shows an object with its slots, its parents and its revisions, and a method with its versions. The memory page shows
figures, and the passages that answer a question, with the reasons. The models page shows the models, those in memory, and their personas.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from batos.console.access import ConsoleLimits
from batos.console.api_client import Reply
from batos.console.pages import PageContext, needed, url
from batos.errors import ImageError, InvalidInput, UnknownTarget

REVISION_KINDS = ("method", "intent", "primitive", "object", "tree", "data")
"""The kinds of slots, in the order of display. Parents are shown separately."""
_ANCESTORS = 8  # ancestors whose contribution the page shows
_BRINGS = ("method", "intent", "primitive")


async def browse(seat: PageContext, request: Request) -> Response:
    """Show an object as it is, or as it was just after a transaction (`at`)."""
    target, at = request.query_params.get("target") or "lobby", request.query_params.get("at") or None
    shown = await seat.asker.ask("show", target=target, at=at)
    if shown["oid"] is None:  # an operation of a connection, or a folded mission: no object to browse
        raise UnknownTarget(f"no object on the path {target!r}; `batos show` shows what it names")
    entries = (await seat.asker.ask("ls", target=shown["oid"], at=at))["entries"]
    revisions, untold = await _revisions(seat, shown["oid"])
    place = next((n for n, one in enumerate(revisions) if one["tid"] == shown["tid"]), None)
    parents = _parents(shown["slots"])
    brought = await _brought(seat, parents, {one["name"] for one in entries}, at)
    return await seat.show(
        "object.html",
        "objects",
        target,
        target=target,
        at=at,
        shown=shown,
        name=_name(shown, target),
        groups=[(kind, [one for one in entries if one["kind"] == kind]) for kind in REVISION_KINDS],
        parents=parents,
        brought=brought,
        names={one["oid"]: one["name"] for one in brought},
        revisions=revisions,
        untold=untold,
        place=place,
        author="" if place is None else await _author(seat, revisions[place]["mission"]),
        changes=await _changes(seat, shown["oid"], revisions, place),
        record=shown.get("record"),
    )


async def method(seat: PageContext, request: Request) -> Response:
    """Show the method of an object under a selector: source, versions, and their origins."""
    target, selector = needed(request.query_params, "target"), needed(request.query_params, "selector")
    at = request.query_params.get("at") or None
    told = await seat.asker.ask("method", target=target, selector=selector, at=at)
    return await seat.show("method.html", "objects", selector, target=target, method=told, at=at)


async def _revisions(seat: PageContext, oid: str) -> tuple[list[Reply], str]:
    """Return the revisions, oldest first, and the reason if there are none."""
    try:
        found = await seat.asker.ask("history", target=oid, limit=ConsoleLimits.of(seat.settings).revisions)
    except ImageError as e:  # a storage without history: the page shows only the present
        return [], e.message
    return found["revisions"][::-1], ""


async def _author(seat: PageContext, mission: str) -> str:
    """Return the page of the mission that made a revision or was undone or redone in it, or of a change of the loop's. Return "" if it was
    neither.
    """
    id = mission.removeprefix("undo:").removeprefix("redo:")
    kind, _, number = id.partition(":")
    if kind == "change" and number.isdecimal():
        return url("/change", number=number)
    try:
        await seat.asker.ask("status", id=id)
    except InvalidInput:  # the change came from genesis, the operator, or a file that was read
        return ""
    return url("/mission", id=id)


async def _changes(seat: PageContext, oid: str, revisions: list[Reply], place: int | None) -> list[Reply]:
    """Return the changes of the selected revision."""
    if not place:  # there is no earlier revision to compare the first known one with
        return []
    told = await seat.asker.ask("diff", target=oid, a=revisions[place - 1]["tid"], b=revisions[place]["tid"])
    return list(told["changes"])


def _parents(slots: dict[str, Any]) -> list[Reply]:
    """Return the objects that an object delegates to directly: each with the `slot` that holds it."""
    found = []
    for name, value in slots.items():
        if name.endswith("*"):
            held = value if isinstance(value, list) else [value]
            found += [{"slot": name, **one} for one in held if isinstance(one, dict) and one.get("oid")]
    return found


async def _brought(seat: PageContext, parents: list[Reply], known: set[str], at: str | None) -> list[Reply]:
    """Return the behaviour that an object inherits, by ancestor: messages that nothing nearer overrides, depth first as in lookup."""
    found: list[Reply] = []
    seen: set[str] = set()
    waiting = [one["oid"] for one in parents]
    while waiting and len(found) < _ANCESTORS:
        oid = waiting.pop(0)
        if oid in seen:
            continue
        seen.add(oid)
        held = await seat.asker.ask("show", target=oid, at=at)
        entries = (await seat.asker.ask("ls", target=oid, at=at))["entries"]
        own = [one for one in entries if one["kind"] in _BRINGS and one["name"] not in known]
        found.append({"oid": oid, "name": _name(held, oid), "entries": own})
        known = known | {one["name"] for one in entries}
        waiting = [one["oid"] for one in _parents(held["slots"])] + waiting
    return found


def _name(shown: Reply, target: str) -> str:
    """Return the heading of an object: its own name or title, else the name that was asked for."""
    for slot in ("name", "title", "brief"):
        if isinstance(found := shown["slots"].get(slot), str) and found:
            return found[:80]
    return target


FIELDS = ("kind", "source", "speaker", "since", "until")
DOCUMENT_KINDS = (
    "text", "markdown", "html", "pdf", "document", "table", "mail", "code", "conversation", "note", "statement", "mission", "summary",
)  # fmt: skip
SAID_BY = {"user": "you said so", "self": "it said so itself", "tool": "a method noted it"}
"""Words for the source of a passage that comes from no file."""


async def search_memory(seat: PageContext, request: Request) -> Response:
    """Search the memory. Without a question, show its contents."""
    question = request.query_params.get("q", "").strip()
    asked = {name: request.query_params.get(name, "").strip() for name in FIELDS}
    held = await seat.asker.ask("memory", documents=ConsoleLimits.of(seat.settings).rows)
    found = None
    if question:
        fits: dict[str, Any] = {name: value for name, value in asked.items() if value}
        found = await seat.asker.ask("search", question=question, k=min(ConsoleLimits.of(seat.settings).rows, 20), explain=True, **fits)
    return await seat.show(
        "memory.html",
        "memory",
        "Memory",
        question=question,
        asked=asked,
        kinds=DOCUMENT_KINDS,
        said_by=SAID_BY,
        held=held,
        found=found,
        most=_most(found),
    )


def _most(found: Reply | None) -> float:
    """Return the largest signal of all passages: the measure of their bars."""
    hits = found["hits"] if found else []
    return max((abs(value) for hit in hits for value in hit["signals"].values()), default=0) or 1.0


async def models_page(seat: PageContext, request: Request) -> Response:
    """Return the models and their residency, the personas and their voices, the experts, and the kernels where several serve the image."""
    models = await seat.asker.ask("models")
    info = await seat.asker.ask("info")
    experts = await seat.asker.ask("experts")
    personas = await seat.asker.ask("personas")
    kernels = await seat.asker.ask("kernels")
    return await seat.show("models.html", "models", "Models", models=models, info=info, experts=experts, personas=personas, kernels=kernels)
