"""Segments: the text index in immutable parts, each a batch of chunks with its words, facts and links.

A commit writes a new segment and touches no other; what grows too many is merged (`batos.memory.partlog`). A segment knows a chunk's
own words only. What its neighbours add to it (`batos.memory.ranking`) follows from where it stands, so that it stays true when
chunks come and go.
"""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from persistent import Persistent

from batos.memory.packed import pack, pack_one, pack_same, pack_sorted, unpack, unpack_sorted

Array = np.ndarray[Any, np.dtype[Any]]

QUESTION, SUMMARY = 1, 2
"""Flags of a chunk: it asks something; it tells what others hold."""

SPOKEN = 256
"""Beside the flags, in a view: somebody says it."""

FACTS: np.dtype[np.void] = np.dtype(
    [
        ("id", "i8"),
        ("document", "i8"),
        ("section", "i4"),
        ("place", "i4"),
        ("speaker", "u4"),
        ("day", "i4"),
        ("length", "u2"),
        ("flags", "u1"),
    ]
)
"""What searches know of a chunk besides its words and vector; see `Facts`."""
_FACTS = struct.Struct("=qqiiIiHB")
"""The same, for one."""
_NO_LINKS = np.empty((0, 2), np.int64)
_COLUMNS = ("document", "section", "place", "speaker", "day", "length", "flags")


class Facts(NamedTuple):
    """What searches know of a chunk besides its id, words and vector."""

    document: int = 0
    section: int = 0
    """Which part of its document: only chunks of one section are neighbours."""
    place: int = 0
    """The order within the section, where the order of ids does not say it; gaps do not matter."""
    speaker: int = 0
    """`speaker_key` of who says it; 0: nobody in particular."""
    day: int = 0
    """`date.toordinal()` of when it was said; 0: not known."""
    length: int = 0
    """Characters; what is longer than 65,535 counts as that."""
    flags: int = 0


class Entry(NamedTuple):
    """What is to be indexed of one chunk."""

    id: int
    words: Sequence[str]
    """Its own terms, `words(text)`; those of its neighbours are not the caller's business."""
    facts: Facts = Facts()
    links: Sequence[int] = ()
    """Numbers of the documents that it points at."""


def speaker_key(name: str) -> int:
    """The number by which searches know a speaker; never 0."""
    return folded_key(name.strip().casefold())


def folded_key(name: str) -> int:
    """As `speaker_key`, of a name that is casefolded."""
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) or 1


@dataclass(frozen=True, slots=True)
class Segment:
    """A batch of chunks as plain arrays; row i of one is row i of all. Nothing in it may be changed."""

    facts: Array
    """FACTS of each row."""
    terms: tuple[str, ...]
    """All words that occur, sorted."""
    starts: Array
    """int64[terms + 1]: the postings of term i are `starts[i]:starts[i + 1]` of `rows` and `counts`."""
    rows: Array
    """int32: in which rows a term occurs, ascending within a term."""
    counts: Array
    """float32: how often."""
    links: Array
    """int64[m, 2]: (id, id of a chunk it points at)."""

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def ids(self) -> Array:
        """int64: the id of each row."""
        return self.facts["id"]


def build(entries: Iterable[Entry]) -> Segment:
    """The segment of these chunks, in the order of document, section, place and id.

    :raises ValueError: for an id that is there twice.
    """
    entries = list(entries)
    if len(entries) == 1:
        return _alone(entries[0])
    ordered = sorted(entries, key=lambda entry: (entry.facts.document, entry.facts.section, entry.facts.place, entry.id))
    facts = np.array([(entry.id, *entry.facts[:5], min(entry.facts.length, 0xFFFF), entry.facts.flags) for entry in ordered], FACTS)
    if len({entry.id for entry in ordered}) < len(ordered):
        raise ValueError("a chunk is there twice in one segment")
    known: defaultdict[str, int] = defaultdict()
    known.default_factory = known.__len__
    said: list[int] = []
    for entry in ordered:
        said += map(known.__getitem__, entry.words)
    terms = tuple(sorted(known))
    rank = np.empty(len(terms), np.int64)
    rank[np.fromiter((known[term] for term in terms), np.int64, len(terms))] = np.arange(len(terms))
    term = rank[np.array(said, np.int64)]
    row = np.repeat(np.arange(len(ordered)), [len(entry.words) for entry in ordered])
    keys, counts = np.unique(term * max(len(ordered), 1) + row, return_counts=True)
    term, row = np.divmod(keys, max(len(ordered), 1))
    links = [(entry.id, to) for entry in ordered for to in entry.links]
    return Segment(
        facts=facts,
        terms=terms,
        starts=np.searchsorted(term, np.arange(len(terms) + 1)),
        rows=row.astype(np.int32),
        counts=counts.astype(np.float32),
        links=np.array(links, np.int64).reshape(-1, 2),
    )


