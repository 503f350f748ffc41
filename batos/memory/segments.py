"""Segments: the text index in immutable parts, each a batch of chunks with its words, facts and links.

A commit writes a new segment and touches no other; small segments are merged (`batos.memory.part_log`). A segment knows only the words of
its own chunks. The share of their neighbours (`batos.memory.text_index`) follows from the position, so that it stays correct when chunks
come and go. Integers are packed in as few bytes as their range needs, here and in the logs of vectors.

The traits of a chunk's text do not depend on its topic. They are whether it asks, gives times or quantities, or speaks of its speaker, and
how much. They are computed once at ingest and kept in the chunk's facts, so that a question can prefer chunks that can answer it.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from persistent import Persistent

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]

_FEW = 64
_WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}
_HEAD = struct.Struct("<BIq")  # bytes of each number (0: all numbers equal the least one), how many numbers, the least number
_FIRST, _NONE = struct.Struct("<q"), _HEAD.pack(0, 0, 0)


def pack(numbers: Numbers) -> bytes:
    """Return an array of whole numbers (one dimension, within 64 bits, signed) as bytes: the least, and by how much each exceeds it."""
    import numpy as np

    if len(numbers) <= _FEW:
        return _pack_few(list(map(int, numbers.tolist())))
    least, most = int(numbers.min()), int(numbers.max())
    if least == most:
        return _HEAD.pack(0, len(numbers), least)
    width = next(width for width in _WIDTHS if most - least < 1 << 8 * width)
    above = numbers.astype(np.int64) - least if width < 8 else numbers.astype(np.int64).view(np.uint64) - np.uint64(least % 2**64)
    return _HEAD.pack(width, len(numbers), least) + above.astype(f"<u{width}").tobytes()


def _pack_few(numbers: list[int]) -> bytes:
    """Pack a few numbers: like `pack`, but faster for short lists than starting numpy."""
    least, most = (min(numbers), max(numbers)) if numbers else (0, 0)
    if least == most:
        return _HEAD.pack(0, len(numbers), least)
    if most - least < 256:
        return _HEAD.pack(1, len(numbers), least) + bytes([number - least for number in numbers])
    width = next(width for width in _WIDTHS if most - least < 1 << 8 * width)
    return _HEAD.pack(width, len(numbers), least) + struct.pack(f"<{len(numbers)}{_WIDTHS[width]}", *[number - least for number in numbers])


def pack_same(number: int, count: int) -> bytes:
    """Pack one number, repeated: like `pack`."""
    return _HEAD.pack(0, count, number if count else 0)


def unpack(data: bytes, dtype: Any = "i8") -> Numbers:
    """Return the numbers given to `pack`, as a new array of that type."""
    import numpy as np

    width, count, least = _HEAD.unpack_from(data)
    if not width:
        return np.full(count, least, dtype)
    found = np.frombuffer(data, f"<u{width}", count, _HEAD.size).astype(dtype)
    if least:
        found += np.asarray(least).astype(dtype)
    return found


def pack_sorted(numbers: Numbers) -> bytes:
    """Pack numbers in ascending order with small differences; `unpack_sorted` reads them."""
    if not len(numbers):
        return b""
    if len(numbers) == 1:
        return pack_one(int(numbers[0]))
    return _FIRST.pack(int(numbers[0])) + pack(numbers[1:] - numbers[:-1])


def pack_one(number: int) -> bytes:
    """Pack one number: like `pack_sorted`."""
    return _FIRST.pack(number) + _NONE


def unpack_sorted(data: bytes) -> Numbers:
    """Return the numbers given to `pack_sorted`, as int64."""
    import numpy as np

    if not data:
        return np.empty(0, np.int64)
    found: Numbers = np.cumsum(np.concatenate([_FIRST.unpack_from(data), unpack(data[8:])]))
    return found


def widen(halves: Numbers, out: Numbers) -> None:
    """Write half-precision numbers (little-endian, finite) into a float32 array of the same shape.

    Four times as quick as numpy's own conversion, and that was half of loading a collection. The bits of a half, moved to
    where a single has them, make it too small by the difference of the exponents' biases, 2**112. Multiplying is exact.
    """
    import numpy as np

    bits = halves.view("<i2").astype(np.int32)
    bits <<= 13
    bits &= np.int32(0x8FFFE000 - 2**32)  # the shift copied the sign into the bits below it
    np.multiply(bits.view(np.float32), np.float32(2.0**112), out=out)


Array = np.ndarray[Any, np.dtype[Any]]

QUESTION, SUMMARY = 1, 2
"""Flags of a chunk: it is a question; it is a summary of other documents."""

SPOKEN = 256
"""Flag in a view, beside the flags of the chunk: the chunk has a speaker."""

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
"""Row format of the facts of a chunk besides its words and its vector; see `Facts`."""
_FACTS = struct.Struct("=qqiiIiHB")
"""The same format for one row."""
_NO_LINKS = np.empty((0, 2), np.int64)
_COLUMNS = ("document", "section", "place", "speaker", "day", "length", "flags")


class Facts(NamedTuple):
    """Facts about a chunk that searches know, besides its id, words and vector."""

    document: int = 0
    section: int = 0
    """Number of the section: only chunks of one section are neighbours."""
    place: int = 0
    """Order within the section, if the order of ids differs; gaps do not matter."""
    speaker: int = 0
    """`speaker_key` of the speaker; 0: no speaker."""
    day: int = 0
    """`date.toordinal()` of the day when it was said; 0: unknown."""
    length: int = 0
    """Number of characters; a greater number than 65,535 is stored as 65,535."""
    flags: int = 0


class Entry(NamedTuple):
    """Index entry of one chunk, before it is stored."""

    id: int
    words: Sequence[str]
    """Terms of the chunk itself, `words(text)`, without those of its neighbours."""
    facts: Facts = Facts()
    links: Sequence[int] = ()
    """Numbers of the documents that the chunk points at."""


def speaker_key(name: str) -> int:
    """Return the number by which searches know a speaker; never 0."""
    return folded_key(name.strip().casefold())


def folded_key(name: str) -> int:
    """Return the speaker's key for a casefolded name: like `speaker_key`."""
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) or 1


