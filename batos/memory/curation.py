"""Curation steps: reads and system transactions of the curator, and extractive summaries. All are plain functions of the root or of values.

An extract is the summary used when no model is asked. It first picks the texts that represent the others. It picks greedily, each time the
text that most raises the similarity of every text to its nearest pick. That gives a medoid for each theme, so that a rare theme is not
drowned by a frequent one. Nemhauser, Wolsey and Fisher 1978 bound what greed loses. Of each pick it takes the most central sentence: by
vectors where there are some, else by words. Extracts need no image and may run in any thread.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from batos.errors import UnknownSource
from batos.image import blobs, journal, ledger
from batos.image.mission_index import descending
from batos.memory import archive_format, archiver, eviction, records
from batos.memory.chunking import sentences
from batos.memory.records import DIGEST, FAILURE, MISSION
from batos.memory.segments import Array
from batos.memory.store import library_of
from batos.memory.tokenizer import content_words
from batos.objects import Root
from batos.objects.json_form import oid_of

_LOOKED = 8
"""Number of sentences of one text that are compared."""
_TELLING = 3
"""Least number of different words in a compared sentence, if the text has such sentences."""
_LONGEST = 400
"""Greatest number of characters of a sentence; the rest is cut off."""


class ExtractSource(NamedTuple):
    """A text that an extract may take from."""

    text: str
    kind: str = "text"
    speaker: str = ""


class ChosenSentence(NamedTuple):
    """Sentences to choose from, of the texts that stand for the others, in the order of the texts."""

    places: tuple[int, ...]
    """Indexes of the texts."""
    sentences: tuple[tuple[str, ...], ...]
    """The first sentences of each text."""


def choose_sentences(sources: Sequence[ExtractSource], vectors: Array | None, most: int) -> ChosenSentence:
    """Return the texts that stand for the others, `most` at most, and their sentences.

    :param vectors: float[n, d], unit rows, of the texts; None: by their words.
    """
    rows = _by_words([source.text for source in sources]) if vectors is None else vectors.astype(np.float32)
    places, parted = [], []
    for place in sorted(_medoids(rows, most)):
        if found := _sentences(sources[place]):
            places.append(place)
            parted.append(found)
    return ChosenSentence(tuple(places), tuple(parted))


def extract(sources: Sequence[ExtractSource], found: ChosenSentence, vectors: Array | None) -> str:
    """Return one sentence of each of these texts, each on a line, with who says it.

    :param vectors: vectors of all sentences, in their order; None: the sentences are compared by their words.
    """
    lines: dict[str, None] = {}
    begin = 0
    for place, said in zip(found.places, found.sentences, strict=True):
        rows = _by_words(said) if vectors is None else vectors[begin : begin + len(said)]
        begin += len(said)
        best = said[int(np.argmax(rows @ rows.sum(0)))]
        speaker = sources[place].speaker
        lines[best if not speaker or best.startswith(f"{speaker}:") else f"{speaker}: {best}"] = None
    return "\n".join(lines)


def _medoids(rows: Array, most: int) -> list[int]:
    """Return the indexes of the texts that represent the others best."""
    near = rows @ rows.T
    covered = np.zeros(len(rows), np.float32)
    picked: list[int] = []
    while len(picked) < min(most, len(rows)):
        gains = np.maximum(near - covered, 0).sum(1)
        gains[picked] = -1
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        picked.append(best)
        covered = np.maximum(covered, near[best])
    return picked or [0]


def _sentences(source: ExtractSource) -> tuple[str, ...]:
    found = [" ".join(source.text[begin:end].split()) for begin, end in sentences(source.text, source.kind)]
    told = [one for one in found if len(set(content_words(one))) >= _TELLING and not (source.kind == "markdown" and one.startswith("#"))]
    told = told or [one for one in found if content_words(one)] or [" ".join(source.text.split())]
    return tuple(one[:_LONGEST] for one in told[:_LOOKED] if one)


def _by_words(texts: Sequence[str]) -> Array:
    """Return float32[n, words]: unit rows of word counts; rare words have a higher weight."""
    counts = [Counter(content_words(text)) for text in texts]
    spread = Counter(word for count in counts for word in count)
    place = {word: i for i, word in enumerate(spread)}
    rows = np.zeros((len(texts), max(1, len(place))), np.float32)
    for row, count in zip(rows, counts, strict=True):
        for word, times in count.items():
            row[place[word]] = times * np.log(1 + len(texts) / spread[word])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Array = rows / np.where(lengths > 0, lengths, 1)
    return unit


Reply = dict[str, Any]
_SHOWN = 20  # greatest number of sources that an archive names
_EACH = 6  # chunks that one sentence of a summary stands for
_KEPT_TO = 0.5  # least share of a summary's words that its sources must contain


class SectionFacts(NamedTuple):
    """Facts about a cluster's documents, as plain values."""

    embedder: str
    titles: tuple[str, ...]
    kinds: dict[int, str]
    day: int
    left: tuple[int, ...]
    """Numbers of the documents that keep other live parts."""