def _alone(entry: Entry) -> Segment:
    """As `build`, in a fifth of its time: of one chunk there is little to put in order."""
    said: dict[str, int] = {}
    for word in entry.words:
        said[word] = said.get(word, 0) + 1
    terms = sorted(said)
    document, section, place, speaker, day, length, flags = entry.facts
    return Segment(
        facts=np.frombuffer(_FACTS.pack(entry.id, document, section, place, speaker, day, min(length, 0xFFFF), flags), FACTS),
        terms=tuple(terms),
        starts=np.arange(len(terms) + 1),
        rows=np.zeros(len(terms), np.int32),
        counts=np.array([said[term] for term in terms], np.float32),
        links=np.array([(entry.id, to) for to in entry.links], np.int64) if entry.links else _NO_LINKS,
    )


def merge(segments: Sequence[Segment], gone: Sequence[Array | None] | None = None) -> Segment:
    """One segment of all rows of these, in their order.

    :param gone: for each segment a mask of the rows to leave out, or None for none. Nothing of them remains.
    """
    gone = gone or [None] * len(segments)
    if len(segments) == 1 and gone[0] is None:
        return segments[0]
    terms = tuple(sorted(set().union(*(segment.terms for segment in segments))))
    place = {term: i for i, term in enumerate(terms)}
    base, parts = 0, []
    for segment, mask in zip(segments, gone, strict=True):
        rank = np.fromiter((place[term] for term in segment.terms), np.int64, len(segment.terms))
        term = rank.repeat(segment.starts[1:] - segment.starts[:-1])
        if mask is None:
            parts.append((segment.facts, term, segment.rows + base, segment.counts, segment.links))
            base += len(segment)
            continue
        keep = ~mask
        row = np.cumsum(keep) - 1 + base
        left = keep[segment.rows]
        linked = np.isin(segment.links[:, 0], segment.ids[keep])
        parts.append((segment.facts[keep], term[left], row[segment.rows[left]], segment.counts[left], segment.links[linked]))
        base += int(keep.sum())
    facts, term, row, counts, links = (np.concatenate(column, dtype=column[0].dtype) for column in zip(*parts, strict=True))
    order = np.argsort(term, kind="stable")
    present, term = np.unique(term[order], return_inverse=True)  # words that only rows left out had are gone with them
    return Segment(
        facts=facts,
        terms=tuple(terms[i] for i in present.tolist()),
        starts=np.searchsorted(term, np.arange(len(present) + 1)),
        rows=row[order].astype(np.int32),
        counts=counts[order],
        links=links,
    )


class StoredSegment(Persistent):
    """A segment as the image keeps it: packed bytes, never changed."""

    __module__ = "batos.memory"

    def __init__(self, segment: Segment) -> None:
        facts = segment.facts
        self.size = len(facts)
        self.terms = "\n".join(segment.terms).encode("utf-8", "surrogatepass")
        if self.size == 1:
            id, *others = _FACTS.unpack(facts.tobytes())
            self.ids = pack_one(id)
            self.facts = tuple([pack_same(value, 1) for value in others])
            ones, zeros = pack_same(1, len(segment.terms)), pack_same(0, len(segment.terms))
            self.postings = (ones, zeros, pack(segment.counts))
        else:
            self.ids = pack_sorted(facts["id"])
            self.facts = tuple(pack(facts[name]) for name in _COLUMNS)
            self.postings = (pack(np.diff(segment.starts)), pack(segment.rows), pack(segment.counts))
        if len(segment.links):
            self.links = (pack(segment.links[:, 0]), pack(segment.links[:, 1]))

    links: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return int(self.size)

    def held(self) -> Array:
        """int64: the id of each row."""
        return unpack_sorted(self.ids)

    def load(self) -> Segment:
        """The segment, as arrays of its own."""
        facts = np.empty(self.size, FACTS)
        facts["id"] = self.held()
        for name, column in zip(_COLUMNS, self.facts, strict=True):
            facts[name] = unpack(column)
        sizes, rows, counts = self.postings
        return Segment(
            facts=facts,
            terms=tuple(self.terms.decode("utf-8", "surrogatepass").split("\n")) if self.terms else (),
            starts=np.concatenate([[0], np.cumsum(unpack(sizes))]),
            rows=unpack(rows, np.int32),
            counts=unpack(counts, np.float32),
            links=np.stack([unpack(column) for column in self.links], 1) if self.links else np.empty((0, 2), np.int64),
        )
