"""Section builder: from a draft to stored sections with numbered chunks, index entries, links and vectors.

A section's sentences get vectors; the chunks are cut where the meaning changes, and a chunk's vector is the mean of its sentences'. A
conversation stays as it is, one chunk a turn.

The gazetteer knows the names in the memory: titles of documents, and speakers of conversations. It looks for them in every chunk; what a
chunk names it `mentions_`. If the name is a document's title, the chunk links to that document, whatever becomes of its chunks. A title
that comes after the texts that name it is looked for in those by `batos.memory.embedding_worker`.

A mission can remember a text that comes from no file, in its own unit of work. The text is committed with the mission or not at all. It
writes new objects only, and trees and counts that merge concurrent additions, so that missions do not conflict. It returns the entries to
add to the collection after the commit. Functions of the root are reads and system transactions; the others need no image.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged, InvalidInput
from batos.memory.chunking import ChunkLimits, Span, by_meaning, pieces, sentences
from batos.memory.drafts import Draft, DraftPart, bounded
from batos.memory.records import DIGEST, FAILURE, MISSION, SUMMARY, Numbers, Passage, Section, Shelf
from batos.memory.segments import LIVED, Array, Entry, Facts, Segment, build, speaker_key, traits
from batos.memory.segments import SUMMARY as TELLS_OTHERS
from batos.memory.store import Library, library_of, title_of
from batos.memory.tokenizer import content_words, words
from batos.objects import Root, UvmObject

_WORD = re.compile(r"[^\W_]+")
_ASIDE = re.compile(r"(?<!\s)\s*\([^()]*+\)\s*+$")
_LONGEST = 12
"""Greatest number of words of a name; longer titles are sentences, which no text names."""


class NamedEntities(NamedTuple):
    """Whom a chunk names: keys of entities, and numbers of the documents that it points at by that."""

    keys: tuple[str, ...] = ()
    links: tuple[int, ...] = ()


class KnownName(NamedTuple):
    """Known name: its text, and the number of the document with that title, or zero."""

    text: str
    document: int = 0


class Gazetteer:
    """Names to be found in texts, with the numbers that they stand for. It is built once, any thread may use it, and names can be added.

    A name is found as whole words, whatever its case, the longest first. A name of a single word is found only where it is written with a
    capital. So a note called "ideas" is not pointed at by every text that has ideas.
    """

    def __init__(self, names: Iterable[tuple[str, int]] = ()) -> None:
        """:param names: names and what they stand for; one name may stand for several."""
        self._known: dict[str, dict[tuple[str, ...], list[int]]] = {}
        for name, target in names:
            self.add(name, target)

    def add(self, name: str, target: int) -> None:
        """Add a name. A suffix in brackets only tells namesakes apart; texts need not contain it."""
        parts = tuple(_words(_ASIDE.sub("", name) or name))
        if 0 < len(parts) <= _LONGEST and content_words(name):
            targets = self._known.setdefault(parts[0], {}).setdefault(parts, [])
            if target not in targets:
                targets.append(target)

    def find(self, text: str) -> list[int]:
        """Return the numbers that the names in a text stand for, in order of appearance, each once."""
        matches = list(_WORD.finditer(text))
        said = [match.group().casefold() for match in matches]
        found: dict[int, None] = {}
        at = 0
        while at < len(said):
            names = self._known.get(said[at])
            if names is None:  # no name starts like this, as for most words
                at += 1
                continue
            fits = [parts for parts in names if tuple(said[at : at + len(parts)]) == parts]
            parts = max(fits, key=len, default=())
            if parts and (len(parts) > 1 or not matches[at].group().islower()):
                found.update(dict.fromkeys(names[parts]))
                at += len(parts)
            else:
                at += 1
        return list(found)


def _words(name: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(name)]


class KnownNames:
    """Looks for names. May be asked by any thread."""

    def __init__(self, names: Iterable[KnownName] = (), there: Callable[[int], bool] = lambda document: True) -> None:
        """:param there: returns True if a document is still in the memory: only then its title is a name."""
        self._names: dict[KnownName, int] = {}
        self._known: list[KnownName] = []
        self._there = there
        self._gazetteer = Gazetteer()
        self._lock = threading.Lock()
        self.add(names)

    def add(self, names: Iterable[KnownName]) -> None:
        """Add names."""
        with self._lock:
            for name in names:
                if name not in self._names:
                    self._names[name] = len(self._known)
                    self._gazetteer.add(name.text, len(self._known))
                    self._known.append(name)

    def of(self, text: str, document: int) -> NamedEntities:
        """Return the documents and entities that a text of a document names, without the document itself."""
        with self._lock:
            found = [self._known[place] for place in self._gazetteer.find(text)]
        others = [name for name in found if name.document != document and (not name.document or self._there(name.document))]
        keys = tuple(dict.fromkeys(name.text.casefold() for name in others))
        return NamedEntities(keys, tuple(dict.fromkeys(name.document for name in others if name.document)))


def known_names(root: Root) -> list[KnownName]:
    """Return all names in the image, but for those in records that are damaged: the self-audit tells of them."""
    library, found = library_of(root), []
    for entity in library.entities.values():
        with contextlib.suppress(ImageDamaged, POSKeyError):
            if entity.kind == "person":
                found.append(KnownName(entity.name))
    for number in library.by_title.values():
        with contextlib.suppress(ImageDamaged, POSKeyError):
            found.append(KnownName(library.documents[number].title, number))
    return found


def names_of(root: Root, documents: Iterable[int]) -> list[KnownName]:
    """Return the names that these documents brought, by their titles and speakers, and titles that texts are not linked to yet.

    Documents that are gone or damaged bring none.
    """
    library, found = library_of(root), list[KnownName]()
    titles = set(library.unlinked.keys("", excludemin=True))
    for number in documents:
        with contextlib.suppress(ImageDamaged, POSKeyError):
            document = library.documents.get(number)
            if document is not None:
                titles.add(title_of(document))
                found += (KnownName(speaker) for speaker in document.speakers)
    for number in filter(None, (library.by_title.get(title) for title in sorted(titles))):
        with contextlib.suppress(ImageDamaged, POSKeyError):
            found.append(KnownName(library.documents[number].title, number))
    return found


_KINDS = {MISSION: LIVED, FAILURE: LIVED, SUMMARY: TELLS_OTHERS, DIGEST: TELLS_OTHERS | LIVED}
"""Kind of a document -> flags that all of its chunks get."""


class Shelved(NamedTuple):
    """A section to be stored, and the index entries of its chunks."""

    shelf: Shelf
    entries: list[Entry]


class Shelver:
    """Cuts parts into chunks by structure and size: what can be searched before there are vectors."""

    def __init__(self, numbers: Numbers, limits: ChunkLimits, names: KnownNames) -> None:
        self.numbers, self._limits, self.names = numbers, limits, names

    def shelve(self, part: DraftPart, *, document: int, kind: str, day: int = 0, about: tuple[int, ...] = ()) -> Shelved:
        """Return a new section of provisional chunks.

        :param document: the number of the document that it is of.
        :param day: day of the document, for a part without a day.
        :param about: numbers of the documents that all its chunks point at.
        """
        cuts = list(self._turns(part) if part.turns else self._pieces(part.text, kind))
        # only the speakers decide on the cuts of a conversation
        section = Section(self.numbers.take(), document, 0, 0, 0, digest_of(part), part.title, part.day or day, bool(part.turns))
        return self.filled(section, cuts, kind, about)

    def filled(self, section: Section, cuts: Sequence[tuple[str, str]], kind: str, about: tuple[int, ...] = ()) -> Shelved:
        """Return the section of a document of that kind with these texts as its chunks, each with who says it.

        They take the numbers of the chunks that the section has, if they are not more than it was given room for. So what points at its
        beginning goes on doing so.
        """
        if len(cuts) > section.room:
            room = max(len(cuts), sum(len(text) for text, _ in cuts) // self._limits.smallest + 1)
            section = section._replace(first=self.numbers.take(room), room=room)
        section = section._replace(size=len(cuts))
        number, heading, day = section_key(section.number), words(section.title), section.day
        passages, entries, lived = [], [], _KINDS.get(kind, 0)
        for at, (text, speaker) in enumerate(cuts):
            named = self.names.of(text, section.document)
            keys = (speaker.casefold(), *named.keys) if speaker else named.keys
            passages.append(Passage(text, speaker, tuple(dict.fromkeys(keys))))
            flags, told = traits(text)
            said = speaker_key(speaker) if speaker else 0
            facts = Facts(section.document, number, speaker=said, day=day, length=told, flags=flags | lived)
            links = tuple(dict.fromkeys((*about, *named.links)))
            entries.append(Entry(section.first + at, (*heading, *words(text)), facts, links))
        return Shelved(Shelf(section, tuple(passages)), entries)

    def _pieces(self, text: str, kind: str) -> Iterator[tuple[str, str]]:
        """Yield the texts of the draft's pieces with the gaps after them: joined, they are the whole text."""
        yield from ((piece, "") for piece in parted(text, [(p.start, p.end) for p in pieces(text, kind, self._limits)]))

    def _turns(self, part: DraftPart) -> Iterator[tuple[str, str]]:
        for text, turn in zip(parted(part.text, [turn[:2] for turn in part.turns]), part.turns, strict=True):
            if len(text) <= self._limits.largest:
                yield text, turn.speaker
            else:
                yield from ((piece, turn.speaker) for piece, _ in self._pieces(text, "text"))


