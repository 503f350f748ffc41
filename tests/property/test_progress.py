"""Whoever waits for work that others began gets on, whatever ends, fails or is cancelled in the very turn of the loop in which he asks.

A wait that does not yield is a loop that stands: here a turn of the loop may make `CALLS` calls, and a run may take `TURNS` turns.
No clock decides: timers are due as soon as nothing else is to be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy  # noqa: F401 - its import is no turn of the loop
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batos.bridge.admission import Load
from batos.bridge.hosts import ManagedHosts
from batos.bridge.model_status import ModelUnavailable, WantedModel
from batos.bridge.profiles import load_profile
from batos.bridge.provisioning import Provisioner
from batos.bridge.residency import Expected, Preloader
from batos.concurrency import SingleFlight
from batos.config import Settings
from batos.console.connections import WebServer
from batos.errors import BatosError, InferenceFailed
from batos.image.committer import outlast
from batos.methods.runtime import BeingWritten, Claims, Making
from batos.mind.router import Likeness
from batos.missions.execution import Endings
from batos.missions.scheduler import Cancellations
from batos.sandbox.workers import Workers

TURNS, CALLS = 2000, 20_000
"""The longest run here takes some 50 turns, and the busiest turn makes some 4,500 calls, most of them of mocks."""


class Stalled(BaseException):
    """The loop stands, or nobody would ever wake it. No `except Exception` on its way may swallow that."""


class CountedLoop(asyncio.SelectorEventLoop):
    """Turns and calls are counted, time jumps to the next timer, and what is for a thread runs in the next turn."""

    def __init__(self) -> None:
        super().__init__()
        self._now, self.turns, self.calls = 0.0, 0, 0

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        async def run() -> Any:
            await asyncio.sleep(0)
            return func(*args)

        return self.create_task(run())

    def _run_once(self) -> None:
        self.turns, self.calls = self.turns + 1, 0
        if self.turns > TURNS:
            raise Stalled(f"not done after {TURNS} turns")
        if not self._ready:  # type: ignore[attr-defined]
            if not self._scheduled:  # type: ignore[attr-defined]
                raise Stalled("everybody waits, and nobody would wake them")
            self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]

    def count(self, frame: Any, event: str, _: Any) -> None:
        self.calls += event == "call"
        if self.calls > CALLS:
            raise Stalled(f"more than {CALLS} calls in one turn of the loop, the last of {frame.f_code.co_name}")


def drive(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run to its end what is to make progress.

    :raises Stalled: if it makes none.
    """
    loop, before = CountedLoop(), sys.getprofile()
    try:
        sys.setprofile(loop.count)
        loop.run_until_complete(work())
    finally:
        sys.setprofile(before)
        loop.close()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Piece(NamedTuple):
    """Some work: how many turns of the loop it takes, and how it ends."""

    turns: int
    ends: str

    async def done(self) -> int:
        await turns(self.turns)
        if self.ends == "fails":
            raise InferenceFailed("as it was told to", cause="timeout")
        if self.ends == "is cancelled":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return self.turns


class Ask(NamedTuple):
    """Somebody who asks for `key`: after some turns, or in the turn in which some work ends; and gives up after some turns, or never."""

    key: str
    after: int
    at_an_end: bool
    patience: int | None


pieces = st.builds(Piece, st.integers(0, 4), st.sampled_from(["well", "well", "fails", "is cancelled"]))
asks = st.builds(Ask, st.sampled_from("ab"), st.integers(0, 6), st.booleans(), st.one_of(st.none(), st.integers(0, 4)))
scripts = st.tuples(st.lists(pieces, min_size=1, max_size=4), st.lists(asks, min_size=1, max_size=5))
Script = tuple[list[Piece], list[Ask]]
untimed = settings(deadline=None)  # a busy machine is slow, and no clock decides here


