"""Cancelled at each turn of the loop in turn, until a run ends before its cancellation: nothing in part, nothing lost, nothing stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.image import LivingImage, ledger
from batos.image.unit_of_work import IDLE_LIMIT
from batos.objects import UvmObject
from tests.support.cancellation import cancelled_after

TURNS = 400  # more than any of these takes on a machine that is not busy: there, a thread may need more of ours


def start(lobby: UvmObject) -> None:
    for name in ("left", "right"):
        if name not in lobby._slots:
            lobby._slots[name] = UvmObject(n=0)


def both(root: Any) -> tuple[int, int]:
    return root["lobby"].left.n, root["lobby"].right.n


def bump(root: Any) -> None:
    root["lobby"].left.n += 1
    root["lobby"].right.n += 1


async def a_system_transaction(image: LivingImage) -> None:
    await image.system(bump)


async def a_unit_of_work(image: LivingImage) -> None:
    async with image.unit() as unit:
        await asyncio.sleep(0)
        unit.root["lobby"].left.n += 1
        await asyncio.sleep(0)
        unit.root["lobby"].right.n += 1


async def a_unit_with_others_beside_it(image: LivingImage) -> None:
    async with image.unit() as unit:
        await image.system(ledger.counts)
        bump(unit.root)
        await image.barrier()


async def a_doomed_unit(image: LivingImage) -> None:
    async with image.unit() as unit:
        bump(unit.root)
        unit.doom()
        await asyncio.sleep(0)


WORKS: list[Callable[[LivingImage], Awaitable[None]]] = [
    a_system_transaction, a_unit_of_work, a_unit_with_others_beside_it, a_doomed_unit,
]  # fmt: skip


@pytest.mark.parametrize("work", WORKS)
async def test_whole_or_not_at_all_and_the_image_goes_on(tmp_path: Path, work: Callable[[LivingImage], Awaitable[None]]) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}", steps=(start,))
    for turns in range(TURNS):
        cancelled = await cancelled_after(turns, work(image))
        await image.system(ledger.counts)  # what the cancelled one had handed in is done
        left, right = image.read(both)
        assert left == right, f"cancelled after {turns} turns, it was committed in part"
        assert left <= turns + 1
        if not cancelled and turns > 5:
            break
    else:  # on a machine that is busy the committer's turn may take longer than all of ours
        await work(image)
    before = image.read(both)
    await a_unit_of_work(image)
    assert image.read(both) == (before[0] + 1, before[1] + 1)
    assert len(image.idle) <= IDLE_LIMIT
    assert image.oldest_view() is None, "a connection was left with its transaction open"
    await image.close()


async def test_closing_cancelled_at_any_turn_and_closed_again(tmp_path: Path) -> None:
    uri = f"file://{tmp_path / 'i.fs'}"
    for turns in range(TURNS):
        image = await LivingImage.open(uri, steps=(start,))
        before = image.read(both)
        image.committer.defer(bump)
        cancelled = await cancelled_after(turns, image.close())
        await image.close()
        image = await LivingImage.open(uri)
        assert image.read(both) == (before[0] + 1, before[1] + 1), "what was deferred is committed at the latest here"
        await image.close()
        if not cancelled and turns > 2:
            return


async def test_opening_cancelled_at_any_turn_leaves_no_lock(tmp_path: Path) -> None:
    uri = f"file://{tmp_path / 'i.fs'}"

    opened: list[LivingImage] = []

    async def open_it() -> None:
        opened.append(await LivingImage.open(uri, steps=(start,)))

    for turns in range(TURNS):
        cancelled = await cancelled_after(turns, open_it())
        while opened:
            await opened.pop().close()
        image = await LivingImage.open(uri, steps=(start,))
        assert image.read(both) == (0, 0)
        await image.close()
        if not cancelled and turns > 2:
            return
