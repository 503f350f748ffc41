"""The verb `chat`: a conversation at a terminal, or line by line out of a pipe.

    session.py    a chat from its first line to its last, its commands that begin with /, and Ctrl-C
    dialogue.py   the turns, durable missions that each follow the last one; and the bookmark of the last conversation
    screen.py     the output
    keyboard.py   the input

The modules are imported when a chat begins: no other verb needs prompt-toolkit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from batos import config
from batos.cli.app import Connect, Json, app, check_reachable, endpoint, run_async
from batos.cli.output import Output
from batos.wire import Client, ClientKeys

TIMEOUT_S = 3.0  # seconds until the client checks that the daemon is still there
_HISTORY = "chat_history"


@app.command()
def chat(
    persona: Annotated[
        str | None, typer.Option("--persona", metavar="NAME", help="Persona that thinks; default: the router chooses, turn by turn.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="Continue the last conversation, first an unfinished turn.")] = False,
    context: Annotated[str | None, typer.Option("--context", metavar="ID", help="Continue after this mission.")] = None,
    may_ask: Annotated[bool, typer.Option("--may-ask", help="Missions may ask you a question; the next line answers it.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Talk with the daemon: each turn is a mission that follows the last. From a pipe each line is a turn; exit code 1 if any FAILED."""
    if last and context is not None:
        raise typer.BadParameter("--last and --context exclude each other; give only one")
    address = endpoint(connect)
    check_reachable(address)
    code = run_async(_chatted(address, persona, context, last, may_ask, Output(as_json)))
    if code:
        raise typer.Exit(code)


async def _chatted(address: str, persona: str | None, context: str | None, last: bool, may_ask: bool, output: Output) -> int:
    from batos.cli.chat.dialogue import Bookmark, Dialogue
    from batos.cli.chat.keyboard import Keyboard, LineSource, Pipe
    from batos.cli.chat.screen import Screen
    from batos.cli.chat.session import ChatSession, Commands, known, names

    lively = sys.stdin.isatty() and sys.stdout.isatty() and not output.as_json
    folder = _folder()
    async with Client(address, TIMEOUT_S, keys=ClientKeys.of(config.load())) as client:
        personas = [str(name) for name in (await client.info())["personas"]]
        seat: LineSource = Keyboard(folder and folder / _HISTORY, names(personas)) if lively else Pipe()
        screen = Screen(output, lively=lively)
        dialogue = Dialogue(client, seat, screen, Bookmark(folder, address), may_ask=may_ask)
        if persona is not None:
            dialogue.wishes.persona = known(persona, personas)
        session = ChatSession(dialogue, Commands(client, dialogue, seat, screen, personas), seat, screen, lively=lively)
        with session.listening():
            return await session.run(context, last=last)


def _folder() -> Path | None:
    """Return the folder of the history and bookmarks; None if there can be none."""
    folder = config.client_folder()
    try:
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder
