"""Embedding worker: gives chunks their vectors in the background, section by section (`batos.memory.section_builder`).

The list of waiting sections is stored in the image, so that work continues after a restart. While an embedder is unavailable it is
retried after a pause, and searches use words only. When idle, and under endless load every `TIDY_S`, the worker merges small parts of the
index and purges dropped entries.

When the embedder changes, the old vectors serve until all new ones exist; then they are replaced all at once. `Library.embedder` names the
embedder that searches use, `Library.change` the next one and the sections that lack its vectors. Meanwhile there are two logs of
vectors, never more.

A new title is searched for in the stored texts: a chunk that mentioned it before it existed points at it from then on. Pending titles are
stored in the image (`Library.unlinked`), so that a crash skips none. Nothing is embedded again for this: chunks keep their numbers, texts
and vectors, and get new index entries. The functions of the root are reads and system transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import structlog
from ZODB.POSException import POSKeyError

from batos.concurrency import in_helper
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import BatosError, EmbedderFailed, ImageDamaged
from batos.image.living_image import LivingImage
from batos.memory import section_builder, store
from batos.memory.chunking import ChunkLimits
from batos.memory.embedders import Embedder
from batos.memory.embedders.selection import Readers
from batos.memory.part_log import BEGIN, Drops, VectorLog
from batos.memory.records import Change
from batos.memory.search import targets
from batos.memory.search_index import Collection
from batos.memory.section_builder import EmbeddingWork, Gazetteer, KnownName, Shelved, Shelver, work_of
from batos.memory.segments import Array, Segment, build
from batos.memory.store import Library, library_of
from batos.memory.tokenizer import words
from batos.objects import Root

if TYPE_CHECKING:
    from batos.memory.search_index import View


@dataclass(frozen=True, slots=True)
class EmbeddingLimits(Limits):
    """Limits of the work that gives sections their vectors."""

    sections: int = limit(8, ge=1, le=1024)
    """Greatest number of sections that get their vectors in one transaction."""
    purge_rows: int = limit(4096, ge=1, le=1_000_000)
    """Number of rows of the index that one transaction of a purge rewrites, about."""
    link_chunks: int = limit(1000, ge=0, le=1_000_000)
    """Greatest number of chunks that are searched for a new title."""
    retry_s: float = limit(5.0, ge=0.05, le=86_400)
    """Seconds before an unreachable embedder is asked again."""
    check_s: float = limit(60.0, ge=0.05, le=86_400)
    """Seconds after which an idle embedder is asked for its model."""
    dropped_rows: int = limit(4096, ge=0, le=10_000_000)
    """Number of dropped chunks from which the worker purges the index when it is idle."""


class Adoption(Enum):
    """Outcome of asking an embedder for its identity."""

    KNOWN = 0
    """The embedder is known already: searches use its vectors, or the worker is making them."""
    SERVES = 1
    """Searches use this embedder's vectors from now on: there were no others."""
    COMES = 2
    """The worker makes this embedder's vectors; searches use those of the previous embedder meanwhile."""
    BACK = 3
    """Searches use this embedder's vectors, and a change to another embedder is cancelled."""


def adopt_embedder(root: Root, identity: str, dimensions: int, place: str = "") -> Adoption:
    """System transaction: adopt the embedder of the settings.

    :param place: see `VectorLog`.
    """
    library = library_of(root)
    change, logs = library.change, library.vectors
    if identity in logs and logs[identity].place != place:
        logs[identity].place = place
    if change is not None and change.identity != identity:  # the partial vectors of the cancelled embedder are useless
        del logs[change.identity]
        change = library.change = None
        if identity == library.embedder:
            return Adoption.BACK
    if identity in (library.embedder, change and change.identity):
        return Adoption.KNOWN
    before = logs.get(library.embedder)
    logs[identity] = VectorLog(identity, dimensions, place)
    if before is None or not before.parts():
        _serve(library, identity)
        library.waiting.update(library.sections)
        return Adoption.SERVES
    since = library.sections.maxKey() if library.sections else 0
    library.change = Change(identity, library.sections, since)
    return Adoption.COMES


