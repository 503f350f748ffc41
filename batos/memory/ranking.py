"""BM25 over segments held in RAM, with windows: what stands beside a chunk counts for it, less than its own words.

Scores are those of zope.index's Okapi index over the same words (k1 1.2, b 0.75, idf log(1 + N/df); Robertson et al., TREC-4), and a
question is an OR of its words. What a term gives to every chunk is worked out at its first use and kept: a question whose words
were asked before costs one addition a word.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from batos.memory.segments import Array, Segment

K1, B = 1.2, 0.75
LENT = (1 / 3, 1 / 6)
"""How much a word counts in a chunk that its neighbour says, each side, and the one after that."""
ROOM = 64 << 20
_ENTRY = 200  # bytes, about, of a term and its arrays without their numbers
_DENSE = 8
"""A term in more than one row of so many is kept as one number for every row: adding that is quicker than picking rows."""


class Part(NamedTuple):
    """A segment and where its rows stand."""

    segment: Segment
    rows: Array
    """int32: for each row of the segment its row among all."""
    places: dict[str, int]
    """Term -> its place in the segment."""

    @classmethod
    def of(cls, segment: Segment, rows: Array) -> Part:
        """The part, with its terms ready to be looked up."""
        return cls(segment, rows, dict(zip(segment.terms, range(len(segment.terms)), strict=True)))

    def own_lengths(self) -> Array:
        """float32: how many words each row has itself."""
        segment = self.segment
        return np.bincount(segment.rows, segment.counts, len(segment)).astype(np.float32)


class Ranking:
    """The scores of all rows for a question. Immutable but for what it remembers; any thread may ask it."""

    def __init__(
        self, parts: Sequence[Part], lengths: Array, *, gone: Array | None = None, runs: Array | None = None, room: int = ROOM
    ) -> None:
        """
        :param lengths: float32[n]: each row's own words.
        :param gone: bool[n]: rows that count for nothing.
        :param runs: int32[n]: which rows are neighbours: those next to one another with the same number. Without it there are no windows.
        :param room: bytes for what terms gave; the terms that were asked for first are forgotten first.
        """
        self._parts, self._room = tuple(parts), room
        self._gone = gone if gone is not None and gone.any() else None
        self._same = [] if runs is None else [(runs[step:] == runs[:-step]) * np.float32(lent) for step, lent in enumerate(LENT, 1)]
        self.size = len(lengths)
        self.count = self.size - (int(self._gone.sum()) if self._gone is not None else 0)
        spread = self._spread(lengths.copy())
        mean = float(spread.sum(dtype=np.float64)) / max(self.count, 1)
        self._norms = (K1 * (1 - B) + K1 * B / (mean or 1.0) * spread).astype(np.float32)
        self._impacts: dict[str, tuple[Array | None, Array]] = {}
        self._kept, self._lock = 0, threading.Lock()

    def bm25(self, words: Iterable[str]) -> Array:
        """float32[n]: the score of every row for these terms; 0 where none occurs. A term that is there twice counts twice."""
        scores = np.zeros(self.size, np.float32)
        for word, times in Counter(words).items():
            rows, impacts = self._impact(word)
            if times > 1:
                impacts = impacts * np.float32(times)
            if rows is None:
                scores += impacts
            else:
                scores[rows] += impacts
        return scores

    def frequency(self, word: str) -> Array:
        """float32[n]: how often a term counts in each row."""
        own = np.zeros(self.size, np.float32)
        for segment, rows, places in self._parts:
            place = places.get(word)
            if place is not None:
                found = slice(segment.starts[place], segment.starts[place + 1])
                own[rows[segment.rows[found]]] = segment.counts[found]
        return self._spread(own)

    def _impact(self, word: str) -> tuple[Array | None, Array]:
        """What a term gives, and to which rows; None: to all, some of it 0."""
        known = self._impacts.get(word)
        if known is not None:
            return known
        counts = self.frequency(word)
        there = counts != 0
        held = int(np.count_nonzero(there))
        factor = np.float32(math.log1p(self.count / held) * (K1 + 1)) if held else np.float32(0)
        if held * _DENSE > self.size:
            made: tuple[Array | None, Array] = (None, counts * factor / (counts + self._norms))
        else:
            rows = np.flatnonzero(there)
            made = (rows, counts[rows] * factor / (counts[rows] + self._norms[rows]))
        with self._lock:
            if word not in self._impacts:
                self._impacts[word] = made
                self._kept += _bytes(made)
            while self._kept > self._room:
                self._kept -= _bytes(self._impacts.pop(next(iter(self._impacts))))
        return made

    def _spread(self, own: Array) -> Array:
        """What each row has with what its neighbours lend it, given what each has itself (which may be written to)."""
        if self._gone is not None:
            own[self._gone] = 0
        if not self._same:
            return own
        spread: Array = own.copy()
        lent = np.empty_like(own)
        for step, same in enumerate(self._same, 1):
            spread[step:] += np.multiply(own[:-step], same, out=lent[step:])
            spread[:-step] += np.multiply(own[step:], same, out=lent[step:])
        if self._gone is not None:
            spread[self._gone] = 0
        return spread


def _bytes(impacts: tuple[Array | None, Array]) -> int:
    rows, values = impacts
    return _ENTRY + values.nbytes + (rows.nbytes if rows is not None else 0)
