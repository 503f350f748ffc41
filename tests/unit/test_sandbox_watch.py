"""Turns on the loop's own thread: who watches over them, and what becomes of a run whose turn was not short."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from batos.errors import SandboxFailed, SandboxLimit
from batos.sandbox import Sandbox
from batos.sandbox.invocation import Drive
from batos.sandbox.worker_calls import AFTER_A_CUT, AFTER_A_LONG_ONE, CallWatch, Overdue, Pace, WorkerTurns
from batos.sandbox.workers import Workers, WorkerSession
from tests.support.sandbox import Sends, call, obj, settings, slots

LONG = "sum(range(8_000_000))"  # some tenths of a second, in a text without a loop
SUM = sum(range(8_000_000))
LATE = f"""def late(self):
    self.n = self.n + 1
    self.first(self.n)
    found = {LONG}
    self.n = self.n + 1
    self.second(found)
    return found
"""


@pytest.fixture
def watch() -> Iterator[CallWatch]:
    made = CallWatch()
    yield made
    made.close()


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(settings(sandbox_time_s=20)) as made:
        yield made


def never() -> None:
    raise AssertionError("cut off")


def test_a_short_call_is_answered_on_the_spot(watch: CallWatch) -> None:
    assert [watch.over(threading.get_ident, never) for _ in range(3)] == [threading.get_ident()] * 3
    with pytest.raises(ZeroDivisionError):
        watch.over(lambda: 1 / 0, never)


def test_a_long_call_is_cut_off_whatever_comes_of_it(watch: CallWatch) -> None:
    for _ in range(3):
        gate = threading.Event()
        with pytest.raises(Overdue):
            watch.over(lambda gate=gate: gate.wait(20), gate.set)

    def fails() -> None:
        gate.wait(20)
        raise ValueError("cut off")

    gate = threading.Event()
    with pytest.raises(Overdue):
        watch.over(fails, gate.set)
    assert watch.over(lambda: 7, never) == 7


def test_it_rests_when_there_is_nothing_to_watch_and_wakes(watch: CallWatch) -> None:
    assert watch.over(lambda: 7, never) == 7
    for _ in range(2):
        tick = threading.Event()
        while not watch.resting:
            tick.wait(0.001)
        gate = threading.Event()
        with pytest.raises(Overdue):
            watch.over(lambda gate=gate: gate.wait(20), gate.set)


@pytest.mark.parametrize("resting", [False, True])
def test_its_thread_ends_with_it(resting: bool) -> None:
    before, watch, tick = set(threading.enumerate()), CallWatch(), threading.Event()
    watch.over(int, never)
    (thread,) = {thread for thread in threading.enumerate() if thread.name == "batos-sandbox-watch"} - before
    while resting and not watch.resting:
        tick.wait(0.001)
    watch.close()
    thread.join(20)
    assert not thread.is_alive()


def test_a_program_is_tried_on_the_loop_until_it_was_long_and_again_when_it_was_short_for_a_while() -> None:
    pace = Pace("def m(self):\n    return 1\n")
    assert pace.short
    for wary, slow in ((AFTER_A_LONG_ONE, lambda: pace.took(1.0)), (AFTER_A_CUT, pace.cut)):
        slow()
        for _ in range(wary):
            assert not pace.short
            pace.took(0.0001)
        assert pace.short
    pace.cut()
    pace.took(1.0)
    for _ in range(AFTER_A_CUT - 1):
        pace.took(0.0001)
    assert not pace.short
    assert not Pace("def m(self):\n    for x in self.xs:\n        pass\n").short


class Loads:
    """How often runs were done again, and what happens when their new worker is ready."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.then = 0, lambda session: None
        self.begun, self.ready, plain = asyncio.Event(), asyncio.Event(), Workers.load

        async def load(workers: Workers, session: WorkerSession, image: bytes) -> None:
            self.count += 1
            self.begun.set()
            await plain(workers, session, image)
            self.then(session)
            self.ready.set()

        monkeypatch.setattr(Workers, "load", load)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program is tried on the loop's thread, however busy the machine is."""
    monkeypatch.setattr(Pace, "short", True)
    monkeypatch.setattr(WorkerTurns, "may_stand_by", lambda self: True)


@pytest.fixture
def loads(at_once: None, monkeypatch: pytest.MonkeyPatch) -> Loads:
    return Loads(monkeypatch)


async def test_a_run_that_was_cut_off_is_done_again_and_nothing_twice(sandbox: Sandbox, loads: Loads) -> None:
    told: list[int] = []
    target = obj(LATE, n=0)
    sends = Sends(sandbox, first=lambda o, n: told.append(n), second=lambda o, found: told.append(found))
    assert await call(sends, target, "late") == SUM
    assert (loads.count, told, slots(target)) == (1, [1, SUM], {"n": 2})