class Stage:
    """Hands out pieces of work in turn, and has some ask in the very turn in which one has ended: before anybody has heard of that."""

    def __init__(self, script: Script) -> None:
        self.pieces, self.asks = script
        self._own: set[asyncio.Task[Any]] = set()
        self.begun = self.ended = 0

    async def work(self, *_: Any) -> int:
        piece = self.pieces[self.begun % len(self.pieces)]
        self.begun += 1
        try:
            return await piece.done()
        finally:
            self.ended += 1

    async def _ask(self, ask: Ask, asking: Callable[[str], Coroutine[Any, Any, object]]) -> None:
        await turns(ask.after)
        ended, tasks = self.ended, asyncio.all_tasks() - self._own
        while ask.at_an_end and (not any(task.done() for task in tasks) if tasks else self.begun > self.ended == ended):
            await asyncio.sleep(0)
        with contextlib.suppress(BatosError, asyncio.CancelledError):
            await asking(ask.key)

    async def play(self, asking: Callable[[str], Coroutine[Any, Any, object]]) -> None:
        """Have everybody ask, and wait for all of them."""

        async def impatient(task: asyncio.Task[None], patience: int) -> None:
            await turns(patience)
            task.cancel()

        self._own |= asyncio.all_tasks()
        tasks = [asyncio.create_task(self._ask(ask, asking)) for ask in self.asks]
        more = [
            asyncio.create_task(impatient(task, ask.patience))
            for task, ask in zip(tasks, self.asks, strict=True)
            if ask.patience is not None
        ]
        self._own |= {*tasks, *more}
        await asyncio.wait([*tasks, *more])
        for task in (*tasks, *more):  # what went wrong that nobody foresaw
            if not task.cancelled():
                task.result()


# --- that the bounds find what stands


def test_a_loop_that_stands_is_found() -> None:
    async def spins() -> None:
        task = asyncio.ensure_future(turns(0))
        while not task.done():
            await asyncio.sleep(0)
        while True:
            await asyncio.shield(task)

    with pytest.raises(Stalled, match="calls in one turn"):
        drive(spins)

    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stalled, match="nobody"):
        drive(waits)


# --- each wait of ours


@untimed
@given(scripts)
def test_work_that_is_done_once(script: Script) -> None:
    async def run() -> None:
        stage, works = Stage(script), SingleFlight[int]("work")
        await stage.play(lambda key: works.of(key, stage.work))
        await works.stop()

    drive(run)


