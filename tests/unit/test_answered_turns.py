"""Turns that several kernels share: the log in the image does as the log in a file does, and is bounded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from batos.app.door_services import SharedTurns
from batos.doors.turn_log import CONVERSATION, REQUEST, TurnLog
from batos.image import LivingImage, answered_turns


@pytest.fixture
async def image(tmp_path: Path):
    living = await LivingImage.open(f"file://{tmp_path}/image.fs")
    yield living
    await living.close()


@pytest.mark.parametrize("seed", range(4))
async def test_both_logs_find_the_same(tmp_path: Path, image: LivingImage, seed: int) -> None:
    chance, file, shared = random.Random(seed), TurnLog(tmp_path, 1000), SharedTurns(image, 1000)
    for at in range(60):
        turn = chance.choice((REQUEST, CONVERSATION)), chance.choice("abc"), f"m{chance.randrange(8)}", float(at)
        for log in (file, shared):
            await log.add(*turn)
        kind, key, count = chance.choice((REQUEST, CONVERSATION)), chance.choice("abcd"), chance.choice((1, 3, 8))
        assert await shared.find(kind, key, count) == await file.find(kind, key, count)
    file.close()


async def test_the_oldest_go_and_nothing_is_left_of_them(image: LivingImage) -> None:
    shared = SharedTurns(image, 10)
    for at in range(300):
        await shared.add(REQUEST, f"key {at % 120}", f"m{at}", float(at))
    assert await shared.find(REQUEST, "key 59", 8) == [("m299", 299.0)]
    assert await shared.find(REQUEST, "key 100", 8) == []
    with image.snapshot() as root:
        held = root["turns"]
        kept = [(name, one) for name, turns in held.by_key.items() for one in turns]
        assert 10 <= len(kept) == len(held.by_time) == held.count() <= 10 + 64
        assert sorted(f"{at:017.6f} {name}" for name, (_, at) in kept) == list(held.by_time)


async def test_one_key_keeps_its_newest(image: LivingImage) -> None:
    shared = SharedTurns(image, 1000)
    for at in range(80):
        await shared.add(REQUEST, "key", f"m{at}", float(at))
    assert [one.mission for one in await shared.find(REQUEST, "key", 100)] == [f"m{at}" for at in range(79, 15, -1)]


async def test_an_image_without_turns_finds_none(image: LivingImage) -> None:
    assert image.read(answered_turns.find, REQUEST, "key", 8) == []
