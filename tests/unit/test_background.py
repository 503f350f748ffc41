"""Background tasks, lifetimes and the bus: the parts by which the daemon is put together."""

import asyncio

import pytest
from structlog.testing import capture_logs

from batos.bus import EventBus, MemoryQueried, SourceAudited
from batos.concurrency import Background, Lifetime


async def fails() -> None:
    raise ValueError("broken")


async def test_a_task_that_fails_is_logged_and_ends_nothing_else() -> None:
    background, going_on = Background(), asyncio.Event()
    with capture_logs() as logs:
        background.start(going_on.wait(), "waits")
        background.start(fails(), "a task", "the part")
        await asyncio.sleep(0.01)
    assert [(one["event"], one["part"], one["error"]) for one in logs] == [("background_failed", "the part", "ValueError('broken')")]
    going_on.set()
    await background.drain()
    await background.stop()


async def test_stopping_cancels_all_and_logs_nothing() -> None:
    background, ended = Background(), list[str]()

    async def waits(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    with capture_logs() as logs:
        for name in "ab":
            background.start(waits(name), name)
        await asyncio.sleep(0)
        await background.stop()
    assert (ended, logs) == (["a", "b"], [])


async def test_work_that_runs_to_its_end_outlives_its_caller() -> None:
    background, go_on, done = Background(), asyncio.Event(), list[int]()

    async def work() -> int:
        await go_on.wait()
        done.append(1)
        return 7

    caller = asyncio.create_task(background.run(work(), "work"))
    other = asyncio.create_task(background.run(work(), "work"))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    go_on.set()
    assert await other == 7
    await background.drain()
    assert done == [1, 1]
    with pytest.raises(ValueError, match="broken"):
        await background.run(fails(), "work")


async def test_a_lifetime_ends_tasks_and_resources_in_reverse_order() -> None:
    ended = list[str]()

    async def waits(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with Lifetime() as life:
        life.callback(ended.append, "image")
        life.background(waits("upkeep"), "upkeep")
        life.callback(ended.append, "listener")
        life.background(waits("heartbeat"), "heartbeat")
        await asyncio.sleep(0)
    assert ended == ["heartbeat", "listener", "upkeep", "image"]


def test_an_event_reaches_the_subscribers_of_its_type() -> None:
    bus, heard = EventBus(), list[object]()
    bus.subscribe(MemoryQueried, heard.append)
    bus.subscribe(MemoryQueried, lambda asked: heard.append(asked.hits))
    assert (bus.is_heard(MemoryQueried), bus.is_heard(SourceAudited)) == (True, False)
    bus.publish(SourceAudited(True))
    bus.publish(MemoryQueried(3))
    assert heard == [MemoryQueried(3), 3]
