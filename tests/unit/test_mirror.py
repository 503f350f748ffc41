"""Mirrors: the image as of now, to be changed by nobody who matters; the image goes on meanwhile, and a pack leaves what a mirror sees."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import ZODB
from ZODB.MappingStorage import MappingStorage
from ZODB.tests.MVCCMappingStorage import MVCCMappingStorage

from batos.image import LivingImage
from batos.image.checksummed_storage import CheckedStorage
from batos.image.committer import Committer
from batos.image.living_image import mirror
from batos.image.packing import pack, pack_time
from batos.image.storage import file_path
from tests.support.image import change, step


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    opened = await LivingImage.open(f"file://{tmp_path / 'image.fs'}", steps=(step,))
    yield opened
    await opened.close()


def n_of(image: LivingImage) -> Any:
    return image.read(lambda root: root["lobby"].robin.n)


async def test_a_mirror_is_the_image_as_it_was_and_what_is_done_there_stays_there(image: LivingImage) -> None:
    await change(image, "m1", n=1)
    size, last = image.db.getSize(), image.db.lastTransaction()
    async with mirror(image, cache_size=400) as made:
        assert n_of(made) == 1
        async with made.unit() as unit:
            unit.root["lobby"].robin.n = 7
            unit.root["lobby"].robin.friend = unit.root["lobby"].genesis.derive(name="friend")
        assert n_of(made) == 7
        assert made.read(lambda root: root["lobby"].robin.friend.name) == "friend"
        assert (image.db.getSize(), image.db.lastTransaction()) == (size, last)
        assert n_of(image) == 1
        await change(image, "m2", n=2)
        await made.system(lambda root: None)
        assert n_of(made) == 7
    assert n_of(image) == 2


async def test_what_is_committed_meanwhile_is_not_seen_also_not_what_was_never_loaded(image: LivingImage) -> None:
    await change(image, "m1", n=1)
    async with mirror(image, cache_size=400) as made:
        for n in range(2, 9):
            await change(image, f"m{n}", n=n)
        async with mirror(image, cache_size=400, of=made) as second:
            assert (n_of(second), n_of(made)) == (1, 1)
            await change(second, "tried", n=-1)
            assert (n_of(second), n_of(made), n_of(image)) == (-1, 1, 8)


async def test_a_unit_of_a_mirror_that_is_doomed_leaves_nothing(image: LivingImage) -> None:
    async with mirror(image, cache_size=400) as made:
        before = n_of(made)
        async with made.unit() as unit:
            unit.doom()
            unit.root["lobby"].robin.n = 99
        assert n_of(made) == before


async def test_what_was_read_as_current_is_held_against_the_mirror(image: LivingImage) -> None:
    await change(image, "m1", n=1)
    async with mirror(image, cache_size=400) as made:
        await change(image, "m2", n=2)

        def write(root: Any) -> None:
            root._p_jar.readCurrent(root["lobby"].robin)
            root["lobby"].tried = root["lobby"].robin.n

        await made.system(write)
        assert made.read(lambda root: root["lobby"].tried) == 1


async def test_a_pack_leaves_what_a_mirror_sees(image: LivingImage) -> None:
    await change(image, "m1", n=1)
    async with mirror(image, cache_size=400) as made:
        await change(image, "m2", n=2)
        assert image.oldest_view() is not None
        path = file_path(image.uri)
        assert path is not None
        await asyncio.to_thread(pack, image.db, path, pack_time(0, image.oldest_view()), threading.Event())
        assert n_of(made) == 1
    assert image.oldest_view() is None


@pytest.mark.parametrize("make", [MappingStorage, MVCCMappingStorage])
async def test_of_a_storage_that_is_no_file(make: Any) -> None:
    db = ZODB.DB(CheckedStorage(make(), "memory"))
    image = LivingImage("memory://", db, Committer(db, batch=8, on_failed=lambda failure: None))

    def put(root: Any, n: int) -> None:
        root["n"] = n

    await image.system(put, 1)
    async with mirror(image, cache_size=400) as made:
        await image.system(put, 2)
        assert made.read(lambda root: root["n"]) == 1
        await made.system(put, 3)
        assert (made.read(lambda root: root["n"]), image.read(lambda root: root["n"])) == (3, 2)
    await image.close()


async def test_a_clock_that_was_set_back_hides_nothing(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    await change(image, "m1", n=1)
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    async with mirror(image, cache_size=400) as made:
        await change(made, "tried", n=5)
        assert n_of(made) == 5


async def test_the_view_is_let_go_of_where_something_fails_in_it(image: LivingImage) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with mirror(image, cache_size=400):
            raise ZeroDivisionError
    assert image.oldest_view() is None
    await change(image, "m1", n=3)
    assert n_of(image) == 3
