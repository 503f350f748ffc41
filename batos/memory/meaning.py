"""What becomes of a section once there are vectors: cut where its meaning parts, each chunk with its vector.

Its sentences get vectors; the chunks are cut by them, and a chunk's vector is the mean of its sentences'. A conversation stays as
it is, a chunk a turn. The functions of the root are reads and system transactions; the others need no image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from batos.memory.chunking import Limits, by_meaning
from batos.memory.library import Library, library_of
from batos.memory.sections import Section
from batos.memory.segments import Array, Segment, build
from batos.memory.sentences import Span, sentences
from batos.memory.shelving import Shelved, Shelver, about_of, parted


class Work(NamedTuple):
    """A section without vectors: its document's kind, its chunks' texts, who says them, and whom they mention."""

    section: Section
    kind: str
    texts: tuple[str, ...]
    speakers: tuple[str, ...]
    mentioned: tuple[tuple[str, ...], ...]
    about: tuple[int, ...]
    """Numbers of the documents that it is a summary of, or of parts of them."""
    served: bool = False
    """Whether searches have vectors of its chunks: if so, those of another embedder are made for the same chunks."""


class Plan(NamedTuple):
    """What of a section gets vectors: spans of its text, or of each of its chunks where those stay as they are."""

    work: Work
    spans: tuple[tuple[Span, ...], ...]
    texts: list[str]


class Made(NamedTuple):
    """A section with the vectors of its chunks; `shelved` are new ones in the place of those that there were, if any."""

    was: Section
    shelved: Shelved | None
    vectors: Array


class Kept(NamedTuple):
    """What a transaction kept: entries of new chunks, numbers of those that are gone, and chunks with their vectors."""

    segment: Segment | None
    dropped: list[int]
    ids: list[int]
    vectors: Array


def work_of(library: Library, number: int) -> Work:
    """A section as there is to work on it."""
    section = library.section(number)
    chunks = [library.chunks[n] for n in section.numbers]
    document = library.documents[section.document]
    texts, speakers, mentioned = (tuple(getattr(chunk, name) for chunk in chunks) for name in ("text", "speaker", "mentioned"))
    return Work(section, document.kind, texts, speakers, mentioned, about_of(document.of), number not in library.waiting)


def plan(work: Work, limits: Limits) -> Plan:
    """What to embed for a section."""
    if work.kind == "conversation":
        wholes = tuple(((0, len(text)),) for text in work.texts)
        return Plan(work, wholes, list(work.texts))
    units = work.texts if work.section.cut else ("".join(work.texts),)
    spans = tuple(tuple(sentences(unit, work.kind, limits.largest)) or ((0, len(unit)),) for unit in units)
    return Plan(work, spans, [unit[begin:end] for unit, own in zip(units, spans, strict=True) for begin, end in own])


def make(planned: Plan, vectors: Array, shelver: Shelver, limits: Limits) -> Made:
    """The section with vectors.

    :param vectors: float32, unit rows, one for each of the plan's texts.
    """
    work = planned.work
    if work.section.cut or work.kind == "conversation":
        ends = np.cumsum([len(own) for own in planned.spans])
        rows, cuts = np.stack([_mean(own) for own in np.split(vectors, ends[:-1])]), work.texts
    else:
        text = "".join(work.texts)
        found = by_meaning(text, work.kind, planned.spans[0], vectors, limits)
        cuts = tuple(parted(text, [(piece.start, piece.end) for piece in found]))
        rows = np.stack([piece.vector for piece in found])
    speakers = work.speakers if cuts == work.texts else ("",) * len(cuts)
    shelved = shelver.filled(work.section._replace(cut=True), list(zip(cuts, speakers, strict=True)), work.kind, work.about)
    # the same cuts and the same names: all that there is new are the vectors
    named = work.served or tuple(passage.mentioned for passage in shelved.shelf.passages) == work.mentioned
    same = named and cuts == work.texts
    return Made(work.section, None if same else shelved, rows)


def keep(root: Any, identity: str, made: Sequence[Made]) -> Kept:
    """System transaction: put sections with vectors in the place of what they were made from, where that is still there.

    :param identity: of the embedder; nothing is kept of one that neither serves nor comes any more.
    """
    library = library_of(root)
    waiting = library.lacking(identity)
    ids: list[int] = []
    rows, entries, dropped = [], [], []
    for one in made:
        if waiting is None or library.sections.get(one.was.number) != tuple(one.was[1:]):
            continue  # forgotten or changed meanwhile: what is there now waits for its own
        if one.shelved is None:
            library.sections[one.was.number] = tuple(one.was._replace(cut=True)[1:])
            ids += one.was.numbers
        else:
            dropped += library.recut(root, one.was, one.shelved.shelf)
            entries += one.shelved.entries
            ids += one.shelved.shelf.section.numbers
        rows.append(one.vectors)
        waiting.remove(one.was.number)
    if not ids:
        return Kept(None, [], [], np.zeros((0, 0), np.float32))
    segment = build(entries) if entries else None
    if segment is not None:
        library.text.add(segment)
    vectors = np.concatenate(rows)
    library.vectors[identity].add(ids, vectors)
    return Kept(segment, sorted(set(dropped) - set(ids)), ids, vectors)


def _mean(rows: Array) -> Array:
    mean = rows.mean(0)
    length = float(np.linalg.norm(mean))
    unit: Array = (mean / length if length > 0 else rows[0]).astype(np.float32)
    return unit
