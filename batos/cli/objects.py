"""Verbs about objects of the image: show, ls, history, diff, personas; and `at`, a view of the whole image in the past."""

from __future__ import annotations

import difflib
import json
import time
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, endpoint, invoke
from batos.cli.client import DAEMON, AtFlag, QuerySource, ask, grouped, look, moment
from batos.cli.mission_view import page
from batos.cli.missions import print_missions
from batos.cli.output import Output, one_line, size
from batos.config import nearest

Target = Annotated[str, typer.Argument(metavar="TARGET", help="Path of an object (robin, psm.IDLE), its oid (oid:1f), or a mission's id.")]


@app.command()
@grouped
def show(
    target: Target,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Of a mission that has ended: the prompts of its inferences, word for word.")
    ] = False,
    at: AtFlag = None,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """Show an object of the image: its slots and parents; of a mission also its thoughts with personas, sources and costs."""
    if prompts:
        if at is not None or source.image is not None:
            raise typer.BadParameter("--prompts asks a daemon, which replays the mission as of now: leave --at and --image out")
        _prompts(ask(source.endpoint, lambda client: client.replay(target, prompts=True)), Output(as_json))
        return
    then = moment(at)
    reply = look(source, lambda looks: looks.show(target, then), lambda client: client.show(target, then), target)
    output = Output(as_json)
    if as_json:
        output.document(reply)
        return
    if "record" in reply:
        page(reply["record"], output)
        return
    output.say(f"{target}  {reply.get('oid') or ''}".rstrip(), "bold")
    output.rows(("slot", "value"), ((name, value_of_cell(value)) for name, value in reply.get("slots", {}).items()))
    if understood := reply.get("understands"):
        output.rows(("message", "class", "operation"), ((one["message"], one["class"], one_line(one["line"])) for one in understood))


def _prompts(reply: dict[str, Any], output: Output) -> None:
    """Print the prompt and the answer of each inference of a mission."""
    if output.as_json:
        output.document(reply)
        return
    for number, one in enumerate(reply["prompts"], 1):
        facts = [one.get("model"), one.get("persona"), one.get("state"), one.get("part")]
        output.say(f"{number}: {', '.join(str(fact) for fact in facts if fact)}", "bold")
        said = [("system", one["system"]), *((who, text) for turn in one.get("turns", ()) for who, text in zip(_TURN, turn, strict=True))]
        said += [("user", one["user"]), ("schema", json.dumps(one["schema"], ensure_ascii=False) if "schema" in one else "")]
        for who, text in [*said, ("said", one.get("said", ""))]:
            if text:
                output.say(f"--- {who}", "dim")
                output.say(text)
        output.say()
    if not reply["prompts"]:
        output.note("no model was asked", "dim")
    if reply.get("more"):
        output.note("others did not fit", "yellow")
    if reply["outcome"] == "different":
        output.note(
            "what decides this mission has changed since: the last of these is not in its journal, and there may have been others", "yellow"
        )


_TURN = ("user before", "said before")


