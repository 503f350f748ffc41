"""Archiving: move sections out of the memory into a blob, put a summary in their place, restore them, and undo what missions remembered.

An archived document keeps its record, so that its source is still found. Its title is matched against new texts again once a part of it is
restored. An archive is an object (`library.archives`) that knows its blob, its documents and its summary. If the summary is lost because a
document in it was forgotten, the archive waits in `library.unsummarised` for a new one.

Undo removes the documents that a mission remembered and restores those that it forgot. The memory's trees and logs cannot be merged
record by record as the rest of the image is. Since the mission, chunks may have been cut again by meaning and index parts merged. So undo
compares two views of the image and removes or adds documents as a mission would. All functions work inside the open transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from BTrees.LOBTree import LOBTree, LOBucket
from ZODB.POSException import POSKeyError

from batos.errors import HistoryGone, ImageDamaged, UnknownSource
from batos.image import blobs, zodb_patches
from batos.memory import section_builder, store
from batos.memory.archive_format import ArchiveContent, ArchivedChunk, ArchivedSection, pack_archive, unpack_archive
from batos.memory.eviction import pinned_documents
from batos.memory.records import Section
from batos.memory.section_builder import Shelver
from batos.memory.segments import Array, Entry, Segment, build
from batos.memory.store import Library, fill_archive, library_of
from batos.objects import Root, UvmObject

OWN = frozenset(("parent*", "number", "document", "text", "speaker", "mentioned"))
"""Slots that every chunk has. A chunk with other slots was changed by a user or a mission, and is not archived."""


class NewSummary(NamedTuple):
    """A summary that is ready to be stored, with the documents and sections that it covers."""

    number: int
    """Number of the archive."""
    prepared: section_builder.PreparedDocument
    segment: Segment
    documents: tuple[int, ...]
    """Numbers of the documents that the archive covers."""
    at: float
    """Time of the archiving, in seconds since the epoch."""
    level: int = 1
    by_model: bool = False


class MemoryChange(NamedTuple):
    """Changes of a transaction to the memory, to be shown to searches once the transaction is durable."""

    segment: Segment | None = None
    dropped: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    vectors: Array | None = None
    """float16: vectors of the chunks `ids`."""
    sections: tuple[int, ...] = ()
    """Numbers of the restored sections."""
    embedder: str = ""
    """Identity of the embedder that made the vectors."""


# --- archiving


def sections_as_archived(root: Root, numbers: Iterable[int]) -> list[ArchivedSection]:
    """Return the sections as they are, without their vectors. Omit sections that may not be archived or no longer exist."""
    library = library_of(root)
    return [one for number in numbers if (one := _held(library, number)) is not None]


def _held(library: Library, number: int) -> ArchivedSection | None:
    if number not in library.sections or library.change is not None:
        return None  # or its embedder changes: the worker is making its vectors anew
    section = library.section(number)
    chunks = [library.chunks[n] for n in section.numbers]
    if any(not set(chunk._slots) <= OWN for chunk in chunks):
        return None
    found = tuple(ArchivedChunk(chunk._p_oid, chunk.text, chunk.speaker, tuple(chunk.mentioned), chunk._p_serial) for chunk in chunks)
    return ArchivedSection(section, found, None)


def archive_sections(root: Root, material: ArchiveContent, data: bytes, made: NewSummary) -> MemoryChange | None:
    """Archive sections. Return None and change nothing if one of them has changed or is pinned.

    :param data: `pack_archive(material)`.
    """
    library = library_of(root)
    stay = pinned_documents(library)
    if material.embedder != library.embedder or any(_changed(library, one) or one.section.document in stay for one in material.held):
        return None
    documents = [library.documents[number] for number in dict.fromkeys(one.section.document for one in material.held)]
    if any(document.archive is not None for document in documents):
        return None  # summaries of archives are not archived but merged: see `merge`
    node = UvmObject(**{"parent*": root["lobby"].traits.archive, "number": made.number, "level": made.level, "made": made.at})
    library.archives[made.number] = node
    root._p_jar.add(node)
    fill_archive(node, root, material, data)
    keys = {key for one in material.held for chunk in one.chunks for key in chunk.mentioned}
    named = {key: library.entities[key] for key in sorted(keys) if key in library.entities}
    gone = {one.section.number for one in material.held}
    for document in documents:
        _leaves(document, gone)
        document.archives = (*document.archives, node)
        library.catalogued(document)
    dropped = library.drop_sections(one.section.number for one in material.held)
    node.entities = tuple((key, entity) for key, entity in named.items() if key not in library.entities)
    _summarise(root, node, made)
    return MemoryChange(made.segment, tuple(dropped))


def _changed(library: Library, one: ArchivedSection) -> bool:
    now = _held(library, one.section.number)
    return now is None or now.section != one.section or now.chunks != one.chunks


def _leaves(document: UvmObject, gone: Collection[int]) -> None:
    """Remove sections from a document. The document may stay for ever; absent attributes take no space in it."""
    if tuple(sorted(document.sections)) != document.sections and not document.whole:
        document.whole = document.sections
    if rest := tuple(number for number in document.sections if number not in gone):
        document.sections = rest
    else:
        del document._slots["sections"]


def section_order(document: UvmObject, sections: Iterable[int]) -> tuple[int, ...]:
    """Return these sections, which a document that is archived has or had, in their order."""
    there = set(sections)
    return tuple(number for number in document.whole or sorted(there) if number in there)


def merge_archives(
    root: Root, numbers: Sequence[int], were: Sequence[bytes], material: ArchiveContent, data: bytes, made: NewSummary
) -> MemoryChange | None:
    """Merge archives under one summary. Return None and change nothing if one of them has changed.

    :param were: the ids of their blobs, out of which the material was read.
    """
    library = library_of(root)
    nodes = [node for number in numbers if (node := library.archives.get(number)) is not None and node.summary is not None]
    if [node.blob._p_oid for node in nodes] != list(were):
        return None
    new = UvmObject(**{"parent*": root["lobby"].traits.archive, "number": made.number, "level": made.level, "made": made.at})
    library.archives[made.number] = new
    root._p_jar.add(new)
    fill_archive(new, root, material, data)
    named: dict[str, UvmObject] = {}
    for key, entity in sorted((pair for node in nodes for pair in node.entities), key=lambda pair: pair[1]._p_oid):
        named.setdefault(key, entity)
    new.entities = tuple(named.items())
    for document in new.of:
        document.archives = (*(one for one in document.archives if one not in nodes), new)
    dropped: list[int] = []
    for node in nodes:
        dropped += library.take_out(node.summary)
        del library.archives[node.number]
    _summarise(root, new, made)
    return MemoryChange(made.segment, tuple(dropped))


# --- the summary in their place


def replace_summary(root: Root, made: NewSummary) -> MemoryChange | None:
    """Replace the missing summary of an archive. Return None if the archive is gone or has a summary."""
    library = library_of(root)
    node = library.archives.get(made.number)
    if node is None or node.summary is not None or tuple(one.number for one in node.of) != made.documents:
        return None
    library.unsummarised.discard(made.number)
    _summarise(root, node, made)
    return MemoryChange(made.segment)


def _summarise(root: Root, node: UvmObject, made: NewSummary) -> None:
    section_builder.store_document(root, made.prepared._replace(of=node.of), made.segment)
    summary = library_of(root).documents[made.prepared.number]
    summary.archive, node.summary, node.by_model = node, summary, made.by_model


# --- restoring


def restore_archive(root: Root, number: int, only: int | None = None) -> MemoryChange:
    """Restore the content of an archive in the place of its summary. Content that stays in the archive waits for another summary.

    :param only: number of a document: restore only its content.
    :raises UnknownSource: if there is no archive with that number.
    """
    library = library_of(root)
    node = library.archives.get(number)
    if node is None:
        raise UnknownSource(f"archive {number} does not exist; `batos memory archives` lists them")
    material = unpack_archive(blobs.read(node.blob))
    others = {document.number for document in node.of if only not in (None, document.number)}
    back, rest = (material.without(others), material.without([only])) if others and only is not None else (material, None)
    named = {key for one in back.held for chunk in one.chunks for key in chunk.mentioned}
    for key, entity in node.entities:
        if key in named:
            store.restore_entity(library, key, entity)
    documents = [document for document in node.of if document.number not in others]
    dropped = _close(root, node) if rest is None else _leave(root, node, rest, named)
    for one in back.held:
        library.enter(root, one.section, objects_of(root, library.documents[one.section.document], one))
    library.text.add(back.segment)
    for document in documents:
        _rejoin(library, document, node, [one.section.number for one in back.held if one.section.document == document.number])
    sections = tuple(one.section.number for one in back.held)
    return MemoryChange(back.segment, tuple(dropped), *_with_vectors(library, back), sections, back.embedder)


def _close(root: Root, node: UvmObject) -> list[int]:
    """Remove an archive. Return the numbers of its summary's chunks."""
    library = library_of(root)
    library.unsummarised.discard(node.number)
    del library.archives[node.number]
    return library.take_out(node.summary) if node.summary is not None else []


