"""Search index: the collection that searches see, in RAM, as arrays in which row i describes the same chunk everywhere.

Commits append rows; drops mask them. A search takes a `View`, which stays as it is while rows are added and dropped. Arrays only grow
beyond the rows that a view can see, and arrays that must change are replaced. Any thread may call it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from batos.memory.embedders import Maker
from batos.memory.segments import FACTS, LIVED, SPOKEN, Array, Segment, build, merge, widen
from batos.memory.text_index import ROOM, RankedSegment, Ranking

if TYPE_CHECKING:
    from batos.memory.part_log import VectorLog
    from batos.memory.text_index import SegmentedText

_SAMPLE = 128
"""Number of sampled rows that give mean and deviation of a signal which is not computed for all rows."""


class Beside(NamedTuple):
    """Context of some rows."""

    around: Array
    """float32[m, d]: twice the row's vector plus the vector of each neighbour, not normalised."""
    lengths: Array
    """float32[m]: lengths of the vectors in `around`."""
    flags: Array
    """Flags of the row before."""
    first: Array
    """bool: True if there is no row before."""


class View:
    """Immutable view for one search. Arrays have `n` rows and are read only.

    Rows of one section are adjacent and in order; a section that grew after it was loaded continues further down.
    """

    def __init__(self, collection: Collection) -> None:
        n = collection.size
        self.n = n
        self.read = collection.read
        """Upper bound of the number of rows from documents; the others are rows of missions."""
        self.facts: Array = collection._facts[:n]
        """FACTS (`batos.memory.segments`) of each row."""
        self.ids: Array = self.facts["id"]
        self.told: Array = collection._told[:n]
        """uint16[n]: lengths of the rows, contiguous in memory."""
        self.looks: Array = collection._looks[:n]
        """uint16[n]: flags of the rows, with SPOKEN for rows that have a speaker."""
        self.speakers: frozenset[int] = collection._speakers
        """Keys (`speaker_key`) of all present and former speakers."""
        self.gone: Array = collection._gone[:n]
        """bool: True for rows that no search may return; their vectors are still there."""
        self.matrix: Array = collection._matrix[:n]
        """float32[n, d]: unit vectors, zeros for rows without a vector. d is 0 until the first vector is there."""
        self.has: Array = collection._has[:n]
        """bool: True for rows with a vector. Later vectors become visible."""
        self.maker = collection.maker
        """The embedder of the vectors: it must embed the question as well."""
        self._rows, self._ranking, self._pairs = collection._rows, collection._ranked(), tuple(collection._links)
        self.runs: Array = collection._runs[:n]
        """int32: number of the run of neighbours of each row, from 0."""

    def bm25(self, words: Iterable[str]) -> Array:
        """Return BM25 of every row with its window for these terms (`words(question)`) as float32[n]; 0 if none occurs."""
        return self._ranking.bm25(words)

    def row_of(self, id: int) -> int | None:
        """Return the row of a chunk; None if this view has none of that id."""
        row = int(self.rows_of(np.array([id], np.int64))[0])
        return None if row < 0 else row

    def rows_of(self, ids: Array) -> Array:
        """Return the rows of these chunks as int64; -1 for chunks that this view does not hold."""
        rows = self._rows.find(ids)
        here = (rows >= 0) & (rows < self.n)
        here[here] = ~self.gone[rows[here]]
        return np.where(here, rows, -1)

    # --- values for many searches of one view, computed once

    @functools.cached_property
    def begins(self) -> Array:
        """Return bool[n + 1]: True for rows that start a run of neighbours; the last entry is True."""
        begins = np.ones(self.n + 1, bool)
        np.not_equal(self.runs[1:], self.runs[:-1], out=begins[1:-1])
        return begins

    @functools.cached_property
    def starts(self) -> Array:
        """Return int64: the first rows of the runs of neighbours, ascending from 0, as `np.add.reduceat` takes them."""
        return np.flatnonzero(self.begins[:-1])

    @functools.cached_property
    def sizes(self) -> Array:
        """Return int64: the number of rows of each run of neighbours."""
        return np.diff(self.starts, append=self.n)

    @functools.cached_property
    def documents(self) -> Array:
        """Return int64[n]: numbers of the rows' documents, contiguous in memory."""
        return np.ascontiguousarray(self.facts["document"])

    @functools.cached_property
    def days(self) -> Array:
        """Return int32[n]: days of the rows; 0 for none."""
        return np.ascontiguousarray(self.facts["day"])

    @functools.cached_property
    def spoken(self) -> Array:
        """Return the keys of the rows' speakers (uint32[n]), 0 for none."""
        return np.ascontiguousarray(self.facts["speaker"])

    @functools.cached_property
    def span(self) -> tuple[int, int] | None:
        """Return the first and the last day that anything is from."""
        known = self.days[self.days > 0]
        return (int(known.min()), int(known.max())) if len(known) else None

    @functools.cached_property
    def talk(self) -> float:
        """Return the share of the rows that have a speaker; 0 to 1. Dropped rows do not count."""
        looks = self.looks[~self.gone] if self.masked else self.looks
        return float((looks >= SPOKEN).mean()) if len(looks) else 0.0

    @functools.cached_property
    def masked(self) -> bool:
        """Return True if any row is dropped."""
        return bool(self.gone.any())

    @functools.cached_property
    def counted(self) -> Array | None:
        """Return float32[n]: 1 for each row that counts, 0 for a dropped one; None if none is dropped."""
        return (~self.gone).astype(np.float32) if self.masked else None

    @functools.cached_property
    def counts(self) -> Array:
        """Return the number of rows of each run of neighbours that count (`counted`)."""
        return self.sizes if self.counted is None else np.add.reduceat(self.counted, self.starts)

    def known(self) -> Array:
        """Return bool[n]: True for rows that may be returned and have a vector."""
        return self.has & ~self.gone if self.masked else self.has

    @functools.cached_property
    def sampled(self) -> Array:
        """Return a sample of unit vectors (float32[2 m, d]): of some rows, then of their contexts. They show usual similarities."""
        known = np.flatnonzero(self.known())
        rows = known[:: max(1, len(known) // _SAMPLE)]
        beside = self.beside(rows)
        return np.concatenate([self.matrix[rows], beside.around / beside.lengths[:, None]])

    def beside(self, rows: Array) -> Beside:
        """Return the context of some rows: the adjacent rows of a run that have vectors and are not dropped."""
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
        """Return int64[m, 2]: pairs of a row and the number of a document that it points at, ascending. The document may be gone."""
        if not self._pairs:
            return np.empty((0, 2), np.int64)
        pairs = np.concatenate(self._pairs)
        pairs[:, 0] = self.rows_of(pairs[:, 0])
        return np.unique(pairs[pairs[:, 0] >= 0], axis=0)


_SPARE = 1 << 15
"""Least number of spare rows. Growth copies all arrays on the loop; spare rows take no memory until they are used."""
_FAN, _MOST = 8, 4096
"""Number of adjacent small parts that are merged into one, and the greatest number of its rows: more would block the loop."""


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _whole(method: Callable[Concatenate[Collection, _P], _R]) -> Callable[Concatenate[Collection, _P], _R]:
    """Run a method under the collection's lock: no view may see half a change."""

    @functools.wraps(method)
    def locked(self: Collection, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked


class Collection:
    """See the module. Make it with `Collection.load`, or empty."""

    def __init__(self, *, room: int = ROOM) -> None:
        """:param room: bytes for what terms gave in earlier searches."""
        self.size = 0
        self.read = 0
        """Number of rows from documents, masked rows included; the others are rows of missions."""
        self.dropped = 0
        """Number of masked rows, which every search skips. Load the collection anew when they are many."""
        self.maker = Maker()
        """The embedder of the vectors, as stored in the image. When it changes, all vectors are loaded anew."""
        self._room, self._lock = room, threading.RLock()
        self._facts = np.zeros(0, FACTS)
        self._gone = np.zeros(0, bool)
        self._has = np.zeros(0, bool)
        self._runs = np.zeros(0, np.int32)
        self._lengths = np.zeros(0, np.float32)
        self._told = np.zeros(0, np.uint16)
        self._looks = np.zeros(0, np.uint16)
        self._speakers: frozenset[int] = frozenset()
        self._matrix = np.zeros((0, 0), np.float32)
        self._rows = _Rows(np.empty(0, np.int64))
        self._parts: list[RankedSegment] = []
        self._links: list[Array] = []
        self._ranking: Ranking | None = None
        self._view: View | None = None

    @property
    def parts(self) -> int:
        """Return the number of parts: a search asks each for its terms."""
        return len(self._parts)

    @classmethod
    def load(cls, text: SegmentedText, vectors: VectorLog | None = None, *, room: int = ROOM) -> Collection:
        """Return all that these hold, in a helper thread if need be: nothing of the collection belongs to their connection."""
        made = cls.of(text.segments(), room=room)
        if vectors is not None:
            made.serve(Maker(vectors.identity, vectors.place), vectors.dimensions)
            for ids, block in vectors.blocks():
                made.vectors(ids, block)
        return made

    @classmethod
    def of(cls, segments: Sequence[Segment], *, room: int = ROOM) -> Collection:
        """Return a collection of all chunks of these segments, without vectors."""
        made = cls(room=room)
        facts = np.concatenate([np.zeros(0, FACTS), *(segment.facts for segment in segments)], dtype=FACTS)
        rows = made._begin(facts)
        base = 0
        for segment in segments:
            made._join(RankedSegment.of(segment, rows[base : base + len(segment)]))
            base += len(segment)
        return made

    @_whole
    def serve(self, maker: Maker, dimensions: int) -> None:
        """Take vectors of that embedder from now on; there are none yet, or some of its own.

        :param dimensions: numbers of a vector.
        :raises ValueError: if vectors of another length are there.
        """
        self.maker = maker
        self._widen(dimensions)
        self._view = None

    def view(self) -> View:
        """Return the current view, for one search; it is the same object until something changes."""
        view = self._view
        if view is None:
            with self._lock:
                view = self._view = View(self)
        return view

    @_whole
    def append(self, segment: Segment) -> None:
        """Append committed chunks. A chunk replaces an earlier one with its id."""
        if not len(segment):
            return
        if len(segment) == 1 and self.size:
            self._append_one(segment)
            return
        self.drop(segment.ids)
        base = self.size
        self._reserve(base + len(segment))
        self._add(segment.facts)
        self._rows.add(segment.ids, base)
        self._join(RankedSegment.of(segment, np.arange(base, self.size, dtype=np.int32)))
        self._tidy()

    @_whole
    def replace(self, segment: Segment) -> None:
        """Replace the entries of chunks whose texts are unchanged: the chunks keep their vectors."""
        rows = self._alive(segment.ids)
        known = np.flatnonzero(rows >= 0)[self._has[rows[rows >= 0]]]
        kept = self._matrix[rows[known]]
        self.append(segment)
        self.vectors(segment.ids[known], kept)

    @_whole
    def vectors(self, ids: Array, matrix: Array) -> None:
        """Set the vectors (unit rows) of chunks; ignore chunks that the collection does not hold.

        :raises ValueError: for vectors of another length than those that are there: another embedder's are loaded, all of them.
        """
        if not len(ids):
            return
        self._widen(matrix.shape[1])
        if len(ids) == 1 and matrix.dtype == np.float32:
            row = self._alive_one(int(ids[0]))
            if row >= 0:
                self._matrix[row] = matrix[0]
                self._has[row] = True
                self._view = None
            return
        rows = self._alive(np.asarray(ids, np.int64))
        if rows[0] >= 0 and (len(rows) == 1 or (rows[1:] - rows[:-1] == 1).all()):
            place = self._matrix[rows[0] : rows[-1] + 1]
            if matrix.dtype == np.float16:
                widen(matrix, place)
            else:
                place[:] = matrix
        else:
            matrix, rows = matrix[rows >= 0], rows[rows >= 0]
            self._matrix[rows] = matrix
        self._has[rows] = True  # after the rows: a concurrent search must not see half of a vector
        self._view = None

    @_whole
    def drop(self, ids: Array | Sequence[int]) -> None:
        """Mask forgotten chunks; ignore chunks that the collection does not hold."""
        rows = self._alive(np.asarray(ids, np.int64))
        rows = rows[rows >= 0]
        if len(rows):
            self._gone = self._gone.copy()  # a copy: each view keeps the mask of its time
            self._gone[rows] = True
            self.dropped += len(rows)
            self._ranking = self._view = None

    @_whole
    def drop_vectors(self, ids: Array | Sequence[int]) -> None:
        """Leave chunks without vectors; ignore chunks that the collection does not hold."""
        rows = self._alive(np.asarray(ids, np.int64))
        rows = rows[rows >= 0]
        if len(rows) and self._has[rows].any():
            self._has = self._has.copy()  # a copy: each view keeps those of its time
            self._has[rows] = False
            self._view = None

    def holds(self, ids: Array) -> Array:
        """Return bool: True for each of these chunks that the collection holds."""
        with self._lock:
            return self._alive(np.asarray(ids, np.int64)) >= 0

    def holds_vectors(self, ids: Array) -> Array:
        """Return bool: True for each of these chunks that has its vector here."""
        with self._lock:
            rows = self._alive(np.asarray(ids, np.int64))
            return (rows >= 0) & self._has[rows] if self.size else rows >= 0

    def excerpt(self, ids: Sequence[int] | Array) -> tuple[Segment, Array, Array]:
        """Return copies of some chunks' index entries and vectors (float16[n, d]), and a mask of the chunks that have a vector."""
        with self._lock:
            rows, parts, matrix, has = self._alive(np.asarray(ids, np.int64)), tuple(self._parts), self._matrix, self._has
            wanted = np.zeros(self.size, bool)
        there = rows >= 0
        wanted[rows[there]] = True
        fitting = [(part.segment, ~keep) for part in parts if (keep := wanted[part.rows]).any()]
        segment = merge([one for one, _ in fitting], [mask for _, mask in fitting]) if fitting else build(())
        vectors = np.zeros((len(rows), matrix.shape[1]), np.float16)
        vectors[there] = matrix[rows[there]]
        return segment, vectors, there & has[rows]

    # --- growth

    def _begin(self, facts: Array) -> Array:
        """Store these as the first rows, section by section. Return the row of each as int32."""
        order = np.lexsort((facts["id"], facts["place"], facts["section"], facts["document"]))
        self._reserve(len(order))
        self._add(facts[order])
        self._rows = _Rows(facts["id"][order])
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        return places

    def _add(self, facts: Array) -> None:
        begin, end = self.size, self.size + len(facts)
        self._facts[begin:end] = facts
        self._ranking = self._view = None
        if not self._speakers.issuperset(said := set(facts["speaker"].tolist()) - {0}):
            self._speakers |= said
        self._told[begin:end] = facts["length"]
        self._looks[begin:end] = facts["flags"] + (facts["speaker"] > 0) * np.uint16(SPOKEN)
        documents, sections = (self._facts[name][max(begin - 1, 0) : end] for name in ("document", "section"))
        new = (documents[1:] != documents[:-1]) | (sections[1:] != sections[:-1])
        if begin:
            self._runs[begin:end] = self._runs[begin - 1] + np.cumsum(new)
        elif end:
            self._runs[1:end] = np.cumsum(new)
        self.read += int(np.count_nonzero((facts["flags"] & LIVED) == 0))
        self.size = end

    def _append_one(self, segment: Segment) -> None:
        """Append one chunk: like `append`, without arrays."""
        id, document, section, _place, speaker, _day, length, flags = segment.facts[0].item()
        if self._alive_one(id) >= 0:
            self.drop(segment.ids)
        at = self.size
        self._reserve(at + 1)
        _, document_before, section_before, *_ = self._facts[at - 1].item()
        self._facts[at] = segment.facts[0]
        self._told[at], self._looks[at] = length, flags + SPOKEN * bool(speaker)
        self._runs[at] = self._runs[at - 1] + ((document, section) != (document_before, section_before))
        self._lengths[at] = sum(segment.counts.tolist())
        if speaker and speaker not in self._speakers:
            self._speakers |= {speaker}
        self._rows.add_one(id, at)
        self._list(RankedSegment.of(segment, np.array([at], np.int32)))
        self.read += not flags & LIVED
        self.size = at + 1
        self._ranking = self._view = None
        self._tidy()

    def _join(self, part: RankedSegment) -> None:
        self._lengths[part.rows] = part.own_lengths()
        self._list(part)

    def _list(self, part: RankedSegment) -> None:
        self._parts.append(part)
        if len(part.segment.links):
            self._links.append(part.segment.links)

    def _tidy(self) -> None:
        """Merge the last parts while there are many small ones: a look for a term asks every part."""
        while len(self._parts) >= _FAN:
            last = self._parts[-_FAN:]
            most = min(_MOST, _FAN * 2 * len(last[-1].rows))
            if len(last[0].rows) > most or sum(len(part.rows) for part in last) > most:
                return
            masks = [mask if (mask := self._gone[part.rows]).any() else None for part in last]
            rows = [part.rows if mask is None else part.rows[~mask] for part, mask in zip(last, masks, strict=True)]
            self._parts[-_FAN:] = [RankedSegment.of(merge([part.segment for part in last], masks), np.concatenate(rows))]

    def _reserve(self, rows: int) -> None:
        if rows <= len(self._facts):
            return
        room = 2 * rows + _SPARE
        for name in ("_facts", "_gone", "_has", "_runs", "_lengths", "_told", "_looks", "_matrix"):
            old: Any = getattr(self, name)
            new = np.zeros((room, *old.shape[1:]), old.dtype)
            new[: self.size] = old[: self.size]
            setattr(self, name, new)

    def _widen(self, dimensions: int) -> None:
        if self._matrix.shape[1] == dimensions:
            return
        if self._has.any():
            raise ValueError(f"vectors of {dimensions} numbers do not go with those of {self._matrix.shape[1]} that are there")
        self._matrix = np.zeros((len(self._facts), dimensions), np.float32)
        self._view = None

    def _alive(self, ids: Array) -> Array:
        rows = self._rows.find(ids)
        return np.where((rows >= 0) & ~self._gone[rows], rows, -1) if self.dropped else rows

    def _alive_one(self, id: int) -> int:
        row = self._rows.one(id)
        return -1 if row >= 0 and self._gone[row] else row

    def _ranked(self) -> Ranking:
        if self._ranking is None:
            n = self.size
            self._ranking = Ranking(self._parts, self._lengths[:n], gone=self._gone[:n], runs=self._runs[:n], room=self._room)
        return self._ranking


class _Rows:
    """Map of ids to rows: a sorted array for the loaded rows, a dict for later ones."""

    def __init__(self, ids: Array) -> None:
        self._order = np.argsort(ids, kind="stable")
        self._ids = ids[self._order]
        self._greatest = int(self._ids[-1]) if len(ids) else -(2**63)
        self._late: dict[int, int] = {}

    def add(self, ids: Array, base: int) -> None:
        self._late.update(zip(ids.tolist(), range(base, base + len(ids)), strict=True))

    def add_one(self, id: int, row: int) -> None:
        """Add one id: like `add`."""
        self._late[id] = row

    def one(self, id: int) -> int:
        """Return the row of an id, -1 if there never was one."""
        late = self._late.get(id)
        if late is not None or id > self._greatest:
            return -1 if late is None else late
        at = int(self._ids.searchsorted(id))
        return int(self._order[at]) if at < len(self._ids) and self._ids[at] == id else -1

    def find(self, ids: Array) -> Array:
        """Return the row of each id as int64; -1 for unknown ids."""
        if len(ids) == 1:  # the usual case: one added chunk, and its vector
            return np.array([self.one(int(ids[0]))], np.int64)
        if len(self._ids):
            at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            rows = np.where(self._ids[at] == ids, self._order[at], -1)
        else:
            rows = np.full(len(ids), -1, np.int64)
        if self._late:
            late = self._late
            new = np.array([late.get(id, -1) for id in ids.tolist()], np.int64)
            rows = np.where(new >= 0, new, rows)
        return rows
