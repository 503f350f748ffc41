"""Comparisons: what counts, what is better and worse, and that nothing worse is ever good."""

from __future__ import annotations

from typing import Any

import pytest

from batos.autotelic.entropy import Kinds, Parts, Text, Thought, words_of
from batos.autotelic.rehearsal_verdict import Comparison, ComparisonLimits, Run, RunPair, Side, compared

EVEN = Parts(0.25, 0.25, 0.25, 0.25)
SIDE = Side(Kinds(4, 11))
LIMITS = ComparisonLimits(2, 0.5, 0.01, 0.5)


def thought(answer: str = "always the same answer", persona: str = "robin") -> Thought:
    return Thought((persona,), (f"{persona} plain_facet_",), Text(words_of("a brief about something")), Text(words_of(answer)), 80)


def run(**more: Any) -> Run:
    return Run(**{"known": True, "tokens": 100, "thought": thought(), **more})


def judged(*changed: Run, before: Run | None = None, side: Side = SIDE, trials: int = 0) -> Comparison:
    pairs = [RunPair(f"m{n}", before or run(), one) for n, one in enumerate(changed)]
    return compared(pairs, SIDE, side, trials=trials, weights=EVEN, limits=LIMITS)


def test_what_changes_nothing_is_not_made() -> None:
    found = judged(run(), run(), run())
    assert (found.missions, found.better, found.worse, found.reason) == (3, (), (), "nothing gets better")


@pytest.mark.parametrize(
    ("worse", "words"),
    [
        (run(failed="quality_refused", tokens=0, thought=None), "missions that fail: 0 before, 1 with it"),
        (run(gate=1), "answers that the gate refuses"),
        (run(misrouted=True), "users chose another persona"),
    ],
)
def test_one_that_gets_worse_is_enough_whatever_gets_better(worse: Run, words: str) -> None:
    found = judged(worse, *(run(tokens=10) for _ in range(7)))
    assert found.better
    assert found.reason.startswith("worse: ")
    assert words in found.reason


@pytest.mark.parametrize("before", [run(failed="quality_refused"), run(gate=2), run(misrouted=True)])
def test_fewer_of_what_is_bad_is_better(before: Run) -> None:
    found = judged(run(), run(), before=before)
    assert (len(found.better), found.worse, found.reason) == (1, (), "")


def test_cost_may_grow_a_little_and_must_fall_by_more_than_is_rounded_away() -> None:
    assert judged(run(tokens=149), run(tokens=149)).worse == ()
    assert "a mission takes 151 tokens, 100 before" in judged(run(tokens=151), run(tokens=151)).reason
    assert judged(run(tokens=96), run(tokens=96)).better == ()
    assert judged(run(tokens=94), run(tokens=94)).reason == ""


def test_a_mission_that_fails_early_makes_the_others_not_cheap() -> None:
    found = judged(run(failed="method_failed", tokens=5), run(), run())
    assert found.changed.tokens == 100


def test_entropy_counts_both_ways() -> None:
    lively = [run(thought=thought(words)) for words in ("gardens under snow", "seventeen copper kettles", "whistling rivers northward")]
    found = judged(*lively)
    assert found.reason == ""
    assert found.changed.cem > found.without.cem
    back = compared([RunPair("m", one, run()) for one in lively], SIDE, SIDE, trials=0, weights=EVEN, limits=LIMITS)
    assert back.reason.startswith("worse: entropy is")


def test_what_is_not_known_on_both_sides_does_not_count_and_too_little_says_nothing() -> None:
    unknown = Run(known=False)
    found = judged(unknown, run(tokens=10), run(tokens=10))
    assert (found.missions, found.unknown, found.reason) == (2, 1, "")
    few = judged(unknown, unknown, run(tokens=10))
    assert few.reason == "too little is known to judge: 1 missions and 0 trials of at least 2"
    assert judged(run(tokens=10), trials=1).reason == "", "a trial says as much as a mission"


def test_messages_must_be_answered_as_before() -> None:
    def message(value: Any, **more: Any) -> Run:
        return Run(known=True, tokens=10, answer={"value": value}, **more)

    pairs = [RunPair("a", message(3.0), message(3)), RunPair("b", message("x"), message("y"))]
    found = compared(pairs, SIDE, SIDE, trials=0, weights=EVEN, limits=LIMITS)
    assert found.changed.differing == 1
    assert "messages that are answered otherwise: 0 before, 1 with it" in found.reason
    mended = [RunPair(id, message(None, failed="method_failed"), message(3)) for id in "ab"]
    assert compared(mended, SIDE, SIDE, trials=0, weights=EVEN, limits=LIMITS).reason == ""


