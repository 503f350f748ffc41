"""Asking the daemon, what a terminal shows until the answer comes, and what to say when a name is not there."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, cast

from batos.cli.app import check_reachable, run_async
from batos.cli.output import size
from batos.config import load, nearest
from batos.errors import BatosError
from batos.wire import Client, ClientKeys

T = TypeVar("T")
SHOWN_AFTER_S = 1.0  # what is answered sooner needs no sign that something goes on
LOOK_S = 0.5


def ask(address: str, question: Callable[[Client], Awaitable[T]], *, shows: bool = False, upkeep: bool = False) -> T:
    """Ask the daemon at an endpoint one thing. A terminal shows that it goes on, and for how long.

    :param shows: the question shows itself what happens.
    :param upkeep: it is a piece of upkeep, of which the daemon says how far it is.
    :raises DaemonUnavailable: if nobody answers.
    """

    async def asking() -> T:
        async with client_of(address) as client:
            if shows:
                return await question(client)
            return await _shown(question(client), (lambda: _step(client)) if upkeep else None)

    check_reachable(address)
    return run_async(asking())


def client_of(address: str) -> Client:
    """A client of the daemon at an endpoint, with the keys that the settings name.

    :raises ConfigError: for keys that cannot be used.
    """
    return Client(address, keys=ClientKeys.of(load()))


async def _shown(work: Awaitable[T], step: Callable[[], Awaitable[str]] | None) -> T:
    """The result of some work, shown from its second second on.

    :param step: what it is at, asked now and then.
    """
    task, said = asyncio.ensure_future(work), "waiting"
    try:
        await asyncio.wait([task], timeout=SHOWN_AFTER_S)
        if not task.done():
            with showing(lambda: said):
                while not task.done():
                    said = said if step is None else await step()
                    await asyncio.wait([task], timeout=LOOK_S)
        return await task
    finally:
        task.cancel()


@contextlib.contextmanager
def showing(step: Callable[[], str]) -> Iterator[None]:
    """While the block lasts, a terminal's standard error has a line that says what it is at, and for how long.

    :param step: what it is at; asked from a thread of rich's.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    begun = time.monotonic()

    class _Line:
        def __rich__(self) -> Text:
            return Text(f"{step()} · {time.monotonic() - begun:.0f} s", no_wrap=True, overflow="ellipsis")

    with Console(file=sys.stderr).status(cast(Any, _Line()), spinner="dots"):
        yield


async def _step(client: Client) -> str:
    upkeep = (await client.info()).get("upkeep", {})
    return f"{upkeep['under_way']}: {step_of(upkeep['progress'])}" if upkeep.get("under_way") else "waiting"


def step_of(progress: dict[str, Any]) -> str:
    """A step and how far it is: `restoring, 12.0 MiB of 80.1 MiB`."""
    done = f", {size(progress['done'])} of {size(progress['total'])}" if progress.get("total") else ""
    return f"{progress.get('step', '')}{done}"


def with_nearest(error: BatosError, word: str) -> BatosError:
    """The error with the nearest of the names that its message lists after `there are: `."""
    if "did you mean" in error.message:
        return error
    names = error.message.rpartition("there are: ")[2].split(", ") if "there are: " in error.message else []
    return type(error)(error.message + nearest(word.rpartition(".")[2], names), **error.context)
