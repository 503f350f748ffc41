"""Ratings, and the weights of the entropy metric that learn from them: in bounded steps, logged, and back again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.app.kernel import Kernel
from batos.autotelic import entropy_records
from batos.autotelic.entropy import Parts
from batos.autotelic.entropy_records import Assessment, WeightBounds
from batos.errors import InvalidInput, UnknownMission
from batos.image import ledger
from batos.image.mission_record import MissionRecord
from batos.missions import report
from batos.wire.admin_schemas import UndoRequest
from tests.support.autonomy import ON, assessed, done, opened
from tests.support.methods import sent
from tests.support.missions import FakeInference, mind, submit, written

BOUNDS = WeightBounds(0.02, 0.1, 0.5)
EVEN, USUAL = Parts(0.25, 0.25, 0.25, 0.25), Parts(0.5, 0.5, 0.5, 0.5)
UNITS = st.floats(0, 1)


def now(kernel: Kernel) -> Parts:
    return kernel.image.read(entropy_records.weights_of)  # type: ignore[no-any-return]


def steps(kernel: Kernel) -> list[entropy_records.WeightStep]:
    return kernel.image.read(entropy_records.weight_log_of)  # type: ignore[no-any-return]


# --- one step


def test_what_was_high_where_it_went_well_gains() -> None:
    novel = Parts(0.5, 0.5, 0.9, 0.5)
    up = entropy_records.stepped_weights(EVEN, novel, USUAL, 1.0, BOUNDS)
    assert up.novelty == pytest.approx(0.27)
    assert up.relevance == up.diversity == up.structure < 0.25
    assert sum(up) == pytest.approx(1)
    assert entropy_records.stepped_weights(EVEN, novel, USUAL, -1.0, BOUNDS).novelty == pytest.approx(0.23)
    assert entropy_records.stepped_weights(EVEN, USUAL, USUAL, 1.0, BOUNDS) == EVEN


def test_a_weight_at_its_bound_stays_there_and_the_others_go_on() -> None:
    at_bound = Parts(0.5, 0.2, 0.2, 0.1)
    after = entropy_records.stepped_weights(at_bound, Parts(1.0, 0.9, 0.5, 0.0), USUAL, 1.0, BOUNDS)
    assert (after.relevance, after.structure) == (0.5, 0.1)
    assert after.diversity > 0.2 > after.novelty
    assert sum(after) == pytest.approx(1)


def test_steps_of_nothing() -> None:
    assert entropy_records.stepped_weights(EVEN, Parts(0.5, 0.5, 0.9, 0.5), USUAL, 1.0, WeightBounds(0.0, 0.1, 0.5)) == EVEN


@given(
    st.lists(st.tuples(UNITS, UNITS, UNITS, UNITS, st.sampled_from(list(entropy_records.REWARDS.values()))), max_size=60), st.floats(0, 0.1)
)
def test_whatever_comes_the_weights_keep_their_sum_and_bounds(outcomes: list[tuple[float, ...]], step: float) -> None:
    found = EVEN
    for *parts, reward in outcomes:
        before, found = found, entropy_records.stepped_weights(found, Parts(*parts), USUAL, reward, WeightBounds(step, 0.1, 0.5))
        assert sum(found) == pytest.approx(1)
        assert all(0.1 - 1e-9 <= weight <= 0.5 + 1e-9 for weight in found)
        assert all(abs(one - other) <= step + 1e-9 for one, other in zip(before, found, strict=True))


async def test_steps_are_logged_up_to_a_limit(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        for n in range(1, 5):
            await image.system(entropy_records.keep_assessments, [Assessment(n, 0.5, 0.5, 0.5, n / 5, 0.5, "words")], {}, 100)
        assert await image.system(
            entropy_records.learn_weights, image.read(entropy_records.assessment_of, 4), entropy_records.UNDONE, BOUNDS
        )
        (step,) = image.read(entropy_records.weight_log_of)
        assert (step.number, step.outcome, step.before) == (4, "undone", EVEN)
        assert step.after == image.read(entropy_records.weights_of)
        assert step.after.novelty < 0.25
        for n in range(entropy_records.STEPS_LOGGED + 5):
            await image.system(
                entropy_records.learn_weights,
                image.read(entropy_records.assessment_of, 1 + n % 4),
                entropy_records.RATED_UP if n % 2 else entropy_records.RATED_DOWN,
                BOUNDS,
            )
        assert len(image.read(entropy_records.weight_log_of)) <= entropy_records.STEPS_LOGGED


async def test_what_an_undo_moved_is_moved_back_once_it_is_done_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        for n in range(1, 5):
            await image.system(entropy_records.keep_assessments, [Assessment(n, 0.5, 0.5, 0.5, n / 5, 0.5, "words")], {}, 100)
        assert not await image.system(entropy_records.unlearn_weights, 4, BOUNDS)
        await image.system(entropy_records.learn_weights, image.read(entropy_records.assessment_of, 4), entropy_records.UNDONE, BOUNDS)
        await image.system(entropy_records.learn_weights, image.read(entropy_records.assessment_of, 1), entropy_records.RATED_UP, BOUNDS)
        between = image.read(entropy_records.weights_of)
        assert await image.system(entropy_records.unlearn_weights, 4, BOUNDS)
        undone, _, redone = image.read(entropy_records.weight_log_of)
        assert (redone.number, redone.outcome, redone.before) == (4, entropy_records.REDONE, between)
        back = image.read(entropy_records.weights_of)
        moved = [one + was - now for one, was, now in zip(between, undone.before, undone.after, strict=True)]
        assert list(back) == pytest.approx(moved)
        assert sum(back) == pytest.approx(1)
        assert not await image.system(entropy_records.unlearn_weights, 4, BOUNDS)
        await image.system(entropy_records.learn_weights, image.read(entropy_records.assessment_of, 4), entropy_records.UNDONE, BOUNDS)
        assert await image.system(entropy_records.unlearn_weights, 4, BOUNDS), "undone again, and done again"
        assert list(image.read(entropy_records.weights_of)) == pytest.approx(list(back))


async def test_what_is_moved_back_stays_within_the_bounds(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        log = (1.0, 4, entropy_records.UNDONE, tuple(EVEN), (0.27, 0.25, 0.23, 0.25))

        def set(root: Any) -> None:
            held = root["lobby"].autotelic.weights
            held.weights, held.log = (0.4, 0.11, 0.49, 0.0 + 0.0), (log,)

        await image.system(set)
        await image.system(entropy_records.unlearn_weights, 4, BOUNDS)
        after = image.read(entropy_records.weights_of)
        assert after.novelty == pytest.approx(0.5)
        assert sum(after) == pytest.approx(1)


# --- ratings of missions


async def two(kernel: Kernel) -> None:
    """Two missions that were measured; the second has the same answer, so that it is below the usual in novelty."""
    for id in ("m1", "m2"):
        await done(kernel, id, "I feel stuck")
        await assessed(kernel, id)


async def test_a_rating_is_kept_with_the_mission_and_learned_from(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, **ON) as kernel:
        await two(kernel)
        await kernel.loop.rate("m1", 1, "made me think")
        found = kernel.image.read(report.report_of, "m1")["rating"]
        assert (found["rating"], found["why"]) == (1, "made me think")
        (step,) = steps(kernel)
        assert (step.number, step.outcome) == (1, "rated +1")
        assert now(kernel).novelty > 0.25
        rated_once = now(kernel)
        await kernel.loop.rate("m1", 1, "made me think")
        await kernel.loop.rate("m1", 1, "still does")
        assert now(kernel) == rated_once, "the same rating again says nothing new"
        assert kernel.image.read(report.report_of, "m1")["rating"]["why"] == "still does"
        await kernel.loop.rate("m1", -1, "")
        assert [one.outcome for one in steps(kernel)] == ["rated +1", "rated -1"]
        assert now(kernel).novelty < rated_once.novelty
    async with mind(tmp_path, inference, **ON) as kernel:
        assert kernel.image.read(report.report_of, "m1")["rating"]["rating"] == -1
        assert len(steps(kernel)) == 2
        assert kernel.info()["autotelic"]["cem"]["weights"] == now(kernel)._asdict()


async def test_learning_is_taken_back_by_a_message(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), **ON) as kernel:
        await two(kernel)
        await kernel.loop.rate("m1", 1, "")
        first = now(kernel)
        await kernel.loop.rate("m2", -1, "")
        assert now(kernel) != first
        end = await sent(kernel, "back", "autotelic.weights", "weights_back_")
        assert end["result"]["value"] == {"weights": list(first), "remembered": 1}
        assert now(kernel) == first
        assert (await sent(kernel, "again", "autotelic.weights", "weights_back_", 1))["state"] == "COMPLETE"
        assert now(kernel) == EVEN
        refused = await sent(kernel, "none", "autotelic.weights", "weights_back_", 1)
        assert refused["error"]["code"] == InvalidInput.code


async def test_a_mission_that_is_followed_was_of_use(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), **ON) as kernel:
        await two(kernel)
        await done(kernel, "m3", "And then?", context="m1")
        await assessed(kernel, "m3")
        await kernel.loop.tick()
        await written(kernel)
        assert [(one.number, one.outcome) for one in steps(kernel)] == [(1, "reused")]
    async with mind(tmp_path, FakeInference(), **ON) as kernel:
        await kernel.loop.tick()
        assert len(steps(kernel)) == 1, "learned from once"


async def test_a_rating_that_was_faster_than_the_measurement(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, autotelic="off") as kernel:
        await done(kernel, "m1", "I feel stuck")
        await done(kernel, "m2", "I feel stuck")
        await kernel.loop.rate("m2", -1, "")
        assert steps(kernel) == []
    async with mind(tmp_path, inference, **ON) as kernel:
        await assessed(kernel, "m2")
        await kernel.loop.tick()
        await written(kernel)
        assert [(one.number, one.outcome) for one in steps(kernel)] == [(2, "rated -1")]


async def test_who_may_be_rated(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, **ON) as kernel:
        with pytest.raises(UnknownMission):
            await kernel.loop.rate("none", 1, "")
        inference.hold()
        listened = await submit(kernel, "m1", "I feel stuck")
        with pytest.raises(InvalidInput, match="has not ended"):
            await kernel.loop.rate("m1", 1, "")
        inference.release()
        assert (await listened.end())["state"] == "COMPLETE"
        inference.say = lambda request: ""
        assert (await (await submit(kernel, "m2", "I feel sad")).end())["state"] == "FAILED"
        await kernel.loop.rate("m2", -1, "no answer")
        described: MissionRecord = kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "m2")))
        assert json.loads(json.dumps(described.rating))["rating"] == -1


# --- undos of missions


async def undone(kernel: Kernel, id: str, *, redo: bool = False) -> None:
    await kernel.undoing.undo(UndoRequest(op="undo", id=id, redo=redo))


async def test_an_undo_is_learned_from_in_its_own_transaction(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), **ON) as kernel:
        await two(kernel)
        await undone(kernel, "m1")
        (step,) = steps(kernel)
        assert (step.number, step.outcome, step.after) == (1, "undone", now(kernel))
        assert now(kernel).novelty < 0.25
        users = [
            kernel.image.db.history(kernel.image.read(read), 1)[0]["user_name"]
            for read in (lambda root: ledger.mission_of(root, "m1")._p_oid, lambda root: root["lobby"].autotelic.weights._p_oid)
        ]
        assert users == ["undo:m1", "undo:m1"]
        await undone(kernel, "m1")
        assert len(steps(kernel)) == 1, "it is undone already"
        await undone(kernel, "m1", redo=True)
        assert list(now(kernel)) == pytest.approx(list(EVEN))
        assert [one.outcome for one in steps(kernel)] == ["undone", "done again"]


async def test_one_that_was_undone_before_it_was_measured_is_learned_from_then_unless_it_is_done_again(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:  # nothing is measured
        for id in ("m1", "m2", "m3"):
            await done(kernel, id, "I feel stuck")
        await undone(kernel, "m1")
    async with mind(tmp_path, inference, **ON) as kernel:
        await assessed(kernel, "m3")
    async with mind(tmp_path, inference, **ON) as kernel:
        assert [(one.number, one.outcome) for one in steps(kernel)] == [(1, "undone")]
