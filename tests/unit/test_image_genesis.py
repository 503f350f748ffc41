"""Genesis: one transaction, idempotent; it adds what is missing and never overwrites what the image changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.image import LivingImage, ledger
from batos.image.living_image import add_missing
from batos.image.storage import FORMAT
from batos.objects import Primitive, UvmObject


def step(lobby: UvmObject) -> None:
    add_missing(lobby, robin=lambda: lobby.genesis.derive(name="robin", comment="I am Robin."))
    add_missing(lobby.robin, mood="calm")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'i.fs'}"


async def test_a_new_image_introduces_itself(uri: str) -> None:
    image = await LivingImage.open(uri, steps=(step,))
    with image.snapshot() as root:
        assert root["format"] == FORMAT
        lobby = root["lobby"]
        for obj in (lobby, lobby.genesis, lobby.traits, lobby.traits.mission, lobby.robin):
            assert obj._slots["comment"].startswith("I ")
        assert lobby.robin.mood == "calm"
        assert image.facts()["accepted"] == 0
    assert image.committer.stats["groups"] == 1
    await image.close()


async def test_the_next_start_changes_nothing(uri: str) -> None:
    image = await LivingImage.open(uri, steps=(step,))
    last = image.db.lastTransaction()
    await image.close()
    image = await LivingImage.open(uri, steps=(step,))
    assert image.db.lastTransaction() == last
    await image.close()


async def test_what_the_image_changed_stays_and_what_is_missing_is_added(uri: str) -> None:
    def change(root: Any) -> None:
        root["lobby"].robin.mood = "furious"
        root["lobby"].comment = "mine"
        del root["lobby"].traits.mission.thought  # as in an image from before that slot

    image = await LivingImage.open(uri, steps=(step,))
    await image.system(change)
    await image.close()
    image = await LivingImage.open(uri, steps=(step, lambda lobby: add_missing(lobby, new="added")))
    with image.snapshot() as root:
        assert (root["lobby"].robin.mood, root["lobby"].comment, root["lobby"].new) == ("furious", "mine", "added")
        assert set(ledger.DEFAULTS) <= set(root["lobby"].traits.mission._slots)
    await image.close()


async def test_a_step_that_fails_leaves_nothing_and_lets_the_file_go(uri: str) -> None:
    def fails(lobby: UvmObject) -> None:
        raise LookupError("in a step")

    with pytest.raises(LookupError, match="in a step"):
        await LivingImage.open(uri, steps=(step, fails))
    image = await LivingImage.open(uri)
    with image.snapshot() as root:
        assert "robin" not in root["lobby"]._slots
    await image.close()


def test_add_missing_calls_makers_only_for_what_is_missing() -> None:
    target = UvmObject(there=1)
    primitive = Primitive("a.b")
    add_missing(target, there=lambda: pytest.fail("called"), made=lambda: 2, primitive=primitive)
    assert dict(target._slots) == {"there": 1, "made": 2, "primitive": primitive}
