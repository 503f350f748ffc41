"""Packs of an image in PostgreSQL: history goes, what is needed stays, missions go on, and no undo comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import Busy, ImageError
from batos.image import packing
from batos.image.living_image import LivingImage
from batos.image.pack_lock import PackLock
from batos.image.scrubber import Walk
from batos.image.storage import open_database
from batos.image.upkeep import Upkeep, UpkeepPlan
from batos.image.usage_totals import CostMeter
from batos.objects import UvmObject
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401

WAIT_S = 90


def keeper(image: LivingImage, folder: Path, **more: Any) -> Upkeep:
    plan = {"history_days": 0, "journal_days": 0, "interval_s": 1e6, "first_s": 1e6, **more}
    return Upkeep(image, CostMeter(image), UpkeepPlan(**plan), backups=folder / "backups")


@pytest.fixture
async def image(postgres: Postgres) -> AsyncIterator[LivingImage]:  # noqa: F811
    made = await LivingImage.open(postgres.image())
    yield made
    await made.close()


def write(root: Any, number: int) -> None:
    slots = root["lobby"]._slots
    slots["thing"] = slots.get("thing") or UvmObject(number=0)
    slots["thing"].number = number


def revisions(image: LivingImage) -> int:
    return len(image.db.history(image.read(lambda root: root["lobby"].thing._p_oid), 1000))


async def test_a_pack_drops_history_and_what_nothing_refers_to(image: LivingImage, tmp_path: Path) -> None:
    for number in range(20):
        await image.system(write, number)

    def drop(root: Any) -> bytes:
        root["lobby"]._slots["other"] = other = UvmObject(text="x")
        root._p_jar.add(other)
        return bytes(other._p_oid)

    oid = await image.system(drop)
    await image.system(lambda root: root["lobby"]._slots.pop("other"))
    await image.system(write, 20)
    assert revisions(image) == 21
    found = await keeper(image, tmp_path).pack()
    assert found["packed_to"] > 0
    assert revisions(image) <= 1  # of what is packed RelStorage tells nothing
    assert image.read(lambda root: root["lobby"].thing.number) == 20
    with pytest.raises(KeyError):
        image.db.storage.load(oid)
    walk = Walk(image.db)
    while not walk.rounds:
        assert await asyncio.to_thread(walk.step, 50) == []
    assert walk.facts()["damages"] == 0


async def test_history_within_the_days_stays(image: LivingImage, tmp_path: Path) -> None:
    for number in range(5):
        await image.system(write, number)
    await keeper(image, tmp_path, history_days=1).pack()
    assert revisions(image) == 5


async def test_commits_and_views_go_on_while_it_is_packed(image: LivingImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        await image.system(write, number)
    asked, go = asyncio.Event(), asyncio.Event()
    loop, turns = asyncio.get_running_loop(), packing._Turns.take

    def held(self: Any) -> None:
        loop.call_soon_threadsafe(asked.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(WAIT_S)
        turns(self)

    monkeypatch.setattr(packing._Turns, "take", held)
    with image.snapshot() as before:
        packed = asyncio.create_task(keeper(image, tmp_path).pack())
        async with asyncio.timeout(WAIT_S):
            await asked.wait()
            await image.system(write, 100)  # references are read at this moment
        assert image.read(lambda root: root["lobby"].thing.number) == 100
        go.set()
        await packed
        assert before["lobby"].thing.number == 4
    assert image.read(lambda root: root["lobby"].thing.number) == 100


async def test_a_daemon_that_stops_ends_it_and_the_image_is_as_it_was(image: LivingImage, tmp_path: Path) -> None:
    for number in range(5):
        await image.system(write, number)
    upkeep = keeper(image, tmp_path)
    packed = asyncio.create_task(upkeep.pack(0))
    await asyncio.sleep(0)
    assert upkeep.facts()["under_way"] == "pack"
    await upkeep.stop()
    with pytest.raises(Busy, match="stop"):
        await packed
    assert revisions(image) == 5


async def test_an_undo_at_another_kernel_waits_for_it(postgres: Postgres, image: LivingImage, tmp_path: Path) -> None:  # noqa: F811
    """Their two locks are one: `PackLock` of one database and of another."""
    other = open_database(image.uri, cache_size=400, pool_size=7)
    theirs = PackLock(other)
    await theirs.acquire()
    packed = asyncio.create_task(keeper(image, tmp_path).pack())
    query = "select count(*) from pg_stat_activity where application_name like '%pack or undo'"
    async with asyncio.timeout(WAIT_S):
        while postgres.ask(query) != [(2,)]:
            await asyncio.sleep(0.01)
    assert not packed.done()
    theirs.release()
    async with asyncio.timeout(WAIT_S):
        await packed
        async with theirs:
            pass
        while postgres.ask(query) != [(0,)]:
            await asyncio.sleep(0.01)
    other.close()


async def test_upkeep_packs_by_itself(image: LivingImage, tmp_path: Path) -> None:
    for number in range(5):
        await image.system(write, number)
    running = asyncio.create_task(keeper(image, tmp_path, first_s=0.0).run())
    async with asyncio.timeout(WAIT_S):
        while revisions(image) > 1:
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.wait([running])


async def test_other_servers_are_packed_where_they_run(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    image = await LivingImage.open(zeo.image())
    with pytest.raises(ImageError, match="looked after where its server runs"):
        await keeper(image, tmp_path).pack()
    await image.close()
