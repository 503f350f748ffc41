"""Races between a kernel's end, a claim, a cancellation and a stop: none of them is lost, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from ZODB.POSException import ConflictError

from batos.app import lead_work
from batos.app.kernel import Kernel
from batos.app.lead_work import LeadWork
from batos.bus import EventBus, MissionEnded
from batos.cluster.membership import Membership
from batos.concurrency import Lifetime
from batos.errors import ImageFailed
from batos.image import continuations, kernels
from batos.image.continuations import ThoughtChange
from batos.image.living_image import LivingImage
from tests.support.kernels import LEASE_S, LOOK_S, TERMS, Standstill, acts, daemon, kernel, looked, record, until
from tests.support.missions import FakeInference, submit
from tests.support.servers import Zeo, zeo  # noqa: F401


async def cancelled(kernel: Kernel, id: str) -> None:
    await until(lambda: record(kernel, id).state == "FAILED", f"the end of {id}")
    assert (record(kernel, id).error or {})["code"] == "cancelled"


async def test_a_cancellation_at_a_kernel_that_has_lost_the_mission_ends_it_where_it_is(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, held, other_held = zeo.image(), FakeInference(), FakeInference()
    held.hold()
    other_held.hold()
    async with daemon(tmp_path, uri, held, "a") as one, daemon(tmp_path, uri, other_held, "b") as other, Standstill(one.membership):
        await submit(one, "m", "robin, what of it?")
        await held.came(1)
        await other_held.came(1)
        assert record(other, "m").kernel == "b.2"
        assert one.scheduler.running() == ["m"]  # it does not know yet
        assert await one.scheduler.cancel("m")
        await cancelled(other, "m")


async def test_a_cancellation_before_the_first_turn_of_a_mission_that_is_anothers_ends_it_there(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, held = zeo.image(), FakeInference()
    held.hold()
    async with daemon(tmp_path, uri, FakeInference(), "a") as one, daemon(tmp_path, uri, held, "b") as other:
        await acts(other)
        await submit(other, "m", "robin, what of it?")
        await held.came(1)
        cancelling = asyncio.ensure_future(one.scheduler.cancel("m"))
        await asyncio.sleep(0)
        one.scheduler.take_up(record(one, "m"))  # as a look does that saw the record of before the claim
        assert await cancelling
        await cancelled(other, "m")


async def test_a_cancelled_mission_whose_kernel_has_gone_is_ended_by_one_that_cannot_think_it(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, held = zeo.image(), FakeInference()
    held.hold()
    async with daemon(tmp_path, uri, held, "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        other.scheduler.sweep.may_claim = lambda record: False
        async with Standstill(one.membership):
            await submit(one, "m", "robin, what of it?")
            await held.came(1)
            assert await other.scheduler.cancel("m")
            await cancelled(other, "m")


async def test_a_mission_that_was_cancelled_elsewhere_may_be_continued(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, held = zeo.image(), FakeInference()
    held.hold()
    async with daemon(tmp_path, uri, held, "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        await submit(one, "m", "robin, what of it?")
        await held.came(1)
        assert await other.scheduler.cancel("m")
        await cancelled(other, "m")
        await acts(other)
        await other.image.system(continuations.go_on, "m", "", "", ThoughtChange(), ())
        await other.scheduler.go_on("m")
        await until(lambda: record(other, "m").is_final)
        assert record(other, "m").state == "COMPLETE"


async def test_a_mission_that_is_continued_where_it_cannot_be_thought_goes_on_elsewhere(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, held = zeo.image(), FakeInference()
    held.hold()
    async with daemon(tmp_path, uri, held, "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        await submit(one, "m", "robin, what of it?")
        await held.came(1)
        assert await one.scheduler.cancel("m")
        held.release()
        other.scheduler.sweep.may_claim = lambda record: False
        await other.image.system(continuations.go_on, "m", "", "", ThoughtChange(), ())
        await other.scheduler.go_on("m")
        await until(lambda: record(one, "m").state == "COMPLETE", "its end at the other kernel")
        assert record(one, "m").kernel == "a.1"


@pytest.mark.parametrize("moment", ["taken up", "left"])
async def test_a_kernel_stops_whose_image_failed_while_it_led(zeo: Zeo, moment: str) -> None:  # noqa: F811
    membership = Membership("k", TERMS, lease_s=1.0, look_s=LOOK_S)
    image = await LivingImage.open(zeo.image(), join=membership.join, lease_s=1.0)
    entered = asyncio.Event()

    @contextlib.asynccontextmanager
    async def led() -> AsyncIterator[None]:
        entered.set()
        if moment == "taken up":
            raise ImageFailed("the disk does not write")
        yield
        raise ImageFailed("the disk does not write")

    membership.on_lead(led)
    try:
        async with asyncio.timeout(90):
            async with membership.running():
                await entered.wait()
    finally:
        await image.close()


async def test_a_kernel_that_resigns_while_it_takes_the_lead_does_not_keep_it(zeo: Zeo) -> None:  # noqa: F811
    membership = Membership("k", TERMS, lease_s=LEASE_S, look_s=LOOK_S)
    image = await LivingImage.open(zeo.image(), join=membership.join, lease_s=LEASE_S)
    real, taken, told = image.system, asyncio.Event(), asyncio.Event()

    async def system(function: Any, *args: Any, **more: Any) -> Any:
        found = await real(function, *args, **more)
        if function is kernels.take_lead:  # it is in the image, and the look has not heard of it
            taken.set()
            await told.wait()
        return found

    image.system = system  # type: ignore[method-assign]
    try:
        async with membership.running():
            await taken.wait()
            await membership.drain()
            told.set()
            await until(lambda: image.read(kernels.lead_of) == ("", 1), "a lead that others may take")
            assert not membership.leads
    finally:
        await image.close()


async def test_the_second_end_of_a_mission_that_was_continued_is_told_at_each_kernel(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, held, free = zeo.image(), FakeInference(), FakeInference()
    held.hold()
    async with daemon(tmp_path, uri, held, "a") as one, daemon(tmp_path, uri, free, "b") as other:
        ends: dict[str, list[str]] = {"a": [], "b": []}
        for name, kernel in (("a", one), ("b", other)):
            kernel.bus.subscribe(MissionEnded, lambda ended, name=name: ends[name].append(ended.state))
        await acts(other)
        await looked(one, other)
        await submit(one, "m", "robin, what of it?")
        await held.came(1)
        assert await one.scheduler.cancel("m")
        await until(lambda: ends == {"a": ["FAILED"], "b": ["FAILED"]}, "the first end")
        await other.image.system(continuations.go_on, "m", "", "", ThoughtChange(), ())
        await other.scheduler.go_on("m")
        await until(lambda: record(one, "m").is_final)
        await until(lambda: ends == {"a": ["FAILED", "COMPLETE"], "b": ["FAILED", "COMPLETE"]}, f"the second end: {ends}")


async def test_a_mission_that_was_continued_is_cancelled_from_another_kernel_while_it_is_thought(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, held = zeo.image(), FakeInference()
    held.hold()
    async with daemon(tmp_path, uri, held, "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        ends: list[str] = []
        for kernel in (one, other):
            kernel.bus.subscribe(MissionEnded, lambda ended: ends.append(ended.state))
        await looked(one, other)
        await submit(one, "m", "robin, what of it?")
        await held.came(1)
        assert await one.scheduler.cancel("m")
        await until(lambda: ends == ["FAILED"] * 2, "the end, told at both")
        await looked(one, other)  # at which they look at it no more
        await one.image.system(continuations.go_on, "m", "", "", ThoughtChange(), ())
        await one.scheduler.go_on("m")
        await held.came(2)
        assert await other.scheduler.cancel("m")
        await cancelled(other, "m")


async def test_work_of_the_leader_that_could_not_begin_is_begun_again_whatever_the_reason(
    zeo: Zeo,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lead_work, "AGAIN_S", 0.01)
    tries: list[str] = []

    async def part(life: Lifetime, bus: EventBus) -> None:
        tries.append("first")
        if len(tries) == 1:
            raise ConflictError("another kernel committed at the same moment")

    async def next_part(life: Lifetime, bus: EventBus) -> None:
        tries.append("next")

    async with kernel(zeo.image()) as (image, membership):
        work = LeadWork(image, EventBus())
        await work.add(Lifetime(), part)
        await work.add(Lifetime(), next_part)
        membership.on_lead(work.led)
        await until(lambda: work.is_led, "the work of the leader")
        assert tries == ["first", "first", "next"]
