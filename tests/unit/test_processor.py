"""Processor time charged to accounts, by a clock that the test moves on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from batos.concurrency import in_helper
from batos.resources import ProcessorAccount, charge, charged, charged_task, charged_thread


@pytest.fixture
def computes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets the thread that calls it have computed for so many seconds more."""
    spent: dict[int, float] = {}

    def more(seconds: float) -> None:
        me = threading.get_ident()
        spent[me] = spent.get(me, 0.0) + seconds

    monkeypatch.setattr(time, "thread_time", lambda: spent.get(threading.get_ident(), 0.0))
    return more


async def test_what_is_computed_between_waits_is_charged_and_what_others_compute_is_not(computes: Callable[[float], None]) -> None:
    mine, theirs = ProcessorAccount(), ProcessorAccount()

    async def work(amount: float) -> float:
        for _ in range(3):
            computes(amount)
            await asyncio.sleep(0)
        return amount

    async def all_of(amount: float, account: ProcessorAccount) -> float:
        return await charged(work(amount), account)

    assert await asyncio.gather(all_of(1, mine), all_of(10, theirs), work(100)) == [1, 10, 100]
    assert (mine.seconds, theirs.seconds) == (3, 30)
    assert charge(None) is None


async def test_what_has_an_account_of_its_own_inside_is_not_counted_twice(computes: Callable[[float], None]) -> None:
    outer, inner = ProcessorAccount(), ProcessorAccount()

    async def within() -> None:
        computes(10)
        await asyncio.sleep(0)
        computes(10)

    async def around() -> None:
        computes(1)
        await charged(within(), inner)
        await charged(within(), None)
        await charged(within(), outer)
        computes(1)

    await charged(around(), outer)
    assert (outer.seconds, inner.seconds) == (22, 20)


async def test_what_goes_on_in_other_threads_and_tasks_is_charged(computes: Callable[[float], None]) -> None:
    account = ProcessorAccount()

    async def task() -> str:
        computes(1)
        await in_helper(computes, 10)
        return "done"

    async def work() -> list[str]:
        await in_helper(computes, 100)
        return await asyncio.gather(charged_task(task()), charged_task(task()))

    assert await charged(work(), account) == ["done", "done"]
    assert account.seconds == 122


async def test_nothing_is_charged_where_nobody_asked_for_it(computes: Callable[[float], None]) -> None:
    async def task() -> int:
        return 1

    mine: Awaitable[int] = task()
    assert charged_task(mine) is mine
    assert charged_thread(computes) is computes
    assert await mine == 1


async def test_errors_and_cancellations_reach_the_work_and_end_the_charge() -> None:
    account = ProcessorAccount()

    async def raises() -> None:
        await asyncio.sleep(0)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await charged(raises(), account)

    heard: list[str] = []
    begun = asyncio.Event()

    async def waits() -> str:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            await asyncio.sleep(0)
            raise
        return "never"

    async def task() -> str:
        return await charged(waits(), account)

    running = asyncio.ensure_future(task())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard == ["cancelled"]
    assert charge(None) is None
