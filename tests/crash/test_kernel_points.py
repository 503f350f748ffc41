"""A kernel stops dead at named points of a mission's way, others take over, and it is let go: one of them comes through, once.

What a kill leaves at such a point is what the others find here while it stands; `bench/cluster.py` kills real processes at random.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.image import history, journal, kernels, ledger
from batos.image.committer import Committer
from tests.support.kernels import Standstill, daemon, record, until
from tests.support.missions import FakeInference, submit
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401

BRIEF = "robin, what of it?"


class Point:
    """A point at which one kernel's committer stops, once, until it is let go."""

    def __init__(self) -> None:
        self._reached, self._go, self._armed = threading.Event(), threading.Event(), False

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    def arm(self) -> None:
        self._armed = True

    def let_go(self) -> None:
        self._go.set()

    def pass_by(self) -> None:
        """Stop here, in the thread that commits."""
        if self._armed:
            self._armed = False
            self._reached.set()
            assert self._go.wait(60)


def in_system(patch: pytest.MonkeyPatch, owner: Any, name: str, point: Point, *, whose: Callable[[str], bool], after: bool) -> None:
    """Stop before or after a system function, in the transaction that it is part of."""
    original = getattr(owner, name)

    def call(root: Any, *args: Any) -> Any:
        mine = whose(kernels.me(root))
        if mine and not after:
            point.pass_by()
        result = original(root, *args)
        if mine and after:
            point.pass_by()
        return result

    patch.setattr(owner, name, call)


def in_unit(patch: pytest.MonkeyPatch, point: Point, committer: Callable[[], Committer], where: str) -> None:
    """Stop in the commit of a cycle: `before` it, after its `vote`, or `after` it is committed and before anybody is told."""
    original = Committer._unit  # private: a point lies inside of it, between the vote and the end of one commit, which no caller sees

    def unit(self: Committer, commit: Any) -> None:
        if self is not committer():
            return original(self, commit)
        if where == "before":
            point.pass_by()
        storage = self._storage
        if where == "vote":
            commit.tm.get().addBeforeCommitHook(_before_finish, (commit.tm.get(), point))
        original(self, commit)
        if where == "after":
            point.pass_by()
        assert storage is self._storage
        return None

    patch.setattr(Committer, "_unit", unit)


class _Last:
    """A resource that votes last, and stops when all others have voted."""

    def __init__(self, point: Point) -> None:
        self._point = point

    def sortKey(self) -> str:
        return "~~~~"

    def tpc_vote(self, transaction: Any) -> None:
        self._point.pass_by()

    def _nothing(self, transaction: Any) -> None:
        """Have nothing to commit."""

    abort = tpc_begin = commit = tpc_finish = tpc_abort = _nothing


def _before_finish(transaction: Any, point: Point) -> None:
    transaction.join(_Last(point))


def completions(kernel: Kernel, id: str) -> int:
    def read(root: Any) -> int:
        mission = root["ledger"].missions[id]
        return sum(one["note"].startswith("COMPLETE") for one in history.revisions(kernel.image.db, mission._p_oid, 100))

    return kernel.image.read(read)


def is_complete(kernel: Kernel, id: str = "m") -> bool:
    return bool(record(kernel, id).state == "COMPLETE")


def check_once(kernel: Kernel, id: str = "m") -> None:
    paid = [(one.key, one.occurrence) for one in kernel.image.read(journal.load, id)]
    assert completions(kernel, id) == 1
    assert len(set(paid)) == len(paid) >= 1
    assert kernel.image.read(lambda root: ledger.failures_of(root, id)) == []


