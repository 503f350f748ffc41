"""The verb `folders`: watched folders whose new and changed files become missions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, check_named, endpoint
from batos.cli.client import OptionGroup, ask, grouped
from batos.cli.hooks import STYLES, last_run
from batos.cli.output import Output, ago, counted, one_line
from batos.config import nearest

ACTIONS = ("add", "show", "pause", "resume", "remove", "run")


@dataclass(frozen=True)
class FolderOptions(OptionGroup):
    """Options of a new watched folder with missions."""

    called: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of the watched folder; default: made of the path.")] = (
        None
    )
    existing: Annotated[bool, typer.Option("--existing", help="Existing files become missions, too.")] = False
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="Leave out matching files, as in .gitignore; may be repeated.")
    ] = None
    persona: Annotated[str | None, typer.Option("--persona", metavar="NAME", help="Persona of its missions.")] = None
    depth: Annotated[
        str | None, typer.Option("--depth", metavar="DEPTH", help="Depth of its missions: direct, facets, council, or auto.")
    ] = None
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", min=-100, max=100, help="Missions with a higher number go first.")
    ] = None
    stop_after: Annotated[
        int | None,
        typer.Option("--stop-after", metavar="N", min=0, max=20, help="Stop after N failures in a row (5); 0: never."),
    ] = None


_UNSAID = FolderOptions()


@app.command()
@grouped
def folders(
    action: Annotated[
        str | None, typer.Argument(metavar="[" + "|".join(ACTIONS) + "]", help="What to do; without it, they are listed.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="[DIR|NAME]", help="With add: the folder; else the name of one.")] = None,
    brief: Annotated[
        str | None, typer.Argument(metavar="[BRIEF]", help="With add, for each file; {path}, {name} and {text} are the file's.")
    ] = None,
    options: FolderOptions = _UNSAID,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List watched folders, whose new and changed files become missions. Or add, show, pause, resume or remove a folder, or make missions
    of its present files (run)."""
    output = Output(as_json)
    _check(action, name, brief, options)
    reply = _asked(action, str(name), brief or "", options, endpoint(connect))
    if as_json:
        output.document(reply)
    elif action in (None, "remove"):
        _list(reply["folders"], output)
    elif action == "run":
        output.say(f"{reply['reopened']} files become missions")
    else:
        _page(reply["folders"][0], output)
        if "present" in reply:
            present(reply, output, existing=options.existing)


def present(reply: dict[str, Any], output: Output, *, existing: bool = False) -> None:
    """Say how many files of a folder are there already, and what becomes of them."""
    count, one = reply["present"], reply["folders"][0]
    if count:
        fate = "become missions, a few at a time" if existing else f"become no missions; `batos folders run {one['name']}` makes them"
        output.say(f"{count} files are in {one['folder']} already: they {fate}")


def _check(action: str | None, name: str | None, brief: str | None, options: FolderOptions) -> None:
    if action is not None and action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is none of {', '.join(ACTIONS)}{nearest(action, ACTIONS)}")
    if action == "add" and (name is None or brief is None):
        raise typer.BadParameter('add takes a folder and a brief: batos folders add ~/inbox "Summarise {path}"')
    if action == "add":
        check_named(name)
    if action not in (None, "add") and name is None:
        raise typer.BadParameter(f"`folders {action}` takes a name; `batos folders` lists them")
    if action != "add" and (brief is not None or options != _UNSAID):
        raise typer.BadParameter("only `folders add DIR BRIEF` takes a brief and options")


def _asked(action: str | None, name: str, brief: str, options: FolderOptions, address: str) -> dict[str, Any]:
    if action is None:
        return ask(address, lambda client: client.folders())
    if action == "add":
        terms: Any = {"name": options.called, "exclude": options.exclude, "existing": options.existing or None, "persona": options.persona}
        terms |= {"depth": options.depth, "priority": options.priority, "stop_after": options.stop_after}
        return ask(address, lambda client: client.folder_add(os.path.abspath(name), brief, **terms))
    if action == "show":
        return ask(address, lambda client: client.folders(name))
    if action == "remove":
        return ask(address, lambda client: client.folder_remove(name))
    if action == "run":
        return ask(address, lambda client: client.folder_run(name))
    return ask(address, lambda client: client.folder_pause(name) if action == "pause" else client.folder_resume(name))


def _list(listed: list[dict[str, Any]], output: Output) -> None:
    if not listed:
        output.note('none; batos folders add ~/inbox "Summarise {path}" makes each new file there a mission', "dim")
        return
    rows = ((one["name"], one["folder"], _state(one), str(one["waiting"] or ""), *last_run(one)) for one in listed)
    output.rows(("name", "folder", "state", "waiting", "last", "came to", "mission"), rows, STYLES)


def _page(one: dict[str, Any], output: Output) -> None:
    output.say(f"{one['name']}: each new or changed file in {one['folder']}", "bold")
    facts = [
        ("brief", one_line(one["brief"], 500)),
        ("persona", one["persona"]),
        ("depth", one["depth"]),
        ("priority", one["priority"]),
        ("stops after", f"{one['stop_after']} failures in a row" if one["stop_after"] else None),
        ("paused", (one.get("why") or "yes") if one["paused"] else None),
        ("not watched", None if one["watched"] else f"`batos ingest --watch {one['folder']}` watches it again"),
        ("away", one.get("away")),
        ("waiting", counted(one["waiting"], "file") if one["waiting"] else None),
        ("failed in a row", one["failures"] or None),
    ]
    output.pairs((name, value) for name, value in facts if value)
    if one["runs"]:
        output.rows(("age", "state", "mission"), ((ago(run["at"]), run["state"], run["id"]) for run in one["runs"]), STYLES)


def _state(one: dict[str, Any]) -> str:
    if one["paused"]:
        return "stopped" if one.get("why") else "paused"
    return "not watched" if not one["watched"] else "away" if one.get("away") else "on"
