"""Asking the daemon, and what to say when a name is not there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from batos.cli.app import check_reachable, run_async
from batos.config import nearest
from batos.errors import BatosError
from batos.wire import Client

T = TypeVar("T")


def ask(address: str, question: Callable[[Client], Awaitable[T]]) -> T:
    """Ask the daemon at an endpoint one thing.

    :raises DaemonUnavailable: if nobody answers.
    """

    async def asking() -> T:
        async with Client(address) as client:
            return await question(client)

    check_reachable(address)
    return run_async(asking())


def with_nearest(error: BatosError, word: str) -> BatosError:
    """The error with the nearest of the names that its message lists after `there are: `."""
    if "did you mean" in error.message:
        return error
    names = error.message.rpartition("there are: ")[2].split(", ") if "there are: " in error.message else []
    return type(error)(error.message + nearest(word.rpartition(".")[2], names), **error.context)