class Embedder:
    """Whose work is what a script says."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def digest(self, model: str) -> str:
        return "d" * 64

    async def embed(self, model: str, texts: list[str], *, deadline_s: float) -> list[list[float]]:
        await self._stage.work()
        return [[1.0, float(len(text))] for text in texts]


@untimed
@given(scripts)
@example(([Piece(1, "well")], [Ask("a", 0, False, None), Ask("b", 1, True, None)]))  # it hung the daemon
def test_a_brief_beside_exemplars_that_change(script: Script) -> None:
    exemplars = {"a": {"robin": ("x", "yy")}, "b": {"robin": ("x", "yy", "zzz")}}

    async def run() -> None:
        stage, image = Stage(script), MagicMock()
        image.read.return_value = {}
        likeness = Likeness(image, Embedder(stage), "minilm", limit_s=10, pause_s=0, deadline_s=10)  # type: ignore[arg-type]
        await stage.play(lambda key: likeness.of("brief", exemplars[key], 3))
        await likeness.stop()

    drive(run)


@untimed
@given(scripts)
def test_a_mission_that_is_taken_back(script: Script) -> None:
    async def run() -> None:
        stage = Stage(script)
        endings = Endings(MagicMock(), Settings(), lambda id: None, lambda signal: None)

        async def cancel(id: str) -> bool:
            endings.note_waiting(id, True)
            try:
                return bool(await stage.work())
            finally:
                endings.note_waiting(id, False)

        cancelling = Cancellations(cancel, endings)
        await stage.play(cancelling.of)
        await stage.play(lambda key: endings.until(key, waits=False))
        await cancelling.stop()

    drive(run)


@untimed
@given(scripts)
def test_a_model_that_is_provided(script: Script) -> None:
    async def run() -> None:
        stage = Stage(script)

        class Scripted(Provisioner):
            async def _provide(self, want: WantedModel) -> None:
                want.reopen("missing")
                try:
                    await stage.work()
                except InferenceFailed as e:
                    raise ModelUnavailable(e.message, "none", "pull") from e
                want.settle("pulled")

        provisioner = Scripted(MagicMock(), load_profile("embedded"), Path("none"))
        await stage.play(lambda key: provisioner.ensure([key]))
        await stage.play(provisioner.ready)
        await provisioner.settled()
        await provisioner.close()

    drive(run)


@untimed
@given(scripts)
def test_a_method_that_parts_of_one_mission_write(script: Script) -> None:
    async def run() -> None:
        stage, making = Stage(script), Making("m", 0.0, MagicMock())

        async def write(key: str) -> None:
            other = "b" if key == "a" else "a"
            async with making.writing(key):
                await stage.work()
                async with making.writing(other):  # waiting could go round in a circle
                    await stage.work()

        await stage.play(write)
        for key in "ab":
            async with making.writing(key) as waited:
                assert not waited, "each turn was given back"

    drive(run)


@untimed
@given(scripts)
def test_a_method_that_missions_claim(script: Script) -> None:
    async def run() -> None:
        stage, claims, numbers = Stage(script), Claims(), iter(range(100))

        async def attempt(key: str) -> None:
            mission = f"m{next(numbers)}"
            try:
                for wanted in (key, "b" if key == "a" else "a"):
                    while True:
                        try:
                            claims.claim(wanted, mission)
                            break
                        except BeingWritten as written:
                            await claims.ended(written.other, mission)
                    await stage.work()
            finally:
                claims.release(mission)

        await stage.play(attempt)

    drive(run)


@untimed
@given(scripts)
def test_a_commit_that_is_outlasted(script: Script) -> None:
    async def run() -> None:
        stage = Stage(script)

        async def commit(key: str) -> None:
            work = asyncio.ensure_future(stage.work())
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                await outlast(work)
                if not work.cancelled():
                    work.exception()
                raise

        await stage.play(commit)

    drive(run)


@untimed
@given(scripts)
def test_workers_that_are_made_ready(script: Script) -> None:
    async def run() -> None:
        stage, workers = Stage(script), Workers(Settings())

        async def one() -> None:
            with contextlib.suppress(BatosError):
                await stage.work()

        async def use(key: str) -> None:
            workers.spawn(one())
            await workers.idle()

        await stage.play(use)
        await workers.close()

    drive(run)


@untimed
@given(scripts)
def test_a_model_that_one_of_several_places_has(script: Script) -> None:
    async def run() -> None:
        stage = Stage(script)

        def place(number: int) -> Any:
            made = MagicMock()
            made.provisioner.ready = lambda model: one()
            made.provisioner.is_ready.return_value, made.provisioner.knows.return_value = False, True
            made.breaker.open = bool(number % 2)
            made.breaker.check.side_effect = InferenceFailed("away", cause="breaker")
            return made

        async def one() -> None:
            with contextlib.suppress(asyncio.CancelledError):  # a place's own work is cancelled by nobody but who waits for it
                await stage.work()

        places = ManagedHosts([place(0), place(1)], wait_s=0)
        await stage.play(places.ready)

    drive(run)


@untimed
@given(scripts)
def test_a_model_that_is_loaded_ahead(script: Script) -> None:
    """Who rests in the turn in which the last load ahead has ended has one begun anew."""

    async def run() -> None:
        stage, residency = Stage(script), MagicMock()
        residency.gate.idle, residency.gate.in_use = True, set()
        residency.load_of = Load
        residency.is_resident.return_value, residency.victims.return_value = False, ([], True)
        residency.preload = stage.work
        preloader = Preloader(residency, 0, lambda: Expected(["a"], ["b"]))

        async def rest(key: str) -> None:
            preloader.rest()
            task = preloader.task
            assert task is not None
            assert not task.done(), "it rests no more"
            if key == "b":
                await preloader.give_way(Load("c"))

        await stage.play(rest)
        await preloader.stop()

    drive(run)


@untimed
@given(st.integers(0, 6))
def test_the_console_is_left(after: int) -> None:
    async def look() -> None:
        await asyncio.sleep(0)

    async def run() -> None:
        server = WebServer(
            MagicMock(limit_max_requests=None, callback_notify=None, default_headers=[], date_header=False, server_header=False),
            look,
        )
        serving = asyncio.create_task(server.main_loop())
        await turns(after)
        server.leave()
        await asyncio.wait([serving])
        serving.result()

    drive(run)
