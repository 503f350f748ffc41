"""Verbs that steer a mission under way: let it rest, let it go on, answer what it asks."""

from __future__ import annotations

from typing import Annotated

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.asking import ask
from batos.cli.missions import Id, print_status
from batos.cli.output import Output


@app.command()
def pause(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Let a mission rest, also over restarts, until it is resumed. Nothing it paid for is lost; its deadline goes on."""
    print_status(ask(endpoint(connect), lambda client: client.pause(id)), Output(as_json))


@app.command()
def resume(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Let a paused mission go on."""
    print_status(ask(endpoint(connect), lambda client: client.resume(id)), Output(as_json))


@app.command()
def answer(
    id: Id,
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="What you answer.")],
    number: Annotated[int | None, typer.Option("--number", metavar="N", min=1, help="Which of its questions; else the open one.")] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Answer the question of a mission; it goes on with the answer."""
    print_status(ask(endpoint(connect), lambda client: client.answer(id, " ".join(text), number)), Output(as_json))
