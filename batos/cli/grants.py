"""The verbs `allow`, `ask`, `deny` and `grants`: which mission may call which tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from batos.cli import client as daemon
from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.client import OptionGroup, grouped
from batos.cli.output import Output, ago
from batos.tools.grants import parse_daily

ACTIONS = ("remove",)
_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}
Pattern = Annotated[
    str, typer.Argument(metavar="PATTERN", help="CONNECTION.TOOL, or a connection; * stands for any characters: notes.*, shop.get*.")
]


@dataclass(frozen=True)
class GrantScope(OptionGroup):
    """Options that narrow a grant, whatever its verdict."""

    persona: Annotated[str | None, typer.Option("--persona", metavar="NAME", help="Only missions of this persona.")] = None
    mission: Annotated[str | None, typer.Option("--mission", metavar="ID", help="Only this mission.")] = None
    args: Annotated[
        list[str] | None,
        typer.Option("--args", metavar="NAME=PATTERN", help="Only calls with these arguments; may be repeated, or a JSON object."),
    ] = None
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Until 2026-12-31, 2026-12-31T18:00, or for 2h, 7d.")] = None
    connect: Connect = None
    as_json: Json = False


_ANY = GrantScope()


@app.command()
@grouped
def allow(
    pattern: Pattern,
    uses: Annotated[str | None, typer.Option("--uses", metavar="N/day", help="Most uses a day.")] = None,
    volume: Annotated[str | None, typer.Option("--bytes", metavar="N/day", help="Most bytes of payload a day: 2MiB/day.")] = None,
    leaks: Annotated[
        bool, typer.Option("--leaks", help="Also where a mission that read untrusted text and private data acts outward.")
    ] = False,
    system: Annotated[bool, typer.Option("--system", help="Also missions of the system's own, which may only read.")] = False,
    scope: GrantScope = _ANY,
) -> None:
    """Let missions call tools without a question."""
    limits = {
        "uses": None if uses is None else parse_daily(uses, "uses"),
        "bytes": None if volume is None else parse_daily(volume, "bytes"),
    }
    _grant("allow", pattern, scope, leaks=leaks, system=system, **limits)


@app.command()
@grouped
def ask(pattern: Pattern, scope: GrantScope = _ANY) -> None:
    """Have missions ask before they call tools, also where a grant allows it."""
    _grant("ask", pattern, scope)


@app.command()
@grouped
def deny(pattern: Pattern, scope: GrantScope = _ANY) -> None:
    """Keep missions from calling tools; no other grant outweighs it."""
    _grant("deny", pattern, scope)


@app.command()
def grants(
    action: Annotated[str | None, typer.Argument(metavar="[remove]", help="Remove one; else they are listed.")] = None,
    number: Annotated[int | None, typer.Argument(metavar="[N]", min=1, help="The one to remove.")] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List the grants of tools, in the order in which they were made, or remove one."""
    if action is not None and action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is not valid; say `batos grants`, or `batos grants remove N`")
    if (action is None) != (number is None):
        raise typer.BadParameter("remove takes the number of a grant; `batos grants` lists them")
    if number is None:
        reply = daemon.ask(endpoint(connect), lambda client: client.tool_grants())
    else:
        wanted = number
        reply = daemon.ask(endpoint(connect), lambda client: client.tool_ungrant(wanted))
    _show(reply, Output(as_json))


def _grant(verdict: Literal["deny", "ask", "allow"], pattern: str, scope: GrantScope, **more: Any) -> None:
    args = scope.args or []
    if len(args) > 1 and any(one.lstrip().startswith("{") for one in args):
        raise typer.BadParameter("--args is one JSON object, or NAME=PATTERN as often as wanted; not both")
    words = args[0] if len(args) == 1 else " ".join(map(_quoted, args))
    told: dict[str, Any] = {"persona": scope.persona, "mission": scope.mission, "args": words or None, "until": scope.until}
    reply = daemon.ask(endpoint(scope.connect), lambda client: client.tool_grant(verdict, pattern, **told, **more))
    output = Output(scope.as_json)
    if scope.as_json:
        output.document(reply)
        return
    made = reply["grants"][0]
    output.say(f"grant {made['number']}: {made['text']}")
    for hint in reply.get("hints", ()):
        output.note(f"{hint}; take the grant back with: batos grants remove {made['number']}", "yellow")


def _quoted(word: str) -> str:
    """Return NAME=PATTERN as one word of the constraints' text."""
    name, equals, pattern = word.partition("=")
    return word if not equals or " " not in pattern else f"{name}='{pattern}'"


def _show(reply: dict[str, Any], output: Output) -> None:
    if output.as_json:
        output.document(reply)
        return
    if not reply["grants"]:
        output.note("no grants: what reads is allowed in your connections, what acts asks first; see docs/tools.md", "dim")
        return
    rows = ((str(one["number"]), one["verdict"], ago(one["created"]), _told(one)) for one in reply["grants"])
    output.rows(("grant", "verdict", "age", "what"), rows, _STYLES)


def _told(one: dict[str, Any]) -> str:
    text = str(one["text"]).removeprefix(f"{one['verdict']} ")
    return f"{text}; has expired" if one["expired"] else text
