"""A cached query of the image: it reads again after what it read has changed, and keeps nothing of what is written meanwhile."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.image import LivingImage
from batos.objects import Root, UvmObject


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    yield image
    await image.close()


def keep(root: Root, name: str, value: Any) -> bytes:
    """System transaction: let a slot of the lobby refer to a new object; return its id."""
    held = root["lobby"]._slots[name] = UvmObject(n=value)
    root["lobby"]._p_changed = True
    root["lobby"]._p_jar.add(held)
    return bytes(held._p_oid)


def change(root: Root, name: str, value: Any) -> None:
    """System transaction: change such an object."""
    root["lobby"]._slots[name].n = value


def refer(root: Root, name: str, other: str) -> None:
    """System transaction: let one such object refer to another."""
    root["lobby"]._slots[name].n = root["lobby"]._slots[other]


def followed(root: Root) -> Any:
    """Return what the object `a` holds, or what the object in it holds."""
    found = root["lobby"]._slots["a"].n
    return found.n if isinstance(found, UvmObject) else found


QUERIES = 100


def sets_that_hold(oid: bytes) -> int:
    """Count them by type: `isinstance` asks each object for its class, of which some of torch warn."""
    return sum(type(one) is set and oid in one for one in gc.get_objects())


async def test_a_query_that_is_not_asked_keeps_nothing_of_what_is_written(image: LivingImage) -> None:
    await image.system(keep, "a", 1)
    queries = [image.kept(followed) for _ in range(QUERIES)]
    asked = [image.kept(followed) for _ in range(QUERIES)]
    assert [one() for one in asked] == [1] * QUERIES
    assert sets_that_hold(await image.system(keep, "b", 1)) < QUERIES  # those of other images of this process have such ids, too
    assert [one() for one in queries] == [1] * QUERIES


async def test_a_query_hears_of_each_object_that_it_read_last(image: LivingImage) -> None:
    await image.system(keep, "a", 1)
    await image.system(keep, "b", 2)
    ask = image.kept(followed)
    assert ask() == 1
    await image.system(change, "b", 3)  # which it has not read
    await image.system(refer, "a", "b")
    assert ask() == 3
    await image.system(change, "b", 4)
    assert ask() == 4
    await image.system(change, "a", 5)
    assert ask() == 5


async def test_a_change_that_could_not_be_read_is_read_by_the_next_call(image: LivingImage) -> None:
    await image.system(keep, "a", 1)
    fails: list[bool] = []

    def read(root: Root) -> Any:
        if fails:
            raise OSError("not now")
        return followed(root)

    ask = image.kept(read)
    assert ask() == 1
    await image.system(change, "a", 2)
    fails.append(True)
    with pytest.raises(OSError, match="not now"):
        ask()
    fails.clear()
    assert ask() == 2
