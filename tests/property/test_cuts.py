"""Whatever the text: sentences and chunks hold all of it, in order, each part once, and within their bounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batos.memory.chunking import ChunkLimits, by_meaning, pieces, sentences

KINDS = st.sampled_from(["text", "markdown", "code", "conversation", "html", "pdf"])
MARKS = ["\n", "\n\n", ". ", "! ", "Dr. ", "# ", "- ", "1. ", "| a | b |\n", "```\n", "---\n", "\t", "    ", "> ", "。", "?”", "A", "b "]
ODD = ["\r\n", "\u2028", "\x00", "\ufeff", "é", "e\u0301"]
TEXTS = st.lists(st.one_of(st.sampled_from(MARKS), st.sampled_from(ODD), st.text(max_size=12)), max_size=60).map("".join)


def check(text: str, spans: list[tuple[int, int]]) -> None:
    at = 0
    for start, end in spans:
        assert not text[at:start].strip()
        assert text[start:end].strip() == text[start:end] != ""
        at = end
    assert not text[at:].strip()


@given(TEXTS, KINDS, st.integers(2, 80))
def test_sentences_hold_everything_once(text: str, kind: str, longest: int) -> None:
    spans = sentences(text, kind, longest)
    check(text, spans)
    assert all(end - start <= longest for start, end in spans)


@given(TEXTS, KINDS, st.integers(0, 60), st.integers(60, 200), st.integers(0, 2**32 - 1))
def test_chunks_hold_everything_once(text: str, kind: str, smallest: int, largest: int, seed: int) -> None:
    limits = ChunkLimits(smallest, largest)
    spans = sentences(text, kind, largest)
    vectors = np.random.default_rng(seed).normal(size=(len(spans), 8)).astype(np.float32)
    found = by_meaning(text, kind, spans, vectors, limits)
    check(text, [(piece.start, piece.end) for piece in found])
    check(text, [(piece.start, piece.end) for piece in pieces(text, kind, limits)])
    starts, ends = {start for start, _ in spans}, {end for _, end in spans}
    assert all(piece.start in starts and piece.end in ends for piece in found)
