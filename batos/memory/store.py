"""The library: everything the memory holds, as one persistent object at `lobby.memory.library`.

A document is a sequence of sections, a section a sequence of chunks with consecutive numbers, so that neighbours differ by one. The texts
of a section's chunks, joined, are the section's text, so that it can be cut again without its file. The process hands out numbers
(`batos.memory.records`), never a counter in the image: two missions that remember something at once do not conflict.

`Library.by_title` finds a document by title: the first with that title, and once that is gone the next of `Library.namesakes`. Entities are
what chunks mention, by key (the casefolded name), with the way back to those chunks. An entity exists as long as a chunk mentions it. All
functions work inside the open transaction: a system transaction for files, a mission's unit for what the mission remembers.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from BTrees.LLBTree import LLBTree, LLTreeSet
from BTrees.LOBTree import LOBTree
from BTrees.OOBTree import OOBTree, OOTreeSet
from persistent import Persistent
from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged, ImageError, InvalidInput, UnknownSource
from batos.image import blobs
from batos.memory.records import EPOCH, UNTITLED, Catalogue, Change, Counts, Epoch, GrowingTree, Section, Shelf
from batos.objects import Root, UvmObject

if TYPE_CHECKING:
    from batos.memory.archive_format import ArchiveContent
    from batos.memory.records import Shelf


def add_title(library: Library, key: str, number: int) -> None:
    """Add a document's title."""
    if key and library.by_title.get(key, number) != number:
        library.namesakes.add((key, number))
    elif key and key not in library.by_title:
        library.namesakes.discard((key, number))
        library.by_title[key] = number
        library.unlinked.add(key)


def remove_title(library: Library, key: str, number: int, *, for_good: bool) -> None:
    """Remove a document's title.

    :param for_good: False: the document may come back, links to it stay, and no other takes its place.
    """
    for listed in _listed(library, key, number):
        library.namesakes.discard((listed, number))
        if library.by_title.get(listed) == number:
            del library.by_title[listed]
        if for_good and listed not in library.by_title:
            for _, heir in list(library.namesakes.keys((listed,), (listed, float("inf"))))[:1]:
                add_title(library, listed, heir)


def _listed(library: Library, key: str, number: int) -> list[str]:
    """Return the titles under which a document is listed: another than its own, where a mission wrote that."""
    if not key or library.by_title.get(key) == number or (key, number) in library.namesakes:
        return [key]
    both = itertools.chain(library.by_title.items(), library.namesakes)
    return [title for title, listed in both if listed == number]


def title_of(document: UvmObject) -> str:
    """Return the title that a document is found by, casefolded; empty for one that is not."""
    return "" if document.kind in UNTITLED else document.title.casefold()


def complete_titles(library: Library) -> None:
    """List what an earlier BAT OS did not: it knew one document of each title."""
    for number, document in library.documents.items():
        with contextlib.suppress(ImageDamaged, POSKeyError):  # the self-audit reports the damage
            if document.complete and not (document.archives and not document.sections):
                add_title(library, title_of(document), number)


def add_mentions(library: Library, root: Root, chunk: UvmObject) -> None:
    """Add a chunk to the entities that it mentions. Missing entities are made."""
    for key in chunk.mentioned:
        _entity(library, root, key, chunk.speaker if chunk.speaker.casefold() == key else key).chunks[chunk.number] = None


def mentions_of(library: Library, number: int) -> Iterable[str]:
    """Return the keys that the chunk of that number mentions. One that is damaged can be forgotten, too: then all entities are asked."""
    try:
        return library.chunks[number].mentioned  # type: ignore[no-any-return]
    except (ImageDamaged, POSKeyError):
        return [key for key, entity in library.entities.items() if number in entity.chunks]


def remove_mentions(library: Library, number: int, keys: Iterable[str]) -> None:
    """Remove a chunk's mentions. Entities without mentions are removed."""
    for key in keys:
        entity = library.entities.get(key)
        if entity is not None:
            entity.chunks.pop(number, None)
            if not entity.chunks:
                del library.entities[key]
                library.counts.add(entities=-1)


def change_mentions(library: Library, root: Root, shelf: Shelf) -> None:
    """Replace the mentions of a section's chunks by those of these passages; the chunks stay."""
    for number, passage in zip(shelf.section.numbers, shelf.passages, strict=True):
        chunk = library.chunks[number]
        if chunk.mentioned != passage.mentioned:
            remove_mentions(library, number, set(chunk.mentioned) - set(passage.mentioned))
            chunk.mentioned = passage.mentioned
            add_mentions(library, root, chunk)


