"""Views of a session of stepping on the command line."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from batos.cli.output import Output, one_line

if TYPE_CHECKING:
    from rich.console import Console

Reply = Mapping[str, Any]


class SilentOutput(Output):
    """Output that is dropped: with `--json` only the document at the end is printed."""

    @cached_property
    def console(self) -> Console:
        """Return a console that prints nowhere."""
        from rich.console import Console  # imported late, as by `Output`

        return Console(file=io.StringIO())

    @cached_property
    def errors(self) -> Console:
        """Return the same."""
        return self.console


_WIDTH = 100


def told(value: Any) -> str:
    """Return a value for people: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show_place(reply: Reply, output: Output) -> None:
    """Print where a session stands."""
    at, rail = reply["at"], reply["rail"]
    last = rail[-1]["number"] if rail else at["number"]
    where = f"cycle {at['cycle']}, {at['persona']}" if at["cycle"] else "before any thought"
    output.say(f"{at['number']} of {last}  {at['state']}  ({where})", "bold")
    output.say(f"  {one_line(reply['brief'], _WIDTH)}")
    output.note(f"  {reply['moment']}", "dim")
    if "error" in reply:
        error = reply["error"]
        output.say(f"  {error['code']}: {error['message']}", "red")
    if "question" in reply:
        output.say(f"  it asks: {reply['question']}", "yellow")
    if "result" in reply:
        output.say(f"  it ends well: {one_line(reply['result'].get('text', ''), _WIDTH)}", "green")
    counts = reply["counts"]
    parts = [f"{counts['recorded']} recorded"] + [f"{counts[name]} {name}" for name in ("new", "missing") if counts[name]]
    edited = sum(one["source"] == "edited" for one in reply["inferences"])
    output.say(f"  inferences: {', '.join([*parts, *([f'{edited} edited'] if edited else [])])}")
    for note in reply["notes"]:
        output.note(f"  {note}", "dim")


def show_rail(reply: Reply, output: Output) -> None:
    """Print the transitions."""
    here = reply["at"]["number"]
    facts = ("number", "cycle", "state", "persona")
    rows = ((">" if one["number"] == here else "", *(one[name] or "" for name in facts)) for one in reply["rail"])
    output.rows(("", *facts), rows)


def show_slots(slots: Mapping[str, Any], output: Output) -> None:
    """Print slots and their values."""
    output.pairs((name, told(value)) for name, value in slots.items())


def show_inferences(reply: Reply, output: Output) -> None:
    """Print the inferences up to here."""
    if not reply["inferences"]:
        output.note("no inference was asked for up to here", "dim")
        return
    rows = (
        (one["number"], one["source"], one["cycle"], one["state"], one["part"] or "", one["model"], one_line(one["said"] or "", 60))
        for one in reply["inferences"]
    )
    output.rows(("number", "", "cycle", "state", "part", "model", "answer"), rows, {"missing": "red", "edited": "yellow", "new": "green"})


def show_inference(one: Reply, output: Output) -> None:
    """Print one inference whole."""
    for name in ("system", "user"):
        output.say(name, "bold")
        output.say(one[name])
    if "schema" in one:
        output.say("schema", "bold")
        output.say(json.dumps(one["schema"]))
    output.say(f"answer ({one['source']})", "bold")
    output.say(one["said"] if one["said"] is not None else "none came")


def show_tools(reply: Reply, output: Output) -> None:
    """Print what tools answered."""
    if not reply["tools"]:
        output.note("the mission called no tools", "dim")
    for one in reply["tools"]:
        output.say(f"{one.get('tool', '')} {told(one.get('arguments', ''))}", "bold")
        output.say(f"  {one.get('state', '')}: {one_line(told(one.get('result', one.get('error', ''))), 500)}")


def show_runs(reply: Reply, output: Output) -> None:
    """Print the runs of methods up to here."""
    if not reply["runs"]:
        output.note("no method ran up to here", "dim")
        return
    rows = (
        (
            one["number"],
            f"{one['object']}.{one['selector']}",
            one_line(told(one["args"]), 40),
            one["line"] or "",
            one_line(one["error"]["message"] if "error" in one else told(one.get("value")), 60),
        )
        for one in reply["runs"]
    )
    output.rows(("run", "method", "arguments", "line", "came to"), rows)


def show_run(one: Reply, output: Output) -> None:
    """Print a run of a method: its source with the line, and the local values there."""
    output.say(f"{one['object']}.{one['selector']}{told(one['args'])}, version {one['version']}", "bold")
    for number, text in enumerate(one["source"].splitlines(), 1):
        output.say(f"{'=>' if number == one['line'] else '  '} {number:3} {text}", "bold" if number == one["line"] else "")
    if "why" in one:
        output.note(one["why"], "dim")
    if one.get("locals"):
        output.say(f"local values, {one['step']} of {len(one['steps'])} lines that it came to", "bold")
        output.pairs(one["locals"].items())
    if "error" in one:
        output.say(f"{one['error']['code']}: {one['error']['message']}", "red")
    else:
        output.say(f"it answered {told(one.get('value'))}")


def show_edits(reply: Reply, output: Output) -> None:
    """Print the changes."""
    if not reply["edits"]:
        output.note("nothing was changed", "dim")
    for one in reply["edits"]:
        output.say(f"{one['number']}  {one['kind']} {one['target']}: {one_line(told(one['after']), 80)}")


def show_diff(reply: Reply, output: Output) -> None:
    """Print all changes as one diff, and the places that others changed meanwhile."""
    if not reply["diff"]:
        output.note("nothing was changed", "dim")
    for row in reply["diff"]:
        output.say(f"{row['kind']} {row['target']}", "bold")
        for sign, side, style in (("-", "before", "red"), ("+", "after", "green")):
            if row[side] is not None:
                for line in told(row[side]).splitlines() or [""]:
                    output.say(f"{sign} {line}", style)
    for one in reply["conflicts"]:
        output.say(f"changed meanwhile: {one['target']}, by {one['mission'] or 'BAT OS'}; now {one_line(told(one['now']), 60)}", "yellow")
    if ahead := reply.get("ahead"):
        ends = "it ends well then" if ahead["ends"] else "then a model is asked" if ahead["missing"] else "it does not end well by that"
        output.note(f"in the image as it is now {ahead['known']} inferences are known; {ends}", "dim")
        if ahead["edits_unused"]:
            output.say(f"{ahead['edits_unused']} of your answers would not be used: now something else is asked", "yellow")
    if "why_not" in reply:
        output.say(reply["why_not"], "red")
