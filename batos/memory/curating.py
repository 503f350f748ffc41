"""What the curator reads of the image, and its system transactions: plain functions of the root, and of what they found."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from batos.errors import UnknownSource
from batos.image import blobs, journal, ledger
from batos.image.folded import descending
from batos.image.history import oid_of
from batos.memory import archives, archiving, clusters, extracting, growing, standing
from batos.memory.kinds import DIGEST, FAILURE, MISSION
from batos.memory.library import library_of
from batos.memory.segments import Array
from batos.memory.words import content_words

Reply = dict[str, Any]
_SHOWN = 20  # sources that are named of one archive
_EACH = 6  # chunks of which one sentence tells
_KEPT_TO = 0.5  # share of a summary's words that must be in what it is of


class Facts(NamedTuple):
    """What is known of a cluster's documents, as plain values."""

    embedder: str
    titles: tuple[str, ...]
    kinds: dict[int, str]
    day: int
    left: tuple[int, ...]
    """Numbers of those of which something else stays."""


def said_in(material: archives.Material, facts: Facts) -> tuple[list[extracting.Source], Array | None]:
    """The texts of all chunks, and their vectors if all have one."""
    said = [
        extracting.Source(chunk.text, facts.kinds.get(one.section.document, "text"), chunk.speaker)
        for one in material.held
        for chunk in one.chunks
    ]
    rows = [one.vectors for one in material.held if one.vectors is not None]
    return said, np.concatenate(rows).astype(np.float32) if len(rows) == len(material.held) else None


