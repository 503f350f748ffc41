"""Verbs about what is in the image and in the daemon: show, history, info, personas."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.missions import ask, with_nearest
from batos.cli.output import Output, one_line, size
from batos.cli.record import page
from batos.errors import UnknownTarget

Target = Annotated[str, typer.Argument(metavar="TARGET", help="Path of an object (robin, psm.IDLE), its oid (oid:1f), or a mission's id.")]


@app.command()
def show(target: Target, connect: Connect = None, as_json: Json = False) -> None:
    """Show an object of the image: its slots and parents; of a mission, what was thought, by whom, from what, at what cost."""
    reply = _about(target, connect, "show")
    output = Output(as_json)
    if as_json:
        output.document(reply)
        return
    if "record" in reply:
        page(reply["record"], output)
        return
    output.say(f"{target}  {reply.get('oid', '')}", "bold")
    output.rows(("slot", "value"), ((name, _value(value)) for name, value in reply.get("slots", {}).items()))


@app.command()
def history(
    target: Target,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many, the newest first.")] = 20,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List the revisions of an object: when, by which mission, why."""
    reply = _about(target, connect, "history", limit)
    output = Output(as_json)
    if as_json:
        output.document(reply)
        return
    rows = ((_moment(r["time"]), r.get("mission", ""), size(r.get("size", 0)), one_line(r.get("note", ""))) for r in reply["revisions"])
    output.rows(("time", "mission", "size", "note"), rows)


@app.command()
def info(connect: Connect = None, as_json: Json = False) -> None:
    """Say what the daemon is and does: image, missions, personas, models, limits."""
    reply = ask(endpoint(connect), lambda client: client.info())
    output = Output(as_json)
    if as_json:
        output.document(reply)
    else:
        output.pairs((name, _value(value)) for name, value in _flat(reply) if name != "type")


@app.command()
def personas(
    accept: Annotated[
        str | None,
        typer.Option("--accept", metavar="PERSONA[.SLOT]", help="Take what the codex says, in one slot or wherever the image differs."),
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List the personas: mission, model, ways of thinking, exemplars, and where the image does not follow the codex."""
    name, _, slot = (accept or "").partition(".")
    reply = ask(endpoint(connect), lambda client: client.personas(accept=name or None, slot=slot or None))
    output = Output(as_json)
    if as_json:
        output.document(reply)
        return
    for persona in reply["personas"]:
        output.say(persona["name"].upper() + ("" if persona["routed"] else "  (no brief is routed to it)"), "bold")
        output.pairs(_persona(persona))
        output.say()
    embedder = reply["embedder"]
    output.note(f"embedder {embedder['model']}: {embedder['state']}", "dim")


def _persona(persona: dict[str, Any]) -> list[tuple[str, object]]:
    """What there is to say of a persona, as names and values."""
    shown: list[tuple[str, object]] = []
    if "model" in persona:  # else it is not in the image
        shown = [("mission", persona["core_mission"]), ("model", persona["model"])]
        for heading, facet in (("facets", True), ("answers to", False)):
            ways = [f"{way['selector']} ({way['kind']})" for way in persona["behaviour"] if way["facet"] is facet]
            shown.append((heading, ", ".join(ways)))
        shown.append(("exemplars", f"{persona['exemplars']}, and {persona['learned']} learned"))
    return shown + [("not as in the codex", f"{left['slot'] or 'the whole persona'}: {left['why']}") for left in persona["kept"]]


def _about(target: str, connect: str | None, op: str, *more: Any) -> dict[str, Any]:
    try:
        return ask(endpoint(connect), lambda client: getattr(client, op)(target, *more))
    except UnknownTarget as e:
        raise with_nearest(e, target) from None


def _flat(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested facts as one list, with names joined by a space."""
    found: list[tuple[str, Any]] = []
    for name, value in facts.items():
        found += _flat(value, f"{prefix}{name} ") if isinstance(value, dict) and value else [(prefix + name, value)]
    return found


def _value(value: Any) -> str:
    """A value for a table's cell: text as it is, objects by their id, everything else as JSON."""
    if isinstance(value, str):
        return one_line(value, 300)
    if isinstance(value, dict) and len(value) == 1:
        [(name, inner)] = value.items()
        return f"{name} {one_line(inner, 300)}"
    if isinstance(value, dict) and "source" in value:
        return f"method, version {value.get('version')}: {one_line(value['source'], 200)}"
    if isinstance(value, dict) and "oid" in value:
        return f"→ {value['oid']}"
    if isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value):
        value = [f"{item['name']} {item.get('state', '')}".rstrip() for item in value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return one_line(", ".join(value), 300)
    return one_line(json.dumps(value, default=str, ensure_ascii=False), 300)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