def finish_change(root: Root, identity: str) -> bool:
    """System transaction: switch searches to the new embedder's vectors if none is missing. Return True if they switched."""
    library = library_of(root)
    change = library.change
    if change is not None and change.identity == identity and len(change.waiting) == 1:
        _serve(library, identity)
    return bool(library.embedder == identity)


class DueSections(NamedTuple):
    """Sections that lack vectors."""

    works: list[EmbeddingWork]
    damaged: list[int]
    """Numbers of the unreadable sections."""


def due_sections(root: Root, most: int) -> DueSections:
    """Return the sections that lack vectors of the embedder in the settings, the oldest first."""
    library = library_of(root)
    return _works(library, (library.change or library).waiting.keys(0, excludemin=True), most)


def late_sections(root: Root, most: int) -> DueSections:
    """Return the sections that were added during a change and lack vectors of the old embedder, which searches use until its end."""
    library = library_of(root)
    return _works(library, library.waiting.keys(library.change.since, excludemin=True) if library.change is not None else [], most)


def give_up(root: Root, work: EmbeddingWork, identity: str) -> None:
    """System transaction: leave a section without vectors of an embedder; searches find it by its words."""
    library = library_of(root)
    waiting = library.lacking(identity)
    if waiting is not None and library.sections.get(work.section.number) == tuple(work.section[1:]):
        waiting.discard(work.section.number)


def pass_over(root: Root, damaged: Iterable[int], identity: str) -> None:
    """System transaction: leave unreadable sections without vectors of an embedder, so that they do not block others."""
    waiting = library_of(root).lacking(identity)
    for number in damaged if waiting is not None else []:
        waiting.discard(number)


def _works(library: Library, numbers: Iterable[int], most: int) -> DueSections:
    found = DueSections([], [])
    for number in itertools.islice(numbers, most):
        try:
            found.works.append(work_of(library, number))
        except (ImageDamaged, POSKeyError):  # the self-audit reports the damage
            found.damaged.append(number)
    return found


def _serve(library: Library, identity: str) -> None:
    for other in list(library.vectors):
        if other != identity:
            del library.vectors[other]
    library.embedder, library.change = identity, None
    for number in list(library.without_vectors()):  # sections without vectors of the previous embedder
        library.waiting.remove(number)


class RelinkedSection(NamedTuple):
    """A section whose chunks name something that they did not name before."""

    was: section_builder.EmbeddingWork
    shelved: Shelved


def unlinked_titles(root: Root, most: int) -> list[KnownName]:
    """Return the new titles with the number of their document; 0 for a document that no longer exists."""
    library = library_of(root)
    found = ((key, library.by_title.get(key, 0)) for key in itertools.islice(library.unlinked.keys("", excludemin=True), most))
    return [KnownName(library.documents[number].title if number else key, number) for key, number in found]


class NewTitles(NamedTuple):
    """A section with chunks that name a document."""

    work: section_builder.EmbeddingWork
    astray: bool
    """True if the chunks point at a removed document, which may have the same title."""


def new_titles(root: Root, view: View, names: Sequence[KnownName], most: int) -> list[NewTitles]:
    """Return the sections with chunks that name one of these documents.

    :param most: chunks that are looked at for one name, those with most of its words first.
    """
    library = library_of(root)
    gazetteer = Gazetteer((name.text, name.document) for name in names)
    found: dict[int, NewTitles] = {}
    for name in names:
        for chunk in (library.chunks.get(number) for number in _with_words(view, name, most)):
            with contextlib.suppress(ImageDamaged, POSKeyError):  # one unreadable section must not block the others
                if chunk is not None and set(gazetteer.find(chunk.text)) - {chunk.document.number}:
                    section = library.section_of(chunk).number
                    known = found.get(section) or NewTitles(section_builder.work_of(library, section), astray=False)
                    row = int(view.rows_of(np.array([chunk.number]))[0])
                    gone = any(to not in library.documents for to in targets(view.links, row))
                    found[section] = known._replace(astray=known.astray or gone)
    return list(found.values())