def restore_entity(library: Library, key: str, entity: UvmObject) -> None:
    """Restore an entity, to which other objects may refer. It takes over the mentions of an entity that was made in its place."""
    now = library.entities.get(key)
    if now is None:
        library.entities[key] = entity
        library.counts.add(entities=1)
    elif now._p_oid is None or entity._p_oid < now._p_oid:  # ids ascend in time
        entity.chunks.update(now.chunks)
        library.entities[key] = entity


def _entity(library: Library, root: Root, key: str, written: str) -> UvmObject:
    found = library.entities.get(key)
    if found is None:
        named = library.by_title.get(key)
        name, kind = (library.documents[named].title, "title") if named is not None else (written, "person")
        found = UvmObject(**{"parent*": root["lobby"].traits.entity, "name": name, "kind": kind, "chunks": LOBTree()})
        library.entities[key] = found
        library.counts.add(entities=1)
    return found  # type: ignore[no-any-return]


CATALOGUED = ("kind", "mission", "day", "tags", "speakers", "days")
"""Slots of a document by which the catalogue finds it."""


def summary_source(number: int) -> str:
    """Return the source of the summary of the document or chunk with that number: documents and chunks share their numbers."""
    return f"summary:{number}"


def epoch_of(root: Root) -> int:
    """Return the epoch of a new run of a process that has the image to itself. The transaction of its first object stores it, too."""
    return int(library_of(root).epoch.value)


def take_epoch(root: Root) -> int:
    """System transaction: take the epoch of a kernel that shares the image. No other run of a process gets its numbers, at any time."""
    return int(library_of(root).epoch.take())


