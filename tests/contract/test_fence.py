"""The fence of the lead: what a kernel commits as the leader is committed only while it leads; on PostgreSQL and on ZEO."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from BTrees.OOBTree import OOBTree
from transaction.interfaces import TransientError

from batos import scope
from batos.app import lead_work
from batos.app.lead_work import LeadWork
from batos.bus import EventBus, MemoryQueried
from batos.concurrency import Lifetime
from batos.errors import ImageAway, LeadLost
from batos.image import fence
from batos.image.kernels import KERNELS
from batos.image.living_image import LivingImage
from tests.support.kernels import kernel, until
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401


@pytest.fixture(params=["zeo", "postgres"])
def at(request: pytest.FixtureRequest) -> Postgres | Zeo:
    found: Postgres | Zeo = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def two(at: Postgres | Zeo) -> AsyncIterator[Any]:
    """Two kernels: `a.1`, which leads in term 1, and `b.2`; each with its image and its membership."""
    uri = at.image()
    async with kernel(uri, "a") as first:
        await until(lambda: first[1].leads)
        await first[0].system(begin)
        async with kernel(uri, "b") as second:
            yield first, second


def begin(root: Any) -> None:
    root["work"] = OOBTree()


def write(root: Any, key: str) -> str:
    root["work"][key] = root[KERNELS].lead.term
    return key


def written(root: Any) -> dict[str, int]:
    return dict(root["work"])


def take(root: Any, name: str) -> None:
    """Give the lead to another kernel: the one that had it does not know of it."""
    lead = root[KERNELS].lead
    lead.kernel, lead.term = name, lead.term + 1


async def test_a_leader_commits_and_a_kernel_that_lost_the_lead_does_not(two: Any) -> None:
    (image, _), (other, _) = two
    with scope.enter(lead=image.read(fence.fence_of)):
        assert await image.system(write, "one") == "one"
        async with image.unit() as unit:
            write(unit.root, "two")
        image.later(write, "three")
        await until(lambda: "three" in image.read(written))
        await other.system(take, "b.2")
        with pytest.raises(LeadLost, match=r"a\.1 led in term 1, and b\.2 does in term 2"):
            await image.system(write, "four")
        with pytest.raises(LeadLost):
            async with image.unit() as unit:
                write(unit.root, "five")
        image.later(write, "six")
    await image.system(write, "seven")  # of a mission, say: it is in no fence
    assert image.read(written) == {"one": 1, "two": 1, "three": 1, "seven": 2}


async def test_a_lead_that_is_lost_while_a_unit_is_under_way_is_a_conflict(two: Any) -> None:
    (image, _), (other, _) = two
    with scope.enter(lead=image.read(fence.fence_of)):
        leaving = image.unit()
        write((await leaving.__aenter__()).root, "one")
        await other.system(take, "b.2")
        with pytest.raises(TransientError):
            await leaving.__aexit__(None, None, None)
        with pytest.raises(LeadLost):
            async with image.unit():
                pass
    assert image.read(written) == {}


async def test_transactions_of_others_in_one_group_with_a_leaders_are_committed_when_it_has_lost_the_lead(two: Any) -> None:
    (image, _), (other, _) = two
    lead = image.read(fence.fence_of)
    await other.system(take, "b.2")

    async def led() -> None:
        with scope.enter(lead=lead):
            await image.system(write, "one")

    found = await asyncio.gather(image.system(write, "two"), led(), image.system(write, "three"), return_exceptions=True)
    assert (found[0], type(found[1]), found[2]) == ("two", LeadLost, "three")
    assert image.read(written) == {"two": 2, "three": 2}


async def test_work_of_the_leader_is_begun_with_each_lead_and_commits_nothing_without_it(two: Any) -> None:
    (image, membership), (other, second) = two
    work, lives, heard = LeadWork(image, bus := EventBus()), list[Lifetime](), list[int]()
    ends = list[str]()

    async def part(life: Lifetime, heard_of: EventBus) -> None:
        lives.append(life)
        heard_of.subscribe(MemoryQueried, lambda asked: heard.append(asked.hits))
        life.callback(ends.append, "first part")

    async def last(life: Lifetime, heard_of: EventBus) -> None:
        life.callback(ends.append, "last part")

    for one in (part, last):
        await work.add(Lifetime(), one)
    assert not work.is_alone
    assert lives == []
    membership.on_lead(work.led)
    await until(lambda: len(lives) == 1)
    await until(lambda: work.is_led)
    bus.publish(MemoryQueried(1))
    done = list[str]()

    async def beat(key: str) -> None:
        done.append(await image.system(write, key))

    lives[0].background(beat("in term 1"), "a part that a request begins")
    await until(lambda: done == ["in term 1"])
    await other.system(take, "b.2")
    lives[0].background(beat("late"), "a part that has not heard of it")
    await until(lambda: ends == ["last part", "first part"])
    bus.publish(MemoryQueried(2))
    await other.system(take, "a.1")
    await until(lambda: len(lives) == 2 and work.is_led)
    bus.publish(MemoryQueried(3))
    lives[1].background(beat("in term 3"), "a part")
    await until(lambda: len(done) == 2)
    assert (image.read(written), heard) == ({"in term 1": 1, "in term 3": 3}, [1, 3])
    assert second.term == 0


async def test_a_part_that_cannot_begin_is_begun_again_and_holds_up_no_end(two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead_work, "AGAIN_S", 0.01)
    (image, membership), _ = two
    work, tries, ends = LeadWork(image, EventBus()), list[int](), list[str]()

    async def part(life: Lifetime, bus: EventBus) -> None:
        life.callback(ends.append, "part")
        tries.append(len(tries))
        if len(tries) % 4:
            raise ImageAway("the server of the image cannot be reached")

    await work.add(Lifetime(), part)
    membership.on_lead(work.led)
    await until(lambda: work.is_led)
    assert (len(tries), len(ends)) == (4, 3), "what a try had begun was ended"
    await membership.resign()
    assert (work.is_led, len(ends)) == (False, 4)


async def test_a_lead_that_is_lost_while_it_is_taken_up_is_taken_up_again_in_its_new_term(two: Any) -> None:
    (image, membership), (other, _) = two
    work, go, terms = LeadWork(image, EventBus()), asyncio.Event(), list[int]()

    async def part(life: Lifetime, bus: EventBus) -> None:
        await go.wait()
        terms.append(scope.current().lead.term)

    await work.add(Lifetime(), part)
    membership.on_lead(work.led)
    await other.system(take, "b.2")
    await until(lambda: not membership.leads)
    await other.system(take, "a.1")
    await until(lambda: membership.leads)
    go.set()
    await until(lambda: terms and terms[-1] == 3)


async def test_one_daemon_with_an_image_to_itself_has_no_fence_and_begins_its_work_at_once() -> None:
    image, begun = await LivingImage.open("memory://"), list[EventBus]()
    try:
        assert image.read(fence.fence_of) is None
        work, bus = LeadWork(image, EventBus()), EventBus()

        async def part(life: Lifetime, heard: EventBus) -> None:
            begun.append(heard)

        work = LeadWork(image, bus)
        await work.add(Lifetime(), part)
        assert work.is_alone
        assert begun == [bus]
    finally:
        await image.close()
