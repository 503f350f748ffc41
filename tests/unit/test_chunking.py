"""Where documents are cut: exactness of the cuts, bounds, structure, and what is known before there are vectors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from batos.memory.chunking import ChunkLimits, Piece, boundaries, by_meaning, pieces, prices, profiles, sentences

Matrix = np.ndarray


def topics(sizes: list[int], noise: float = 0.5, seed: int = 0) -> Matrix:
    """Unit vectors round one centre for each topic."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.normal(size=(len(sizes), 32)), sizes, axis=0) + noise * rng.normal(size=(sum(sizes), 32))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def cost(vectors: Matrix, starts: tuple[int, ...], beta: float) -> float:
    """What `boundaries` makes least, computed plainly."""
    rows = profiles(vectors)

    def scatter(part: Matrix) -> float:
        return float(((part - part.mean(axis=0)) ** 2).sum())

    ends = [*starts[1:], len(rows)]
    return sum(scatter(rows[a:b]) for a, b in zip(starts, ends, strict=True)) + (len(starts) - 1) * beta * scatter(rows) / len(rows)


def test_topics_are_found() -> None:
    assert boundaries(topics([4, 6, 3, 8, 5]), [100] * 26) == [0, 4, 10, 13, 21]


@pytest.mark.parametrize("seed", range(4))
def test_the_cuts_are_the_best_of_all(seed: int) -> None:
    vectors = topics([3, 2, 4], noise=1.5, seed=seed)
    every = [(0, *rest) for n in range(9) for rest in itertools.combinations(range(1, 9), n)]
    assert tuple(boundaries(vectors, [1] * 9, beta=1.2)) == min(every, key=lambda starts: cost(vectors, starts, 1.2))


@pytest.mark.parametrize("n", [5, 31, 33, 60])
def test_profiles_are_apart_as_their_similarities_to_all_sentences_are(n: int) -> None:
    """Fewer sentences than dimensions, and more."""
    vectors = topics([n], noise=2.0).astype(np.float64)
    centred = vectors - vectors.mean(axis=0)
    similar = centred @ centred.T
    distances = [np.linalg.norm(rows[:, None] - rows[None], axis=2) for rows in (profiles(vectors), similar)]
    assert distances[0] == pytest.approx(distances[1], rel=1e-4, abs=1e-4)


def test_a_higher_price_makes_fewer_cuts() -> None:
    vectors = topics([5, 5, 5, 5], noise=1.5)
    counts = [len(boundaries(vectors, [1] * 20, beta=beta)) for beta in (0.1, 1.0, 1.6, 100.0)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 1


def test_bounds_hold_where_they_can() -> None:
    vectors = topics([2, 12, 2, 4])
    starts = boundaries(vectors, [100] * 20, smallest=300, largest=600)
    sizes = [b - a for a, b in itertools.pairwise([*starts, 20])]
    assert min(sizes) >= 3
    assert max(sizes) <= 6


def test_bounds_give_way_where_they_cannot_hold() -> None:
    assert boundaries(topics([1]), [50], smallest=300, largest=600) == [0]
    assert boundaries(topics([3]), [50, 5000, 50], largest=600) == [0, 1, 2]
    assert boundaries(np.empty((0, 8), np.float32), []) == []


def test_vectors_that_are_all_alike_are_one_segment() -> None:
    assert boundaries(np.tile(topics([1]), (30, 1)), [10] * 30) == [0]


def test_chunks_have_the_direction_of_their_sentences() -> None:
    text = "One about cats. Two about cats. Three about cars. Four about cars."
    spans = sentences(text)
    vectors = topics([2, 2], noise=0.1)
    first, second = by_meaning(text, "text", spans, vectors, ChunkLimits(smallest=10))
    assert (text[first.start : first.end], text[second.start : second.end]) == (text[:31], text[32:])
    for piece, rows in ((first, vectors[:2]), (second, vectors[2:])):
        assert piece.vector.dtype == np.float32
        assert np.linalg.norm(piece.vector) == pytest.approx(1, abs=1e-6)
        assert piece.vector == pytest.approx(rows.sum(axis=0) / np.linalg.norm(rows.sum(axis=0)), abs=1e-6)


def test_sentences_that_cancel_each_other_out_still_give_a_vector() -> None:
    up = topics([1])
    (piece,) = by_meaning("A. B.", "text", [(0, 2), (3, 5)], np.concatenate([up, -up]), ChunkLimits())
    assert np.linalg.norm(piece.vector) == pytest.approx(1, abs=1e-6)


def test_a_heading_stays_with_what_it_stands_above() -> None:
    text = "\n\n".join(f"## Part {i}\n\n### Deeper\n\n" + "Some words are said here. " * 9 for i in range(6))
    spans = sentences(text, "markdown")
    assert prices(text, "markdown", spans)[:3] == [0.25, 1.0, 1e3]
    random = topics([1] * len(spans), seed=3)
    for found in (pieces(text, "markdown", ChunkLimits()), by_meaning(text, "markdown", spans, random, ChunkLimits())):
        ends = [text[p.start : p.end].rstrip().rsplit("\n", 1)[-1] for p in found]
        assert [end for end in ends if end.startswith("#")] == []
        assert all(text[p.start : p.end].startswith("## ") for p in found)


def test_paragraphs_are_cut_rather_than_sentences() -> None:
    text = "\n\n".join(" ".join(["This is a sentence of some length, one of many."] * 5) for _ in range(8))
    assert all(p.end == len(text) or text[p.end : p.end + 2] == "\n\n" for p in pieces(text, "text", ChunkLimits(largest=600)))


def test_turns_of_a_conversation_stay_apart() -> None:
    text = "Ann: Hi.\nBob: Hi. " + "long " * 300 + "\nAnn: Bye."
    spans = sentences(text, "conversation", 1000)
    assert [(p.start, p.end) for p in pieces(text, "conversation", ChunkLimits(largest=1000))] == spans
    assert [(p.start, p.end) for p in by_meaning(text, "conversation", spans, topics([1] * len(spans)), ChunkLimits())] == spans


def test_nothing() -> None:
    assert pieces(" \n", "text", ChunkLimits()) == []
    assert by_meaning("", "text", [], np.empty((0, 8), np.float32), ChunkLimits()) == []


def test_provisional_pieces_have_no_vector() -> None:
    assert pieces("Some text.", "text", ChunkLimits()) == [Piece(0, 10, None)]
