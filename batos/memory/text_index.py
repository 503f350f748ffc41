"""Text index behind zope.index's interfaces: BM25 over segments in RAM, and zope.index's own. Either can replace the other.

Both rank alike (Okapi BM25: k1 1.2, b 0.75, idf log(1 + N/df); Robertson et al., TREC-4). Both take a question as an OR of its words, and
read no pattern into a question mark. BAT OS uses `SegmentedText`: it writes a batch as one record where zope.index changes a record for
every word.

Windows add the neighbours' words to a chunk, with less weight than its own. The contribution of a term to every chunk is computed at its
first use and cached. So a question whose words were asked before costs one addition a word.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from BTrees import family64
from zope.index.interfaces import IIndexSearch, IInjection, IStatistics
from zope.index.text.interfaces import ILexicon, ILexiconBasedIndex, ISplitter
from zope.index.text.lexicon import Lexicon
from zope.index.text.okapiindex import OkapiIndex
from zope.interface import implementer

from batos.memory.part_log import PartLog
from batos.memory.segments import Array, Entry, Segment, StoredSegment, build, merge
from batos.memory.tokenizer import words

K1, B = 1.2, 0.75
LENT = (1 / 3, 1 / 6)
"""Weight of a word of a neighbour's text, on each side: of the next chunk, and of the chunk after that."""
ROOM = 64 << 20
_ENTRY = 200  # bytes, about, of a term and its arrays without their numbers
_DENSE = 8
"""A term in more than one of this many rows is stored as one number for every row: adding these is faster than picking rows."""


class RankedSegment(NamedTuple):
    """A segment and where its rows stand."""

    segment: Segment
    rows: Array
    """int32: for each row of the segment, its row in the whole index."""
    places: dict[str, int]
    """Term -> index of the term in the segment."""

    @classmethod
    def of(cls, segment: Segment, rows: Array) -> RankedSegment:
        """Return the part, with its terms ready to be looked up."""
        return cls(segment, rows, dict(zip(segment.terms, range(len(segment.terms)), strict=True)))

    def own_lengths(self) -> Array:
        """Return float32: the number of words of each row itself."""
        segment = self.segment
        return np.bincount(segment.rows, segment.counts, len(segment)).astype(np.float32)


class Ranking:
    """Scores of all rows for a question. Immutable except for its cache; any thread may use it."""

    def __init__(
        self, parts: Sequence[RankedSegment], lengths: Array, *, gone: Array | None = None, runs: Array | None = None, room: int = ROOM
    ) -> None:
        """:param lengths: float32[n]: number of each row's own words.
        :param gone: bool[n]: rows that do not count.
        :param runs: int32[n]: adjacent rows with the same number are neighbours. Without it there are no windows.
        :param room: bytes for cached contributions of terms; the oldest terms are dropped first.
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
        """Return BM25 of every row for these terms as float32[n]; 0 if none occurs. A repeated term counts each time."""
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
        """Return float32[n]: the weighted frequency of a term in each row."""
        own = np.zeros(self.size, np.float32)
        for segment, rows, places in self._parts:
            place = places.get(word)
            if place is not None:
                found = slice(segment.starts[place], segment.starts[place + 1])
                own[rows[segment.rows[found]]] = segment.counts[found]
        return self._spread(own)

    def _impact(self, word: str) -> tuple[Array | None, Array]:
        """Return the rows that a term contributes to and its contributions; rows are None if these cover all rows, some with 0."""
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
        """Return each row's value plus the share lent by its neighbours; `own` holds the rows' own values and may be overwritten."""
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


@implementer(ISplitter)
class Words:
    """`words` as the one element of a zope.index lexicon's pipeline."""

    __module__ = "batos.memory"

    def process(self, texts: Iterable[str]) -> list[str]:
        """Return the terms of all the texts."""
        return [word for text in texts for word in words(text)]

    processGlob = process  # a question mark ends a question; it is not a pattern


def lexicon() -> Any:
    """Return a lexicon of zope.index whose pipeline is ours."""
    return Lexicon(Words())


