"""The records of the loop's changes: numbered, decided once, and remembered as lessons."""

from __future__ import annotations

from pathlib import Path

import pytest

from batos.autotelic import changes
from batos.errors import InvalidInput, UnknownChange
from tests.support.autonomy import EVIDENCE, Proposal, opened


async def test_a_proposal_is_promoted_and_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        number = await image.system(changes.propose, Proposal(), EVIDENCE, "self_audit-1")
        told = image.read(changes.of, number)
        assert number == 1
        assert (told["state"], told["kind"], told["target"], told["source"]) == (changes.PROPOSED, "facet", "robin", changes.MEASUREMENT)
        assert (told["content"], told["evidence"], told["mission"]) == (Proposal().content, EVIDENCE, "self_audit-1")
        await image.system(changes.promote, number, {"failures": [0, 0]})
        watched = image.read(changes.watched)
        assert (watched["number"], watched["comparison"], watched["ended"]) == (1, {"failures": [0, 0]}, None)
        assert image.read(changes.promoted_since, watched["decided"] - 1) == 1
        assert image.read(changes.promoted_since, watched["decided"] + 1) == 0
        await image.system(changes.keep, number, "nothing got worse", {"samples": 9})
        assert image.read(changes.watched) is None
        kept = image.read(changes.of, number)
        assert (kept["state"], kept["reason"], kept["effect"]) == (changes.KEPT, "nothing got worse", {"samples": 9})
        assert not await image.system(changes.keep, number, "again", {})


async def test_one_change_at_a_time_is_watched(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        for content in "ab":
            await image.system(changes.propose, Proposal(content=content), EVIDENCE, "")
        await image.system(changes.promote, 1, {})
        with pytest.raises(InvalidInput, match="change 1 is being watched"):
            await image.system(changes.promote, 2, {})
        assert image.read(changes.of, 2)["state"] == changes.PROPOSED
        await image.system(changes.take_back, 1, changes.UNDONE, "slower", {})
        await image.system(changes.promote, 2, {})
        assert image.read(changes.watched)["number"] == 2


async def test_what_was_decided_is_not_decided_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await image.system(changes.propose, Proposal(), EVIDENCE, "")
        with pytest.raises(InvalidInput, match="so there is nothing to undo"):
            await image.system(changes.take_back, 1, changes.UNDONE, "", {})
        await image.system(changes.refuse, 1, "two of five failed", {"failures": [0, 2]})
        for decide in (changes.promote, lambda root, number, figures: changes.refuse(root, number, "", figures)):
            with pytest.raises(InvalidInput, match="refused already"):
                await image.system(decide, 1, {})
        with pytest.raises(UnknownChange, match="no change 2"):
            image.read(changes.of, 2)


async def test_the_same_proposal_is_one_until_it_is_decided_and_a_lesson_after(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        first = await image.system(changes.propose, Proposal(), EVIDENCE, "m")
        assert await image.system(changes.propose, Proposal(why="said otherwise"), EVIDENCE, "m") == first
        assert await image.system(changes.propose, Proposal(content={"b": 1, "a": 2}), EVIDENCE, "m") == 2
        assert image.read(changes.lesson, Proposal()) is None
        await image.system(changes.refuse, first, "worse", {})
        assert image.read(changes.lesson, Proposal())["reason"] == "worse"
        assert image.read(changes.lesson, Proposal(content="another")) is None
        assert image.read(changes.lesson, Proposal(content={"a": 2, "b": 1})) is None
        await image.system(changes.refuse, 2, "no better", {})
        assert image.read(changes.lesson, Proposal(content={"a": 2, "b": 1}))["number"] == 2


async def test_of_too_many_the_oldest_go_but_not_the_watched_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await image.system(changes.propose, Proposal(content=0), EVIDENCE, "")
        await image.system(changes.promote, 1, {})
        for content in range(1, 9):
            await image.system(lambda root, content: changes.propose(root, Proposal(content=content), EVIDENCE, "", limit=4), content)
        assert [one["number"] for one in image.read(changes.listed)] == [9, 8, 7, 1]
        assert [one["number"] for one in image.read(changes.listed, 1, changes.PROPOSED)] == [9]
        assert image.read(changes.watched)["number"] == 1