def _with_words(view: View, name: KnownName, most: int) -> list[int]:
    terms = list(dict.fromkeys(words(name.text)))
    if not name.document or not terms or not view.n:
        return []
    scores = [view.bm25([term]) for term in terms]
    rows = np.flatnonzero(np.logical_and.reduce([score > 0 for score in scores]) & ~view.gone)
    best = rows[np.argsort(-sum(score[rows] for score in scores), kind="stable")[:most]]
    return view.ids[best].tolist()  # type: ignore[no-any-return]


def relink(found: Iterable[NewTitles], shelver: Shelver) -> list[RelinkedSection]:
    """Return the changed sections with all names that are known now. Needs no image."""
    made = []
    for work, astray in found:
        cuts = list(zip(work.texts, work.speakers, strict=True))
        one = RelinkedSection(work, shelver.filled(work.section, cuts, work.kind, work.about))
        if astray or tuple(passage.mentioned for passage in one.shelved.shelf.passages) != work.mentioned:
            made.append(one)
    return made


def store_links(root: Root, names: Iterable[KnownName], made: Sequence[RelinkedSection]) -> Segment | None:
    """System transaction: store the new links of chunks, with changed index entries, and remove titles from the list of new ones."""
    library: Library = library_of(root)
    entries = []
    for one in made:
        number = one.was.section.number
        if (
            number in library.sections and section_builder.work_of(library, number) == one.was
        ):  # otherwise the section is new, and was cut with all names
            store.change_mentions(library, root, one.shelved.shelf)
            entries += one.shelved.entries
    for name in names:
        library.unlinked.discard(name.text.casefold())
    if not entries:
        return None
    segment = build(entries)
    library.text.drop(segment.ids.tolist())
    library.text.add(segment)
    return segment


log = structlog.get_logger("batos.memory")

_PROBE = "Is anybody there?"
TIDY_S = 30.0
"""Seconds between two clean-ups while the load never ends: dropped rows stay in memory, and grow with each mission."""
MERGES = 8  # greatest number of merges of parts of one log in such a clean-up


class VectorsHearer(Protocol):
    """Listener that learns of each commit (`batos.app.memory.MemoryRuntime`)."""

    @property
    def collection(self) -> Collection: ...

    def count(self) -> int: ...
    def stored(self, segment: Any, dropped: list[int]) -> None: ...
    def relinked(self, segment: Any) -> None: ...
    def embedded(self, identity: str, ids: list[int], rows: Array) -> None: ...
    async def reload(self) -> None: ...