def said_in(material: archive_format.ArchiveContent, facts: SectionFacts) -> tuple[list[ExtractSource], Array | None]:
    """Return the texts of all chunks, and their vectors if all have one."""
    said = [
        ExtractSource(chunk.text, facts.kinds.get(one.section.document, "text"), chunk.speaker)
        for one in material.held
        for chunk in one.chunks
    ]
    rows = [one.vectors for one in material.held if one.vectors is not None]
    return said, np.concatenate(rows).astype(np.float32) if len(rows) == len(material.held) else None


def sentences_for(chunks: int, most: int) -> int:
    return min(most, -(-chunks // _EACH) + 1)


def is_summary(text: str, said: list[ExtractSource]) -> bool:
    """Return True if a model's text is a valid summary: shorter than its sources, and about them."""
    told = set(content_words(text))
    held = {word for source in said for word in content_words(source.text)}
    return bool(told) and len(text) * 2 <= sum(len(source.text) for source in said) and len(told & held) >= _KEPT_TO * len(told)


# --- reads and system transactions


def read_sections(root: Root, sections: Iterable[int]) -> tuple[list[archive_format.ArchivedSection], SectionFacts]:
    """Return sections as they are, and the facts about their documents."""
    held = archiver.sections_as_archived(root, sections)
    return held, facts_of(root, held)


class InnerArchives(NamedTuple):
    """Archives that are about to be merged, with their contents."""

    numbers: tuple[int, ...]
    blobs: tuple[bytes, ...]
    """Ids of the blobs."""
    material: archive_format.ArchiveContent
    documents: tuple[int, ...]
    titles: tuple[str, ...]
    left: tuple[int, ...]
    """Numbers of the documents that still have live parts."""


def inner_archives(root: Root, summaries: Iterable[int]) -> InnerArchives | None:
    """Return the contents of the archives that these summary documents stand for; None if they cannot be combined, or are gone.

    :raises ImageDamaged: if one of them cannot be read.
    """
    library = library_of(root)
    nodes = [library.documents[number].archive for number in summaries if number in library.documents]
    material = (
        archive_format.combine_archives([archive_format.unpack_archive(blobs.read(node.blob)) for node in nodes])
        if len(nodes) > 1
        else None
    )
    if material is None:
        return None
    documents = {one.number: one for node in nodes for one in node.of}
    titles = dict.fromkeys(one.title or one.source for one in documents.values())
    left = tuple(number for number, one in documents.items() if one.sections)
    were = tuple(node.number for node in nodes), tuple(node.blob._p_oid for node in nodes)
    return InnerArchives(*were, material, tuple(documents), tuple(titles), left)


def facts_of(root: Root, held: Sequence[archive_format.ArchivedSection]) -> SectionFacts:
    library = library_of(root)
    documents = [library.documents[number] for number in dict.fromkeys(one.section.document for one in held)]
    gone = {one.section.number for one in held}
    days = {one.section.day or library.documents[one.section.document].day for one in held}
    return SectionFacts(
        library.embedder,
        tuple(dict.fromkeys(document.title or document.source for document in documents)),
        {document.number: document.kind for document in documents},
        days.pop() if len(days) == 1 else 0,
        tuple(document.number for document in documents if not gone.issuperset(document.sections)),
    )


def described_clusters(root: Root, found: Sequence[eviction.Cluster]) -> list[Reply]:
    library, told = library_of(root), []
    for cluster in found:
        sources = [library.documents[number].source for number in cluster.documents if number in library.documents]
        told.append({"why": cluster.why, "chunks": cluster.chunks, "documents": len(sources), "sources": sources[:_SHOWN]})
    return told


def unsummarised(root: Root) -> list[int]:
    return list(library_of(root).unsummarised.keys(0, excludemin=True))


def archive_content(root: Root, number: int) -> tuple[archive_format.ArchiveContent, SectionFacts, int, bool] | None:
    """Return the content of an archive that lost its summary; None if the archive is gone."""
    node = library_of(root).archives.get(number)
    if node is None or node.summary is not None:
        return None
    material = archive_format.unpack_archive(blobs.read(node.blob))
    facts = facts_of(root, material.held)
    return material, facts, node.level, not set(facts.kinds.values()).isdisjoint((DIGEST, MISSION, FAILURE))


def put_away(
    root: Root, material: archive_format.ArchiveContent, data: bytes, made: archiver.NewSummary, mission: str
) -> archiver.MemoryChange | None:
    """System transaction: archive a cluster. The summary holds the model's text now, and the mission no longer does."""
    change = archiver.archive_sections(root, material, data, made)
    blank(root, mission)
    return change


def put_together(root: Root, found: InnerArchives, data: bytes, made: archiver.NewSummary, mission: str) -> archiver.MemoryChange | None:
    """System transaction: merge archives."""
    change = archiver.merge_archives(root, found.numbers, found.blobs, found.material, data, made)
    blank(root, mission)
    return change


def blank(root: Root, mission: str) -> None:
    """Remove a model's summary from the result of the mission that asked for it."""
    if mission and (line := ledger.line_of(root, mission)) is not None:
        ledger.ledger_of(root).folded.keep(line._replace(came=""))
    elif mission:
        record = ledger.mission_of(root, mission)
        record.result = record.result and json.dumps({**json.loads(record.result), "text": "", "value": None})
        journal.drop_texts(journal.of(record))


def bring_back(root: Root, number: int, only: int | None, now: float, score: float) -> archiver.MemoryChange | None:
    """System transaction: restore an archive's content, if it still exists, and count it as read, because a request named it."""
    library = library_of(root)
    if number not in library.archives:
        return None
    change = archiver.restore_archive(root, number, only)
    library.reads.update({section: tuple(eviction.AccessScore(score, now)) for section in change.sections})
    return change


Part = tuple[int, int | None]
"""Number of an archive, and number of a document in it; None for all documents of the archive."""


def archives_of(root: Root, what: str) -> list[Part]:
    """Return the archived parts with a given number or source.

    :raises UnknownSource: if there is no such archive, and the memory holds nothing from that source.
    """
    library = library_of(root)
    if what.isascii() and what.isdigit():
        if int(what) in library.archives:
            return [(int(what), None)]
        if what not in library.by_source:
            raise UnknownSource(f"archive {what} does not exist; `batos memory archives` lists them")
    document = library.document(what)
    if document.archive is not None:
        return [(document.archive.number, None)]
    return [(node.number, document.number) for node in document.archives]


def archived_below(root: Root, source: str) -> list[Part]:
    """Return the archived parts of a source, or of everything below that folder."""
    library = library_of(root)
    documents = [library.documents[number] for number in sorted(eviction.documents_below(library, source))]
    return [(node.number, document.number) for document in documents for node in document.archives]


def pin(root: Root, source: str, stays: bool) -> bool:
    return eviction.pin_source(root, source, stays=stays)


def note_round(root: Root, now: float, size: int) -> None:
    """System transaction: record a round."""
    curator = root["lobby"].memory.curator
    curator.at, curator.bytes, curator.rounds = now, size, curator.rounds + 1


TREES = ("chunks", "sections", "starts", "documents", "reads", "by_source", "by_content", "by_title")
"""Trees of the library from which archiving removes many entries, or in which it leaves sparse leaves."""


def sparse_tree_keys(root: Root, name: str) -> list[Any]:
    """Return keys that lie almost alone in their leaf, in too many leaves of one of these trees."""
    return records.sparse_keys(getattr(library_of(root), name))


def reinsert_tree_keys(root: Root, name: str, keys: Sequence[Any]) -> None:
    """System transaction: reinsert keys, so that the tree has fewer leaves."""
    records.reinsert(getattr(library_of(root), name), keys)


def no_op(root: Root) -> None:
    """Do nothing: a caller waits for this transaction so that all earlier ones are done."""


def list_archives(root: Root, most: int) -> Reply:
    """Return the archives, the newest first, as plain values."""
    library = library_of(root)
    nodes = [node for _, node in itertools.islice(descending(library.archives), most)]
    return {"archives": len(library.archives), "listed": [_archive(node) for node in nodes], "pinned": list(library.pinned)[:most]}


def _archive(node: Any) -> Reply:
    return {
        "archive": node.number,
        "of": [document.source for document in node.of[:_SHOWN]],
        "documents": len(node.of),
        "chunks": node.chunks,
        "bytes": node.bytes,
        "level": node.level,
        "by_model": node.by_model,
        "made": node.made,
        "summary": oid_of(node.summary) if node.summary is not None else None,
        "oid": oid_of(node),
    }
