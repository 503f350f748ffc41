"""Faults that were found in comparisons: what tells a judge the sides, budgets that facets exceed together, promotions that come twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from batos.autotelic import changes
from batos.errors import InvalidInput
from tests.support.autonomy import BRIEFS, improving, thought
from tests.support.comparing import DEEP, FOUR, GARDENER, SPRING, Desk, gardening
from tests.support.missions import FakeInference


async def test_costs_do_not_tell_the_judge_which_side_is_which(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        told = await desk.start(other="brick", briefs=FOUR)
        assert told["figures"]["costs"]["chars"]["base"] is None, "no pair is judged"
        await desk.ask("judge", id="c1", number=1, verdict="left")
        told = await desk.ask("show", id="c1")
        [judged] = [one for one in told["compared"] if not one["hidden"]]
        costs = told["figures"]["costs"]["chars"]
        assert (costs["base"], costs["changed"]) == (judged["base"]["chars"], judged["changed"]["chars"])


async def test_facets_that_ask_at_the_same_time_stay_within_the_budget(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    inference.fail_when = lambda request: inference.hold() if request.schema is not None else None  # the facets wait together
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        brief = [{"brief": "Why do I feel tired on Mondays?", "depth": "facets", "flavour": "full"}]
        await desk.ask("start", id="c1", persona="robin", changed=GARDENER, briefs=brief, inferences=2, **SPRING)
        await inference.came(2)
        await asyncio.sleep(0.05)
        inference.fail_when = lambda request: None
        inference.release()
        told = await desk.ended()
        assert (told["state"], told["cost"]["inferences"], inference.answered) == ("spent", 2, 2)
        told = await desk.resumed(inferences=50)
        assert told["state"] == "done"
        assert told["cost"]["inferences"] == inference.answered


async def test_a_promotion_that_is_asked_for_twice_at_once_is_one_change(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        await thought(kernel, *BRIEFS, **DEEP)
        await desk.start(changed=GARDENER, **SPRING)
        one, two = await asyncio.gather(*(Desk(kernel).ask("promote", id="c1", note="at once", anyway=True) for _ in range(2)))
        assert one["change"] == two["change"]
        assert kernel.image.read(changes.of, one["change"])["state"] == changes.KEPT


async def test_a_promotion_waits_for_the_judgement_of_all_pairs(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    six = [{**FOUR[0], "brief": f"Why do I feel tired on {day}?"} for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")]
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        await desk.start(other="brick", briefs=six)

        async def judge() -> None:
            pair = (await desk.ask("next", id="c1"))["pair"]
            await desk.ask("judge", id="c1", number=pair["number"], verdict="left" if "spring" in pair["left"] else "right")

        for _ in six[1:]:
            await judge()
        assert (await desk.ask("show", id="c1"))["verdict"] == "better"
        with pytest.raises(InvalidInput, match="1 of 7 pairs are not judged yet; `batos compare --resume c1` judges them"):
            await desk.ask("promote", id="c1", note="plain words help")
        await judge()
        assert (await desk.ask("promote", id="c1", note="plain words help"))["change"]
