"""The time of a piece of work that waits for others, by a clock that the test moves on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from batos.autotelic.change_preparation import NotYet
from batos.autotelic.rehearsal_budget import WorkTime


@pytest.fixture
async def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass."""
    loop = asyncio.get_running_loop()
    now = loop.time()

    def more(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(loop, "time", lambda: now)
    return more


async def turns() -> None:
    """Some turns of the loop, in which a timer that is due has its say."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_it_waits_for_others_is_not_part_of_it(passes: Callable[[float], None]) -> None:
    async with WorkTime(10).limit() as time:
        for _ in range(2):
            passes(4)
            with time.waiting():
                passes(4)
        await turns()


async def test_its_own_time_is_limited(passes: Callable[[float], None]) -> None:
    async def work() -> None:
        async with WorkTime(10).limit() as time:
            passes(6)
            with time.waiting():
                passes(6)
            passes(6)
            await turns()

    with pytest.raises(TimeoutError):
        await work()


async def test_what_waits_for_too_long_is_not_yet_done(passes: Callable[[float], None]) -> None:
    async def work() -> None:
        async with WorkTime(10).limit() as time:
            for _ in range(2):
                with time.waiting():
                    passes(6)
                    await turns()

    with pytest.raises(NotYet):
        await work()


async def test_it_waits_as_long_as_one_of_its_tasks_does(passes: Callable[[float], None]) -> None:
    async with WorkTime(10).limit() as time:
        with time.waiting():
            with time.waiting():
                passes(5)
            passes(4)
            await turns()
        passes(9)
        await turns()
    with time.waiting():  # when all of it is over
        passes(100)
