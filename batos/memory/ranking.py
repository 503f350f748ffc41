"""BM25 over segments held in RAM, with windows: what stands beside a chunk counts for it, its own words twice.

Scores are those of zope.index's Okapi index over the same words (k1 1.2, b 0.75, idf log(1 + N/df); Robertson et al., TREC-4), and a
question is an OR of its words. What a term gives to every chunk is worked out at its first use and kept: a question whose words
were asked before costs one addition a word.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from batos.memory.segments import Array, Segment

K1, B = 1.2, 0.75
OWN, REACH = 2.0, 2
"""How much a chunk's own words count, and how many neighbours each side lend theirs once."""
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
        return cls(segment, rows, {term: i for i, term in enumerate(segment.terms)})

    def own_lengths(self) -> Array:
        """float32: how many words each row has itself."""
        segment = self.segment
        return np.bincount(segment.rows, segment.counts, len(segment)).astype(np.float32)


class Ranking:
    """The scores of all rows for a question. Immutable but for what it remembers; any thread may ask it."""

    def __init__(
        self, parts: Sequence[Part], lengths: Array, *, gone: Array | None = None, runs: Array | None = None, room: int = 1 << 24
    ) -> None:
        """
        :param lengths: float32[n]: each row's own words.
        :param gone: bool[n]: rows that count for nothing.
        :param runs: int32[n]: which rows are neighbours: those next to one another with the same number. Without it there are no windows.
        :param room: how many numbers to remember; when they are more, all are forgotten.
        """
        self._parts, self._runs, self._room = tuple(parts), runs, room
        self._gone = gone if gone is not None and gone.any() else None
        self.size = len(lengths)
        own = lengths if self._gone is None else np.where(self._gone, np.float32(0), lengths)
        spread = own if runs is None else self._windows(own)
        if self._gone is not None:
            spread = np.where(self._gone, np.float32(0), spread)
        self.count = self.size - (int(self._gone.sum()) if self._gone is not None else 0)
        mean = float(spread.sum(dtype=np.float64)) / max(self.count, 1)
        self._norms = (K1 * (1 - B) + K1 * B / (mean or 1.0) * spread).astype(np.float32)
        self._impacts: dict[str, tuple[Array | None, Array]] = {}
        self._kept = 0

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

    def frequency(self, word: str) -> tuple[Array, Array]:
        """The rows in which a term counts, ascending (int64), and for how much (float32)."""
        own = np.zeros(self.size, np.float32)
        for segment, rows, places in self._parts:
            place = places.get(word)
            if place is not None:
                found = slice(segment.starts[place], segment.starts[place + 1])
                own[rows[segment.rows[found]]] = segment.counts[found]
        if self._gone is not None:
            own[self._gone] = 0
        if self._runs is not None:
            own = self._windows(own)
            if self._gone is not None:
                own[self._gone] = 0
        rows = np.flatnonzero(own)
        return rows, own[rows]

    def best(self, scores: Array, k: int) -> Array:
        """The rows of the `k` best scores above 0, best first; of equal ones the one that came first."""
        rows = np.flatnonzero(scores > 0)
        return rows[np.lexsort((rows, -scores[rows]))[:k]]

    def _impact(self, word: str) -> tuple[Array | None, Array]:
        known = self._impacts.get(word)
        if known is not None:
            return known
        rows, counts = self.frequency(word)
        idf = math.log1p(self.count / len(rows)) if len(rows) else 0.0
        impacts: Array = counts * np.float32(idf * (K1 + 1)) / (counts + self._norms[rows])
        made: tuple[Array | None, Array] = (rows, impacts)
        if len(rows) * _DENSE > self.size:
            dense = np.zeros(self.size, np.float32)
            dense[rows] = impacts
            made = (None, dense)
        self._kept += len(made[1]) * (1 if made[0] is None else 3) + 32
        if self._kept > self._room:
            self._impacts, self._kept = {}, 0
        self._impacts[word] = made
        return made

    def _windows(self, own: Array) -> Array:
        """What each row has with what its neighbours lend it."""
        assert self._runs is not None
        spread: Any = own * np.float32(OWN)
        for step in range(1, REACH + 1):
            same = self._runs[step:] == self._runs[:-step]
            spread[step:] += np.where(same, own[:-step], np.float32(0))
            spread[:-step] += np.where(same, own[step:], np.float32(0))
        return spread  # type: ignore[no-any-return]