def sentences_for(chunks: int, most: int) -> int:
    return min(most, -(-chunks // _EACH) + 1)


def fits(text: str, said: list[extracting.Source]) -> bool:
    """Whether a model's summary is one: shorter than what it is of, and about that."""
    told = set(content_words(text))
    held = {word for source in said for word in content_words(source.text)}
    return bool(told) and len(text) * 2 <= sum(len(source.text) for source in said) and len(told & held) >= _KEPT_TO * len(told)


# --- reads and system transactions


def read(root: Any, sections: Iterable[int]) -> tuple[list[archives.Held], Facts]:
    """Sections as they are, and what is known of their documents."""
    held = archiving.held(root, sections)
    return held, facts_of(root, held)


class Inner(NamedTuple):
    """Archives that are to be put together, as they are."""

    numbers: tuple[int, ...]
    blobs: tuple[bytes, ...]
    """Ids of their blobs."""
    material: archives.Material
    documents: tuple[int, ...]
    titles: tuple[str, ...]
    left: tuple[int, ...]
    """Numbers of the documents of which something is live."""


def inner(root: Any, summaries: Iterable[int]) -> Inner | None:
    """What the archives hold that these documents are the summaries of; None if that cannot be put together, or not any more.

    :raises ImageDamaged: if one of them cannot be read.
    """
    library = library_of(root)
    nodes = [library.documents[number].archive for number in summaries if number in library.documents]
    material = archives.together([archives.unpacked(blobs.read(node.blob)) for node in nodes]) if len(nodes) > 1 else None
    if material is None:
        return None
    documents = {one.number: one for node in nodes for one in node.of}
    titles = dict.fromkeys(one.title or one.source for one in documents.values())
    left = tuple(number for number, one in documents.items() if one.sections)
    were = tuple(node.number for node in nodes), tuple(node.blob._p_oid for node in nodes)
    return Inner(*were, material, tuple(documents), tuple(titles), left)


def facts_of(root: Any, held: Sequence[archives.Held]) -> Facts:
    library = library_of(root)
    documents = [library.documents[number] for number in dict.fromkeys(one.section.document for one in held)]
    gone = {one.section.number for one in held}
    days = {one.section.day or library.documents[one.section.document].day for one in held}
    return Facts(
        library.embedder,
        tuple(dict.fromkeys(document.title or document.source for document in documents)),
        {document.number: document.kind for document in documents},
        days.pop() if len(days) == 1 else 0,
        tuple(document.number for document in documents if not gone.issuperset(document.sections)),
    )


def described(root: Any, found: Sequence[clusters.Cluster]) -> list[Reply]:
    library, told = library_of(root), []
    for cluster in found:
        sources = [library.documents[number].source for number in cluster.documents if number in library.documents]
        told.append({"why": cluster.why, "chunks": cluster.chunks, "documents": len(sources), "sources": sources[:_SHOWN]})
    return told


def unsummarised(root: Any) -> list[int]:
    return list(library_of(root).unsummarised.keys(0, excludemin=True))


def unpacked(root: Any, number: int) -> tuple[archives.Material, Facts, int, bool] | None:
    """What an archive holds that lost its summary; None if it is gone."""
    node = library_of(root).archives.get(number)
    if node is None or node.summary is not None:
        return None
    material = archives.unpacked(blobs.read(node.blob))
    facts = facts_of(root, material.held)
    return material, facts, node.level, not set(facts.kinds.values()).isdisjoint((DIGEST, MISSION, FAILURE))


def put_away(root: Any, material: archives.Material, data: bytes, made: archiving.Made, mission: str) -> archiving.Change | None:
    """System transaction: put a cluster away. What a model said of it is in the summary now, and nowhere else."""
    change = archiving.archive(root, material, data, made)
    _blank(root, mission)
    return change


def put_together(root: Any, found: Inner, data: bytes, made: archiving.Made, mission: str) -> archiving.Change | None:
    """System transaction: put archives together."""
    change = archiving.merge(root, found.numbers, found.blobs, found.material, data, made)
    _blank(root, mission)
    return change


def _blank(root: Any, mission: str) -> None:
    """Take what a model said out of the mission by which it was asked."""
    if mission and (line := ledger.line_of(root, mission)) is not None:
        ledger.ledger_of(root).folded.keep(line._replace(came=""))
    elif mission:
        record = ledger.mission_of(root, mission)
        record.result = record.result and json.dumps({**json.loads(record.result), "text": "", "value": None})
        journal.drop_texts(journal.of(record))


def bring_back(root: Any, number: int, only: int | None, now: float, score: float) -> archiving.Change | None:
    """System transaction: bring back what is in an archive, if that is there still, and count it as read: whoever asked for it wants it."""
    library = library_of(root)
    if number not in library.archives:
        return None
    change = archiving.restore(root, number, only)
    library.reads.update({section: tuple(standing.Standing(score, now)) for section in change.sections})
    return change


Part = tuple[int, int | None]
"""An archive's number, and the document of which it is; None: of all in it."""


def archives_of(root: Any, what: str) -> list[Part]:
    """What is archived under a number, or of a source.

    :raises UnknownSource: if there is no such archive, or nothing in the memory is from there.
    """
    library = library_of(root)
    if what.isascii() and what.isdigit():
        if int(what) in library.archives:
            return [(int(what), None)]
        if what not in library.by_source:
            raise UnknownSource(f"there is no archive {what}; `batos memory archives` lists them")
    document = library.document(what)
    if document.archive is not None:
        return [(document.archive.number, None)]
    return [(node.number, document.number) for node in document.archives]


def archived_below(root: Any, source: str) -> list[Part]:
    """What is archived of a source, or of what is below that folder."""
    library = library_of(root)
    documents = [library.documents[number] for number in sorted(standing.below(library, source))]
    return [(node.number, document.number) for document in documents for node in document.archives]


def pin(root: Any, source: str, stays: bool) -> bool:
    return standing.pin(root, source, stays=stays)


def rounded(root: Any, now: float, size: int) -> None:
    """System transaction: there was a round."""
    curator = root["lobby"].memory.curator
    curator.at, curator.bytes, curator.rounds = now, size, curator.rounds + 1


TREES = ("chunks", "sections", "starts", "documents", "reads", "by_source", "by_content", "by_title")
"""Those of the library that archiving takes much out of, or which have few entries in many places then."""


def scattered(root: Any, name: str) -> list[Any]:
    """Keys of one of these trees that stand alone in too many leaves."""
    return growing.scattered(getattr(library_of(root), name))


def gathered(root: Any, name: str, keys: Sequence[Any]) -> None:
    """System transaction: put them together."""
    growing.gather(getattr(library_of(root), name), keys)


def nothing(root: Any) -> None:
    """What is waited for so that all before it has been."""


def listed(root: Any, most: int) -> Reply:
    """The archives, the newest first, as plain values."""
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