@implementer(IInjection, IIndexSearch, IStatistics, ILexiconBasedIndex)
class SegmentedText(PartLog):
    """The text index in segments (`batos.memory.segments`).

    :param lexicon: an ILexicon; only its pipeline is used, terms are kept as they are.
    """

    __module__ = "batos.memory"
    FAN, MOST = 8, 0x3FFF

    def __init__(self, lexicon: ILexicon = None) -> None:
        super().__init__()
        self.lexicon = lexicon or _lexicon()

    # --- methods for BAT OS

    def add(self, segment: Segment) -> None:
        """Hold a segment's chunks, which are not held yet (else `drop` them first)."""
        for piece in _pieces(segment, self.MOST):
            self._add(StoredSegment(piece))

    def segments(self) -> list[Segment]:
        """Return all live entries as plain arrays, oldest first."""
        loaded = [(part.load(), mask) for part, mask in self._each()]
        return [segment if mask is None else merge([segment], [mask]) for segment, mask in loaded]

    # --- methods of zope.index

    def index_doc(self, docid: int, value: str | list[str]) -> None:
        """Hold a text, instead of the one under that id if there is one."""
        self.index_docs([(docid, value)])

    def index_docs(self, texts: Iterable[tuple[int, str | list[str]]]) -> None:
        """Index many documents at once, in one segment, which makes it fast; then merge segments that are due."""
        entries = {id: Entry(id, self.lexicon.parseTerms(value)) for id, value in texts}
        self.drop(entries.keys() & self._ids())
        self.add(build(entries.values()))
        while self.tidy():
            pass

    def unindex_doc(self, docid: int) -> None:
        """Hold a text no more; nothing happens if there is none of that id."""
        if docid in self._ids():
            self.drop([docid])

    def apply(self, query: str | list[str]) -> Any:
        """Return id -> score (an LFBTree) of all texts that contain a word of the query; None for a query without words."""
        words = self.lexicon.parseTerms(query)
        if not words:
            return None
        ids, ranking = self._ranked()
        scores = ranking.bm25(words)
        rows = np.flatnonzero(scores)
        return family64.IF.BTree(dict(zip(ids[rows].tolist(), scores[rows].tolist(), strict=True)))

    def documentCount(self) -> int:
        """Return the number of indexed texts."""
        return self._ranked()[1].count

    def wordCount(self) -> int:
        """Return the number of different words of the indexed texts."""
        return len(set().union(*(segment.terms for segment in self.segments())))

    # --- internals

    def _merged(self, parts: Sequence[Any], masks: Sequence[Array | None]) -> StoredSegment:
        return StoredSegment(merge([part.load() for part in parts], masks))

    def _ids(self) -> set[int]:
        return set(self._ranked()[0].tolist())

    def _ranked(self) -> tuple[Array, Ranking]:
        """Return the ids of all rows, and their ranking; made anew when parts came or went."""
        now = self._state()
        if getattr(self, "_v_seen", None) != now:
            parts, base = [], 0
            segments = self.segments()
            for segment in segments:
                parts.append(RankedSegment.of(segment, np.arange(base, base + len(segment), dtype=np.int32)))
                base += len(segment)
            ids = np.concatenate([np.empty(0, np.int64), *(segment.ids for segment in segments)])
            lengths = np.concatenate([np.empty(0, np.float32), *(part.own_lengths() for part in parts)])
            self._v_ranked = (ids, Ranking(parts, lengths))
            self._v_seen = now
        ranked: tuple[Array, Ranking] = self._v_ranked
        return ranked


@implementer(IIndexSearch)
class OkapiText(OkapiIndex):
    """zope.index's own Okapi index, with our words and the same face."""

    __module__ = "batos.memory"

    def __init__(self, lexicon: ILexicon = None) -> None:
        super().__init__(lexicon or _lexicon(), family=family64)

    def clear(self) -> None:
        """Remove all texts."""
        super().clear()
        if hasattr(self, "_totaldoclen"):  # the class itself does not reset it
            self._totaldoclen.set(0)

    def index_docs(self, texts: Iterable[tuple[int, str | list[str]]]) -> None:
        """Index many documents at once: like `index_doc`."""
        for id, value in texts:
            self.index_doc(id, value)

    def apply(self, query: str | list[str]) -> Any:
        """Return id -> score of all texts that contain a word of the query; None for a query without words."""
        return self.search(query)


_lexicon = lexicon


def _pieces(segment: Segment, most: int) -> Iterable[Segment]:
    """Return the segment, cut into parts if it has more rows than a part may have."""
    if len(segment) <= most:
        return [segment] if len(segment) else []
    rows = np.arange(len(segment))
    return [merge([segment], [(rows < begin) | (rows >= begin + most)]) for begin in range(0, len(segment), most)]