class Library(Persistent):
    """The memory's root object."""

    __module__ = "batos.memory"
    change: Change | None = None
    """A change of embedder: searches use the vectors of the old embedder while the worker makes those of the new one. None: no change."""
    machines: Any = None
    """Queued files and watched folders -> name of their machine, where several kernels serve the image: see `batos.memory.machines`."""

    def __init__(self) -> None:
        from batos.memory.text_index import SegmentedText  # late import: these two need numpy

        self.epoch = Epoch()
        self.chunks: LOBTree = GrowingTree()
        self.sections: LOBTree = GrowingTree()
        self.starts = LLBTree()
        """Number of a section's first chunk -> number of the section."""
        self.documents: LOBTree = GrowingTree()
        self.by_source, self.by_content, self.by_title = OOBTree(), OOBTree(), OOBTree()
        self.entities = OOBTree()
        self.catalogue = Catalogue()
        self.text = SegmentedText()
        self.vectors = OOBTree()
        """Identity of an embedder -> log of its vectors: one log, or two during a change of embedder."""
        self.embedder = ""
        """Identity of the embedder whose vectors searches use; empty until there are vectors."""
        self.waiting = LLTreeSet()
        """Sections that lack vectors of `embedder`; see `without_vectors`."""
        self.complete()
        self.queue, self.refused, self.stamps, self.watched = OOBTree(), OOBTree(), OOBTree(), OOBTree()
        """Files that wait to be read -> attempts at them; refused files -> reason; files -> time and size when they were last read;
        watched folders.
        """

    def complete(self) -> None:
        """Make what an earlier BAT OS did not have."""
        self._p_activate()  # a ghost has no attributes
        if "unlinked" not in self.__dict__:
            self.unlinked = OOTreeSet([""])
            """Titles, casefolded, that older texts do not link to yet. The first entry is permanent: see `part_log`."""
        if "counts" not in self.__dict__:
            self.counts = Counts(len(self.documents), len(self.sections), len(self.chunks), len(self.entities))
        if "archives" not in self.__dict__:
            self.archives = LOBTree()
            """Number of an archive -> archive: see `batos.memory.archiver`."""
            self.unsummarised = LLTreeSet([0])
            """Archives that lost their summary and wait for another. The first entry is permanent: see `part_log`."""
            self.reads, self.pinned = LOBTree(), OOTreeSet()
            """Statistics of reads of sections, and pinned sources: see `batos.memory.eviction`."""
        if "namesakes" not in self.__dict__:
            self.namesakes = OOTreeSet([("", 0)])
            """Titles, casefolded, that several documents share, each with the number of a further document. The first entry is
            permanent.
            """
            complete_titles(self)
        for log in (self.text, *self.vectors.values()):
            log.complete()
        if 0 not in self.waiting:
            self.waiting.add(0)  # 0 is not the number of a section, and is permanent: two missions that add to an empty tree would conflict

    # --- reads

    def without_vectors(self) -> Iterable[int]:
        """Return the numbers of the sections that lack the vectors which searches use, in the order in which they came."""
        return self.waiting.keys(0, excludemin=True)  # type: ignore[no-any-return]

    def lacking(self, identity: str) -> Any:
        """Return the tree of sections that lack an embedder's vectors; None for one that neither serves nor comes."""
        if identity == self.embedder:
            return self.waiting
        return self.change.waiting if self.change is not None and self.change.identity == identity else None

    def document(self, source: str) -> UvmObject:
        """Return the document of a source.

        :raises UnknownSource: naming some that there are.
        """
        number = self.by_source.get(source)
        if number is None:
            near = ", ".join(sorted(self.by_source, key=lambda known: _apart(known, source))[:3]) or "none yet"
            raise UnknownSource(f"the memory has no source {source!r}; `batos memory documents` lists what there is, such as: {near}")
        return self.documents[number]  # type: ignore[no-any-return]

    def section_of(self, chunk: UvmObject) -> Section:
        """Return the section that a chunk is in.

        :raises InvalidInput: if it is not in the memory any more.
        :raises ImageDamaged: if it is in none.
        """
        if chunk.number not in self.chunks:
            raise InvalidInput(f"{chunk!r} is no longer in the memory: it was forgotten, archived or cut anew; search for it again")
        try:
            found = self.section(self.starts[self.starts.maxKey(chunk.number)])
        except (ValueError, KeyError):
            found = None
        if found is None or chunk.number not in found.numbers:
            raise ImageDamaged(f"{chunk!r} of {chunk.document!r} is in no section; restore a backup (`batos restore`)")
        return found

    def section(self, number: int) -> Section:
        """Return the section of that number."""
        return Section(number, *self.sections[number])

    def sections_of(self, document: UvmObject) -> Iterator[Section]:
        """Return the sections of a document, in their order."""
        return (self.section(number) for number in document.sections)

    def chunks_of(self, document: UvmObject) -> Iterator[UvmObject]:
        """Return the chunks of a document, in their order."""
        return (self.chunks[number] for section in self.sections_of(document) for number in section.numbers)

    def text_of(self, section: Section) -> str:
        """Return the text of a section."""
        return "".join(self.chunks[number].text for number in section.numbers)

    # --- changes

    def put(
        self, root: Root, number: int, facts: Mapping[str, Any], shelves: Iterable[Shelf], segment: Any, sections: Iterable[int]
    ) -> list[int]:
        """Store a document, or more of one: its facts, new sections, and the list of all its sections.

        :param facts: slots of the document that differ from its prototype's. It is listed as soon as it is `complete`.
        :param segment: index entries of the new chunks (`batos.memory.segments.Segment`); None if there are none.
        :param sections: numbers of all its sections, in order; its other sections are dropped.
        :returns: numbers of the dropped chunks.
        :raises ImageError: if one of the numbers is another document's, which stays as it is.
        """
        self._claim(number)
        document = self.documents.get(number)
        if document is not None and not set(document.sources) & {*facts.get("sources", document.sources)}:
            raise _taken(f"{number} is the number of {document.source!r}, not of {facts['sources'][0]!r}")
        if document is None:
            document = self.documents[number] = UvmObject(**{"parent*": root["lobby"].traits.document, "number": number})
            self.counts.add(documents=1)
        now = tuple(sections)
        gone = set(document.sections) - set(now)
        dropped = self._forget_summaries([number]) + self._forget_archived(document)  # what the document said before
        self._unlist(document)
        was = title_of(document)
        for name, value in {**facts, "sections": now}.items():
            if getattr(document, name) != value:
                document._slots[name] = value
        if title_of(document) != was:
            remove_title(self, was, number, for_good=True)
        self._list(document)
        for shelf in shelves:
            self._place(root, document, shelf)
        if segment is not None:
            self.text.add(segment)
        return dropped + self.drop_sections(gone)

    def recut(self, root: Root, was: Section, shelf: Shelf) -> list[int]:
        """Replace the chunks of a section, which is otherwise unchanged. Return the numbers of the old chunks.

        Their index entries are the caller's business; those of the old ones are dropped.
        """
        dropped = self._clear(was)
        summaries = self._forget_summaries(dropped)
        self._place(root, self.documents[was.document], shelf)
        self._unindex(dropped)
        return dropped + summaries

    def rename(self, document: UvmObject, sources: tuple[str, ...]) -> None:
        """Set the sources of a document: one at least."""
        self._unlist(document)
        document.sources, document.source = sources, sources[0]
        self._list(document)

    def forget(self, document: UvmObject) -> list[int]:
        """Forget a document and all that comes from it. Return the numbers of its chunks.

        Its words and vectors are out of the index and the logs with the next `purge`. Its bytes are out of the file with the next pack.

        :raises InvalidInput: for the summary of an archive, which stands for what it is of.
        """
        _refuse_summary(document)
        return self.take_out(document)

    def take_out(self, document: UvmObject) -> list[int]:
        """Remove a document: like `forget`, also for the summary of an archive."""
        document._p_changed = True  # a transaction that changes it just now must not keep what is gone
        self._unlist(document)
        remove_title(self, title_of(document), document.number, for_good=True)
        dropped = self._forget_summaries([document.number]) + self._forget_archived(document) + self.drop_sections(document.sections)
        del self.documents[document.number]
        self.counts.add(documents=-1)
        return dropped

    def summary_of(self, number: int) -> UvmObject | None:
        """Return the document that is the summary of the document or chunk of that number, if there is one."""
        return self.documents[self.by_source[source]] if (source := summary_source(number)) in self.by_source else None

    def _forget_summaries(self, numbers: Iterable[int]) -> list[int]:
        """Forget the summaries of removed or changed documents and chunks. Return the numbers of their chunks."""
        dropped = []
        for summary in filter(None, map(self.summary_of, numbers)):
            for one in summary.of:
                one._slots.pop("summary", None)
            dropped += self.forget(summary)
        return dropped

    def _forget_archived(self, document: UvmObject) -> list[int]:
        """Forget the archived content of a document. Return the numbers of the chunks of summaries that covered it."""
        return _forget_archived(self._p_jar.root(), document) if document.archives else []

    def bring_back(self, root: Root, document: UvmObject, shelves: Iterable[tuple[Section, list[UvmObject]]], segment: Any) -> None:
        """Restore a forgotten document: the same objects, under the same numbers. Its vectors are made anew.

        :param segment: the index entries of its chunks; None if they come with those of another document.
        """
        self.counts.add(documents=document.number not in self.documents)
        self.documents[document.number] = document
        self._list(document)
        for section, chunks in shelves:
            self.enter(root, section, chunks)
        if segment is not None:
            self.text.add(segment)

    def enter(self, root: Root, section: Section, chunks: Iterable[UvmObject]) -> None:
        """Add a section with existing chunks. The caller adds its index entries and vectors."""
        self._enter(section)
        for chunk in chunks:
            self.counts.add(chunks=chunk.number not in self.chunks)
            self.chunks[chunk.number] = chunk
            add_mentions(self, root, chunk)

    def _list(self, document: UvmObject) -> None:
        """Make a document be found by its source, its content, its title and its facts."""
        for source in document.sources:
            self.by_source[source] = document.number
        if document.complete:
            if document.digest:  # only documents of files have a digest: others are never looked up by content
                self.by_content.setdefault(document.digest, document.number)
            self.catalogued(document)

    def catalogued(self, document: UvmObject) -> None:
        """Index a document by its title and its facts, unless all of it is archived: then no search can find it."""
        if document.archives and not document.sections:
            remove_title(self, title_of(document), document.number, for_good=False)
            self.catalogue.drop(document.number)
        else:
            add_title(self, title_of(document), document.number)
            self.catalogue.put(document.number, {name: getattr(document, name) for name in CATALOGUED})

    def _unlist(self, document: UvmObject) -> None:
        for index, own in ((self.by_content, (document.digest,)), (self.by_source, document.sources)):
            for key in own:
                if index.get(key) == document.number:
                    del index[key]
        self.catalogue.drop(document.number)

    def _place(self, root: Root, document: UvmObject, shelf: Shelf) -> None:
        prototype, section = root["lobby"].traits.chunk, shelf.section
        self._claim(section.first)
        if self.sections.get(section.number, (document.number,))[0] != document.number:
            raise _taken(f"{section.number} is the number of another document's section")
        self._enter(section)
        for number, passage in zip(section.numbers, shelf.passages, strict=True):
            if number in self.chunks:
                raise _taken(f"{number} is the number of {self.chunks[number]!r} already")
            slots: dict[str, Any] = {"parent*": prototype, "number": number, "document": document, "text": passage.text}
            if passage.speaker:
                slots["speaker"] = passage.speaker
            if passage.mentioned:
                slots["mentioned"] = passage.mentioned
            self.counts.add(chunks=1)
            self.chunks[number] = UvmObject(**slots)
            add_mentions(self, root, self.chunks[number])

    def _enter(self, section: Section) -> None:
        self.counts.add(sections=section.number not in self.sections)
        self.sections[section.number] = tuple(section[1:])
        self.starts[section.first] = section.number
        for waiting in self._waits():
            waiting.add(section.number)

    def _waits(self) -> list[Any]:
        """Return the trees of sections that lack vectors: of `embedder`, and of the one that comes.

        A mission that began before a change of embedder, and so does not know of it, meets a conflict. Else it would leave out the new
        one's.
        """
        self._p_activate()
        if self._p_jar is not None:
            self._p_jar.readCurrent(self)
        return [self.waiting] if self.change is None else [self.waiting, self.change.waiting]

    def _claim(self, number: int) -> None:
        """Claim this epoch, so that no other process hands out its numbers."""
        epoch = number // EPOCH
        if self.epoch.value <= epoch:
            self.epoch.value = epoch + 1

    def drop_sections(self, sections: Iterable[int]) -> list[int]:
        """Remove sections. Return the numbers of their chunks."""
        dropped: list[int] = []
        for number in sections:
            dropped += self._clear(self.section(number))
            del self.sections[number]
            self.counts.add(sections=-1)
            for waiting in self._waits():
                waiting.discard(number)
        self._unindex(dropped)
        return dropped + self._forget_summaries(dropped)

    def _clear(self, section: Section) -> list[int]:
        """Remove a section's chunks. Return their numbers."""
        for number in section.numbers:
            remove_mentions(self, number, mentions_of(self, number))
            del self.chunks[number]
        self.counts.add(chunks=-section.size)
        del self.starts[section.first]
        return list(section.numbers)

    def _unindex(self, dropped: list[int]) -> None:
        if dropped:
            self.text.drop(dropped)
            for log in self.vectors.values():
                log.drop(dropped)