def test_trials_that_fail_and_source_that_is_kept() -> None:
    assert "trials that fail" in judged(run(), run(), side=SIDE._replace(trials=1), trials=2).reason
    with_source = compared([RunPair(id, run(), run()) for id in "ab"], SIDE._replace(held=300), SIDE, trials=0, weights=EVEN, limits=LIMITS)
    assert with_source.better == ("300 bytes of a method less are kept in use",)
    grown = compared([RunPair(id, run(), run()) for id in "ab"], SIDE, SIDE._replace(held=300), trials=0, weights=EVEN, limits=LIMITS)
    assert grown.worse == ()


def test_it_is_told_as_json() -> None:
    told = judged(run(), run()).to_json()
    assert told["without"]["tokens"] == 100
    assert (told["better"], told["worse"]) == ([], [])


def test_time_counts_where_the_model_is_another() -> None:
    timed = LIMITS._replace(slower=2.0)
    for seconds, worse in ((3.0, 0), (5.0, 1)):
        pairs = [RunPair(id, run(seconds=2.0), run(seconds=seconds)) for id in "ab"]
        found = compared(pairs, SIDE, SIDE, trials=0, weights=EVEN, limits=timed)
        assert len(found.worse) == worse
        assert compared(pairs, SIDE, SIDE, trials=0, weights=EVEN, limits=LIMITS).worse == ()
    assert "takes 5.0 s of model time, 2.0 s before" in found.reason
    quick = [RunPair(id, run(seconds=0.01), run(seconds=0.5)) for id in "ab"]
    assert compared(quick, SIDE, SIDE, trials=0, weights=EVEN, limits=timed).worse == (), "nobody minds half a second"


def rated(*pairs: RunPair) -> Comparison:
    return compared(pairs, SIDE, SIDE, trials=0, weights=EVEN, limits=LIMITS)


def test_an_answer_that_was_liked_has_to_stay_alike() -> None:
    cheaper = [RunPair(id, run(), run(tokens=10)) for id in "ab"]
    kept = RunPair("liked", run(like=1.0), run(tokens=10, like=0.5), rating=1)
    assert rated(*cheaper, kept).reason == ""
    for lost in (run(tokens=10, like=0.49), run(failed="quality_refused", tokens=0, thought=None)):
        found = rated(*cheaper, kept._replace(changed=lost))
        assert "answers that users liked and that are no longer given: 0 before, 1 with it" in found.reason
    back = rated(*cheaper, RunPair("liked", run(like=0.1), run(tokens=10, like=0.9), rating=1))
    assert (back.without.lost, back.changed.lost, back.reason) == (1, 0, "")


def test_an_answer_that_was_not_liked_and_stays_speaks_for_no_change() -> None:
    stays = [RunPair(id, run(gate=1, like=1.0), run(tokens=10, like=0.9), rating=-1) for id in "abc"]
    found = rated(*stays)
    assert (found.missions, found.unliked, found.better) == (0, 3, ())
    assert found.reason.endswith("3 more were rated -1, and are answered as they were")
    assert (found.without.disliked, found.changed.disliked) == (3, 3)
    good = [RunPair(id, run(), run()) for id in "xy"]
    assert rated(*stays, *good).reason == "nothing gets better", "neither their tokens nor the gate count for it"
    worse = stays[0]._replace(changed=run(gate=2, like=0.9))
    assert "answers that the gate refuses" in rated(worse, *good).reason, "what gets worse counts"
    other = [pair._replace(changed=run(tokens=10, like=0.2)) for pair in stays]
    assert rated(*other).reason == "", "another answer tells as much as any"
    assert rated(*other).changed.disliked == 0


def test_a_message_may_be_answered_otherwise_where_nobody_liked_the_answer() -> None:
    was, now = (Run(known=True, tokens=10, answer={"value": value}, like=like) for value, like in ((3, 1.0), (4, 0.0)))
    cheaper = [RunPair(id, run(), run(tokens=10)) for id in "ab"]
    for rating, reason in ((-1, ""), (0, "answered otherwise"), (1, "answered otherwise")):
        assert reason in rated(*cheaper, RunPair("m", was, now, rating)).reason
        assert bool(rated(*cheaper, RunPair("m", was, now, rating)).worse) == bool(reason)
