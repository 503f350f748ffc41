"""Several kernels think the missions of one image: who takes up what, and what becomes of the missions of one that stands still."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatReply, ChatRequest
from batos.image import effects, journal, ledger, ownership
from batos.image.effects import EffectRecord
from batos.missions.fitness import Fitness
from batos.objects import Method, Root
from tests.support.kernels import Standstill, acts, daemon, record, until
from tests.support.missions import FakeInference, mind, submit
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401


@pytest.fixture(params=["zeo", "postgres"])
def at(request: pytest.FixtureRequest) -> Postgres | Zeo:
    found: Postgres | Zeo = request.getfixturevalue(request.param)
    return found


HOUR_S = 3600.0


class Queued(FakeInference):
    """Lets no request leave before its turn has come."""

    def __init__(self) -> None:
        super().__init__()
        self.queued, self.turn = asyncio.Event(), asyncio.Event()

    async def chat(self, request: ChatRequest, **more: Any) -> ChatReply:
        self.queued.set()
        await self.turn.wait()
        return await super().chat(request, **more)


def is_complete(kernel: Kernel, *ids: str) -> bool:
    return all(record(kernel, id).state == "COMPLETE" for id in ids)


def journaled(kernel: Kernel, id: str) -> list[tuple[bytes, int]]:
    return [(one.key, one.occurrence) for one in kernel.image.read(journal.load, id)]


async def ended(kernel: Kernel, *ids: str) -> None:
    await until(lambda: is_complete(kernel, *ids), f"the end of {ids}")


async def test_what_waits_at_one_kernel_is_thought_by_another(at: Postgres | Zeo, tmp_path: Path) -> None:
    uri, held, free = at.image(), FakeInference(), FakeInference()
    held.hold()
    async with daemon(tmp_path, uri, held, "a", concurrent_missions=1) as one, daemon(tmp_path, uri, free, "b") as other:
        for n in range(4):
            await submit(one, f"m{n}", f"robin, what of {n}?")
        await ended(other, "m1", "m2", "m3")
        assert (record(one, "m0").kernel, record(one, "m1").kernel) == ("a.1", "b.2")
        assert not held.asked_about("what of 1")
        held.release()
        await ended(one, "m0")
        await until(lambda: not one.scheduler.facts()["queued"])


async def test_missions_of_a_kernel_that_stands_still_go_on_at_another_and_it_writes_nothing_more(
    at: Postgres | Zeo, tmp_path: Path
) -> None:
    uri, held, free = at.image(), FakeInference(), FakeInference()
    held.hold()
    async with daemon(tmp_path, uri, held, "a") as one, daemon(tmp_path, uri, free, "b") as other:
        async with Standstill(one.membership):
            await submit(one, "m", "robin, what of it?")
            await held.came(1)
            await ended(other, "m")
            assert (record(other, "m").kernel, record(other, "m").attempts) == ("b.2", 2)
            before = journaled(other, "m")
            held.release()  # its answer comes after all
            await until(lambda: not one.scheduler.facts()["running"])
            assert journaled(other, "m") == before
            assert len(set(before)) == len(before)
        await until(lambda: one.membership.name == "a.3")
        await submit(one, "again", "robin, and now?")
        await ended(other, "again")
        assert record(other, "again").kernel in ("a.3", "b.2"), "whoever has a turn first, but not under the name that was taken for gone"


async def test_a_kernel_that_was_taken_for_gone_is_asked_before_it_pays(at: Postgres | Zeo, tmp_path: Path) -> None:
    uri, slow, free = at.image(), Queued(), FakeInference()
    async with daemon(tmp_path, uri, slow, "a") as one, daemon(tmp_path, uri, free, "b") as other, Standstill(one.membership):
        await submit(one, "m", "robin, what of it?")
        await slow.queued.wait()
        await ended(other, "m")
        slow.turn.set()
        await until(lambda: not one.scheduler.facts()["running"])
        assert not slow.asked_about("what of it")


async def test_a_killed_kernel_is_noticed_by_the_end_of_its_session(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    uri, held, free = postgres.image(), FakeInference(), FakeInference()
    held.hold()
    async with daemon(tmp_path, uri, held, "a") as one, daemon(tmp_path, uri, free, "b") as other:
        one.membership.lease_s = other.membership.lease_s = HOUR_S  # longer than anything waits here
        silence = other.membership.silence
        await until(lambda: "a.1" in silence.held)
        silence.since, silence.lease_s = float("-inf"), HOUR_S  # its own session is older than the lease
        await submit(one, "m", "robin, what of it?")
        await held.came(1)
        async with Standstill(one.membership, killed=True):
            await ended(other, "m")
        held.release()


async def test_an_orderly_stop_gives_its_missions_back_without_a_counted_attempt(at: Postgres | Zeo, tmp_path: Path) -> None:
    uri, held, free = at.image(), FakeInference(), FakeInference()
    held.hold()
    free.hold()
    async with daemon(tmp_path, uri, free, "b") as other:
        async with daemon(tmp_path, uri, held, "a", concurrent_missions=2) as one:
            await acts(one)
            for n in range(3):
                await submit(one, f"m{n}", f"robin, what of {n}?")
            await held.came(2)
        await until(lambda: [record(other, f"m{n}").kernel for n in range(3)] == ["b.1"] * 3)
        assert [record(other, f"m{n}").attempts for n in range(3)] == [1, 1, 1]
        free.release()
        await ended(other, "m0", "m1", "m2")


async def test_a_look_that_began_earlier_does_not_overwrite_what_a_later_one_found(at: Postgres | Zeo, tmp_path: Path) -> None:
    why, telling, told = ["it starts"], asyncio.Event(), asyncio.Event()

    async def tell(**facts: Any) -> None:
        telling.set()
        await told.wait()

    async with daemon(tmp_path, at.image(), FakeInference(), "a") as kernel:
        fitness = Fitness(kernel.image, None, tell)
        fitness.hindrance = lambda: why[0]
        earlier = asyncio.create_task(fitness.look())
        await telling.wait()
        why[0] = ""
        later = asyncio.create_task(fitness.look())
        await asyncio.wait({later}, timeout=0.1)  # where looks do not wait for each other, it ends before the earlier one
        told.set()
        await asyncio.gather(earlier, later)
        assert fitness.reasons == ()


async def test_the_systems_own_missions_are_taken_up_by_the_leader_only(at: Postgres | Zeo, tmp_path: Path) -> None:
    uri = at.image()
    async with daemon(tmp_path, uri, FakeInference(), "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        await until(lambda: one.membership.leads or other.membership.leads)
        leader, follower = (one, other) if one.membership.leads else (other, one)
        held = leader.scheduler.sweep
        held.may_claim = lambda record: False
        await follower.image.system(ledger.accept, "own", "robin, what of it?", {"origin": "system"}, False)
        await follower.image.system(ledger.accept, "client's", "robin, and that?", {}, False)
        await ended(follower, "client's")
        assert record(follower, "own").kernel == ""
        held.may_claim = lambda record: True
        await ended(follower, "own")
        assert record(follower, "own").kernel == leader.membership.name


async def test_a_kernel_that_drains_takes_up_nothing_and_gives_up_the_lead(at: Postgres | Zeo, tmp_path: Path) -> None:
    uri, drained = at.image(), FakeInference()
    async with daemon(tmp_path, uri, drained, "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        await until(lambda: one.membership.leads)
        await one.membership.drain()
        await submit(one, "m", "robin, what of it?")  # it is accepted here, and thought there
        await ended(other, "m")
        assert record(other, "m").kernel == "b.2"
        assert not drained.asked_about("what of it")
        await until(lambda: other.membership.leads)
        assert [one.draining for one in other.membership.others()] == [True]


async def test_a_mission_that_was_paused_elsewhere_waits_and_goes_on_when_it_may(at: Postgres | Zeo, tmp_path: Path) -> None:
    uri, held = at.image(), FakeInference()
    held.hold()
    async with (
        daemon(tmp_path, uri, held, "a", concurrent_missions=1) as one,
        daemon(tmp_path, uri, held, "b", concurrent_missions=1) as other,
    ):
        await acts(one, other)
        await submit(one, "m0", "robin, what of 0?")
        await submit(other, "m1", "robin, what of 1?")
        await submit(one, "m2", "robin, what of 2?")  # it waits at the first
        await other.image.system(ledger.set_paused, "m2", True)
        await until(lambda: one.scheduler.facts()["paused"] == 1)
        held.release()
        await ended(one, "m0", "m1")
        assert record(one, "m2").kernel == ""
        await other.image.system(ledger.set_paused, "m2", False)
        await ended(one, "m2")


async def test_of_two_claims_at_the_same_moment_one_is_first(at: Postgres | Zeo, tmp_path: Path) -> None:
    uri = at.image()
    async with daemon(tmp_path, uri, FakeInference(), "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        for kernel in (one, other):
            await kernel.scheduler.stop(0)
        for n in range(10):
            id = f"m{n}"
            await one.image.system(ledger.accept, id, "what of it?", {}, False)
            claims = [kernel.image.system(ledger.begin_attempt, id, 3) for kernel in (one, other)]
            came = await asyncio.gather(*claims, return_exceptions=True)
            assert sorted(type(one).__name__ for one in came) == ["Overtaken", "int"]
            assert record(one, id).attempts == 1
            owner = one if came[0] == 1 else other
            assert record(one, id).kernel == owner.membership.name


async def test_missions_that_a_lost_server_left_behind_are_swept(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    uri, inference = postgres.image(), FakeInference()
    async with daemon(tmp_path, uri, inference, "a") as one:
        await one.image.system(ledger.accept, "m", "robin, what of it?", {}, True)  # counted as begun, and no task has it
        assert record(one, "m").kernel == "a.1"
        await ended(one, "m")


async def test_missions_of_all_kernels_that_write_one_slot_end_at_their_first_attempt(at: Postgres | Zeo, tmp_path: Path) -> None:
    """A kernel loses against the others as often as it happens: that is no failure of its mission."""
    uri = at.image()
    async with contextlib.AsyncExitStack() as stack:
        few = {"conflict_retries": 1, "lease_s": 20.0}
        kernels = [await stack.enter_async_context(daemon(tmp_path, uri, FakeInference(), name, **few)) for name in "abc"]
        counts = Method("count_", "def count_(self):\n    self.counted = self.counted + 1\n    return self.counted\n")

        def prepare(root: Root) -> None:
            root["lobby"].robin.counted = 0
            root["lobby"].robin._slots["count_"] = counts

        await kernels[0].image.system(prepare)
        await until(lambda: all(len(kernel.membership.others()) == 2 for kernel in kernels), "all three")
        ids = [f"m{n}" for n in range(36)]
        message = json.dumps({"target": "robin", "selector": "count_", "args": [], "kwargs": {}})
        for n, id in enumerate(ids):
            await submit(kernels[n % 3], id, "send robin count_", message=message)
        await ended(kernels[0], *ids)
        assert kernels[0].image.read(lambda root: root["lobby"].robin.counted) == len(ids)
        assert kernels[0].image.read(ledger.failures) == []


async def test_a_late_mission_that_is_nobodys_is_ended_by_any(at: Postgres | Zeo, tmp_path: Path) -> None:
    uri = at.image()
    async with daemon(tmp_path, uri, FakeInference(), "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        await one.image.system(ledger.accept, "m", "robin, what of it?", {"deadline_s": 0.001, "paused": True}, False)
        await until(lambda: record(other, "m").state == "FAILED")
        assert (record(other, "m").error or {})["code"] == "deadline"
        found = other.image.read(lambda root: ledger.failures_of(root, "m"))
        assert len(found) == 1


async def test_effects_and_journals_of_a_mission_are_written_by_its_kernel_only(at: Postgres | Zeo, tmp_path: Path) -> None:
    uri = at.image()
    async with daemon(tmp_path, uri, FakeInference(), "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        for kernel in (one, other):
            await kernel.scheduler.stop(0)
        await one.image.system(ledger.accept, "m", "what of it?", {}, True)
        paid = journal.InferenceRecord(
            b"k" * 16, 0, "text", "model", "d", 1, 1, 0.0, 1.0, "stop", 0.0, b"", "label", 0.0, 0.0, None, "", ()
        )
        for step in (journal.add, journal.set_route):
            with pytest.raises(ownership.Overtaken, match=r"a\.1's, not b\.2's"):
                await other.image.system(step, "m", paid if step is journal.add else "{}")
        act = EffectRecord("k" * 32, "shop.buy", effects.KEYED, "{}", 0, effects.INTENDED, 1.0)
        await one.image.system(effects.intend, "m", act)
        for step in (effects.intend, effects.end):  # it is resolved by one of them
            with pytest.raises(ownership.Overtaken):
                await other.image.system(step, "m", act._replace(state=effects.DONE))
        assert [found.state for found in one.image.read(effects.load, "m")] == [effects.INTENDED]
        with pytest.raises(ownership.Overtaken):
            await other.image.system(ledger.fail, "m", {}, {}, True)
        await other.image.system(ledger.uncount_attempt, "m", 0)
        for _ in range(2):
            await one.image.system(journal.add, "m", paid)
        assert journaled(one, "m") == [(b"k" * 16, 0)]
        assert record(one, "m").attempts == 1


def test_the_record_of_a_mission_says_whose_it_is_only_among_several(tmp_path: Path) -> None:
    async def alone() -> tuple[str, Any]:
        async with mind(tmp_path, FakeInference()) as kernel:
            await (await submit(kernel, "m", "robin, what of it?")).end()
            return record(kernel, "m").kernel, kernel.image.read(lambda root: "kernel" in root["ledger"].missions["m"]._slots)

    assert asyncio.run(alone()) == ("", False)


async def test_missions_under_way_outlive_a_restart_of_the_server(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    uri, held = postgres.image(), FakeInference()
    held.hold()
    ids = [f"m{n}" for n in range(6)]
    async with daemon(tmp_path, uri, held, "a", lease_s=10) as one, daemon(tmp_path, uri, held, "b", lease_s=10) as other:
        for n, id in enumerate(ids):
            await submit((one, other)[n % 2], id, f"robin, what of {n}?")
        await held.came(6)
        await asyncio.to_thread(postgres.stop, "immediate")
        held.release()  # answers come while the server is away
        await until(lambda: one.image.committer.trouble and other.image.committer.trouble)
        await asyncio.to_thread(postgres.start)
        await until(lambda: not one.image.committer.trouble and not other.image.committer.trouble)
        await ended(one, *ids)
        for id in ids:
            assert len(set(journaled(one, id))) == len(journaled(one, id)) == 1
            assert one.image.read(lambda root, id=id: journal.route_of(root, id))
        assert len(held.asked) == len(ids)  # nothing was paid for twice


async def test_an_attempt_that_cannot_read_while_the_server_is_away_does_not_count(
    postgres: Postgres,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commits wait for the server by themselves; a read fails. The mission goes on when the server is back, in its only attempt."""
    async with daemon(tmp_path, postgres.image(), FakeInference(), "a", mission_attempts=1) as kernel:
        unit, back = kernel.image.unit, asyncio.Event()

        @contextlib.asynccontextmanager
        async def while_it_is_away() -> AsyncIterator[Any]:
            monkeypatch.setattr(kernel.image, "unit", unit)
            await asyncio.to_thread(postgres.stop, "immediate")
            try:
                async with unit() as begun:
                    yield begun
            finally:
                await asyncio.to_thread(postgres.start)
                back.set()

        monkeypatch.setattr(kernel.image, "unit", while_it_is_away)
        await submit(kernel, "m", "robin, what of it?")
        await back.wait()
        await ended(kernel, "m")
        assert record(kernel, "m").attempts == 1
        assert kernel.image.read(lambda root: ledger.failures_of(root, "m")) == []
