"""A view of the collection: what one search sees, while others are added and dropped. Any thread may read it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from batos.memory.segments import SPOKEN, Array

if TYPE_CHECKING:
    from batos.memory.collection import Collection

_SAMPLE = 128
"""Rows from which mean and deviation of a signal are taken that is not worked out for all."""


class Beside(NamedTuple):
    """What stands beside some rows."""

    around: Array
    """float32[m, d]: a row's vector twice and each neighbour's once, not brought to one length."""
    lengths: Array
    """float32[m]: how long those are."""
    flags: Array
    """Of the row before."""
    first: Array
    """bool: whether there is none."""


class View:
    """What one search sees. Arrays have `n` rows and are for reading.

    Rows of one section stand together, in order; a section that grew after it was loaded goes on further down.
    """

    def __init__(self, collection: Collection) -> None:
        n = collection.size
        self.n = n
        self.read = collection.read
        """How many rows are of documents that were read, at most; the others are of missions."""
        self.facts: Array = collection._facts[:n]
        """FACTS (`batos.memory.segments`) of each row."""
        self.ids: Array = self.facts["id"]
        self.told: Array = collection._told[:n]
        """uint16[n]: their lengths, one after the other in memory."""
        self.looks: Array = collection._looks[:n]
        """uint16[n]: their flags, and SPOKEN for those that somebody says."""
        self.speakers: frozenset[int] = collection._speakers
        """Keys (`speaker_key`) of those who speak, or did."""
        self.gone: Array = collection._gone[:n]
        """bool: rows that no search may return; their vectors are there still."""
        self.matrix: Array = collection._matrix[:n]
        """float32[n, d]: unit vectors; zeros where none has come yet. d is 0 as long as there is none at all."""
        self.has: Array = collection._has[:n]
        """bool: which rows have their vector. Vectors that come meanwhile are seen."""
        self.maker = collection.maker
        """Who made them: a question must be read by the same."""
        self._rows, self._ranking, self._pairs = collection._rows, collection._ranked(), tuple(collection._links)
        self.runs: Array = collection._runs[:n]
        """int32: the run of neighbours that each row is in, counted from 0."""

    def bm25(self, words: Iterable[str]) -> Array:
        """float32[n]: BM25 of every row with its window for these terms (`words(question)`); 0 where none occurs."""
        return self._ranking.bm25(words)

    def row_of(self, id: int) -> int | None:
        """The row of a chunk; None if this view has none of that id."""
        row = int(self.rows_of(np.array([id], np.int64))[0])
        return None if row < 0 else row

    def rows_of(self, ids: Array) -> Array:
        """int64: the rows of these chunks, -1 for those that this view does not have."""
        rows = self._rows.find(ids)
        here = (rows >= 0) & (rows < self.n)
        here[here] = ~self.gone[rows[here]]
        return np.where(here, rows, -1)

    # --- what many questions ask of one view, worked out once

    @functools.cached_property
    def begins(self) -> Array:
        """bool[n + 1]: whether a run of neighbours begins with a row; True after the last."""
        begins = np.ones(self.n + 1, bool)
        np.not_equal(self.runs[1:], self.runs[:-1], out=begins[1:-1])
        return begins

    @functools.cached_property
    def starts(self) -> Array:
        """int64: the rows with which a run of neighbours begins, ascending; the first is 0. For `np.add.reduceat` and the like."""
        return np.flatnonzero(self.begins[:-1])

    @functools.cached_property
    def sizes(self) -> Array:
        """int64: how many rows each run of neighbours has."""
        return np.diff(self.starts, append=self.n)

    @functools.cached_property
    def documents(self) -> Array:
        """int64[n]: the numbers of their documents, one after the other in memory."""
        return np.ascontiguousarray(self.facts["document"])

    @functools.cached_property
    def days(self) -> Array:
        """int32[n]: the days that they are from, 0 for none."""
        return np.ascontiguousarray(self.facts["day"])

    @functools.cached_property
    def spoken(self) -> Array:
        """uint32[n]: keys of who says them, 0 for nobody."""
        return np.ascontiguousarray(self.facts["speaker"])

    @functools.cached_property
    def span(self) -> tuple[int, int] | None:
        """The first and the last day that anything is from."""
        known = self.days[self.days > 0]
        return (int(known.min()), int(known.max())) if len(known) else None

    @functools.cached_property
    def talk(self) -> float:
        """Share of the rows that somebody says; 0 to 1."""
        return float((self.looks >= SPOKEN).mean()) if self.n else 0.0

    @functools.cached_property
    def masked(self) -> bool:
        """Whether any row is gone."""
        return bool(self.gone.any())

    def known(self) -> Array:
        """bool[n]: the rows that may be returned and have their vector by now."""
        return self.has & ~self.gone if self.masked else self.has

    @functools.cached_property
    def sampled(self) -> Array:
        """float32[2 m, d]: unit vectors of some rows, then those with what stands beside them: they show what is usual."""
        known = np.flatnonzero(self.known())
        rows = known[:: max(1, len(known) // _SAMPLE)]
        beside = self.beside(rows)
        return np.concatenate([self.matrix[rows], beside.around / beside.lengths[:, None]])

    def beside(self, rows: Array) -> Beside:
        """What stands beside some rows: neighbours of a run, as far as they have vectors and are not gone."""
        before, after = np.maximum(rows - 1, 0), np.minimum(rows + 1, self.n - 1)
        first, last = self.begins.take(rows), self.begins.take(rows + 1)
        known = self.known()
        if not known.all():
            first |= ~known.take(before)
            last |= ~known.take(after)
        around = self.matrix.take(rows, 0)
        around += around
        for beside, none in ((before, first), (after, last)):
            theirs = self.matrix.take(beside, 0)
            theirs[none] = 0
            around += theirs
        lengths = np.maximum(np.sqrt(np.vecdot(around, around)), np.float32(1e-6))
        return Beside(around, lengths, self.looks.take(before), first)

    @functools.cached_property
    def links(self) -> Array:
        """int64[m, 2]: (row, number of a document that it points at), ascending; the document need not be there any more."""
        if not self._pairs:
            return np.empty((0, 2), np.int64)
        pairs = np.concatenate(self._pairs)
        pairs[:, 0] = self.rows_of(pairs[:, 0])
        return np.unique(pairs[pairs[:, 0] >= 0], axis=0)
