"""The verb `changes`: the changes that the system proposed and made itself, their reasons and outcomes, and their undo."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, get_args

import typer

from batos.cli.app import Json, app
from batos.cli.client import DAEMON, QuerySource, ask, grouped, look
from batos.cli.output import Output, ago, one_line
from batos.wire.fields import ChangeState

STATES = get_args(ChangeState)
STYLES = {"promoted": "yellow", "kept": "green", "refused": "dim", "undone": "red", "disabled": "bold red"}
_PAIR = 2  # two figures: before and after


@app.command()
@grouped
def changes(
    what: Annotated[
        str | None,
        typer.Argument(metavar="[N|undo]", help="Number of a change to show in full; `undo N` undoes it. Left out: list changes."),
    ] = None,
    number: Annotated[int | None, typer.Argument(metavar="[N]", min=1, help="The one to undo.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only changes in this state: " + ", ".join(STATES) + ".")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Greatest number of changes listed, the newest first.")
    ] = 50,
    why: Annotated[str | None, typer.Option("--why", metavar="TEXT", help="Reason of the undo; it is kept with the change.")] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only show what an undo would do.")] = False,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """List what the system proposed and changed of its own accord, show one with its evidence, or undo one: it is not made again."""
    output = Output(as_json)
    if what == "undo":
        if number is None or source.image is not None:
            raise typer.BadParameter("undo takes the number of a change, and a daemon")
        _undo(number, why, dry, source.endpoint, output)
        return
    if number is not None or dry or why is not None:
        raise typer.BadParameter("only `undo N` takes --dry-run and --why")
    if state is not None and state not in STATES:
        raise typer.BadParameter(f"{state!r} is not one of {', '.join(STATES)}")
    chosen = _number(what)
    reply = look(
        source,
        lambda looks: looks.changes(chosen, state, limit),
        lambda client: client.changes(chosen, state=state, limit=limit),
    )
    if as_json:
        output.document(reply)
    elif chosen is not None:
        _page(reply["changes"][0], output)
    else:
        _table(reply["changes"], limit, output)


def _number(what: str | None) -> int | None:
    if what is None:
        return None
    if not (what.isdecimal() and int(what) > 0):
        raise typer.BadParameter(f"{what!r} is not the number of a change; say `batos changes N` or `batos changes undo N`")
    return int(what)


def _undo(number: int, why: str | None, dry: bool, address: str, output: Output) -> None:
    reply = ask(address, lambda client: client.undo_change(number, why=why, dry=dry))
    if output.as_json:
        output.document(reply)
        return
    if reply.get("already"):
        output.say(f"change {number} is undone already")
        return
    done = "refused" if reply.get("refused") else "undone"
    output.say(f"change {number} {f'would be {done}' if dry else f'is {done}, and is not made again'}")
    if reply.get("models"):
        output.pairs([("models deleted", ", ".join(reply["models"]))])
    if reply.get("waits"):
        output.note(reply["waits"], "yellow")
    output.pairs([("objects", "; ".join(f"{one['oid']} {', '.join(one['parts'])}" for one in reply["objects"]))])


def _table(listed: list[dict[str, Any]], limit: int, output: Output) -> None:
    if not listed:
        output.note("no changes so far: the system has proposed none", "dim")
        return
    rows = (
        (one["number"], one["state"], one["kind"], one["target"], ago(one["decided"] or one["proposed"]), one_line(_told(one), 160))
        for one in listed
    )
    output.rows(("change", "state", "kind", "target", "age", "because"), rows, STYLES)
    if len(listed) == limit:
        output.note(f"the newest {limit}; --limit shows more", "dim")


def _told(change: dict[str, Any]) -> str:
    """Return the most telling line of a change: its outcome, else the evidence."""
    return str(change["reason"] or change["evidence"].get("words") or change["why"])


def _page(change: dict[str, Any], output: Output) -> None:
    output.say(f"change {change['number']}: {change['state']}", "bold")
    moments = [(name, _moment(change[name])) for name in ("proposed", "decided", "ended")]
    facts = [(name, change[name]) for name in ("kind", "target", "why", "source", "mission", "reason")]
    output.pairs((name, value) for name, value in [*facts, *moments] if value)
    content = change["content"]
    output.say("\nwhat is to be there", "bold")
    output.say(content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False))
    for name, title in (("evidence", "evidence"), ("comparison", "rehearsal"), ("effect", "watch")):
        if change[name]:
            output.say(f"\n{title}", "bold")
            _figures(change[name], output)
    if change["state"] == "proposed":
        output.note(f"refused, and stopped, with: batos changes undo {change['number']}", "dim")
    if change["state"] in ("promoted", "kept"):
        output.note(f"taken back with: batos changes undo {change['number']}", "dim")


def _figures(figures: dict[str, Any], output: Output) -> None:
    """Print figures: as a table of before and after if there are two sides, else as names and values."""
    sides = _sides(figures)
    plain = {name: value for name, value in figures.items() if name not in ("without", "changed") and not _is_pairs(value)}
    output.pairs((name, _shown(value)) for name, value in plain.items() if value not in ("", [], None))
    if sides:
        output.rows(("", "before", "with it"), [(name, _shown(before), _shown(after)) for name, before, after in sides])


def _sides(figures: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    without, changed = figures.get("without"), figures.get("changed")
    if isinstance(without, dict) and isinstance(changed, dict):  # figures of a rehearsal
        return [(name, value, changed.get(name)) for name, value in without.items()]
    kinds = ((kind, pairs) for kind, pairs in figures.items() if _is_pairs(pairs))  # figures of a watch
    return [(f"{kind}: {name}", *pair) for kind, pairs in kinds for name, pair in pairs.items()]


def _is_pairs(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(pair, list) and len(pair) == _PAIR for pair in value.values())


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _moment(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else ""
