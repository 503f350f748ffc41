"""Searching: filters, texts that say the same, and what is told of each hit."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from batos.memory.search import Filters, QuestionVectors, prepare_question, search
from batos.memory.segments import speaker_key
from tests.support.search import Said, axis, collection, noise

TALK = [
    Said("I sold the boat.", 1, "Ann", date(2023, 5, 1), document=1),
    Said("The boat is blue.", 2, "Ben", date(2023, 6, 1), document=1),
    Said("A boat for everyone.", 3, document=2),
    Said("Dogs are here.", 4, "Ann", date(2023, 7, 1), document=2),
]


def ids(filters: Filters | None = None, text: str = "Which boat?", k: int = 10) -> list[int]:
    view = collection(TALK).view()
    return sorted(hit.id for hit in search(view, prepare_question(view, text), None, k, filters=filters).hits)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (None, [0, 1, 2, 3]),
        (Filters(), [0, 1, 2, 3]),
        (Filters(documents={2}), [2, 3]),
        (Filters(documents=set()), []),
        (Filters(since=date(2023, 6, 1).toordinal()), [1, 3]),
        (Filters(until=date(2023, 6, 1).toordinal()), [0, 1]),
        (Filters(speakers=(speaker_key("ann"),)), [0, 3]),
        (Filters(speakers=(speaker_key("Ann"),), documents={1}), [0]),
    ],
)
def test_filters(filters: Filters | None, found: list[int]) -> None:
    assert ids(filters) == found


def test_no_more_than_asked_for_and_the_best_first() -> None:
    view = collection(TALK).view()
    found = search(view, prepare_question(view, "Who sold the boat?"), None, 2)
    assert len(found.hits) == 2
    assert found.hits[0].id == 0
    assert found.hits[0].score >= found.hits[1].score
    assert found.hits[0].signals["words"] > 0
    assert not found.by_vectors


def test_what_says_the_same_is_told_once() -> None:
    chunks = [Said("The boat is blue.", i) for i in range(3)] + [Said("The boat is green.", 3)]
    view = collection(chunks, np.stack([axis(1), axis(1), axis(1), axis(2)])).view()
    found = search(view, prepare_question(view, "The boat?"), QuestionVectors(axis(1), axis(1)), 4)
    assert [hit.id for hit in found.hits] == [0, 3]
    assert found.by_vectors


def test_a_view_is_searched_as_it_was_while_chunks_come_and_go() -> None:
    made = collection(TALK, noise(4))
    view = made.view()
    question = prepare_question(view, "Which boat?")
    before = search(view, question, QuestionVectors(axis(1), axis(1)), 4)
    made.drop([0])
    assert search(view, question, QuestionVectors(axis(1), axis(1)), 4) == before
    assert 0 not in [hit.id for hit in search(made.view(), question, QuestionVectors(axis(1), axis(1)), 4).hits]


@pytest.mark.parametrize("vectors", [False, True])
def test_what_was_dropped_has_no_part_in_the_scores(vectors: bool) -> None:
    """They are those of a collection that never had it: so all kernels on an image find the same, whatever each has seen come and go."""
    kept = [Said(f"The {what} is for sale, and the boat is {what}.", n, document=n) for n, what in enumerate(("blue", "old", "long"))]
    gone = [Said(f"A boat, a boat and {n} boats: the boat is sold.", n, document=n) for n in range(3, 12)]
    among = noise(12)
    with_dropped = collection([*kept, *gone], among if vectors else None)
    with_dropped.drop(list(range(3, 12)))
    asked = QuestionVectors(axis(1), axis(1)) if vectors else None
    found = []
    for made in (with_dropped, collection(kept, among[:3] if vectors else None)):
        view = made.view()
        found.append([(hit.id, hit.score) for hit in search(view, prepare_question(view, "Which boat is old?"), asked, 3).hits])
    assert [id for id, _ in found[0]] == [id for id, _ in found[1]]
    assert [score for _, score in found[0]] == pytest.approx([score for _, score in found[1]], abs=1e-3)
