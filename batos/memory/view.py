"""A view of the collection: what one search sees, while others are added and dropped. Any thread may read it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from batos.memory.segments import Array

if TYPE_CHECKING:
    from batos.memory.collection import Collection

_SAMPLE = 128
"""Rows from which mean and deviation of a signal are taken that is not worked out for all."""
_BUCKETS = 1 << 16
_HALF = np.float32(0.5)


class Speakers:
    """Who speaks: asked whether a key is among them. Much cheaper to make than a set of them."""

    def __init__(self, keys: Array) -> None:
        """
        :param keys: uint32[n]: of each row, 0 for nobody.
        """
        self.keys = keys
        self._buckets = np.zeros(_BUCKETS, bool)
        self._buckets[keys & (_BUCKETS - 1)] = True

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and bool(self._buckets[key & (_BUCKETS - 1)]) and bool((self.keys == key).any())


class Beside(NamedTuple):
    """What stands beside some rows."""

    around: Array
    """float32[m, d]: unit vectors of a row with half of each neighbour's."""
    previous: Array
    """float32[m, d]: half of the vector of the row before; zeros where there is none."""
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
        self.facts: Array = collection._facts[:n]
        """FACTS (`batos.memory.segments`) of each row."""
        self.ids: Array = self.facts["id"]
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
    def starts(self) -> Array:
        """int64: the rows with which a run of neighbours begins, ascending; the first is 0. For `np.add.reduceat` and the like."""
        return np.flatnonzero(np.diff(self.runs, prepend=-1)) if self.n else np.empty(0, np.int64)

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
    def speakers(self) -> Speakers:
        """Who speaks."""
        return Speakers(np.ascontiguousarray(self.facts["speaker"]))

    @functools.cached_property
    def span(self) -> tuple[int, int] | None:
        """The first and the last day that anything is from."""
        known = self.days[self.days > 0]
        return (int(known.min()), int(known.max())) if len(known) else None

    @functools.cached_property
    def talk(self) -> float:
        """Share of the rows that somebody says; 0 to 1."""
        return float((self.speakers.keys > 0).mean()) if self.n else 0.0

    @functools.cached_property
    def sampled(self) -> tuple[Array, Array]:
        """float32[m, d], twice: vectors of some rows, and with what stands beside them: they show what is usual."""
        known = np.flatnonzero(self.has & ~self.gone)
        rows = known[:: max(1, len(known) // _SAMPLE)]
        return self.matrix[rows], self.beside(rows).around

    def beside(self, rows: Array) -> Beside:
        """What stands beside some rows: neighbours of a run, as far as they have vectors and are not gone."""
        before, after = np.maximum(rows - 1, 0), np.minimum(rows + 1, self.n - 1)
        first = (self.runs[rows] != self.runs[before]) | (rows == 0) | self.gone[before] | ~self.has[before]
        last = (self.runs[rows] != self.runs[after]) | (rows == self.n - 1) | self.gone[after] | ~self.has[after]
        around, previous, following = self.matrix[rows], self.matrix[before], self.matrix[after]
        previous *= np.where(first, np.float32(0), _HALF)[:, None]
        following *= np.where(last, np.float32(0), _HALF)[:, None]
        around += previous
        around += following
        lengths = np.sqrt(np.einsum("ij,ij->i", around, around))
        around /= np.maximum(lengths, np.float32(1e-6))[:, None]
        return Beside(around, previous, self.facts["flags"][before], first)

    @functools.cached_property
    def links(self) -> Array:
        """int64[m, 2]: (row, number of a document that it points at), ascending; the document need not be there any more."""
        if not self._pairs:
            return np.empty((0, 2), np.int64)
        pairs = np.concatenate(self._pairs)
        pairs[:, 0] = self.rows_of(pairs[:, 0])
        return np.unique(pairs[pairs[:, 0] >= 0], axis=0)
