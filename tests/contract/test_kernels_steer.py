"""Three kernels on one image are steered: what is rated, paused and let go on at any of them, also where one of them ends in between."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import InvalidInput, MissionCancelled
from tests.support.kernels import Standstill
from tests.support.servers import Postgres, postgres  # noqa: F401
from tests.support.several import Member, member, met, until

Three = tuple[Member, Member, Member]


@pytest.fixture
async def three(postgres: Postgres, tmp_path: Path) -> AsyncIterator[Three]:  # noqa: F811
    """Three kernels that know each other."""
    uri = postgres.image()
    async with contextlib.AsyncExitStack() as stack:
        a, b, c = [await stack.enter_async_context(member(uri, tmp_path, host, shutdown_s=0.1)) for host in ("a", "b", "c")]
        await met(a, b, c)
        yield a, b, c


async def under_way(one: Member, id: str, **options: Any) -> None:
    """Give a kernel a mission, which its model does not answer before it is let to."""
    one.inference.hold()
    await one.client.submit("Plan the day", id=id, **options)
    await one.inference.came(1)


async def states(members: Three | list[Member], id: str) -> set[str]:
    return {(await one.client.status(id))["state"] for one in members}


async def test_a_mission_is_rated_at_a_kernel_that_did_not_think_it(three: Three) -> None:
    a, b, c = three
    await under_way(a, "m1")
    with pytest.raises(InvalidInput, match="has not ended"):
        await b.client.rate("m1", 1, "too early")
    a.inference.release()
    await b.client.result("m1")
    assert (await b.client.rate("m1", 1, "kind"))["rating"]["rating"] == 1
    for one in three:
        assert (await one.client.status("m1"))["rating"]["why"] == "kind"
    await c.client.rate("m1", -1, "on second thought")
    await until(lambda: all((one.record("m1").rating or {}).get("rating") == -1 for one in three), "the last word everywhere")


async def test_a_mission_that_is_paused_at_its_kernel_goes_on_elsewhere_when_that_one_has_stopped(three: Three) -> None:
    a, b, c = three
    await under_way(a, "m1")
    assert (await a.client.pause("m1"))["state"] == "PAUSED"
    await until(lambda: a.record("m1").kernel == "", "a mission that is nobody's")
    await a.kernel.stop()
    assert await states([b, c], "m1") == {"PAUSED"}
    assert [*b.inference.asked, *c.inference.asked] == [], "it rests"
    await b.client.resume("m1")
    assert (await c.client.result("m1"))["text"]
    assert (b.record("m1").attempts, b.record("m1").paused, bool(b.record("m1").kernel)) == (1, False, True)
    assert len(b.inference.asked) + len(c.inference.asked) == 1


@pytest.mark.parametrize("then", ["resume", "cancel"])
async def test_a_mission_whose_kernel_is_killed_while_it_is_to_pause_rests_until_its_user_says_more(three: Three, then: str) -> None:
    a, b, c = three
    await under_way(a, "m1")
    async with Standstill(a.kernel.membership, killed=True):
        former = a.name
        assert (await b.client.pause("m1"))["state"] == "PAUSED"  # said to a kernel that hears nothing any more
        await until(lambda: all(former not in [k.name for k in one.kernel.membership.others()] for one in (b, c)), "it counts as gone")
        await until(lambda: any("m1" in one.kernel.scheduler.waiting() for one in (b, c)), "a kernel that holds it back")
        assert await states([b, c], "m1") == {"PAUSED"}
        assert [*b.inference.asked, *c.inference.asked] == [], "it rests"
        if then == "cancel":
            assert (await c.client.cancel("m1"))["error"]["code"] == "cancelled"
            with pytest.raises(MissionCancelled):
                await b.client.result("m1")
        else:
            await c.client.resume("m1")
            assert (await b.client.result("m1"))["text"]
            assert len(b.inference.asked) + len(c.inference.asked) == 1
        a.inference.release()
    await until(lambda: a.name != former, "it wakes under another name")
    assert {one.record("m1").state for one in three} == {"FAILED" if then == "cancel" else "COMPLETE"}
    assert [len(one.ended("m1")) for one in (b, c)] == [1, 1]