def _leave(root: Root, node: UvmObject, rest: ArchiveContent, gone: Collection[str]) -> list[int]:
    """Leave an archive with less. Its summary goes, and another is made: it may tell of what can be forgotten without it from now on."""
    library, summary = library_of(root), node.summary
    fill_archive(node, root, rest, pack_archive(rest))
    node.entities = tuple((key, entity) for key, entity in node.entities if key not in gone)
    node.summary = None
    library.unsummarised.add(node.number)
    return library.take_out(summary) if summary is not None else []


def objects_of(root: Root, document: UvmObject, one: ArchivedSection) -> list[UvmObject]:
    """Return the chunks of an archived section as the objects that they were."""
    prototype, found = root["lobby"].traits.chunk, []
    for number, chunk in zip(one.section.numbers, one.chunks, strict=True):
        slots = {"parent*": prototype, "number": number, "document": document, "text": chunk.text}
        slots |= {name: value for name, value in (("speaker", chunk.speaker), ("mentioned", chunk.mentioned)) if value}
        found.append(_revived(root._p_jar, chunk.oid, slots))
    return found


def _revived(connection: Any, oid: bytes, slots: dict[str, Any]) -> UvmObject:
    """Return the object of an id with these slots, also where its record was packed away: what names it by its id finds it again."""
    try:
        zodb_patches.load_record(connection, oid)  # the cache may hold an object that is no longer in the image
    except POSKeyError:
        return _made_again(connection, oid, slots)
    there = connection.get(oid)
    if not isinstance(there, UvmObject):
        raise ImageDamaged(f"oid:{int.from_bytes(oid, 'big'):x} is no longer a chunk; restore a backup (`batos restore`)")
    for name in [name for name in there._slots if name in OWN and name not in slots]:
        del there._slots[name]
    for name, value in slots.items():
        if there._slots.get(name) != value:
            there._slots[name] = value
    there._p_changed = True  # written in any case: a pack that is under way may have counted the object as unreachable
    return there


