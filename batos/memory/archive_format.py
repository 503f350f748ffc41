"""Format of an archive: sections with their chunks, words, links and vectors as bytes, packed with zstd.

A line of JSON comes first, then the index entries and the vectors as they are stored. Nothing in it is a pickle: it can be read
without BAT OS (`zstd -d`, after the blob's own 46 bytes). Packing and unpacking gives the same bytes. The functions need no image and
may run in any thread.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from batos.errors import ImageDamaged
from batos.memory.records import Section
from batos.memory.segments import Array, Segment, StoredSegment, merge

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_FORMAT = 1
_LEVEL = 10
"""Compression level of zstd: results are 4 % smaller than at the default level and take 3 times as long, 15 ms a cluster."""
_HOLDS = "it is not what BAT OS packs"


class ArchivedChunk(NamedTuple):
    """A chunk as an object: its slots but for its prototype and its document, which are objects themselves."""

    oid: bytes
    text: str
    speaker: str = ""
    mentioned: tuple[str, ...] = ()
    serial: bytes = b""
    """Id of the transaction that wrote the chunk, while the chunk is live."""


class ArchivedSection(NamedTuple):
    """A section with its chunks; their vectors as float16[n, d], None if it was left without."""

    section: Section
    chunks: tuple[ArchivedChunk, ...]
    vectors: Array | None

    @property
    def text(self) -> str:
        """Return the section's text."""
        return "".join(chunk.text for chunk in self.chunks)


class ArchiveContent(NamedTuple):
    """All that an archive holds."""

    held: tuple[ArchivedSection, ...]
    segment: Segment
    """Index entries of all chunks."""
    embedder: str
    """Identity of the embedder that made the vectors."""

    @property
    def ids(self) -> list[int]:
        """Return the numbers of all chunks."""
        return [number for one in self.held for number in one.section.numbers]

    def without(self, documents: Collection[int]) -> ArchiveContent:
        """Return a copy that leaves out these documents."""
        held = tuple(one for one in self.held if one.section.document not in documents)
        gone = np.isin(self.segment.facts["document"], np.fromiter(documents, np.int64, len(documents)))
        return ArchiveContent(held, merge([self.segment], [gone]), self.embedder)


def combine_archives(materials: Sequence[ArchiveContent]) -> ArchiveContent | None:
    """Return all that several archives hold; None if their vectors are of different embedders."""
    if len({one.embedder for one in materials}) != 1:
        return None
    return ArchiveContent(
        tuple(held for one in materials for held in one.held), merge([one.segment for one in materials]), materials[0].embedder
    )


def pack_archive(material: ArchiveContent) -> bytes:
    """Return the archive of this."""
    parts: list[bytes] = []

    def part(data: bytes) -> int:
        parts.append(data)
        return len(data)

    stored = StoredSegment(material.segment)
    text = {
        "format": _FORMAT,
        "embedder": material.embedder,
        "sections": [_section(one, part) for one in material.held],
        "segment": {
            "size": stored.size,
            "ids": part(stored.ids),
            "facts": [part(column) for column in stored.facts],
            "terms": part(stored.terms),
            "postings": [part(column) for column in stored.postings],
            "links": [part(column) for column in stored.links],
        },
    }
    head = json.dumps(text, separators=(",", ":")).encode("ascii") + b"\n"
    return bytes(zstd.compress(head + b"".join(parts), level=_LEVEL))


def unpack_archive(data: bytes) -> ArchiveContent:
    """Return the content that `pack_archive` packed.

    :raises ImageDamaged: if the data is not an archive.
    """
    try:
        whole = zstd.decompress(data)
        head, _, rest = whole.partition(b"\n")
        told = json.loads(head)
        if told["format"] != _FORMAT:
            raise ImageDamaged(f"an archive has format {told['format']}, this BAT OS knows {_FORMAT}; upgrade BAT OS")
        parts = _Parts(rest)
        held = tuple(_held(one, parts) for one in told["sections"])
        return ArchiveContent(held, _segment(told["segment"], parts), told["embedder"])
    except (zstd.ZstdError, KeyError, ValueError, TypeError) as e:
        raise ImageDamaged(f"an archive cannot be read: {_HOLDS} ({e}); restore a backup (`batos restore`)") from e


class _Parts:
    """The bytes behind the head, one stretch after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise ValueError("it ends too early")
        self._at += size
        return found

    def all(self, sizes: Sequence[int]) -> Iterator[bytes]:
        return (self.take(size) for size in sizes)


def _section(one: ArchivedSection, part: Any) -> dict[str, Any]:
    section = one.section
    told: dict[str, Any] = {**section._asdict(), "digest": section.digest.hex()}
    told["chunks"] = [[chunk.oid.hex(), chunk.text, chunk.speaker, chunk.mentioned] for chunk in one.chunks]
    if one.vectors is not None:
        told["vectors"] = part(one.vectors.astype("<f2").tobytes())
    return told


def _held(told: dict[str, Any], parts: _Parts) -> ArchivedSection:
    chunks = tuple(ArchivedChunk(bytes.fromhex(oid), text, speaker, tuple(named)) for oid, text, speaker, named in told.pop("chunks"))
    size = told.pop("vectors", None)
    vectors = None if size is None else np.frombuffer(parts.take(size), "<f2").reshape(len(chunks), -1)
    return ArchivedSection(Section(**{**told, "digest": bytes.fromhex(told["digest"])}), chunks, vectors)


def _segment(told: dict[str, Any], parts: _Parts) -> Segment:
    stored = StoredSegment.__new__(StoredSegment)
    stored.size = told["size"]
    stored.ids = parts.take(told["ids"])
    stored.facts = tuple(parts.all(told["facts"]))
    stored.terms = parts.take(told["terms"])
    postings = tuple(parts.all(told["postings"]))
    stored.postings = (postings[0], postings[1], postings[2])
    stored.links = tuple(parts.all(told["links"]))
    return stored.load()