def library_of(root: Root) -> Library:
    """Return the library of an image."""
    return root["lobby"].memory.library  # type: ignore[no-any-return]


def fill_archive(node: UvmObject, root: Root, material: ArchiveContent, data: bytes) -> None:
    """Store material in an archive.

    :param data: `batos.memory.archive_format.pack_archive` of it.
    """
    node.blob, node.bytes = blobs.write(root._p_jar, data), len(data)
    node.chunks = len(material.ids)
    documents = dict.fromkeys(one.section.document for one in material.held)
    node.of = tuple(library_of(root).documents[number] for number in documents)


def _forget_archived(root: Root, document: UvmObject) -> list[int]:
    """Remove a document from all archives for good. Return the numbers of the chunks of the summaries that covered it.

    The archives are packed again without it, and wait for another summary. The old blobs leave the disk with the pack that drops this
    history.
    """
    from batos.memory.archive_format import pack_archive, unpack_archive  # late import: it needs numpy

    library = library_of(root)
    dropped: list[int] = []
    for node in document.archives:
        if node.summary is not None:
            summary, node.summary = node.summary, None
            dropped += library.take_out(summary)
        rest = unpack_archive(blobs.read(node.blob)).without([document.number])
        if rest.held:
            fill_archive(node, root, rest, pack_archive(rest))
            named = {key for one in rest.held for chunk in one.chunks for key in chunk.mentioned}
            node.entities = tuple((key, entity) for key, entity in node.entities if key in named)
            library.unsummarised.add(node.number)
        else:
            library.unsummarised.discard(node.number)
            del library.archives[node.number]
    for name in ("archives", "whole"):
        document._slots.pop(name, None)
    return dropped


def _taken(what: str) -> ImageError:
    return ImageError(f"{what}: two processes gave out one number; nothing was stored, and a restart of this daemon takes other numbers")


def _refuse_summary(document: UvmObject) -> None:
    """Refuse to forget the summary of archived content: without it no search could find that content.

    :raises InvalidInput: if the document is such a summary.
    """
    node = document.archive
    if node is not None:
        raise InvalidInput(
            f"{document.source!r} stands for {node.chunks} archived chunks: `batos memory restore {node.number}` brings them back, "
            "or forget the documents that they are of"
        )


def _apart(known: str, wanted: str) -> tuple[bool, int, str]:
    """Return a rough distance between two sources, as a sort key: one that contains the other is near."""
    return not (wanted in known or known in wanted), abs(len(known) - len(wanted)), known