@app.command()
@grouped
def ls(
    target: Annotated[str | None, typer.Argument(metavar="[PATH]", help="Path of an object, or its oid; else the lobby.")] = None,
    at: AtFlag = None,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """List what an object of the image holds: the objects that its paths lead to, its methods and its data."""
    then = moment(at)
    reply = look(source, lambda looks: looks.ls(target, then), lambda client: client.ls(target, then), target or "lobby")
    output = Output(as_json)
    if as_json:
        output.document(reply)
        return
    print_entries(reply["entries"], output)


def print_entries(entries: list[dict[str, Any]], output: Output) -> None:
    """Print the rows of a reply `ls`."""
    rows = ((one["name"], one["kind"], one.get("oid", ""), one_line(one["about"])) for one in entries)
    output.rows(("name", "kind", "oid", "about"), rows)


@app.command()
@grouped
def history(
    target: Target,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Greatest number of changes listed, the newest first.")
    ] = 20,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """List the revisions of an object: when, by which mission, why. `diff` and `--at` take the id of a revision as a TIME."""
    reply = look(source, lambda looks: looks.history(target, limit), lambda client: client.history(target, limit), target)
    output = Output(as_json)
    if as_json:
        output.document(reply)
        return
    rows = (
        (r.get("tid", ""), _moment(r["time"]), r.get("mission", ""), size(r.get("size", 0)), one_line(r.get("note", "")))
        for r in reply["revisions"]
    )
    output.rows(("revision", "time", "mission", "size", "note"), rows)


@app.command()
@grouped
def diff(
    target: Target,
    a: Annotated[str, typer.Argument(metavar="A", help="A TIME, or the id of a revision out of `batos history`.")],
    b: Annotated[str | None, typer.Argument(metavar="[B]", help="Another; else now.")] = None,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """Show what changed in an object from one moment to another. Exit code 1 if nothing changed."""
    first, second = moment(a), moment(b)
    if first is None:
        raise typer.BadParameter("A is a moment before now")
    reply = look(source, lambda looks: looks.diff(target, first, second), lambda client: client.diff(target, first, second), target)
    output = Output(as_json)
    if as_json:
        output.document(reply)
    else:
        _print_diff(reply, output)
    if not reply["changes"]:
        raise typer.Exit(1)


def _print_diff(reply: dict[str, Any], output: Output) -> None:
    output.say(f"{reply['target']}  {reply['oid']}", "bold")
    for side, sign, style in (("a", "-", "red"), ("b", "+", "green")):
        one = reply[side]
        written = f"revision {one['tid']}, {one['mission'] or 'no mission'}" if one["tid"] else "not there"
        output.say(f"{sign * 3} {_moment(one['at'])}  {written}", style)
    for change in reply["changes"]:
        output.say(f"@ {change['slot']}", "bold")
        before, after = (_lines(change[side]) if side in change else [] for side in ("before", "after"))
        for line in list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]:
            if not line.startswith("@@"):
                output.say(line, {"-": "red", "+": "green"}.get(line[0], "dim"))
    if not reply["changes"]:
        output.say("nothing changed")


def _lines(value: Any) -> list[str]:
    """Return a value as lines: a method's source and a text by their own, a container by its items."""
    if isinstance(value, dict) and "source" in value:
        value = value["source"]
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False, indent=1)
    return text.splitlines()


@app.command()
def personas(
    accept: Annotated[
        str | None,
        typer.Option("--accept", metavar="PERSONA[.SLOT]", help="Take the codex's value, in one slot or wherever the image differs."),
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List the personas: mission, model, ways of thinking, exemplars, and where the image does not follow the codex."""
    if accept == "":
        raise typer.BadParameter("'' names no persona; say whose: --accept robin, or one slot: --accept robin.model")
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
    """Return the facts about a persona, as names and values."""
    shown: list[tuple[str, object]] = []
    if "model" in persona:  # else the persona is not in the image
        shown = [("mission", persona["core_mission"]), ("model", persona["model"])]
        for heading, facet in (("facets", True), ("answers to", False)):
            ways = [f"{way['selector']} ({way['kind']})" for way in persona["behaviour"] if way["facet"] is facet]
            shown.append((heading, ", ".join(ways)))
        shown.append(("exemplars", f"{persona['exemplars']}, and {persona['learned']} learned"))
    return shown + [("not as in the codex", f"{left['slot'] or 'the whole persona'}: {left['why']}") for left in persona["kept"]]


def value_of_cell(value: Any) -> str:
    """Return a value for a table's cell: text unchanged, objects by their id, everything else as JSON."""
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


LOOKS = ("show", "ls", "missions", "failures", "method", "methods")
"""The verbs that accept `--at`."""
_MISSIONS = 10  # missions that `show` without a path lists


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@grouped
def at(
    context: typer.Context,
    when: Annotated[str, typer.Argument(metavar="TIME", help="See docs/cli.md for how a TIME is written.")],
    verb: Annotated[
        str | None, typer.Argument(metavar="[VERB...]", help=f"What to look at, with its words: {', '.join(LOOKS)}; else the whole.")
    ] = None,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """Look at the whole image as it was: `batos at '2 h ago' show robin`. Without a verb: its objects and last missions."""
    if verb is not None:
        if verb not in LOOKS:
            raise typer.BadParameter(f"at a time there are {', '.join(LOOKS)}, not {verb!r}{nearest(verb, LOOKS)}")
        flags = [*source.words(), *(["--json"] if as_json else [])]
        invoke([verb, *context.args, "--at", when, *flags])
    then, output = moment(when), Output(as_json)
    held = look(source, lambda looks: looks.ls(None, then), lambda client: client.ls(None, then))
    listed = look(source, lambda looks: looks.missions(None, _MISSIONS, then), lambda client: client.missions(None, _MISSIONS, then))
    told: dict[str, Any] = {"type": "at", "at": then, "entries": held["entries"], "missions": listed["missions"]}
    if as_json:
        output.document(told)
        return
    print_entries(told["entries"], output)
    output.say()
    print_missions(told["missions"], output)
