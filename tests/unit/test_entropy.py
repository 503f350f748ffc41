"""The entropy metric on constructed histories: each part moves the right way, by words and by meaning, and stays within its bounds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from batos.autotelic import entropy
from batos.autotelic.entropy import EMBEDDING, WORDS, Kinds, Parts, Text, Thought, Window

KINDS = Kinds(4, 12)
TOPICS = (
    "The garden wants water every morning and shade every afternoon",
    "A compiler turns source programs into machine instructions",
    "Bread rises because yeast makes bubbles inside the dough",
    "Planets move round their star along elliptical orbits",
    "Violins sound warm because their bodies resonate with strings",
    "Rivers carve valleys through limestone over thousand years",
)
BY = pytest.mark.parametrize("source", [WORDS, EMBEDDING])


def text(words: str, source: str) -> Text:
    """A text; its embedding is a direction of the topic that it begins with, bent a little by its length."""
    if source == WORDS:
        return Text(entropy.words_of(words))
    vector = [0.02 * (len(words) % 7)] * 16
    vector[hash_of(words[:12]) % 16] += 1.0
    return Text(entropy.words_of(words), entropy.meaning_of(vector))


def hash_of(words: str) -> int:
    return sum(map(ord, words))


def thought(
    answer: str,
    source: str,
    *,
    brief: str = "",
    personas: Sequence[str] = ("robin",),
    facets: Sequence[str] = ("robin a_",),
    size: int = 60,
) -> Thought:
    return Thought(tuple(personas), tuple(facets), text(brief or answer, source), text(answer, source), size)


def history(thoughts: Sequence[Thought], length: int = 32) -> tuple[Parts, str]:
    """The parts of the last of them, measured against those before it."""
    window = Window(length)
    for one in thoughts:
        found = window.take(one, KINDS)
    return found


@BY
def test_relevance_rises_with_what_answer_and_brief_share(source: str) -> None:
    near = history([thought(TOPICS[0], source, brief=TOPICS[0] + "?")])
    far = history([thought(TOPICS[0], source, brief=TOPICS[1])])
    assert near[1] == far[1] == source
    assert near[0].relevance > 0.8
    assert far[0].relevance < 0.3


@BY
def test_diversity_falls_in_a_rut_of_one_facet(source: str) -> None:
    names = [("robin", "robin a_"), ("brick", "brick b_"), ("babs", "babs c_"), ("alfred", "alfred d_")]
    many = [thought(TOPICS[n % 6], source, personas=[names[n % 4][0]], facets=[names[n % 4][1]]) for n in range(24)]
    rut = many + [thought(TOPICS[n % 6], source, personas=["robin"], facets=["robin a_"]) for n in range(32)]
    assert history(many)[0].diversity > history(rut)[0].diversity + 0.3


@BY
def test_diversity_falls_when_answers_become_alike(source: str) -> None:
    different = history([thought(topic, source) for topic in TOPICS])[0]
    same = history([thought(TOPICS[0], source) for _ in TOPICS])[0]
    assert different.diversity > same.diversity + 0.2


@BY
def test_novelty_falls_with_repetition_and_rises_with_something_new(source: str) -> None:
    repeated = [thought(TOPICS[0], source) for _ in range(5)]
    assert history(repeated)[0].novelty == pytest.approx(0, abs=0.01)
    assert history([*repeated, thought(TOPICS[3], source)])[0].novelty > 0.7
    assert history(repeated[:1])[0].novelty == 1.0


def test_novelty_forgets_what_has_left_the_window() -> None:
    first, others = thought(TOPICS[0], WORDS), [thought(topic, WORDS) for topic in TOPICS[1:5]]
    assert history([first, *others, first], length=3)[0].novelty > 0.8
    assert history([first, *others, first], length=32)[0].novelty < 0.8


def test_structure_rises_with_what_there_is_to_describe_not_with_repetition() -> None:
    plain = entropy.description_length(["1 ROBIN model", "sage_facet_", "sage_facet_"])
    rich = entropy.description_length(["1 ROBIN model", "sage_facet_", "joker_facet_", "silent_facet_ silent", "sage_facet_ - joker_"])
    method = entropy.description_length(
        ["1 ROBIN model", "sage_facet_", "def sage_facet_(self, query):\n    return [word for word in query.split() if word in self.known]"]
    )
    repeated = entropy.description_length(["1 ROBIN model", *["sage_facet_"] * 40])
    assert plain < rich < method
    assert repeated < rich
    assert entropy.structure(0) == 0.0
    assert entropy.structure(plain) < entropy.structure(method) < 1.0


def test_without_an_embedder_words_are_compared_and_it_is_said() -> None:
    assert history([thought(TOPICS[0], WORDS)])[1] == WORDS
    assert history([thought(TOPICS[0], EMBEDDING)])[1] == EMBEDDING


def test_an_embedder_that_comes_and_goes() -> None:
    """By meaning only where at least half of the window can be compared so; one without a meaning is compared by words."""
    old = [thought(topic, WORDS) for topic in TOPICS[:4]]
    new = [thought(topic, EMBEDDING) for topic in TOPICS]
    assert history([*old, *new[:1]])[1] == WORDS
    assert history([*old, *new[:5]])[1] == EMBEDDING
    assert history([*old, *new, thought("nothing", WORDS)])[1] == WORDS


def test_an_embedder_that_was_replaced_by_one_of_other_dimensions() -> None:
    other = Text(entropy.words_of(TOPICS[1]), entropy.meaning_of([0.0, 1.0, 0.0]))
    changed = Thought(("robin",), ("robin a_",), other, other, 60)
    assert history([thought(TOPICS[0], EMBEDDING), changed])[1] == WORDS
    assert history([thought(TOPICS[0], EMBEDDING), changed, changed, changed])[1] == EMBEDDING


def test_evenness() -> None:
    assert entropy.evenness({"a": 5, "b": 5, "c": 5, "d": 5}, 4) == pytest.approx(1)
    assert entropy.evenness({"a": 20}, 4) == 0
    assert entropy.evenness({"a": 10, "b": 10}, 4) == pytest.approx(0.5)
    assert entropy.evenness({"a": 1}, 4) == entropy.evenness({}, 4) == 1
    assert entropy.evenness({"a": 9, "b": 1}, 4) < entropy.evenness({"a": 6, "b": 4}, 4)


def test_spread() -> None:
    assert entropy.spread([[], [0.0], [0.0, 0.0]]) == pytest.approx(1)
    assert entropy.spread([[], [1.0], [1.0, 1.0]]) == pytest.approx(0)
    assert 0 < entropy.spread([[], [1.0], [0.0, 0.0]]) < 1
    assert entropy.spread([[]]) == 1


# --- decay


def watch(values: Sequence[float], state: entropy.CusumState | None = None) -> entropy.CusumState:
    state = state or entropy.CusumState()
    for value in values:
        state = entropy.cusum_after(state, value, WORDS, 32)
    return state


def noise(seed: int, count: int, mean: float, deviation: float = 0.05) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(mean, deviation) for _ in range(count)]


def test_dips_are_no_decay() -> None:
    for dips in (1, 2, 3):
        assert not watch([*[0.62, 0.58] * 32, *[0.0] * dips]).fallen
    assert watch([*[0.62, 0.58] * 32, *[0.0] * 5]).fallen


def test_a_lasting_fall_is_found_and_soon() -> None:
    """A fall by two standard deviations: found within a dozen missions, whatever the noise."""
    for seed in range(40):
        usual = noise(seed, 64, 0.6)
        assert not watch(usual).fallen
        assert watch([*usual, *noise(seed + 100, 14, 0.5)]).fallen


def test_no_decay_is_found_where_nothing_changes() -> None:
    alarms = sum(watch(noise(seed, 500, 0.6)).fallen for seed in range(40))
    assert alarms <= 3  # the baseline of 32 values is an estimate: some 2 in 100 runs of 500 in a longer trial


def test_a_fall_is_over_when_values_are_back_and_not_before() -> None:
    fallen = watch([*noise(1, 64, 0.6), *noise(2, 30, 0.45)])
    assert fallen.fallen
    assert watch(noise(3, 5, 0.6), fallen).fallen, "some good values are not yet a recovery"
    recovered = watch(noise(3, 60, 0.6), fallen)
    assert not recovered.fallen
    assert watch(noise(4, 30, 0.45), recovered).fallen


def test_a_level_that_stays_becomes_the_usual_one() -> None:
    settled = watch([*noise(1, 64, 0.6), *noise(2, 320, 0.4)])
    assert not settled.fallen
    assert settled.mean == pytest.approx(0.4, abs=0.03)
    assert watch(noise(3, 30, 0.25), settled).fallen


def test_a_change_of_source_is_no_fall() -> None:
    state = watch([0.9] * 64)
    state = entropy.cusum_after(state, 0.2, EMBEDDING, 32)
    assert (state.learned, state.fallen, state.source) == (1, False, EMBEDDING)


def test_its_state_is_read_as_it_was_kept() -> None:
    state = watch(noise(1, 50, 0.5))
    assert entropy.cusum_state(state._asdict()) == state
    assert entropy.cusum_state({}) == entropy.cusum_state({"sum": 3}) == entropy.CusumState()
