"""The verb `hooks`: requests of other programs that become missions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.client import OptionGroup, ask, grouped
from batos.cli.output import Output, ago, counted, one_line
from batos.config import nearest

ACTIONS = ("add", "show", "pause", "resume", "remove", "roll")
STYLES = {"COMPLETE": "green", "FAILED": "red", "NEEDS_INPUT": "yellow"}


@dataclass(frozen=True)
class HookOptions(OptionGroup):
    """Options of a new hook."""

    persona: Annotated[str | None, typer.Option("--persona", metavar="NAME", help="Persona of its missions.")] = None
    depth: Annotated[
        str | None, typer.Option("--depth", metavar="DEPTH", help="Depth of its missions: direct, facets, council, or auto.")
    ] = None
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", min=-100, max=100, help="Missions with a higher number go first.")
    ] = None
    rate: Annotated[int | None, typer.Option("--rate", metavar="N", min=1, max=1000, help="Most missions a minute (60).")] = None
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="Name under which a tunnel or proxy brings requests in; may be repeated."),
    ] = None
    when: Annotated[
        list[str] | None,
        typer.Option("--when", metavar="FIELD=VALUE", help="Only if the body has this value, such as action=opened; may be repeated."),
    ] = None


_UNSAID = HookOptions()


@app.command()
@grouped
def hooks(
    action: Annotated[
        str | None, typer.Argument(metavar="[" + "|".join(ACTIONS) + "]", help="What to do; without it, the hooks are listed.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the hook: its path is /hooks/NAME.")] = None,
    brief: Annotated[
        str | None, typer.Argument(metavar="[BRIEF]", help="With add; {issue.title} is that field of the body, {body} all of it.")
    ] = None,
    options: HookOptions = _UNSAID,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List hooks, which make missions of requests by other programs (GitHub, Home Assistant, curl). Or add, show, pause, resume or remove a
    hook, or give it another secret (roll)."""
    output = Output(as_json)
    _check(action, name, brief, options)
    address = endpoint(connect)
    reply = _asked(action, str(name), brief or "", options, address)
    if as_json:
        output.document(reply)
    elif action in (None, "remove"):
        _list(reply["hooks"], output)
    else:
        _page(reply["hooks"][0], output)
        if "secret" in reply:
            _usage(reply["hooks"][0], reply["secret"], ask(address, lambda client: client.info()).get("doors"), output)


def _check(action: str | None, name: str | None, brief: str | None, options: HookOptions) -> None:
    if action is not None and action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is none of {', '.join(ACTIONS)}{nearest(action, ACTIONS)}")
    if action == "add" and (name is None or brief is None):
        raise typer.BadParameter('add takes a name and a brief: batos hooks add issues "Suggest labels for the issue {issue.title}"')
    if action not in (None, "add") and name is None:
        raise typer.BadParameter(f"`hooks {action}` takes the name of a hook; `batos hooks` lists them")
    if action != "add" and (brief is not None or options != _UNSAID):
        raise typer.BadParameter("only `hooks add NAME BRIEF` takes a brief and options")


def _asked(action: str | None, name: str, brief: str, options: HookOptions, address: str) -> dict[str, Any]:
    if action is None:
        return ask(address, lambda client: client.hooks())
    if action == "add":
        terms: Any = {"persona": options.persona, "depth": options.depth, "priority": options.priority, "rate": options.rate}
        return ask(address, lambda client: client.hook_add(name, brief, **terms, hosts=options.host, when=options.when))
    if action == "show":
        return ask(address, lambda client: client.hooks(name))
    if action == "remove":
        return ask(address, lambda client: client.hook_remove(name))
    if action == "roll":
        return ask(address, lambda client: client.hook_roll(name))
    return ask(address, lambda client: client.hook_pause(name) if action == "pause" else client.hook_resume(name))


def _list(listed: list[dict[str, Any]], output: Output) -> None:
    if not listed:
        output.note('no hooks; batos hooks add issues "Suggest labels for the issue {issue.title}" makes one', "dim")
        return
    rows = ((one["name"], _state(one), *last_run(one), one_line(one["brief"], 60)) for one in listed)
    output.rows(("hook", "state", "last", "came to", "mission", "brief"), rows, STYLES)


def _page(one: dict[str, Any], output: Output) -> None:
    output.say(f"{one['name']}: POST {one['path']}", "bold")
    facts = [
        ("brief", one_line(one["brief"], 500)),
        ("fields", ", ".join(one["fields"]) or "none: the body is not in the brief"),
        ("only if", " and ".join(one["when"])),
        ("also under", ", ".join(one["hosts"])),
        ("persona", one["persona"]),
        ("depth", one["depth"]),
        ("priority", one["priority"]),
        ("at most", f"{counted(one['rate'], 'mission')} a minute"),
        ("paused", "yes" if one["paused"] else None),
        ("secret", f"kept as hook.{one['name']}" if one["has_secret"] else f"missing; `batos hooks roll {one['name']}` makes one"),
    ]
    output.pairs((name, value) for name, value in facts if value)
    if one["runs"]:
        output.rows(("age", "state", "mission"), ((ago(run["at"]), run["state"], run["id"]) for run in one["runs"]), STYLES)


def _usage(one: dict[str, Any], secret: str, doors: str | None, output: Output) -> None:
    address = f"{doors or 'http://127.0.0.1:5758'}{one['path']}"
    output.say(f"\naddress      {address}\nsecret       {secret}")
    output.note("             it is shown only now; a sender that has one of its own: batos secrets set hook." + one["name"], "dim")
    output.say(
        f"signature    X-Hub-Signature-256, or webhook-signature (Standard Webhooks), with that secret\n"
        f"or a token   curl -H 'Authorization: Bearer {secret}' --json '{{}}' {address}\n"
        f"             {address}?token={secret}"
    )
    if not doors:
        output.note("this daemon has no doors (setting doors.enabled): the hook cannot be called", "yellow")


def _state(one: dict[str, Any]) -> str:
    return "paused" if one["paused"] else "on" if one["has_secret"] else "no secret"


def last_run(one: dict[str, Any]) -> tuple[str, str, str]:
    """Return age, state and id of the last mission of a trigger; empty if there is none."""
    last = one["last"]
    return (ago(last["at"]), last["state"], last["id"]) if last else ("", "", "")
