"""The verb undo: what a mission did to the image, taken back or done again."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.asking import ask
from batos.cli.missions import Id
from batos.cli.output import Output, ago, one_line
from batos.errors import InvalidInput


@app.command()
def undo(
    id: Id,
    redo: Annotated[bool, typer.Option("--redo", help="Do again what was undone.")] = False,
    cascade: Annotated[bool, typer.Option("--cascade", help="With all later work that depends on it; shows it, and asks.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Take back what a mission did to the image: objects, methods, examples, memory. Its record stays. Refused if later work needs it."""
    output, address = Output(as_json), endpoint(connect)
    expect = None
    if cascade and redo:
        raise typer.BadParameter("what was undone in a cascade is done again one by one, the oldest first")
    if cascade and not (yes or dry):
        shown = ask(address, lambda client: client.undo(id, redo=redo, cascade=True, dry=True))
        expect = [one["id"] for one in shown["missions"]]
        if len(expect) > 1:
            _agreed(shown, output)
    reply = ask(address, lambda client: client.undo(id, redo=redo, cascade=cascade, dry=dry, expect=expect))
    if as_json:
        output.document(reply)
    else:
        print_undo(reply, output)


def _agreed(shown: dict[str, Any], output: Output) -> None:
    """Show the lot, and ask.

    :raises typer.Abort: for no.
    :raises InvalidInput: where there is nobody to be asked.
    """
    if output.as_json or not sys.stdin.isatty():
        lot = ", ".join(one["id"] for one in shown["missions"])
        raise InvalidInput(f"{len(shown['missions'])} missions would be undone: {lot}; --yes undoes them without asking")
    _rows(shown, output)
    typer.confirm(f"Undo these {len(shown['missions'])} missions?", abort=True)


def print_undo(reply: dict[str, Any], output: Output) -> None:
    """What was undone or done again, or would be."""
    done = "done again" if reply["redo"] else "undone"
    if reply.get("already"):
        output.say(f"{reply['id']} is {'not undone' if reply['redo'] else 'undone'} already")
        return
    output.say(f"{'would be ' if reply['dry'] else ''}{done}:", "bold")
    _rows(reply, output)
    documents = [f"{title} ({what})" for side, what in (("gone", "gone"), ("back", "back")) for title in reply["documents"][side]]
    objects = [f"{one['oid']} {', '.join(one['parts'])}" for one in reply["objects"]]
    output.pairs((name, "; ".join(found)) for name, found in (("objects", objects), ("memory", documents)) if found)
    if not reply["redo"] and not reply["dry"]:
        output.note(f"done again with: batos undo {reply['id']} --redo", "dim")


def _rows(reply: dict[str, Any], output: Output) -> None:
    rows = ((one["id"], ago(one["finished"]), one_line(one["brief"])) for one in reply["missions"])
    output.rows(("mission", "age", "brief"), rows)
