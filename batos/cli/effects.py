"""The verb `effects`: what missions did outside, what is in doubt, and what its user says became of it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.client import OptionGroup, ask, grouped
from batos.cli.output import Output, ago, one_line

STYLES = {"DONE": "green", "FAILED": "dim", "INTENDED": "yellow", "IN_DOUBT": "bold red", "SETTLED": "cyan"}


@dataclass(frozen=True)
class SaidOutcome(OptionGroup):
    """Outcome of an effect, as its user says it."""

    happened: Annotated[bool, typer.Option("--happened", help="With settle: it happened.")] = False
    again: Annotated[bool, typer.Option("--again", help="With settle: do it again.")] = False
    leave: Annotated[bool, typer.Option("--leave", help="With settle: the mission goes on without it.")] = False


_UNSAID = SaidOutcome()


@app.command()
@grouped
def effects(
    what: Annotated[str | None, typer.Argument(metavar="[MISSION|settle]", help="Effects of a mission; or settle one in doubt.")] = None,
    key: Annotated[str | None, typer.Argument(metavar="[ID]", help="The effect to settle, or its first digits.")] = None,
    doubt: Annotated[bool, typer.Option("--doubt", help="Only effects that may have happened.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Most effects listed, the newest first.")] = 50,
    outcome: SaidOutcome = _UNSAID,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List what missions, or one mission, did outside; or settle an effect in doubt."""
    output = Output(as_json)
    said: list[Any] = [how for how, given in vars(outcome).items() if given]
    if what == "settle":
        if key is None or len(said) != 1:
            raise typer.BadParameter("settle takes the ID of an effect, and one of --happened, --again, --leave")
        _settle(key, said[0], endpoint(connect), output)
        return
    if said or key is not None:
        raise typer.BadParameter("only `effects settle ID` takes --happened, --again or --leave")
    reply = ask(endpoint(connect), lambda client: client.effects(what, doubt=doubt, limit=limit))
    if as_json:
        output.document(reply)
        return
    if not reply["effects"]:
        output.note("nothing is in doubt" if doubt else "nothing was done outside", "dim")
        return
    if what is None:
        _table(reply["effects"], output)
    else:
        for one in reply["effects"]:
            _page(one, output)


def _settle(key: str, how: Any, address: str, output: Output) -> None:
    reply = ask(address, lambda client: client.effect_settle(key, how))
    if output.as_json:
        output.document(reply)
        return
    one = reply["effects"][0]
    output.say(f"{one['key'][:8]} {one['tool']}: {how}; mission {one['mission']} goes by that")


def _table(listed: list[dict[str, Any]], output: Output) -> None:
    rows = ((one["key"][:8], one["state"], one["tool"], ago(one["at"]), one["mission"], one_line(_payload(one), 120)) for one in listed)
    output.rows(("effect", "state", "tool", "age", "mission", "with"), rows, STYLES)
    _hint(listed, output)


def _page(one: dict[str, Any], output: Output) -> None:
    output.say(f"{one['key'][:8]} {one['tool']}: {one['state']}", "bold")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at"]))
    facts = [("when", when), ("class", one["class"]), ("with", _payload(one)), ("by leave of", one["grant"]), ("why", one.get("why"))]
    came = [(name, _text(one[name])) for name in ("result", "error") if name in one]
    tries = [("tries", one["attempts"])] if one["attempts"] > 1 else []
    output.pairs((name, value) for name, value in [*facts, *came, *tries] if value)
    _hint([one], output)


def _hint(listed: list[dict[str, Any]], output: Output) -> None:
    if open_ones := [one for one in listed if one["state"] == "IN_DOUBT"]:
        key = open_ones[0]["key"][:8]
        output.note(f"what became of it is said with: batos effects settle {key} --happened | --again | --leave", "yellow")
    elif any(one["state"] == "INTENDED" for one in listed):
        output.note(
            "INTENDED is under way, or was cut off. If it was cut off, its mission asks as soon as nothing can be working on it any more. "
            "For a place elsewhere, that is after the seconds of one call (--seconds, tools.call_s)",
            "dim",
        )


def _payload(one: dict[str, Any]) -> str:
    return _text(one["arguments"])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
