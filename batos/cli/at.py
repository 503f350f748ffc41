"""The verb `at`: a look at the whole image as of a time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, invoke
from batos.cli.looking import FileFlag, look, moment
from batos.cli.missions import print_missions
from batos.cli.objects import print_entries
from batos.cli.output import Output
from batos.config import nearest

LOOKS = ("show", "ls", "missions", "failures", "method", "methods")
"""The verbs that take `--at`."""
_MISSIONS = 10  # that a look at the whole tells of


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def at(
    context: typer.Context,
    when: Annotated[str, typer.Argument(metavar="TIME", help="See docs/cli.md for how a TIME is written.")],
    verb: Annotated[
        str | None, typer.Argument(metavar="[VERB...]", help=f"What to look at, with its words: {', '.join(LOOKS)}; else the whole.")
    ] = None,
    image: FileFlag = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Look at the whole image as it was: `batos at '2 h ago' show robin`. Without a verb: what there was, and the last missions then."""
    if verb is not None:
        if verb not in LOOKS:
            raise typer.BadParameter(f"at a time there are {', '.join(LOOKS)}, not {verb!r}{nearest(verb, LOOKS)}")
        flags = [*(["--image", image] if image else []), *(["--connect", connect] if connect else []), *(["--json"] if as_json else [])]
        invoke([verb, *context.args, "--at", when, *flags])
    then, output = moment(when), Output(as_json)
    held = look(image, connect, lambda looks: looks.ls(None, then), lambda client: client.ls(None, then))
    listed = look(
        image, connect, lambda looks: looks.missions(None, _MISSIONS, then), lambda client: client.missions(None, _MISSIONS, then)
    )
    told: dict[str, Any] = {"type": "at", "at": then, "entries": held["entries"], "missions": listed["missions"]}
    if as_json:
        output.document(told)
        return
    print_entries(told["entries"], output)
    output.say()
    print_missions(told["missions"], output)
