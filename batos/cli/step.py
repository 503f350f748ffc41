"""The verb `step`: enter a mission that failed, look around, mend it, let it go on. Or run one method and look at its lines."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

import typer

from batos import config
from batos.cli.app import Connect, Json, NumbersCommand, app, check_reachable, endpoint, run_async
from batos.cli.missions import value_of
from batos.cli.output import Output
from batos.errors import BatosError
from batos.wire import Client, ClientKeys

_HISTORY = "step_history"


@app.command(cls=NumbersCommand)
def step(
    args: Annotated[list[str], typer.Argument(metavar="MISSION | SELECTOR [ARG]...", help="The mission; with --method the message.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="STATE|N", help="Stop at this state or transition, not where it failed.")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", metavar="OBJECT", help="Run one method of this object, without a mission.")
    ] = None,
    inferences: Annotated[
        int, typer.Option("--inferences", metavar="N", min=0, help="Pay for at most N inferences that the journal does not have.")
    ] = 0,
    do: Annotated[
        list[str] | None, typer.Option("--do", metavar="LINE", help="Run this line in place of a prompt; may be repeated.")
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Step into a mission: it is thought again in a mirror of the image as it was, up to where it failed. Look at prompts, answers, slots
    and local values there, change them, and `continue` it. Nothing is changed before that; the line `help` lists the commands."""
    if method is None and len(args) > 1:
        raise typer.BadParameter(f"one mission at a time; {' '.join(args[1:])!r} is too much (with --method OBJECT it would be arguments)")
    address = endpoint(connect)
    check_reachable(address)
    place = int(at) if at is not None and at.isdecimal() else at
    code = run_async(_stepped(address, args, (place, method, inferences), do or [], Output(as_json)))
    if code:
        raise typer.Exit(code)


async def _stepped(address: str, args: list[str], how: tuple[int | str | None, str | None, int], do: list[str], output: Output) -> int:
    from batos.cli.step_lines import StepLines
    from batos.cli.step_view import SilentOutput

    at, method, inferences = how
    async with Client(address, keys=ClientKeys.of(config.load())) as client:
        if method is not None:
            reply = await client.step_method(method, args[0], [value_of(one) for one in args[1:]], inferences=inferences)
        else:
            reply = await client.step_open(args[0], at=at, inferences=inferences)
        lines = StepLines(client, reply, SilentOutput() if output.as_json else output)
        try:
            return await _session(lines, do, output)
        finally:
            if not lines.is_over:
                with contextlib.suppress(BatosError):  # it is dropped by itself
                    await client.step_close(lines.session)


async def _session(lines: Any, do: list[str], output: Output) -> int:
    from batos.cli.chat.keyboard import Interrupted, Keyboard, LineSource, Pipe
    from batos.cli.step_lines import names

    if output.as_json:
        for line in do:
            await lines.do(line)
        output.document(lines.reply)
        return 0
    lines.place()
    for line in do:
        await lines.do(line)
    if do:
        return 0
    lively = sys.stdin.isatty() and sys.stdout.isatty()
    folder = config.client_folder() if lively else None
    seat: LineSource = Pipe()
    if lively:
        seat = lines.seat = Keyboard(folder / _HISTORY if folder and folder.is_dir() else None, names())
    while not lines.is_over:
        try:
            line = await seat.line(f"{lines.prompt}> ")
        except EOFError:
            break
        except Interrupted:
            continue
        try:
            await lines.do(line)
        except BatosError as e:
            if not lively:
                raise
            output.error(e)
    return 0
