"""The effect of a change: what is worse beyond doubt, and what is not."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.autotelic import changes, rollback_monitor
from batos.autotelic.rollback_monitor import Sample, chance_of_failures, chance_of_ranks, effect_between
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.objects import Method
from tests.support.autonomy import EVIDENCE, LIMITS, Proposal, ended, opened


def good(seconds: float = 4.0, cem: float | None = 0.6, kind: str = "client brief") -> Sample:
    return Sample(kind, False, seconds, cem)


def bad(kind: str = "client brief") -> Sample:
    return Sample(kind, True, None, None)


def spread(count: int, seed: int = 1, *, seconds: float = 4.0, cem: float = 0.6) -> list[Sample]:
    chance = random.Random(seed)
    return [good(seconds * chance.uniform(0.7, 1.4), cem + chance.uniform(-0.05, 0.05)) for _ in range(count)]


# --- what is worse


def test_nothing_is_worse_where_all_is_as_before() -> None:
    for seed in range(200):
        found = effect_between(spread(32, seed), spread(24, seed + 1000), LIMITS)
        assert found.worse == ()
        assert found.samples == 24


def test_failures_show_after_a_few_where_there_were_none() -> None:
    assert effect_between(spread(32), [bad()] * 2, LIMITS).worse == ()
    (words,) = effect_between(spread(32), [bad()] * 3, LIMITS).worse
    assert words == "client brief: 3 of 3 FAILED or unsure; before, 0 of 32"
    assert effect_between([], [bad()] * 9, LIMITS).worse == (), "nobody knows how it was before"


def test_as_many_failures_as_ever_are_no_effect() -> None:
    before = [bad()] * 12 + spread(36)
    assert effect_between(before, [bad()] * 4 + spread(12), LIMITS).worse == ()
    assert effect_between(before, [bad()] * 12 + spread(4), LIMITS).worse


def test_a_small_rise_is_no_harm_however_sure_it_is() -> None:
    assert effect_between(spread(900), [bad()] * 30 + spread(270), LIMITS).worse == ()


def test_slower_missions_show_when_there_are_enough() -> None:
    slow = spread(24, seconds=9.0)
    assert effect_between(spread(32), slow[:7], LIMITS).worse == ()
    (words,) = effect_between(spread(32), slow, LIMITS).worse
    assert "s of model time in the middle; before, 4." in words
    assert effect_between(spread(32), spread(24, seconds=5.0), LIMITS).worse == (), "a little slower"
    assert effect_between(spread(32, seconds=0.1), spread(24, seconds=0.5), LIMITS).worse == (), "below a second nobody waits"


def test_falling_entropy_shows_and_rising_does_not() -> None:
    (words,) = effect_between(spread(32), spread(24, 3, cem=0.4), LIMITS).worse
    assert words == "client brief: entropy 0.399 on average; before, 0.597"
    assert effect_between(spread(32), spread(24, 3, cem=0.8), LIMITS).worse == ()
    assert effect_between([good(cem=None)] * 32, [good(cem=None)] * 24, LIMITS).worse == ()


def test_like_is_compared_with_like() -> None:
    """More of what always failed more often, or took longer, is no effect."""
    messages = [bad("system message")] * 10 + [good(20, None, "system message")] * 10
    assert effect_between([*spread(32), *messages], [*spread(2), *messages], LIMITS).worse == ()
    assert effect_between(messages, spread(24, seconds=60), LIMITS).worse == (), "nothing of that kind was there before"


def undone(chance: random.Random, *, failing: float = 0.05, slower: float = 1.0, cem: float = 0.5) -> bool:
    """Whether a watch that looks at every fourth mission finds harm twice in a row."""

    def side(count: int, failing: float, slower: float, cem: float) -> list[Sample]:
        return [
            bad() if chance.random() < failing else good(slower * chance.lognormvariate(1.5, 0.6), chance.gauss(cem, 0.1))
            for _ in range(count)
        ]

    before, after = side(48, 0.05, 1.0, 0.5), side(96, failing, slower, cem)
    harmful = [bool(effect_between(before, after[:seen], dataclasses.replace(LIMITS, missions=12)).worse) for seen in range(4, 97, 4)]
    return any(one and other for one, other in itertools.pairwise(harmful))


@pytest.mark.parametrize(
    ("harm", "least", "most"), [({}, 0, 3), ({"failing": 0.4}, 90, 100), ({"slower": 2.0}, 90, 100), ({"cem": 0.38}, 90, 100)]
)
def test_harm_is_found_and_chance_is_not(harm: dict[str, float], least: int, most: int) -> None:
    """Of a hundred watches."""
    chance = random.Random(5)
    assert least <= sum(undone(chance, **harm) for _ in range(100)) <= most


# --- the tests of significance


def test_chances_are_those_of_the_tables() -> None:
    assert chance_of_failures(1, 10, 9, 10) == pytest.approx(0.000546, abs=1e-6), "Fisher's lady, so to speak"
    assert chance_of_failures(0, 5, 0, 5) == 1.0
    assert chance_of_ranks([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(0.0061, abs=1e-4)
    assert chance_of_ranks([1.0] * 5, [1.0] * 7) == 1.0


@given(st.integers(0, 8), st.integers(1, 8), st.integers(0, 8), st.integers(1, 8))
def test_fishers_chance_is_that_of_counting_all_ways(was: int, before: int, failed: int, after: int) -> None:
    was, failed = min(was, before), min(failed, after)
    ways = list(itertools.combinations(range(before + after), was + failed)) if before + after <= 12 else []
    if ways:
        as_bad = sum(sum(place >= before for place in way) >= failed for way in ways)
        assert chance_of_failures(was, before, failed, after) == pytest.approx(as_bad / len(ways))


@given(st.lists(st.integers(0, 5), min_size=2, max_size=20), st.lists(st.integers(0, 5), min_size=2, max_size=20))
def test_the_chance_of_ranks_is_one_and_falls_as_one_side_rises(low: list[int], high: list[int]) -> None:
    chance = chance_of_ranks(low, high)
    assert 0 <= chance <= 1
    assert not math.isnan(chance)
    risen = [value + 1 for value in high]
    if len({*low, *risen}) == 1:
        assert chance_of_ranks(low, risen) == 1, "equal values say nothing"
    else:
        assert chance_of_ranks(low, risen) <= chance + 1e-12


# --- what missions of an image say


async def promoted(image: LivingImage, content: str = "x") -> int:
    number = await image.system(changes.propose, Proposal(content=content), EVIDENCE, "")
    await image.system(changes.promote, number, {})
    return int(number)


async def test_missions_are_parted_by_the_moment_of_the_change(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await ended(image, "before", ms=2000, cem=0.7)
        await ended(image, "under way", state="ACCEPTED")
        await promoted(image)
        await ended(image, "after", ms=0, origin="system")
        await ended(image, "failed", state="internal", message="{}")
        await ended(image, "cancelled", state="cancelled")
        await ended(image, "open", state="ACCEPTED")
        await image.system(lambda root: ledger.complete(ledger.mission_of(root, "under way"), {"text": "x"}, None))
        before, after = image.read(rollback_monitor.effect_samples, image.read(changes.watched), 8)
        assert before == [Sample("client brief", False, 2.0, 0.7)]
        assert [one._replace(seconds=None) for one in after] == [
            Sample("client message", True, None, None),
            Sample("system brief", False, None, None),
        ]
        assert after[1].seconds is not None
        assert after[1].seconds < 5, "no model was asked: the time that it took"


async def test_no_more_are_looked_at_than_tell_something(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        for number in range(30):
            await ended(image, f"m{number}")
        await promoted(image)
        for number in range(30, 70):
            await ended(image, f"m{number}")
        before, after = image.read(rollback_monitor.effect_samples, image.read(changes.watched), 2)
        assert (len(before), len(after)) == (rollback_monitor.BEFORE * 2, rollback_monitor.AFTER * 2)


async def test_what_fails_of_calls_that_a_method_does_not_take_says_nothing(tmp_path: Path) -> None:
    def has(root: Any) -> None:
        source = "def total_(self, items):\n    return sum(items)\n"
        root["lobby"].thing = root["lobby"].genesis.derive(total_=Method("total_", source))

    async with opened(tmp_path) as image:
        await image.system(has)
        await promoted(image)
        for given, state in (("[1]", "method_failed"), ([], "method_failed"), ("[1]", "inference_failed")):
            message = {"target": "thing", "selector": "total_", "args": [given], "kwargs": {}}
            await ended(image, f"{state} {given}", state=state, message=json.dumps(message))
        _, after = image.read(rollback_monitor.effect_samples, image.read(changes.watched), 8)
        assert after == [Sample("client message", True, None, None)] * 2

        def was(root: Any) -> None:
            slots = root["lobby"].thing._slots
            before = Method("total_", "def total_(self, text):\n    return len(text)\n")
            slots["total_"] = Method("total_", slots["total_"].source, previous=before)

        await image.system(was)
        _, after = image.read(rollback_monitor.effect_samples, image.read(changes.watched), 8)
        assert len(after) == 3, "the version before took it"
