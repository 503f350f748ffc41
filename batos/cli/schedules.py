"""The verb `schedule`: briefs that become missions at times that their user sets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.client import OptionGroup, ask, grouped
from batos.cli.output import Output, one_line
from batos.config import nearest

ACTIONS = ("add", "show", "pause", "resume", "remove", "run")
FIELDS = ("last", "date")
MISSED = ("once", "skip", "all")
OVERLAPS = ("run", "skip")
_STYLES = {"COMPLETE": "green", "FAILED": "red", "NEEDS_INPUT": "yellow"}


@dataclass(frozen=True)
class ScheduleOptions(OptionGroup):
    """Options of a new schedule."""

    tz: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="Time zone, such as Europe/Berlin; default: that of the daemon's machine.")
    ] = None
    called: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of the schedule; default: made of the brief.")] = None
    persona: Annotated[str | None, typer.Option("--persona", metavar="NAME", help="Persona of its missions.")] = None
    missed: Annotated[
        str | None,
        typer.Option(
            "--missed", metavar="once|skip|all", help="Times that pass while no daemon runs: one run for all, none, or one for each."
        ),
    ] = None
    stop_after: Annotated[int | None, typer.Option("--stop-after", metavar="N", min=1, max=20, help="Stop after N failures in a row.")] = (
        None
    )

    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap", metavar="run|skip", help="A time that comes while the last run has not ended: run all the same, or skip."
        ),
    ] = None


_UNSAID = ScheduleOptions()


@app.command()
@grouped
def schedule(
    action: Annotated[
        str | None, typer.Argument(metavar="[" + "|".join(ACTIONS) + "]", help="What to do; without it, the schedules are listed.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="[WHEN|NAME]", help="With add: when it runs; else a schedule.")] = None,
    brief: Annotated[
        str | None, typer.Argument(metavar="[BRIEF]", help="With add; {last} is the last result, {date} the day of the run.")
    ] = None,
    options: ScheduleOptions = _UNSAID,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List schedules; add one ("every weekday at 8:00", "every 15 minutes", "0 8 * * 1-5"); show, pause, resume or remove it, or run it
    now."""
    output = Output(as_json)
    _check(action, name, brief, options)
    reply = _asked(action, str(name), brief or "", options, endpoint(connect))
    if as_json:
        output.document(reply)
    elif action in (None, "remove"):
        _list(reply["schedules"], output)
    elif action == "run":
        output.say(f"mission {reply['id']}")
        output.note(f"batos watch {reply['id']} follows it", "dim")
    else:
        _page(reply["schedules"][0], output)
        if action == "add":
            _misspelled(brief or "", output)


def _misspelled(brief: str, output: Output) -> None:
    """Say which words in braces are almost a field of a brief: they stay as they are."""
    for word in dict.fromkeys(re.findall(r"\{(\w+)\}", brief)):
        if word not in FIELDS and (hint := nearest(word, FIELDS)):
            output.note(f"{{{word}}} is not a field{hint} and stays as it is; fields are {{last}} and {{date}}", "yellow")


def _check(action: str | None, name: str | None, brief: str | None, options: ScheduleOptions) -> None:
    if action is not None and action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is none of {', '.join(ACTIONS)}{nearest(action, ACTIONS)}")
    if action == "add" and (name is None or brief is None):
        raise typer.BadParameter(
            'add takes when it runs, and a brief: batos schedule add "every weekday at 8:00" "What is new in my notes?"'
        )
    if action not in (None, "add") and name is None:
        raise typer.BadParameter(f"`schedule {action}` takes the name of a schedule; `batos schedule` lists them")
    if action != "add" and (brief is not None or options != _UNSAID):
        raise typer.BadParameter("only `schedule add WHEN BRIEF` takes a brief and options")
    if options.overlap not in (None, *OVERLAPS):
        raise typer.BadParameter(f"--overlap is one of {', '.join(OVERLAPS)}, got {options.overlap!r}")
    if options.missed not in (None, *MISSED):
        raise typer.BadParameter(f"--missed is one of {', '.join(MISSED)}, got {options.missed!r}")


def _asked(action: str | None, name: str, brief: str, options: ScheduleOptions, address: str) -> dict[str, Any]:
    if action is None:
        return ask(address, lambda client: client.schedules())
    if action == "show":
        return ask(address, lambda client: client.schedules(name))
    if action == "add":
        terms: Any = {
            "zone": options.tz,
            "name": options.called,
            "persona": options.persona,
            "missed": options.missed,
            "overlap": options.overlap,
        }
        return ask(address, lambda client: client.schedule_add(name, brief, **terms, stop_after=options.stop_after))
    if action == "pause":
        return ask(address, lambda client: client.schedule_pause(name))
    if action == "resume":
        return ask(address, lambda client: client.schedule_resume(name))
    return ask(address, lambda client: client.schedule_run(name) if action == "run" else client.schedule_remove(name))


def _list(listed: list[dict[str, Any]], output: Output) -> None:
    if not listed:
        output.note('no schedules; batos schedule add "every weekday at 8:00" "What is new in my notes?" makes one', "dim")
        return
    rows = (
        (one["name"], one["when"], _next(one), _state(one), str(one["failures"] or ""), (one["last"] or {}).get("id", "")) for one in listed
    )
    output.rows(("schedule", "when", "next", "last run", "failed", "mission"), rows, _STYLES)


def _page(one: dict[str, Any], output: Output) -> None:
    output.say(f"{one['name']}: {one['when']} ({one['zone']})", "bold")
    facts = [
        ("brief", one_line(one["brief"], 500)),
        ("persona", one["persona"]),
        ("missed runs", one["missed"]),
        ("overlapping runs", "left out" if one["overlap"] == "skip" else None),
        ("stops after", f"{one['stop_after']} failures in a row" if one["stop_after"] else None),
        ("paused", (one.get("why") or "yes") if one["paused"] else None),
        ("failed in a row", one["failures"] or None),
    ]
    output.pairs((name, value) for name, value in facts if value)
    for moment in one["times"]:
        output.say(f"  runs {_shown(moment, one['zone'])}")
    if not one["times"] and not one["paused"]:
        output.say("  does not run any more")
    if one["runs"]:
        rows = ((_shown(run["planned"], one["zone"]), run["state"], run["id"]) for run in one["runs"])
        output.rows(("planned", "state", "mission"), rows, _STYLES)


def _next(one: dict[str, Any]) -> str:
    if one["paused"]:
        return "stopped" if one.get("why") else "paused"
    return "none" if one["next"] is None else _shown(one["next"], one["zone"])


def _state(one: dict[str, Any]) -> str:
    return one["last"]["state"] if one["last"] else ""


def _shown(moment: float, zone: str) -> str:
    from batos.schedules.times import shown_time  # imported late: only this verb needs it

    return shown_time(moment, zone)
