"""What is kept of the image: read anew where something it was read from has changed, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from persistent.mapping import PersistentMapping

from batos.image.living_image import LivingImage


def make(root: Any) -> None:
    root["one"] = PersistentMapping(says="a")
    root["other"] = PersistentMapping(says="x")


def put(root: Any, name: str, text: str) -> None:
    root[name]["says"] = text


async def test_it_is_read_anew_where_what_it_was_read_from_has_changed_and_only_then(tmp_path: Path) -> None:
    reads = []

    def says(root: Any) -> str:
        reads.append(1)
        return str(root["one"]["says"])

    image = await LivingImage.open(f"file://{tmp_path / 'image.fs'}")
    try:
        await image.system(make)
        now = image.kept(says)
        assert (now(), now(), len(reads)) == ("a", "a", 1)
        await image.system(put, "other", "y")
        assert (now(), len(reads)) == ("a", 1)
        await image.system(put, "one", "b")
        assert (now(), now(), len(reads)) == ("b", "b", 2)
        async with image.unit() as unit:
            unit.root["one"]["says"] = "c"
            assert now() == "b", "nothing is committed yet"
        assert (now(), len(reads)) == ("c", 3)
        await image.system(put, "other", "z")
        await image.system(put, "one", "d")
        assert (now(), len(reads)) == ("d", 4)
        assert image.oldest_view() is None, "nothing is held back from a pack"
    finally:
        await image.close()


async def test_where_another_object_takes_its_place_it_is_read_from_that_one(tmp_path: Path) -> None:
    def renew(root: Any) -> None:
        root["one"] = PersistentMapping(says="new")

    image = await LivingImage.open(f"file://{tmp_path / 'image.fs'}")
    try:
        await image.system(make)
        now = image.kept(lambda root: root["one"]["says"])
        assert now() == "a"
        await image.system(renew)
        assert now() == "new"
        await image.system(put, "one", "newer")
        assert now() == "newer"
    finally:
        await image.close()
