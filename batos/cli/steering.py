"""Verbs that steer a mission: let it rest, let it go on, answer what it asks; and say what you think of it in the end."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.asking import ask
from batos.cli.missions import Id, print_status, steered
from batos.cli.output import Output


@app.command()
def pause(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Let a mission rest, also over restarts, until it is resumed. Nothing it paid for is lost; its deadline goes on."""
    steered(ask(endpoint(connect), lambda client: client.pause(id)), "paused", Output(as_json))


@app.command()
def resume(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Let a paused mission go on."""
    steered(ask(endpoint(connect), lambda client: client.resume(id)), "resumed", Output(as_json))


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


@app.command(context_settings={"ignore_unknown_options": True})  # else -1 would be an option
def rate(
    id: Id,
    rating: Annotated[str, typer.Argument(metavar="+1|-1", help="Whether it was good.")],
    why: Annotated[str | None, typer.Option("--why", metavar="TEXT", help="Why you think so; it is kept with the mission.")] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Say what you think of a mission that has ended. The system learns from it; a later rating takes the place of an earlier one."""
    given: dict[str, Literal[1, -1]] = {"+1": 1, "1": 1, "-1": -1}
    if rating not in given:
        raise typer.BadParameter(f"a rating is +1 or -1, not {rating!r}")
    print_status(ask(endpoint(connect), lambda client: client.rate(id, given[rating], why)), Output(as_json))