def _made_again(connection: Any, oid: bytes, slots: dict[str, Any]) -> UvmObject:
    """Return a new object under an id that is free again."""
    made = UvmObject(**slots)
    zodb_patches.revive(connection, made, oid)
    return made


def _with_vectors(library: Library, material: ArchiveContent) -> tuple[tuple[int, ...], Array | None]:
    """Restore the vectors of chunks if searches use their embedder; other chunks wait for new vectors."""
    if material.embedder != library.embedder or library.embedder not in library.vectors:
        return (), None
    those = [one for one in material.held if one.vectors is not None]
    if not those:
        return (), None
    for one in those:
        library.waiting.discard(one.section.number)
    ids = [number for one in those for number in one.section.numbers]
    vectors = np.concatenate([one.vectors for one in those if one.vectors is not None])
    library.vectors[library.embedder].add(ids, vectors)
    return tuple(ids), vectors


def _rejoin(library: Library, document: UvmObject, node: UvmObject, sections: Iterable[int]) -> None:
    document.sections = section_order(document, {*document.sections, *sections})
    document.archives = tuple(one for one in document.archives if one is not node)
    if not document.archives:
        for name in ("archives", "whole"):
            document._slots.pop(name, None)
    library.catalogued(document)


def archived_sections(document: UvmObject) -> list[ArchivedSection]:
    """Return the archived sections of a document, in no particular order. Undo calls this on a view of the past."""
    there = [unpack_archive(blobs.read(node.blob)) for node in document.archives]
    return [one for material in there for one in material.held if one.section.document == document.number]