class EmbeddingWorker:
    """See the module. All methods are called on the loop's thread."""

    def __init__(
        self, image: LivingImage, readers: Readers, shelver: Shelver, limits: ChunkLimits, settings: Settings, hearer: VectorsHearer
    ) -> None:
        self._image, self._readers, self._shelver, self.limits = image, readers, shelver, limits
        self._limits, self._hearer = EmbeddingLimits.of(settings), hearer
        self.more = asyncio.Event()
        self._identity = ""
        self._former_until, self._former_why = 0.0, ""
        self._state, self._why = "waiting", ""
        self._tidied_at = time.monotonic()

    def wake(self) -> None:
        """Wake the worker: there may be work."""
        self.more.set()

    def facts(self) -> dict[str, Any]:
        """Return the embedder's identity, the state (`ready`, `working`, `waiting` or `away`), its reason, and the number of vectors.

        `serving` is the identity of the embedder that made those vectors: another one while a change is under way.
        """
        told = {"identity": self._identity, "state": self._state, "why": self._why, "vectors": self._hearer.count()}
        return {**told, "serving": self._hearer.collection.maker.identity}

    async def run(self) -> None:
        """Work until cancelled."""
        self._identity = ""
        while True:
            self.more.clear()
            try:
                more = await self._step()
            except (BatosError, OSError) as e:  # OSError: a full disk; nothing of this step is stored
                await self._away(e)
                continue
            if not more:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._limits.check_s):
                        await self.more.wait()

    async def _step(self) -> bool:
        """Do one step of the work. Return True if there may be more."""
        await self._linked()
        await self._late()
        await self._known()
        if work := await self._readable(due_sections, self._identity):
            if self._state != "away":
                self._state, self._why = "working", ""
            await self._round(work, self._readers.present, self._identity)
            self._state, self._why = "working", ""
            if time.monotonic() - self._tidied_at >= TIDY_S:
                await self.tidied(MERGES)
            return True
        if not await self._arrived():
            return True
        self._state = "ready"
        await self.tidied()
        return False

    async def _readable(self, which: Callable[[Any, int], DueSections], identity: str) -> list[section_builder.EmbeddingWork]:
        """Return the next readable sections that lack an embedder's vectors."""
        while True:
            due: DueSections = await in_helper(self._image.read, which, self._limits.sections)
            if due.damaged:
                log.error("sections_damaged", sections=due.damaged, hint="they stay without vectors; restore a backup (`batos restore`)")
                await self._image.system(pass_over, due.damaged, identity, mission="ingest")
            if due.works or not due.damaged:
                return due.works

    async def _away(self, e: BatosError | OSError) -> None:
        why = e.message if isinstance(e, BatosError) else f"vectors cannot be stored: {e.strerror or e}"
        if self._state != "away":
            log.warning("embedder_away", error=why, retry_s=self._limits.retry_s, hint="searches go by words meanwhile")
        self._state, self._why = "away", why
        await asyncio.sleep(self._limits.retry_s)

    async def _round(self, work: list[section_builder.EmbeddingWork], embedder: Embedder, identity: str) -> None:
        """Embed these sections; one that cannot be, though the embedder is there, stays without and holds up no other.

        :raises BatosError: if the embedder is away.
        """
        try:
            await self._embed(work, embedder, identity)
        except OSError:
            raise
        except Exception as e:
            if isinstance(e, BatosError):
                await embedder.embed([_PROBE])
            for one in work if len(work) > 1 else []:
                await self._round([one], embedder, identity)
            if len(work) == 1:
                log.error("section_without_vectors", section=work[0].section.number, trace=traceback.format_exc(limit=-4))
                await self._image.system(give_up, work[0], identity, mission="ingest")

    async def _linked(self) -> None:
        """Link texts to documents that came later, by their titles."""
        while names := await in_helper(self._image.read, unlinked_titles, self._limits.sections):
            self._shelver.names.add(name for name in names if name.document)
            view = self._hearer.collection.view()
            found = await in_helper(self._image.read, new_titles, view, names, self._limits.link_chunks)
            made = await in_helper(relink, found, self._shelver)
            for begin in range(0, max(1, len(made)), self._limits.sections):
                some = made[begin : begin + self._limits.sections]
                done = names if begin + self._limits.sections >= len(made) else []
                segment = await self._image.system(store_links, done, some, mission="ingest")
                if segment is not None:
                    self._hearer.relinked(segment)

    async def _known(self) -> None:
        """Ask for the embedder's identity. If it differs from that of the vectors, start a change to its vectors."""
        identity = await self._readers.present.identity()
        if str(identity) == self._identity:
            return
        adopted = await self._image.system(adopt_embedder, str(identity), identity.dimensions, identity.place, mission="ingest")
        self._identity = str(identity)
        maker = self._hearer.collection.maker
        if adopted is Adoption.SERVES:
            log.info("vectors_from", embedder=self._identity)
            await self._hearer.reload()
        elif maker.identity != self._identity:
            log.info("embedder_changes", embedder=self._identity, serving=maker.identity, hint="searches go on meanwhile")
            self._former_until = 0.0
            await self._former()  # load it before the first request
        elif adopted is Adoption.BACK:
            log.info("embedder_back", embedder=self._identity)

    async def _arrived(self) -> bool:
        """Switch searches to the new embedder's vectors if all are there. Return True if they switched."""
        if self._hearer.collection.maker.identity != self._identity:
            if not await self._image.system(finish_change, self._identity, mission="ingest"):
                return False
            await self._hearer.reload()
            log.info("embedder_changed", embedder=self._identity)
        await self._readers.let_go()
        return True

    async def _late(self) -> None:
        """Add the old embedder's vectors to sections that came during a change, if that embedder is available."""
        while time.monotonic() >= self._former_until:
            work = await self._readable(late_sections, self._hearer.collection.maker.identity)
            former = await self._former() if work else None
            if former is None:
                return
            try:
                await self._round(work, former, self._hearer.collection.maker.identity)
            except (BatosError, OSError) as e:
                self._former_away(e)

    async def _former(self) -> Embedder | None:
        """Return the embedder of the vectors that searches use, if it differs from the present one and is available."""
        maker = self._hearer.collection.maker
        former = self._readers.former(maker)
        if former is None:
            return None
        try:
            if str(await former.identity()) == maker.identity:
                return former
            self._former_away(EmbedderFailed("its model has other weights by now"))
        except BatosError as e:
            self._former_away(e)
        return None

    def _former_away(self, e: BatosError | OSError) -> None:
        why = e.message if isinstance(e, BatosError) else f"vectors cannot be stored: {e.strerror or e}"
        self._former_until = time.monotonic() + self._limits.retry_s
        if why != self._former_why:
            log.warning("former_embedder_away", error=why, hint="what comes during the change is found by words until its end")
        self._former_why = why

    async def _embed(self, work: list[section_builder.EmbeddingWork], embedder: Embedder, identity: str) -> None:
        plans = await in_helper(lambda: [section_builder.plan_embedding(one, self.limits) for one in work])
        rows = await embedder.embed([text for plan in plans for text in plan.texts])
        if str(await embedder.identity()) != identity:
            return  # the section has changed: discard these vectors, and the next round makes new ones
        made = await in_helper(self._made, plans, rows)
        kept = await self._image.system(section_builder.store_vectors, identity, made, mission="ingest")
        self._hearer.stored(kept.segment, kept.dropped)
        if kept.ids:
            self._hearer.embedded(identity, kept.ids, kept.vectors)

    def _made(self, plans: list[section_builder.EmbeddingPlan], rows: Array) -> list[section_builder.EmbeddedSection]:
        made, at = [], 0
        for plan in plans:
            made.append(section_builder.make_section(plan, rows[at : at + len(plan.texts)], self._shelver, self.limits))
            at += len(plan.texts)
        return made

    # --- tidying up

    async def purge(self) -> None:
        """Remove dropped rows from the index and the vectors for good."""
        for name in await in_helper(self._image.read, _logs):
            drops = await in_helper(self._image.read, _drops, name)
            if len(drops.ids) < 2:  # one entry is the placeholder
                continue
            after: int | None = BEGIN
            while after is not None:
                after = await self._image.system(_purge, name, drops, after, self._limits.purge_rows, mission="ingest")

    async def tidied(self, merges: int = 0) -> None:
        """Merge small parts and purge dropped entries.

        :param merges: maximum merges of each log; 0: all that are due, until the worker is needed for other work.
        """
        for name in await in_helper(self._image.read, _logs):
            left = merges or math.inf
            while left > 0 and not (self.more.is_set() and not merges) and await self._image.system(_tidy, name, mission="ingest"):
                left -= 1
        if max(await in_helper(self._image.read, _most_dropped)) > self._limits.dropped_rows:
            await self.purge()
        if self._hearer.collection.dropped > max(self._limits.dropped_rows, self._hearer.collection.size // 4):
            await self._hearer.reload()
        self._tidied_at = time.monotonic()


def load_collection(root: Root) -> Collection:
    """Return all that searches see, with the vectors of the embedder that the image has them of."""
    library = library_of(root)
    return Collection.load(library.text, library.vectors.get(library.embedder))


def _logs(root: Root) -> list[str]:
    """Return the names of the logs: "" for the text's log, the embedder's identity for a log of vectors."""
    return ["", *library_of(root).vectors]


def _log(root: Root, name: str) -> Any:
    library = library_of(root)
    return library.vectors.get(name) if name else library.text


def _most_dropped(root: Root) -> list[int]:
    return [log.dropped() for name in _logs(root) if (log := _log(root, name)) is not None]


def _drops(root: Root, name: str) -> Drops:
    held = _log(root, name)
    return held.drops() if held is not None else Drops(np.empty(0, np.int64), np.empty(0, np.int64), BEGIN)


def _purge(root: Root, name: str, drops: Drops, after: int, rows: int) -> int | None:
    held = _log(root, name)
    return held.purge_some(drops, after, rows) if held is not None else None


def _tidy(root: Root, name: str) -> bool:
    """Make one merge, if one is due. Return True if there may be more."""
    held = _log(root, name)
    return held is not None and bool(held.tidy())