@contextlib.asynccontextmanager
async def two(tmp_path: Path, uri: str) -> AsyncIterator[tuple[Kernel, Kernel, FakeInference]]:
    """The kernel that will stop, and the one that takes over; the first leads, and what it asks is counted."""
    asked = FakeInference()
    async with daemon(tmp_path, uri, asked, "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        yield one, other, asked


@pytest.fixture(params=["zeo", "postgres"])
def at(request: pytest.FixtureRequest) -> Postgres | Zeo:
    found: Postgres | Zeo = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("after", [False, True], ids=["before the claim", "after the claim"])
async def test_stopped_at_its_claim_it_finds_the_mission_taken(
    at: Postgres | Zeo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    point = Point()
    in_system(monkeypatch, ledger, "begin_attempt", point, whose=lambda name: name.startswith("a."), after=after)
    async with two(tmp_path, at.image()) as (one, other, asked):
        other.scheduler.sweep.may_claim = lambda record: False
        await one.image.system(ledger.accept, "m", BRIEF, {}, False)
        point.arm()
        await until(lambda: point.is_reached, "the claim")
        async with Standstill(one.membership):
            other.scheduler.sweep.may_claim = lambda record: True
            await until(lambda: is_complete(other), "the end at the other")
            point.let_go()
            await until(lambda: not one.scheduler.facts()["running"])
            assert not asked.asked_about("what of it")
            check_once(other)
            assert (record(other, "m").kernel, record(other, "m").attempts) == ("b.2", 1)


async def test_stopped_before_its_commit_it_is_overtaken(at: Postgres | Zeo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point, committers = Point(), []
    in_unit(monkeypatch, point, lambda: committers[0] if committers else None, "before")  # type: ignore[arg-type, return-value]
    async with two(tmp_path, at.image()) as (one, other, _):
        committers.append(one.image.committer)
        point.arm()
        async with Standstill(one.membership):
            await submit(one, "m", BRIEF)
            await until(lambda: point.is_reached, "the commit")
            await until(lambda: is_complete(other), "the end at the other")
            point.let_go()
            await until(lambda: not one.scheduler.facts()["running"])
        check_once(other)
        assert record(other, "m").kernel == "b.2"
        assert not [one for one in other.image.read(journal.load, "m") if one.at == 0.0]


async def test_stopped_between_vote_and_finish_it_holds_nobody_up_and_commits_nothing(
    postgres: Postgres,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point, committers = Point(), []
    in_unit(monkeypatch, point, lambda: committers[0] if committers else None, "vote")  # type: ignore[arg-type, return-value]
    async with two(tmp_path, postgres.image()) as (one, other, _):
        committers.append(one.image.committer)
        point.arm()
        async with Standstill(one.membership):
            await submit(one, "m", BRIEF)
            await until(lambda: point.is_reached, "the vote")
            await submit(other, "n", BRIEF)  # within the bound
            await until(lambda: is_complete(other, "n") and is_complete(other), "the ends at the other")
            point.let_go()
            await until(lambda: not one.scheduler.facts()["running"])
        check_once(other)
        assert record(other, "m").kernel == "b.2"


async def test_stopped_after_its_commit_the_mission_is_done_by_it_alone(
    at: Postgres | Zeo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point, committers = Point(), []
    in_unit(monkeypatch, point, lambda: committers[0] if committers else None, "after")  # type: ignore[arg-type, return-value]
    async with two(tmp_path, at.image()) as (one, other, _):
        committers.append(one.image.committer)
        point.arm()
        async with Standstill(one.membership):
            listened = await submit(one, "m", BRIEF)
            await until(lambda: point.is_reached, "the commit")
            await until(lambda: kernels_gone(other) == ["a.1"])
            await until(lambda: not other.image.read(lambda root: list(root["ledger"].pending)), "the settling of what it left")
            point.let_go()
            assert (await listened.end())["result"]["persona"]
        check_once(other)
        assert record(other, "m").kernel == "a.1"


def kernels_gone(kernel: Kernel) -> list[str]:
    return [one.name for one in kernel.image.read(kernels.listed) if one.gone]


@pytest.mark.parametrize("after", [False, True], ids=["before it says that another is gone", "between that and its claim"])
async def test_the_one_that_takes_over_stops_too(
    postgres: Postgres,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: bool,
) -> None:
    point, uri, held = Point(), postgres.image(), FakeInference()
    held.hold()
    in_system(monkeypatch, kernels, "declare_gone", point, whose="b.2".__eq__, after=after)
    async with daemon(tmp_path, uri, held, "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        point.arm()
        async with Standstill(one.membership):
            await submit(one, "m", BRIEF)
            await held.came(1)
            await until(lambda: point.is_reached, "the other, at the declaration")
            async with daemon(tmp_path, uri, FakeInference(), "c") as third:  # only now, lest it be the first that declares
                await until(lambda: is_complete(third), "the end at the third")
                assert record(third, "m").kernel == "c.3"
                point.let_go()
                held.release()
                await until(lambda: not one.scheduler.facts()["running"])
                await until(lambda: not other.scheduler.facts()["running"])
                check_once(third)


@pytest.mark.parametrize("after", [False, True], ids=["before the acceptance", "after the acceptance"])
async def test_stopped_at_an_acceptance_its_client_goes_to_another_and_there_is_one_mission(
    at: Postgres | Zeo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    point = Point()
    in_system(monkeypatch, ledger, "accept", point, whose=lambda name: name.startswith("a."), after=after)
    async with two(tmp_path, at.image()) as (one, other, asked):
        point.arm()
        first = asyncio.create_task(one.scheduler.submit("m", BRIEF, {}))
        await until(lambda: point.is_reached, "the acceptance")
        await submit(other, "m", BRIEF)
        await until(lambda: is_complete(other), "the end at the other")
        point.let_go()
        new, found = await first
        assert (new, found.state) == (False, "COMPLETE")
        assert not asked.asked_about("what of it")
        check_once(other)


async def test_stopped_before_an_answer_is_journaled_it_is_asked_for_once_more_and_kept_once(
    at: Postgres | Zeo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = Point()
    in_system(monkeypatch, journal, "add", point, whose="a.1".__eq__, after=False)
    async with two(tmp_path, at.image()) as (one, other, asked):
        point.arm()
        async with Standstill(one.membership):
            await submit(one, "m", BRIEF)
            await until(lambda: point.is_reached, "the answer")
            await until(lambda: is_complete(other), "the end at the other")
            kept = other.image.read(journal.load, "m")
            point.let_go()
            await until(lambda: not one.scheduler.facts()["running"])
            assert other.image.read(journal.load, "m") == kept
        assert len(asked.asked_about("what of it")) == 1  # what was under way
        check_once(other)