@dataclass(frozen=True, slots=True)
class Segment:
    """A batch of chunks as plain arrays; row i of one is row i of all. Nothing in it may be changed."""

    facts: Array
    """FACTS of each row."""
    terms: tuple[str, ...]
    """All terms that occur, sorted."""
    starts: Array
    """int64[terms + 1]: the postings of term i are `starts[i]:starts[i + 1]` of `rows` and `counts`."""
    rows: Array
    """int32: rows in which a term occurs, ascending within a term."""
    counts: Array
    """float32: how often the term occurs in the row."""
    links: Array
    """int64[m, 2]: id of a chunk, and number of a document that the chunk points at."""

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def ids(self) -> Array:
        """Return int64: the id of each row."""
        return self.facts["id"]


def build(entries: Iterable[Entry]) -> Segment:
    """Return the segment of these chunks, in the order of document, section, place and id.

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
    """Build the segment of one chunk: like `build`, in a fifth of its time."""
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
    """Return one segment of all rows of these, in their order.

    :param gone: for each segment a mask of the rows to leave out, or None for none. The new segment contains nothing of these rows.
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
    present, term = np.unique(term[order], return_inverse=True)  # terms that occur only in omitted rows are gone as well
    return Segment(
        facts=facts,
        terms=tuple(terms[i] for i in present.tolist()),
        starts=np.searchsorted(term, np.arange(len(present) + 1)),
        rows=row[order].astype(np.int32),
        counts=counts[order],
        links=links,
    )


def signatures(segment: Segment) -> Array:
    """Return uint64: a number for each row, which differs where the row's facts, words or links do."""
    found = np.zeros(len(segment), np.uint64)
    for column, name in enumerate(("id", *_COLUMNS)):
        found += _scattered(segment.facts[name].astype(np.int64).view(np.uint64) ^ np.uint64(column << 56))
    hashes = (blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest() for term in segment.terms)
    terms = np.frombuffer(b"".join(hashes), np.uint64).repeat(segment.starts[1:] - segment.starts[:-1])
    np.add.at(found, segment.rows, _scattered(terms + segment.counts.astype(np.uint64)))
    order = np.argsort(segment.ids, kind="stable")
    linked = order[np.searchsorted(segment.ids, segment.links[:, 0], sorter=order)]
    np.add.at(found, linked, _scattered(segment.links[:, 1].astype(np.uint64) ^ np.uint64(1 << 63)))
    return found


def _scattered(numbers: Array) -> Array:
    """Return each number's hash (the finaliser of splitmix64)."""
    found = numbers.astype(np.uint64)
    found ^= found >> np.uint64(30)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


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
        """Return int64: the id of each row."""
        return unpack_sorted(self.ids)

    def load(self) -> Segment:
        """Return the segment, as arrays of its own."""
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


WHEN, NUMBER, FIRST_PERSON, LIVED = 4, 8, 16, 32
"""Flags of a chunk beside QUESTION and SUMMARY. In order: the chunk names a time; it names a number; its speaker talks about themselves; it
comes from a mission, not from a document.
"""

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CLOSING = "\"'”’)]* "
_WHEN = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|recently|since|just|"
    r"weeks?|weekends?|months?|years?|mornings?|evenings?|summer|winter|spring|autumn|fall|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|"
    r"january|february|march|april|may \d+|june|july|august|september|october|november|december|"
    r"(?:19|20)\d\d|\d{1,2}:\d\d)\b"
)
_NUMBER = re.compile(
    r"\b(?:\d[\d.,]*\w*|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundreds?|thousands?|millions?|"
    r"couple|several|once|twice|dozens?|many|few)\b"
)
_FIRST_PERSON = re.compile(r"\b(?:i|my|mine|me|we|our|us)\b")


class Traits(NamedTuple):
    """Traits of a text: flags for `Facts.flags`, and the number of characters with information, for `Facts.length`."""

    flags: int
    told: int
    """Characters outside of questions: a text of questions answers nothing."""


def traits(text: str) -> Traits:
    """Return the traits of a chunk's text."""
    told = asked = 0
    for sentence in _SENTENCE.split(text.strip()):
        size = len(sentence)
        if sentence.rstrip(_CLOSING).endswith("?"):
            asked += size
        else:
            told += size
    low = text.lower()
    flags = QUESTION if asked else 0
    for flag, pattern in ((WHEN, _WHEN), (NUMBER, _NUMBER), (FIRST_PERSON, _FIRST_PERSON)):
        if pattern.search(low):
            flags |= flag
    return Traits(flags, told)
