"""What an undo does to the memory: documents that a mission remembered go, those that it forgot come back.

The memory's trees and logs are not merged record by record, as the rest of the image is: since the mission, chunks were cut anew by meaning
and parts of the index were merged. So the documents are told apart by two views of the image, and taken out or put back as a mission would.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from BTrees.LOBTree import LOBTree, LOBucket
from ZODB.POSException import POSKeyError

from batos.errors import HistoryGone
from batos.memory.archiving import archived, objects_of, order
from batos.memory.library import library_of
from batos.memory.sections import Section
from batos.memory.segments import Entry, Segment, build
from batos.memory.shelving import Shelver
from batos.objects import UvmObject


class Moved(NamedTuple):
    """What became of the memory, for whoever lets searches see it once it is durable."""

    segment: Segment | None
    """Index entries of the chunks that came."""
    dropped: list[int]
    """Numbers of those that went."""
    gone: list[str]
    """Titles of the documents that went."""
    back: list[str]
    """And of those that came back."""


_TAKEN_CARE_OF = frozenset(
    (
        *(
            "parent*",
            "number",
            "document",
            "mentioned",
            "chunks",
            "sections",
            "whole",
            "summary",
            "source",
            "sources",
            "digest",
            "complete",
        ),
        *("archive", "archives", "of", "blob", "bytes", "entities", "by_model", "level", "made"),
    )
)


def taken_care_of(obj: UvmObject) -> frozenset[str]:
    """Which slots of an object the memory sees to: some of a document, a chunk, an entity or an archive. Others were given by somebody."""
    parent, root = obj._slots.get("parent*"), obj._p_jar.root()
    traits = root["lobby"].traits._slots
    return _TAKEN_CARE_OF if any(parent is traits.get(name) for name in ("document", "chunk", "entity", "archive")) else frozenset()


def told_apart(before: Any, at: Any, written: Iterable[bytes]) -> tuple[set[int], set[int]]:
    """The numbers of the documents that are in the second view of the image only, and in the first only.

    :param written: ids of the records that lie between the two; only what stands in those leaves of trees is looked at.
    """
    numbers = {number for oid in written for root in (before, at) for number in _numbers(root, oid)}
    was, now = ({number for number in numbers if number in library_of(root).documents} for root in (before, at))
    return now - was, was - now


def _numbers(root: Any, oid: bytes) -> Iterable[int]:
    """The keys in a leaf of a tree by numbers, also of one that is the whole tree; none for any other record."""
    try:
        found = root._p_jar.get(oid)
        if isinstance(found, LOBTree):
            leaf = found._firstbucket
            found = leaf if leaf is not None and leaf._p_oid in (None, oid) else None
        return list(found.keys()) if isinstance(found, LOBucket) else ()
    except POSKeyError:  # it was not there then
        return ()


def move(root: Any, past: Any, out: Iterable[int], back: Iterable[int], shelver: Shelver) -> Moved:
    """Take documents out of the memory and put others back, in the transaction that is open. What is so already stays so.

    :param past: a view of the image in which those to be put back are.
    :raises HistoryGone: if one of them was packed away.
    """
    library = library_of(root)
    dropped: list[int] = []
    titles: tuple[list[str], list[str]] = [], []
    for number in sorted(out):
        document = library.documents.get(number)
        if document is not None and document.archive is None:  # summaries of archives come and go with what they are of
            titles[0].append(document.title or document.source)
            dropped += library.forget(document)
    entries: list[Entry] = []
    for number in sorted(back):
        document = library_of(past).documents[number]
        known = number in library.documents or any(source in library.by_source for source in document.sources)
        if document.archive is None and not known:
            titles[1].append(document.title or document.source)
            entries += _brought_back(root, past, document, shelver)
    segment = build(entries) if entries else None
    if segment is not None:
        library.text.add(segment)
    return Moved(segment, dropped, *titles)


def _brought_back(root: Any, past: Any, then: UvmObject, shelver: Shelver) -> list[Entry]:
    connection, shelves, entries = root._p_jar, [], []
    try:
        document = connection.get(then._p_oid)
        for section in library_of(past).sections_of(then):
            chunks = [connection.get(library_of(past).chunks[number]._p_oid) for number in section.numbers]
            entries += _entries(section, chunks, document.kind, shelver)
            shelves.append((section, chunks))
        for one in archived(then):
            chunks = objects_of(root, document, one)
            entries += _entries(one.section, chunks, document.kind, shelver)
            shelves.append((one.section, chunks))
        # what it has now may be less: some of it was archived when it went
        document.sections = order(then, (section.number for section, _ in shelves)) if then.archives else then.sections
    except POSKeyError:
        raise HistoryGone(f"the document {then.title!r} cannot come back: it was packed away") from None
    library_of(root).bring_back(root, document, shelves, None)
    return entries


def _entries(section: Section, chunks: list[UvmObject], kind: str, shelver: Shelver) -> list[Entry]:
    return shelver.filled(section, [(chunk.text, chunk.speaker) for chunk in chunks], kind).entries
