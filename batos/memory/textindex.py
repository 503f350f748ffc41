"""The text index behind zope.index's interfaces, twice: in segments, and zope.index's own. Either can stand in for the other.

Both rank alike (Okapi BM25), take a question as an OR of its words, and read no pattern into a question mark. BAT OS uses
`SegmentedText`: it writes a batch as one record where zope.index changes a record for every word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from BTrees import family64
from zope.index.interfaces import IIndexSearch, IInjection, IStatistics
from zope.index.text.interfaces import ILexicon, ILexiconBasedIndex, ISplitter
from zope.index.text.lexicon import Lexicon
from zope.index.text.okapiindex import OkapiIndex
from zope.interface import implementer

from batos.memory.partlog import PartLog
from batos.memory.ranking import Part, Ranking
from batos.memory.segments import Array, Entry, Segment, StoredSegment, build, merge
from batos.memory.words import words


@implementer(ISplitter)
class Words:
    """`words` as the one element of a zope.index lexicon's pipeline."""

    __module__ = "batos.memory"

    def process(self, texts: Iterable[str]) -> list[str]:
        """The terms of all the texts."""
        return [word for text in texts for word in words(text)]

    processGlob = process  # a question mark ends a question; it is no pattern


def lexicon() -> Any:
    """A lexicon of zope.index whose pipeline is ours."""
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

    # --- as BAT OS uses it

    def add(self, segment: Segment) -> None:
        """Hold a segment's chunks, which are not held yet (else `drop` them first)."""
        for piece in _pieces(segment, self.MOST):
            self._add(StoredSegment(piece))

    def segments(self) -> list[Segment]:
        """All that is held, as plain arrays, oldest first, without what was dropped."""
        loaded = [(part.load(), mask) for part, mask in self._each()]
        return [segment if mask is None else merge([segment], [mask]) for segment, mask in loaded]

    # --- as zope.index has it

    def index_doc(self, docid: int, value: str | list[str]) -> None:
        """Hold a text, instead of the one under that id if there is one."""
        self.index_docs([(docid, value)])

    def index_docs(self, texts: Iterable[tuple[int, str | list[str]]]) -> None:
        """As `index_doc` for many at once: one segment, which is what makes it quick. Merges what is due."""
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
        """Id -> score (an LFBTree) of all texts that hold a word of the query; None for a query without any."""
        words = self.lexicon.parseTerms(query)
        if not words:
            return None
        ids, ranking = self._ranked()
        scores = ranking.bm25(words)
        rows = np.flatnonzero(scores)
        return family64.IF.BTree(dict(zip(ids[rows].tolist(), scores[rows].tolist(), strict=True)))

    def documentCount(self) -> int:
        """Texts that are held."""
        return self._ranked()[1].count

    def wordCount(self) -> int:
        """Different words of the texts that are held."""
        return len(set().union(*(segment.terms for segment in self.segments())))

    # --- inside

    def _merged(self, parts: Sequence[Any], masks: Sequence[Array | None]) -> StoredSegment:
        return StoredSegment(merge([part.load() for part in parts], masks))

    def _ids(self) -> set[int]:
        return set(self._ranked()[0].tolist())

    def _ranked(self) -> tuple[Array, Ranking]:
        """The ids of all rows, and their ranking; made anew when parts came or went."""
        now = self._state()
        if getattr(self, "_v_seen", None) != now:
            parts, base = [], 0
            segments = self.segments()
            for segment in segments:
                parts.append(Part.of(segment, np.arange(base, base + len(segment), dtype=np.int32)))
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
        """Hold nothing any more."""
        super().clear()
        if hasattr(self, "_totaldoclen"):  # which the class itself forgets to set back
            self._totaldoclen.set(0)

    def index_docs(self, texts: Iterable[tuple[int, str | list[str]]]) -> None:
        """As `index_doc` for many at once."""
        for id, value in texts:
            self.index_doc(id, value)

    def apply(self, query: str | list[str]) -> Any:
        """Id -> score of all texts that hold a word of the query; None for a query without any."""
        return self.search(query)


_lexicon = lexicon


def _pieces(segment: Segment, most: int) -> Iterable[Segment]:
    """The segment, cut where it has more rows than the largest part may have."""
    if len(segment) <= most:
        return [segment] if len(segment) else []
    rows = np.arange(len(segment))
    return [merge([segment], [(rows < begin) | (rows >= begin + most)]) for begin in range(0, len(segment), most)]
