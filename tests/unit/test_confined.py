"""Work in a child process: what it answers, its limits and walls, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import Unreadable
from batos.isolation import ChildStopped, IsolatedChild

HERE = __name__


def serve(request: Any, data: bytes) -> Iterator[Any]:
    """What the child of these tests does; this module is imported there, too."""
    if request == "echo":
        yield [len(data), data[:8].decode("latin-1")]
        yield {"é\ud83d": os.getpid()}
    elif request == "freeze":
        import re

        re.match(r"(a+)+$", "a" * 60 + "!")
    elif request == "wait":
        import time

        yield "begun"
        time.sleep(3600)
    elif request == "eat":
        yield len([b"x" * 10_000_000 for _ in range(1000)])
    elif request == "die":
        import ctypes

        ctypes.string_at(0)
    elif request == "refuse":
        raise Unreadable("it is odd")
    elif request == "fault":
        raise ZeroDivisionError("by nothing")
    elif request == "reach out":
        import socket

        for attempt in (Path("/etc/passwd").read_text, socket.socket, os.fork, Path("/tmp/x").touch):
            try:
                yield repr(attempt())
            except OSError as e:
                yield type(e).__name__


@pytest.fixture
async def child() -> AsyncIterator[IsolatedChild]:
    made = IsolatedChild(HERE, memory=1 << 29)
    yield made
    await made.close()


def pid_of(child: IsolatedChild) -> int:
    assert child.pid is not None
    return child.pid


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def gone(pid: int) -> None:
    async with asyncio.timeout(90):
        while not is_gone(pid):
            await asyncio.sleep(0.01)


async def test_it_answers_in_pieces_and_is_kept(child: IsolatedChild) -> None:
    data = b"\x00\xff" * 3_000_000
    first = await child.ask("echo", data, seconds=10)
    assert first == [[6_000_000, "\x00\xff" * 4], {"é\ud83d": pid_of(child)}]
    assert (await child.ask("echo", b"", seconds=10))[1] == first[1]


@pytest.mark.parametrize(
    ("request_", "reason"), [("freeze", "time"), ("wait", "time"), ("eat", "memory"), ("die", "died"), ("fault", "fault")]
)
async def test_what_does_not_end_well_says_how_and_the_next_is_served(
    child: IsolatedChild, request_: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batos.isolation.PATIENCE", 1)
    monkeypatch.setattr("batos.isolation.START_S", 1.0 if request_ == "wait" else 60.0)
    with pytest.raises(ChildStopped) as caught:
        await child.ask(request_, seconds=1)
    assert caught.value.reason == reason
    monkeypatch.setattr("batos.isolation.START_S", 60.0)
    assert (await child.ask("echo", b"ab", seconds=10))[0] == [2, "ab"]


async def test_errors_of_the_house_come_through(child: IsolatedChild) -> None:
    with pytest.raises(Unreadable, match="it is odd"):
        await child.ask("refuse", seconds=5)


async def test_it_reaches_nothing(child: IsolatedChild) -> None:
    found = await child.ask("reach out", seconds=5)
    assert all(one in ("PermissionError", "OSError") for one in found), found


async def test_a_cancelled_request_ends_it(child: IsolatedChild) -> None:
    asking = asyncio.create_task(child.ask("freeze", seconds=600))
    async with asyncio.timeout(90):
        while child.pid is None:
            await asyncio.sleep(0.01)
    pid = pid_of(child)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await gone(pid)
    assert (await child.ask("echo", seconds=10))[0] == [0, ""]


async def test_one_that_is_not_asked_goes_and_another_comes() -> None:
    child = IsolatedChild(HERE, memory=1 << 29, idle_s=0.05)
    try:
        first = (await child.ask("echo", seconds=10))[1]
        await gone(next(iter(first.values())))
        assert (await child.ask("echo", seconds=10))[1] != first
    finally:
        await child.close()


PARENT = """
import asyncio, sys
from batos.isolation import IsolatedChild
async def main():
    child = IsolatedChild("tests.unit.test_confined", memory=1 << 29)
    await child.ask("echo", seconds=10)
    print(child._process.pid, flush=True)
    await child.ask("freeze", seconds=600)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child hears of its parent's end by its pipe alone")
async def test_it_does_not_outlive_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert parent.stdout is not None
    pid = int(await asyncio.to_thread(parent.stdout.readline))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    await gone(pid)
