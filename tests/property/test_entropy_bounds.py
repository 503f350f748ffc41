"""Whatever was thought, each part of the entropy metric is a number from 0 to 1."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from batos.autotelic import entropy
from batos.autotelic.entropy import Kinds, Parts, Text, Thought, Window

VECTORS = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=3, max_size=3)
TEXTS = st.builds(
    lambda words, vector: Text(entropy.words_of(words), None if vector is None else entropy.meaning_of(vector)),
    st.one_of(st.text(max_size=40), st.sampled_from(["again and again", "something else entirely"])),
    st.one_of(st.none(), VECTORS, st.lists(st.floats(-1, 1), min_size=5, max_size=5)),
)
NAMES = st.lists(st.sampled_from(["robin", "brick", "babs", "alfred"]), max_size=5).map(tuple)


def same_embedder(thought: Thought) -> Thought:
    """Brief and answer are embedded together: both have a meaning of the same length, or neither has."""
    one, other = thought.brief.meaning, thought.answer.meaning
    if one is None or other is None or len(one) != len(other):
        return thought._replace(brief=Text(thought.brief.words), answer=Text(thought.answer.words))
    return thought


THOUGHTS = st.builds(Thought, NAMES, NAMES, TEXTS, TEXTS, st.integers(0, 100_000)).map(same_embedder)


@settings(max_examples=200)
@given(st.lists(THOUGHTS, min_size=1, max_size=12), st.integers(2, 6), st.integers(0, 6), st.integers(0, 20))
def test_each_part_and_the_whole_are_from_0_to_1(thoughts: list[Thought], length: int, personas: int, facets: int) -> None:
    window = Window(length)
    for thought in thoughts:
        parts, _ = window.take(thought, Kinds(personas, facets))
        assert all(math.isfinite(part) and 0 <= part <= 1 for part in parts), parts
        for weights in (Parts(0.25, 0.25, 0.25, 0.25), Parts(0.1, 0.5, 0.1, 0.3)):
            assert 0 <= entropy.composite(parts, weights) <= 1


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 1000), max_size=8), st.integers(0, 10))
def test_evenness_is_bounded(counts: dict[str, int], kinds: int) -> None:
    assert 0 <= entropy.evenness(counts, kinds) <= 1


@given(st.lists(st.floats(0, 1), min_size=40, max_size=120))
def test_the_watch_stays_within_its_bounds(values: list[float]) -> None:
    state = entropy.CusumState()
    for value in values:
        state = entropy.cusum_after(state, value, "words", 8)
        assert 0 <= state.sum <= entropy.CUSUM_CEILING
        assert state.deviation >= entropy.CUSUM_FLOOR
