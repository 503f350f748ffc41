"""Signals of a search, one at a time: each prefers what it says it prefers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pytest

from batos.memory import search
from batos.memory.search import QuestionVectors, Weighing, prepare_question, standard
from tests.support.search import Said, axis, collection, noise


def order(
    chunks: Sequence[Said | str], text: str, vectors: Any = None, *, cleaned: Any = None, full: Any = None, **options: Any
) -> list[int]:
    """Ids of the chunks, the best first."""
    view = collection(chunks, vectors).view()
    asked = QuestionVectors(cleaned, full if full is not None else cleaned) if cleaned is not None else None
    return view.ids[Weighing(view, prepare_question(view, text), asked).best().rows].tolist()


def test_words_alone_find_what_says_them() -> None:
    assert order(["The cat sat.", "A dog barked.", "Ships sail."], "Which dog?")[0] == 1


def test_the_vector_finds_what_no_word_does() -> None:
    chunks = [Said(f"Filler number {i}.", section=i) for i in range(12)]
    vectors = noise(12)
    vectors[7] = axis(3)
    assert order(chunks, "Something else?", vectors, cleaned=axis(3))[0] == 7


def test_a_chunk_counts_for_more_among_neighbours_that_are_alike() -> None:
    chunks = [Said("Same words.", section=i // 3) for i in range(30)]
    vectors = noise(30)
    vectors[[4, 13]] = axis(3)  # both the middle of their sections
    vectors[[12, 14]] = (axis(3) + axis(4)) / np.sqrt(2)
    assert order(chunks, "Else?", vectors, cleaned=axis(3))[0] == 13


def test_what_follows_a_question_like_this_one_answers_it() -> None:
    chunks = [Said("Blue, I think, and green.", section=i // 2) for i in range(20)]
    chunks[6] = Said("Which paint do you like?", section=3)
    chunks[10] = Said("This paint is one you like.", section=5)
    vectors = noise(20)
    vectors[[6, 10]] = axis(3)
    vectors[7] = vectors[11]
    found = order(chunks, "Else?", vectors, cleaned=axis(3))
    assert found.index(7) < found.index(11)


def test_the_day_that_is_named() -> None:
    chunks = [Said("We met.", section=i, day=date(2023, 5, i + 1)) for i in range(9)]
    assert order(chunks, "Who met on May 7, 2023?")[0] == 6


def test_the_speaker_that_is_named_and_those_with_whom_they_speak() -> None:
    chunks = [
        Said("I painted a boat.", 1, "Cleo"),
        Said("I painted a boat.", 1, "Dora"),
        Said("I painted a boat.", 2, "Ann"),
        Said("I painted a boat.", 2, "Ben"),
    ]
    found = order(chunks, "What did Ben paint?")
    assert found[:2] == [3, 2]
    assert set(order(chunks, "What did Ben and Ann paint?")[:2]) == {2, 3}


def test_a_note_without_speakers_is_no_strangers_talk() -> None:
    chunks = [Said("Ben painted a boat.", 1), Said("I painted a boat.", 2, "Ann"), Said("So did I.", 3, "Ben")]
    assert order(chunks, "What did Ben paint?")[0] == 0


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("When was the boat painted?", ["The boat was painted red.", "The boat was painted yesterday."]),
        ("How many boats were painted?", ["Red boats were painted.", "Two boats were painted."]),
        ("What of the boat?", ["The boat? The boat?", "The boat, told of."]),
    ],
)
def test_an_answer_has_what_is_asked_for(text: str, chunks: list[str]) -> None:
    assert order([Said(chunk, section=at, speaker="Ann") for at, chunk in enumerate(chunks)], text)[0] == 1


def test_in_a_conversation_people_tell_of_themselves() -> None:
    chunks = [Said("They like the boat.", 1, "Ann"), Said("I do like the boat.", 2, "Ann")]
    assert order(chunks, "Who likes the boat?")[0] == 1


def test_chunks_without_vectors_are_neither_better_nor_worse_for_it() -> None:
    made = collection([Said("The boat.", section=i) for i in range(6)])
    made.vectors(np.array([0, 1]), np.stack([axis(3), -axis(3)]))
    view = made.view()
    found = Weighing(view, prepare_question(view, "Boat?"), QuestionVectors(axis(3), axis(3))).best()
    scores = dict(zip(view.ids[found.rows].tolist(), found.scores.tolist(), strict=True))
    assert scores[0] > scores[2] > scores[1]
    assert scores[2] == scores[5]


def test_what_is_gone_makes_neither_its_section_nor_its_neighbours_better() -> None:
    chunks = [Said("Same words.", section=i // 3) for i in range(30)]
    vectors = noise(30)
    vectors[[13, 22]] = axis(3)
    made = collection(chunks, vectors)
    made.drop([13])
    view = made.view()
    found = Weighing(view, prepare_question(view, "Else?"), QuestionVectors(axis(3), axis(3))).best()
    assert view.ids[found.rows[0]] == 22
    signals = dict(zip(view.ids[found.rows].tolist(), found.signals["section_meaning"].tolist(), strict=True))
    assert signals[21] > 0 > signals[12]


def test_rows_that_are_gone_or_not_allowed_are_never_found() -> None:
    made = collection([Said("The boat.", section=i) for i in range(6)], noise(6))
    made.drop([2])
    view = made.view()
    allowed = np.array([True, True, True, False, False, False])
    weighing = Weighing(view, prepare_question(view, "Boat?"), QuestionVectors(axis(3), axis(3)), allowed=allowed)
    assert sorted(weighing.best().rows.tolist()) == [0, 1]
    assert weighing.of(np.array([2, 3])).rows.tolist() == []


def test_vectors_of_nothing_but_what_is_gone_are_none() -> None:
    made = collection([Said("The boat.", section=i) for i in range(4)])
    made.vectors(np.array([0]), axis(3)[None])
    made.drop([0])
    view = made.view()
    found = Weighing(view, prepare_question(view, "Boat?"), QuestionVectors(axis(3), axis(3))).best()
    assert len(found.rows) == 3
    assert "meaning" not in found.signals


def test_an_empty_memory_finds_nothing() -> None:
    view = collection([]).view()
    assert Weighing(view, prepare_question(view, "Boat?"), None).best().rows.tolist() == []


def test_scores_are_the_sum_of_their_signals() -> None:
    view = collection([Said(f"Boat {i} sailed in May.", i // 4, "Ann", date(2023, 5, 1)) for i in range(40)], noise(40)).view()
    found = Weighing(view, prepare_question(view, "When did Ann sail in May 2023?"), QuestionVectors(axis(1), axis(2))).best()
    assert np.allclose(found.scores, sum(found.signals.values()), atol=1e-5)
    assert {"words", "meaning", "around", "section_words", "section_meaning", "answers", "days", "speaker", "told"} <= set(found.signals)


def test_the_best_of_many_are_those_of_all() -> None:
    """That only some rows are weighed by everything costs nothing where it matters."""
    rng = np.random.default_rng(3)
    said = ["boat", "sea", "red", "sail", "dog", "tree", "road", "song"]
    view = collection([Said(" ".join(rng.choice(said, 5)), section=i // 8) for i in range(3000)], noise(3000)).view()
    weighing = Weighing(view, prepare_question(view, "red boat song?"), QuestionVectors(axis(1), axis(1)))
    some, exact = weighing.best(), weighing.of(np.arange(view.n))
    assert (len(some.rows), len(exact.rows)) == (search.FINALISTS, 3000)
    assert len(set(some.rows[:20].tolist()) & set(exact.rows[:20].tolist())) >= 19


@pytest.mark.parametrize("scores", [np.zeros(4, np.float32), np.full(3, 2.5, np.float32)])
def test_a_signal_that_says_the_same_of_all_says_nothing(scores: Any) -> None:
    assert not standard(scores).any()


def test_that_a_text_says_when_is_worth_something_unasked_in_a_conversation_only() -> None:
    def signals(speaker: str) -> dict[str, float]:
        view = collection([Said("The boat was painted yesterday, in two colours.", speaker=speaker)] * 2).view()
        return {name: float(found[0]) for name, found in Weighing(view, prepare_question(view, "Which boat?"), None).best().signals.items()}

    assert (signals("Ann")["when"] > 0, signals("Ann")["number"] > 0) == (True, True)
    assert (signals("")["when"], signals("")["number"]) == (0, 0)


def test_words_count_more_the_more_of_a_catalogue_is_documents() -> None:
    def weight(speakers: list[str]) -> float:
        texts = ["A boat.", "A dog.", "A cat.", "A hen."]
        view = collection([Said(text, at, speaker) for at, (text, speaker) in enumerate(zip(texts, speakers, strict=True))]).view()
        return float(Weighing(view, prepare_question(view, "Which boat?"), None).best().signals["words"].max())

    talk, half, pages = weight(["Ann"] * 4), weight(["Ann", "Ann", "", ""]), weight([""] * 4)
    assert half == pytest.approx((talk + pages) / 2)
    assert pages == pytest.approx(1.5 * talk)