class UndoneMemory(NamedTuple):
    """Changes of an undo to the memory, to be shown to searches once they are durable."""

    segment: Segment | None
    """Index entries of the restored chunks."""
    dropped: list[int]
    """Numbers of the removed chunks."""
    gone: list[str]
    """Titles of the removed documents."""
    back: list[str]
    """Titles of the restored documents."""


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


def managed_slots(obj: UvmObject) -> frozenset[str]:
    """Return the slots of an object that the memory manages: some of a document, a chunk, an entity or an archive.

    Users or missions gave the others.
    """
    parent, root = obj._slots.get("parent*"), obj._p_jar.root()
    traits = root["lobby"].traits._slots
    return _TAKEN_CARE_OF if any(parent is traits.get(name) for name in ("document", "chunk", "entity", "archive")) else frozenset()


def document_differences(before: Any, at: Any, written: Iterable[bytes]) -> tuple[set[int], set[int]]:
    """Return the numbers of the documents that are in the second view of the image only, and in the first only.

    :param written: ids of the records that lie between the two; only what stands in those leaves of trees is looked at.
    """
    numbers = {number for oid in written for root in (before, at) for number in _numbers(root, oid)}
    was, now = ({number for number in numbers if number in library_of(root).documents} for root in (before, at))
    return now - was, was - now


def _numbers(root: Root, oid: bytes) -> Iterable[int]:
    """Return the keys in a leaf of a tree by numbers, also of one that is the whole tree; none for any other record."""
    try:
        found = root._p_jar.get(oid)
        if isinstance(found, LOBTree):
            leaf = found._firstbucket
            found = leaf if leaf is not None and leaf._p_oid in (None, oid) else None
        return list(found.keys()) if isinstance(found, LOBucket) else ()
    except POSKeyError:  # the object did not exist then
        return ()


def undo_documents(root: Root, past: Any, out: Iterable[int], back: Iterable[int], shelver: Shelver) -> UndoneMemory:
    """Remove documents from the memory and restore others, in the open transaction. Documents that need no change stay.

    :param past: view of the image that holds the documents to restore.
    :raises HistoryGone: if one of them was packed away.
    """
    library = library_of(root)
    dropped: list[int] = []
    titles: tuple[list[str], list[str]] = [], []
    for number in sorted(out):
        document = library.documents.get(number)
        if document is not None and document.archive is None:  # summaries of archives come and go with their archives
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
    return UndoneMemory(segment, dropped, *titles)


def _brought_back(root: Root, past: Any, then: UvmObject, shelver: Shelver) -> list[Entry]:
    connection, shelves, entries = root._p_jar, [], []
    try:
        document = connection.get(then._p_oid)
        for section in library_of(past).sections_of(then):
            chunks = [connection.get(library_of(past).chunks[number]._p_oid) for number in section.numbers]
            entries += _entries(section, chunks, document.kind, shelver)
            shelves.append((section, chunks))
        for one in archived_sections(then):
            chunks = objects_of(root, document, one)
            entries += _entries(one.section, chunks, document.kind, shelver)
            shelves.append((one.section, chunks))
        # the current sections may be fewer: some were archived when the document was removed
        document.sections = section_order(then, (section.number for section, _ in shelves)) if then.archives else then.sections
    except POSKeyError:
        raise HistoryGone(f"the document {then.title!r} cannot come back: it was packed away") from None
    library_of(root).bring_back(root, document, shelves, None)
    return entries


def _entries(section: Section, chunks: list[UvmObject], kind: str, shelver: Shelver) -> list[Entry]:
    return shelver.filled(section, [(chunk.text, chunk.speaker) for chunk in chunks], kind).entries
