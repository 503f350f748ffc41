"""The client's blocking calls: answered on the spot, awaited, raised, given up; and the loop is not kept from its other work."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from batos.sandbox.worker_calls import WorkerTurns


@pytest.fixture
def turns() -> Iterator[WorkerTurns]:
    made = WorkerTurns()
    yield made
    made.close()


def never() -> None:
    raise AssertionError("nobody gave up")


def threads() -> set[threading.Thread]:
    """Those of helpers, with those of earlier tests that are ending."""
    return {thread for thread in threading.enumerate() if thread.name == "batos-sandbox"}


async def test_short_calls_are_answered_on_one_thread_one_after_another(turns: WorkerTurns) -> None:
    assert [await turns.of(threading.get_ident, never) for _ in range(20)] == [await turns.of(threading.get_ident, never)] * 20
    with pytest.raises(ZeroDivisionError):
        await turns.of(lambda: 1 / 0, never)
    assert await turns.of(lambda: 7, never) == 7


async def test_long_calls_are_awaited_and_run_side_by_side(turns: WorkerTurns) -> None:
    both = threading.Barrier(2, timeout=20)
    assert await asyncio.gather(turns.of(both.wait, never), turns.of(both.wait, never)) in ([0, 1], [1, 0])


async def test_a_call_that_raises_after_a_while_raises(turns: WorkerTurns) -> None:
    go = threading.Event()

    def late() -> None:
        go.wait(20)
        raise ValueError("late")

    waiting = asyncio.ensure_future(turns.of(late, never))
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(ValueError, match="late"):
        await waiting


async def test_who_is_cancelled_gives_up_at_once_and_the_thread_serves_again(turns: WorkerTurns) -> None:
    before, go, ended = threads(), threading.Event(), threading.Event()

    def stuck() -> int:
        go.wait(20)
        ended.set()
        return 1

    waiting = asyncio.ensure_future(turns.of(stuck, go.set))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.wait(20)
    while len(turns.idle) < 1:
        await asyncio.sleep(0)
    assert await turns.of(lambda: 2, never) == 2
    assert len(threads() - before) == 1


async def test_others_have_their_turn_between_many_short_calls(turns: WorkerTurns) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    heart = asyncio.ensure_future(beat())
    for _ in range(40):
        await turns.of(lambda: time.sleep(0.0005), never)
    heart.cancel()
    assert beats >= 4


async def test_threads_end_with_it() -> None:
    before, turns = threads(), WorkerTurns()
    go = threading.Event()
    busy = asyncio.ensure_future(turns.of(lambda: go.wait(20), never))
    await asyncio.sleep(0)
    await turns.of(lambda: None, never)
    turns.close()
    go.set()
    await busy
    while threads() - before:
        await asyncio.sleep(0)