def about_of(objects: Iterable[UvmObject]) -> tuple[int, ...]:
    """Return the numbers of these documents, and of the documents of these chunks; not of documents archived as a whole, which cannot be
    found.
    """
    documents = (one.document if "document" in one._slots else one for one in objects)
    return tuple(dict.fromkeys(one.number for one in documents if one.sections or not one.archives))


def section_key(number: int) -> int:
    """Return a number of 31 bits that identifies a section in searches, spread so that numbers of two runs do not collide."""
    return zlib.crc32(number.to_bytes(8, "big")) & 0x7FFFFFFF


def parted(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Return the text cut where spans begin: nothing between them is lost. One piece where there are none."""
    starts = [start for start, _ in spans][1:]
    return [text[begin:end] for begin, end in zip([0, *starts], [*starts, len(text)], strict=True)]


def digest_of(part: DraftPart) -> bytes:
    """Return the fingerprint of a section: its title, day, text without blanks at its ends, and the speakers of its turns."""
    found = hashlib.sha256(f"{part.title}\0{part.day}\0".encode("utf-8", "replace"))
    found.update(part.text.strip().encode("utf-8", "replace"))
    for turn in part.turns:
        found.update(f"\0{turn.start}\0{turn.speaker}".encode("utf-8", "replace"))
    return found.digest()[:16]


class PreparedDocument(NamedTuple):
    """A document that is ready to be stored."""

    draft: Draft
    source: str
    mission: str
    number: int
    shelved: list[Shelved]
    of: tuple[UvmObject, ...] = ()

    @property
    def entries(self) -> list[Entry]:
        """Return the index entries of its chunks."""
        return [entry for each in self.shelved for entry in each.entries]


def prepare_document(
    draft: Draft,
    shelver: Shelver,
    *,
    source: str,
    mission: str,
    section_chars: int,
    of: tuple[UvmObject, ...] = (),
    about: tuple[int, ...] = (),
) -> PreparedDocument:
    """Cut a draft into sections and chunks. Needs no image; any thread.

    :param source: source of the document, such as `mission:ID`.
    :param mission: the id of the mission that remembers it.
    :param section_chars: its longest section.
    :param of: documents and chunks that the document summarises.
    :param about: numbers of the documents that it is of, where the objects are not at hand.
    :raises InvalidInput: for a draft without a word in it.
    """
    number = shelver.numbers.take()
    parts = list(bounded(draft.parts, section_chars))
    if not parts:
        raise InvalidInput(f"{source!r} has no words, so there is nothing to remember")
    shelved = [shelver.shelve(part, document=number, kind=draft.kind, day=draft.day, about=about or about_of(of)) for part in parts]
    return PreparedDocument(draft, source, mission, number, shelved, of)


def store_document(root: Root, prepared: PreparedDocument, segment: Segment | None) -> None:
    """Store a prepared document.

    :param segment: segment of its index entries; None if they come with those of another document.
    :raises InvalidInput: for a source that is known.
    """
    library, (draft, source, mission, number, shelved, of) = library_of(root), prepared
    if source in library.by_source:
        raise InvalidInput(f"the memory already has the source {source!r}; forget it first, or give another source")
    days = tuple(sorted({each.shelf.section.day for each in shelved} - {0}))
    facts = {
        "title": draft.title, "kind": draft.kind, "source": source, "sources": (source,), "tags": draft.tags, "mission": mission,
        "day": draft.day, "days": days, "of": of, "complete": True, **({"origin": draft.origin} if draft.origin else {}),
    }  # fmt: skip
    library.put(root, number, facts, [each.shelf for each in shelved], segment, [each.shelf.section.number for each in shelved])


def remember_document(
    root: Root, draft: Draft, shelver: Shelver, *, source: str, mission: str, section_chars: int, of: tuple[UvmObject, ...] = ()
) -> Segment:
    """Prepare a document and put it into the memory; see `prepare` and `keep`.

    :returns: the index entries of its chunks, for `MemoryRuntime.stored` after the commit.
    """
    prepared = prepare_document(draft, shelver, source=source, mission=mission, section_chars=section_chars, of=of)
    segment = build(prepared.entries)
    store_document(root, prepared, segment)
    return segment


class EmbeddingWork(NamedTuple):
    """A section without vectors: its document's kind, its chunks' texts, who says them, and whom they mention."""

    section: Section
    kind: str
    texts: tuple[str, ...]
    speakers: tuple[str, ...]
    mentioned: tuple[tuple[str, ...], ...]
    about: tuple[int, ...]
    """Numbers of the documents that the section summarises in whole or in part."""
    served: bool = False
    """True if searches have vectors of the chunks already: then the vectors of another embedder are for the same chunks."""


class EmbeddingPlan(NamedTuple):
    """Texts of a section to embed: spans of its text, or of each of its chunks where those stay as they are."""

    work: EmbeddingWork
    spans: tuple[tuple[Span, ...], ...]
    texts: list[str]


class EmbeddedSection(NamedTuple):
    """A section with the vectors of its chunks; `shelved` are new ones in the place of those that there were, if any."""

    was: Section
    shelved: Shelved | None
    vectors: Array


class StoredVectors(NamedTuple):
    """Changes of a transaction: entries of new chunks, numbers of removed ones, and chunks with their vectors."""

    segment: Segment | None
    dropped: list[int]
    ids: list[int]
    vectors: Array


def work_of(library: Library, number: int) -> EmbeddingWork:
    """Return a section as there is to work on it."""
    section = library.section(number)
    chunks = [library.chunks[n] for n in section.numbers]
    document = library.documents[section.document]
    texts, speakers, mentioned = (tuple(getattr(chunk, name) for chunk in chunks) for name in ("text", "speaker", "mentioned"))
    return EmbeddingWork(section, document.kind, texts, speakers, mentioned, about_of(document.of), number not in library.waiting)


def plan_embedding(work: EmbeddingWork, limits: ChunkLimits) -> EmbeddingPlan:
    """Return the texts to embed for a section."""
    if work.kind == "conversation":
        wholes = tuple(((0, len(text)),) for text in work.texts)
        return EmbeddingPlan(work, wholes, list(work.texts))
    units = work.texts if work.section.cut else ("".join(work.texts),)
    spans = tuple(tuple(sentences(unit, work.kind, limits.largest)) or ((0, len(unit)),) for unit in units)
    return EmbeddingPlan(work, spans, [unit[begin:end] for unit, own in zip(units, spans, strict=True) for begin, end in own])


def make_section(planned: EmbeddingPlan, vectors: Array, shelver: Shelver, limits: ChunkLimits) -> EmbeddedSection:
    """Return the section with vectors.

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
    # the cuts and the names are equal: only the vectors are new
    named = work.served or tuple(passage.mentioned for passage in shelved.shelf.passages) == work.mentioned
    same = named and cuts == work.texts
    return EmbeddedSection(work.section, None if same else shelved, rows)


def store_vectors(root: Root, identity: str, made: Sequence[EmbeddedSection]) -> StoredVectors:
    """System transaction: store the vectors of sections, unless a section has changed or is gone.

    :param identity: identity of the embedder; vectors of an embedder that is out of use are discarded.
    """
    library = library_of(root)
    waiting = library.lacking(identity)
    ids: list[int] = []
    rows, entries, dropped = [], [], []
    for one in made:
        number = one.was.number
        if waiting is None or number not in waiting or library.sections.get(number) != tuple(one.was[1:]):
            continue  # forgotten, changed or embedded by another kernel meanwhile: a new version waits for its own vectors
        if one.shelved is None:
            library.sections[number] = tuple(one.was._replace(cut=True)[1:])
            ids += one.was.numbers
        else:
            dropped += library.recut(root, one.was, one.shelved.shelf)
            entries += one.shelved.entries
            ids += one.shelved.shelf.section.numbers
        rows.append(one.vectors)
        waiting.remove(number)
    if not ids:
        return StoredVectors(None, [], [], np.zeros((0, 0), np.float32))
    segment = build(entries) if entries else None
    if segment is not None:
        library.text.add(segment)
    vectors = np.concatenate(rows)
    library.vectors[identity].add(ids, vectors)
    return StoredVectors(segment, sorted(set(dropped) - set(ids)), ids, vectors)


def _mean(rows: Array) -> Array:
    mean = rows.mean(0)
    length = float(np.linalg.norm(mean))
    unit: Array = (mean / length if length > 0 else rows[0]).astype(np.float32)
    return unit