async def test_the_first_turn_of_an_inner_run_is_done_again_too(sandbox: Sandbox, loads: Loads) -> None:
    target = obj(
        f"def inner(self):\n    self.n = 2\n    return {LONG}\n", "def outer(self):\n    self.n = 1\n    return self.inner()\n", n=0
    )
    assert await call(Sends(sandbox), target, "outer") == SUM
    assert (loads.count, slots(target)) == (1, {"n": 2})


async def test_a_run_with_many_answers_is_not_cut_off(sandbox: Sandbox, loads: Loads) -> None:
    told: list[int] = []
    target = obj("def many(self):\n" + "    self.first()\n" * 20 + f"    return {LONG}\n")
    assert await call(Sends(sandbox, first=lambda o: told.append(1)), target, "many") == SUM
    assert (loads.count, len(told)) == (0, 20)


@pytest.mark.parametrize("when", ["begun", "ready"])
async def test_cancelled_when_it_is_done_again_it_leaves_nothing(sandbox: Sandbox, loads: Loads, when: str) -> None:
    target = obj(LATE, n=0)
    running = asyncio.ensure_future(call(Sends(sandbox, first=lambda o, n: None), target, "late"))
    await asyncio.wait_for(getattr(loads, when).wait(), 90)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert slots(target) == {"n": 0}
    assert await call(Sends(sandbox), obj("def m(self):\n    return 1\n"), "m") == 1


async def test_a_second_worker_that_dies_fails_the_run_if_it_had_sent(sandbox: Sandbox, loads: Loads) -> None:
    target = obj(LATE, n=0)
    told: list[int] = []
    loads.then = lambda session: os.kill(session.monty.worker_pid, signal.SIGKILL)
    with pytest.raises(SandboxFailed, match="died"):
        await call(Sends(sandbox, first=lambda o, n: told.append(n)), target, "late")
    assert (told, slots(target)) == ([1], {"n": 0})


async def test_a_second_worker_that_dies_is_replaced_if_it_had_not(sandbox: Sandbox, loads: Loads) -> None:
    dead: list[int] = []

    def dies(session: WorkerSession) -> None:
        if not dead:
            dead.append(session.monty.worker_pid)
            os.kill(dead[0], signal.SIGKILL)

    loads.then = dies
    assert await call(Sends(sandbox), obj(f"def m(self):\n    return {LONG}\n"), "m") == SUM
    assert loads.count == 2  # the third worker's turn was taken to be short, too


async def test_a_worker_that_dies_while_the_loop_stands_by_is_replaced(
    sandbox: Sandbox, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, short = obj("def m(self):\n    return 1\n"), WorkerSession.short_turn
    turns = 0

    async def dies(session: WorkerSession, turn: Any) -> Any:
        nonlocal turns
        turns += 1
        if turns == 1:
            os.kill(session.monty.worker_pid, signal.SIGKILL)
        return await short(session, turn)

    monkeypatch.setattr(WorkerSession, "short_turn", dies)
    assert await call(Sends(sandbox), target, "m") == 1
    assert turns == 2


async def test_a_worker_that_answered_and_was_killed_is_lent_to_nobody(
    sandbox: Sandbox, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answers_too_late(session: WorkerSession, turn: Any) -> Any:
        turn()
        session.kill()
        raise Overdue

    monkeypatch.setattr(WorkerSession, "short_turn", answers_too_late)
    target = obj("def m(self):\n    return 1\n")
    for done in range(1, 5):
        assert await call(Sends(sandbox), target, "m") == 1
        assert loads.count == done
        await sandbox.compile(f"def m(self):\n    return {done}\n")


async def test_limits_hold_when_it_is_done_again(loads: Loads) -> None:
    async with Sandbox(settings(sandbox_time_s=0.3)) as sandbox:
        with pytest.raises(SandboxLimit, match="time"):
            await call(Sends(sandbox), obj("def m(self):\n    return sum(range(10**12))\n"), "m")
        assert loads.count == 1


async def test_a_run_that_goes_another_way_the_second_time_ends() -> None:
    asked = iter([SimpleNamespace(function_name="a"), SimpleNamespace(function_name="b")])

    class Cut:
        async def short_turn(self, turn: Any) -> Any:
            if turn() is None:
                raise Overdue
            return await self.turn(lambda: SimpleNamespace(function_name="a"))

        async def turn(self, turn: Any) -> Any:
            return turn()

        monty = None

    async def load(session: Any, image: bytes) -> None:
        pass

    loaded: Any = SimpleNamespace(pace=Pace(), image=b"", program=SimpleNamespace(selector="m"))
    workers: Any = SimpleNamespace(load=load)
    session: Any = Cut()
    drive = Drive(workers, session, loaded, Sends(None).activity)  # type: ignore[arg-type]
    first = await drive.begin(lambda worker: next(asked))
    with pytest.raises(SandboxFailed, match="another way"):
        await drive.answer(first, lambda snapshot: None)
