"""Followers of registers: which schedules, folders and channels others changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.image.living_image import LivingImage
from batos.schedules import book
from batos.triggers.register import RegisterFollower


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    opened = await LivingImage.open(f"file://{tmp_path}/image.fs", steps=(book.install,))
    yield opened
    await opened.close()


async def add(image: LivingImage, name: str) -> None:
    await image.system(book.add, book.ScheduleSpec(name, "daily", "cron 0 8 * * *", "UTC", "Greet"), 1.0)


async def test_it_names_what_came_changed_and_went(image: LivingImage) -> None:
    await add(image, "one")
    follower = RegisterFollower("schedules", image.changes())

    def look() -> set[str]:
        return image.read(follower.look)

    assert look() == {"one"}, "all, at the first look"
    assert look() == set()
    await add(image, "two")
    assert look() == {"two"}
    await image.system(book.pause, "one")
    assert look() == {"one"}
    await image.system(lambda root: root["lobby"].__setattr__("says", "hello"))
    assert look() == set(), "something else"
    await image.system(book.pause, "two")
    await image.system(book.remove, "one")
    assert look() == {"one", "two"}
    await image.system(book.remove, "two")
    await add(image, "two")
    assert look() == {"two"}, "another one of that name"
    assert look() == set()


async def test_all_are_named_where_it_is_not_known_what_changed(image: LivingImage) -> None:
    await add(image, "one")
    known: list[Any] = [frozenset(), None]
    follower = RegisterFollower("schedules", lambda: known.pop(0) if known else frozenset())
    assert image.read(follower.look) == {"one"}
    await add(image, "two")
    assert image.read(follower.look) == {"one", "two"}
    assert image.read(follower.look) == set()
