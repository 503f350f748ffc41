"""Questions go before documents; work in the background has its share of time under load that does not end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from batos import concurrency
from batos.concurrency import PASSES, Share, ShortFirst
from batos.image.mission_record import MissionRecord
from batos.missions.mission_queue import MissionQueue


async def served(*asked: tuple[str, bool]) -> list[str]:
    """In which order these have their turns that ask while another one is served."""
    place, order, begun = ShortFirst(), list[str](), asyncio.Event()

    async def ask(name: str, short: bool) -> None:
        async with place.turn(short=short):
            order.append(name)
            await begun.wait()

    tasks = [asyncio.create_task(ask(*one)) for one in (("first", False), *asked)]
    await asyncio.sleep(0)
    begun.set()
    await asyncio.gather(*tasks)
    return order


async def test_a_question_goes_before_the_documents_that_wait() -> None:
    assert await served(("documents", False), ("more", False), ("question", True)) == ["first", "question", "documents", "more"]


async def test_documents_are_passed_by_so_many_questions_and_no_more() -> None:
    order = await served(("documents", False), *[(f"q{n}", True) for n in range(3 * PASSES)])
    assert order.index("documents") == PASSES + 1
    assert len(order) == 3 * PASSES + 2


async def test_who_is_cancelled_while_it_waits_or_as_its_turn_comes_holds_up_nobody() -> None:
    place, ended = ShortFirst(), list[str]()

    async def ask(name: str) -> None:
        async with place.turn(short=True):
            ended.append(name)

    async with place.turn(short=False):
        waiting = [asyncio.create_task(ask(name)) for name in "abc"]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
    waiting[1].cancel()  # its turn has come, and it has not run yet
    await asyncio.wait(waiting)
    assert ended == ["c"]
    async with asyncio.timeout(90), place.turn(short=False):
        pass


async def test_a_share_waits_for_quiet_and_under_load_for_nine_times_what_it_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited, busy = [0.0], list[float](), [True]

    async def quiet() -> None:
        if busy[0]:
            await asyncio.Event().wait()

    class Timeout:
        def __init__(self, seconds: float) -> None:
            waited.append(seconds)

        async def __aenter__(self) -> None:
            if busy[0]:
                raise TimeoutError

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("batos.concurrency.asyncio.timeout", Timeout)
    share = Share(quiet, 60, lambda: clock[0])
    await share.turn()
    clock[0] += 2
    await share.turn()
    clock[0] += 500
    await share.turn()
    busy[0] = False
    clock[0] += 1
    await share.turn()
    assert waited == [60, 18, 60, 9]


def record(id: str, number: int, origin: str) -> MissionRecord:
    return MissionRecord(id=id, brief="b", accepted=1.0, number=number, origin=origin)


def test_a_mission_of_the_systems_own_waits_for_users_but_not_for_ever() -> None:
    clock = [0.0]
    queue = MissionQueue(patience_s=60, now=lambda: clock[0])
    for n in range(2):
        queue.push(record(f"own{n}", n, "system"))
    for n in range(2, 200):
        queue.push(record(f"m{n}", n, "client"))
    order = []
    for _ in range(60):
        clock[0] += 4
        order.append(queue.pop().record.id)
    assert [id for id in order if id.startswith("own")] == ["own0", "own1"]
    assert (order.index("own0"), order.index("own1")) == (14, 29), "one in a minute"
    queue.push(record("own2", 300, "system"))
    assert queue.remove("own2") is not None
    clock[0] += 100
    assert queue.pop().record.id.startswith("m"), "one that was taken off is not let through"


def test_without_load_the_systems_own_come_after_those_of_users() -> None:
    queue = MissionQueue(patience_s=60, now=lambda: 0.0)
    queue.push(record("own", 1, "system"))
    queue.push(record("m", 2, "client"))
    assert [queue.pop().record.id for _ in range(2)] == ["m", "own"]


async def test_a_question_waits_for_no_thread_of_the_work_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of that there is: it has threads of its own."""
    end = threading.Event()
    background = [asyncio.create_task(concurrency.in_helper(end.wait, 30)) for _ in range(64)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(90):
            assert await concurrency.answering(lambda: "answer") == "answer"
    finally:
        end.set()
        await asyncio.gather(*background)
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    concurrency.LoopTurns().take()
    assert pauses == [0], "work in the background gives way to no question any more"
