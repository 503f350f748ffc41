"""Part of the composition root for the memory: the library in the image, and the search index in RAM.

files ─ ingest (queue, readers, sections) ─┐                       ┌─ collection ─ search
watcher (folders) ─────────────────────────┴─ library ─ vectors ───┘
                                     (system transactions)  (the embedding worker)

The event loop puts what a transaction committed into the search index, in order; a search never waits for a transaction. Where several
kernels share the image, each follows what all of them commit (`look`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import structlog

from batos.bridge.inference import Inference
from batos.bus import EventBus, MemoryQueried
from batos.concurrency import Lifetime, answering, in_helper
from batos.config import Settings
from batos.errors import BatosError, Unreadable
from batos.image import kernels, zodb_patches
from batos.image.living_image import LivingImage, run_through_outages
from batos.mind.evidence import EvidenceLimits
from batos.objects import Root
from batos.wire.admin_schemas import SearchRequest

if TYPE_CHECKING:
    from batos.memory.archiver import MemoryChange, UndoneMemory
    from batos.memory.curator import Curator, Gist
    from batos.memory.embedders.selection import Readers
    from batos.memory.embedding_worker import EmbeddingWorker
    from batos.memory.folder_watcher import FolderWatcher
    from batos.memory.follower import FollowerNews
    from batos.memory.ingest import Ingest
    from batos.memory.live_collection import LiveCollection, SharedCollection
    from batos.memory.records import Numbers
    from batos.memory.retrieval import Retrieval
    from batos.memory.search_index import Collection
    from batos.memory.section_builder import Shelver
    from batos.memory.segments import Segment

log = structlog.get_logger("batos.memory")
Reply = dict[str, Any]
_SILENCE_S = 1.0
"""Seconds without news of requested files after which the image is asked."""


class MemoryRuntime:
    """The memory of a running daemon. Made by `open`; all methods are called on the loop's thread."""

    numbers: Numbers
    shelver: Shelver
    readers: Readers
    ingest: Ingest
    watcher: FolderWatcher
    retrieval: Retrieval
    vectors: EmbeddingWorker
    curator: Curator

    def __init__(self, image: LivingImage, settings: Settings, bus: EventBus | None = None) -> None:
        """
        :param bus: receives `MemoryQueried`, and reports ended missions; None: a bus without subscribers.
        """
        self._image, self._settings, self._bus = image, settings, bus or EventBus()
        self.look_back: Callable[[], object] = lambda: None
        self._index: LiveCollection
        self._shared: SharedCollection | None = None
        self._seen = self._lived = b""
        self._works = False

    async def open(
        self,
        inference: Inference,
        model: str,
        *,
        life: Lifetime,
        asked_only: Inference | None = None,
        at_once: bool = True,
    ) -> None:
        """Load the collection that searches use.

        :param model: the profile's embedder.
        :param asked_only: an inference that fetches no missing model; default: the same inference.
        :param life: ends the tasks begun here.
        :param at_once: resume unfinished work, too; else `work` does.
        """
        # numpy and zope.index take long to import: keep that off the loop
        await in_helper(importlib.import_module, "batos.memory.embedding_worker")
        from batos.memory.chunking import ChunkLimits
        from batos.memory.curator import Curator
        from batos.memory.embedders.selection import EmbedderLimits, Readers
        from batos.memory.embedding_worker import EmbeddingLimits, EmbeddingWorker
        from batos.memory.folder_watcher import FolderWatcher
        from batos.memory.ingest import Ingest
        from batos.memory.live_collection import OwnCollection, SharedCollection
        from batos.memory.records import Numbers
        from batos.memory.retrieval import Retrieval, RetrievalTerms
        from batos.memory.section_builder import KnownNames, Shelver, known_names
        from batos.memory.store import epoch_of, take_epoch

        settings, image = self._settings, self._image
        if image.read(kernels.me):
            self.numbers = Numbers(await image.system(take_epoch, mission="memory"))
            self._shared = await SharedCollection.open(image, self._followed, EmbeddingLimits.of(settings).dropped_rows)
            self._index = self._shared
            life.background(self._shared.run(), "collection")
        else:
            self.numbers, self._index = Numbers(image.read(epoch_of)), await OwnCollection.open(image)
        limits = ChunkLimits.of(settings)
        self.shelver = shelver = Shelver(self.numbers, limits, await in_helper(lambda: KnownNames(image.read(known_names), self._holds)))
        self.readers = readers = Readers(settings, inference, asked_only or inference, model)
        life.push_async_callback(readers.close)
        self.vectors = EmbeddingWorker(image, readers, shelver, limits, settings, self)
        self.curator = Curator(image, settings, shelver, lambda: readers.present, self)
        self.retrieval = Retrieval(
            image,
            lambda: self.collection,
            readers.of,
            RetrievalTerms(EmbedderLimits.of(settings).search_s, EmbeddingLimits.of(settings).retry_s, EvidenceLimits.of(settings).alike),
            on_read=self.curator.reads.add,
        )
        self.ingest = Ingest(image, settings, shelver, self.stored)
        self.watcher = FolderWatcher(image, self.ingest, settings)
        if at_once:
            await self.work(life)

    async def work(self, life: Lifetime, bus: EventBus | None = None) -> None:
        """Read queued files, look through watched folders and make vectors from now on.

        :param life: ends the work; it may be begun again then.
        """
        if self._shared is not None:  # it makes links for all, and a look may miss a title
            from batos.memory.section_builder import known_names

            self.shelver.names.add(await in_helper(self._image.read, known_names))
        self._works = True
        life.callback(setattr, self, "_works", False)
        life.background(run_through_outages(self.ingest.run, "ingest"), "ingest")
        life.background(run_through_outages(self.watcher.run, "watched folders"), "watched folders")
        life.callback(self.ingest.stop)
        life.background(self.vectors.run(), "vectors")
        life.push_async_callback(self.curator.stop)

    async def embedder_name(self) -> str:
        """Return what embeds here: another kernel that embeds alike says the same. Of an Ollama, its model is looked at apart from that."""
        if self._settings.memory.embedder == "ollama":
            return "ollama"
        return str(await self.readers.present.identity())

    def remember(self, life: Lifetime, bus: EventBus | None = None) -> None:
        """Store ended missions in the memory from now on, including those that ended before.

        :param life: ends the storing.
        :param bus: tells of missions that end; None: that of the memory.
        """
        from batos.memory.chunking import ChunkLimits
        from batos.missions.memory_writer import MemoryWriter, RememberLimits  # imported late, like everything that needs numpy

        settings = self._settings
        if settings.memory.remember == "on":
            work = MemoryWriter(
                self._image,
                shelver=self.shelver,
                stored=self.stored,
                section_chars=ChunkLimits.of(settings).section_chars,
                pause_s=RememberLimits.of(settings).pause_s,
            )
            self.look_back = work.wake
            life.background(work.run(bus or self._bus), "remembering")

    def curate(
        self,
        life: Lifetime,
        quiet: Callable[[], Awaitable[object]],
        gist: Callable[[str, Sequence[int], int], Awaitable[Gist]] | None = None,
    ) -> None:
        """Let the curator work from now on, when no mission needs the system; see `Curator.use`.

        :param life: ends the curator's work.
        """
        self.curator.use(quiet, gist)
        life.background(self.curator.run(), "curator")

    # --- used by missions

    async def recall(self, question: str) -> list[int]:
        """Return the chunks that speak to a question, the best first."""
        from batos.memory.retrieval import recall_passages

        settings = self._settings
        found = await recall_passages(
            question, self._image, self.retrieval, most=settings.memory.passages, alike=EvidenceLimits.of(settings).alike
        )
        self._bus.publish(MemoryQueried(len(found)))
        self.curator.reads.add(found)
        return found

    # --- changes that the collection receives

    @property
    def collection(self) -> Collection:
        """Return the collection that searches use now."""
        return self._index.collection

    @collection.setter
    def collection(self, other: Collection) -> None:
        from batos.memory.live_collection import OwnCollection

        self._index = OwnCollection(self._image, other)

    def stored(self, segment: Segment | None, dropped: Iterable[int]) -> None:
        """Add the new chunks of a durable transaction, and drop its removed chunks."""
        self._index.stored(segment, list(dropped))
        self.vectors.wake()

    def relinked(self, segment: Segment) -> None:
        """Take in other entries of chunks that did not change, of a durable transaction."""
        self._index.relinked(segment)

    def moved(self, moved: Iterable[UndoneMemory]) -> None:
        """Take in the documents that a durable undo took out or brought back."""
        for one in moved:
            self.stored(None, one.dropped)  # drop first: a later entry can bring back a chunk that an earlier one removed
            self.stored(one.segment, ())
        self.look_back()  # the memory stores a redone mission again

    def embedded(self, identity: str, ids: list[int], rows: Any) -> None:
        """Take in vectors of chunks by that embedder, of a durable transaction; searches have those of one embedder only."""
        self._index.embedded(identity, ids, rows)

    def brought_back(self, change: MemoryChange) -> None:
        """Take in the content of an archive that a durable transaction brought back."""
        self.stored(change.segment, change.dropped)
        if change.vectors is not None:
            self.embedded(change.embedder, list(change.ids), change.vectors)

    async def reload(self) -> None:
        """Read the collection again from the image, after a change of embedder or to free the rows of removed chunks."""
        await self._index.reload()

    def look(self, root: Root) -> None:
        """Take in what other kernels committed, and wake what works on it here. Nothing happens where this daemon has the image to itself.

        :param root: a fresh view of the image.
        """
        if self._shared is None:
            return
        self.curator.flush_due()
        self._shared.look(root)
        seen = zodb_patches.first_unseen(root._p_jar)
        if seen == self._seen:
            return
        self.ingest.look(root)
        if (lived := root["lobby"].memory._slots.get("lived")) is not None:
            lived._p_activate()
            if lived._p_serial != self._lived:  # another kernel redid a mission, which is to be remembered again
                self._lived = lived._p_serial
                self.look_back()
        self._seen = seen

    def _followed(self, root: Root, news: FollowerNews) -> None:
        from batos.memory.section_builder import names_of

        self.shelver.names.add(names_of(root, news.documents))
        self.vectors.wake()

    def _holds(self, document: int) -> bool:
        return bool(self._image.read(_has_document, document))

    def count(self) -> int:
        """Return the number of chunks that have a vector."""
        view = self.collection.view()
        return int((view.has & ~view.gone).sum())

    # --- requests of clients

    async def search(self, request: SearchRequest) -> Reply:
        """Return the passages that answer a question.

        :raises InvalidInput: for one without words, or a kind that no document can have.
        """
        from batos.memory.retrieval import PassageQuery

        since, until = (date.fromisoformat(day) if day else None for day in (request.since, request.until))
        wanted = PassageQuery(request.question, request.k, request.kind, request.source, request.speaker, since, until)
        return await self.retrieval.search(wanted, explain=request.explain)

    async def ask(self, paths: list[str], follow: list[str], exclude: Sequence[str] = ()) -> RequestedFiles:
        """Queue files for reading. Watch folders to follow from now on, and read them at once. The result also lists refused paths.

        :param exclude: patterns of files to leave out of the folders, now and later.
        :raises Unreadable: if none of the paths can be read.
        """
        away: list[Reply] = []
        for folder in follow:
            try:
                await self.watcher.add(folder, exclude)
            except Unreadable as e:
                away.append({"path": folder, **e.to_wire()})
        failed = {one["path"] for one in away}
        from batos.memory.files import LeftOut

        left = LeftOut()
        found, refused = await self.ingest.ask([*paths, *(folder for folder in follow if folder not in failed)], exclude, left)
        refused += away
        if {one["path"] for one in refused} == {*paths, *follow}:
            more = f" ({len(refused) - 1} more)" if len(refused) > 1 else ""
            raise Unreadable(f"{refused[0]['path']}: {refused[0]['message']}{more}")
        # Later events about these files belong to this request: nothing can have been committed for them before they were queued.
        return RequestedFiles(self._image, self.ingest, found, refused, left.facts())

    async def tell(
        self,
        documents: int | None = None,
        *,
        forget: str | None = None,
        unfollow: str | None = None,
        archives: int | None = None,
        restore: str | None = None,
        pin: str | None = None,
        unpin: str | None = None,
    ) -> Reply:
        """Forget, restore, pin or unpin a source as requested; return the contents of the memory.

        :param documents: number of documents to list, newest first; `archives` likewise.
        :raises UnknownSource: if the memory holds nothing from the source.
        """
        told: Reply = {}
        if restore is not None:
            told["restored"] = await self.curator.restore(restore)
        if (source := pin or unpin) is not None:
            told["pin"] = await self.curator.pin(source, stays=pin is not None)
        if archives is not None:
            told["archived"] = await answering(self._image.read, _archived, archives)
        if unfollow is not None:
            await self.watcher.remove(unfollow)
        if forget is not None:
            told["forgotten"] = await self.ingest.forget(forget)
            await self.vectors.purge()
        held = await answering(self._image.read, _described, documents, self.watcher.away, self.watcher.left_out)
        await self._image.told()  # the image shows a transaction before the collection receives it
        return {**held, **self._live(), **told}

    def facts(self) -> Reply:
        """Return the facts for `info`."""
        return {"chunks": self.collection.size - self.collection.dropped, **self._live(), "curator": self.curator.facts()}

    def _live(self) -> Reply:
        embedder = self.vectors.facts()
        if not self._works:
            embedder |= {"identity": embedder["serving"], "state": "elsewhere", "why": "the kernel that leads makes vectors"}
        return {"under_way": self.ingest.under_way or None, "trouble": self.ingest.trouble, "embedder": embedder}


class RequestedFiles:
    """Files of one request to read. The caller waits for them, or closes the request.

    The ingest tells the fate of each file. Where the lead of several kernels moves in between, the ingest may not tell it. So after a
    silence the image is asked which files wait no more.
    """

    def __init__(self, image: LivingImage, ingest: Ingest, files: list[str], refused: list[Reply], left_out: Reply) -> None:
        """
        :param refused: paths that cannot be read: `path`, `code` and `message`.
        :param left_out: kinds of files in the folders that are not read; empty if all are.
        """
        self.files, self.refused, self.left_out = files, refused, left_out
        self._begun = time.monotonic()
        self._image, self._ingest = image, ingest
        self._heard: asyncio.Queue[Reply] = asyncio.Queue()
        self._unlisten: Callable[[], None] | None = ingest.listen(self._heard.put_nowait)

    async def done(self, tell: Callable[[Reply], object]) -> Reply:
        """Wait until each file is read or refused. Return the figures.

        :param tell: called for each file when it is done.
        """
        left = set(self.files)
        counts = dict.fromkeys(("added", "updated", "unchanged", "forgotten"), 0)
        refused = list(self.refused)
        chunks = 0
        for one in refused:
            tell({**one, "state": "refused", "chunks": 0})
        try:
            while left:
                event = await self._next(left)
                if event["path"] not in left:
                    continue
                tell(event)
                if event["state"] in ("reading", "waiting"):
                    continue
                left.discard(event["path"])
                chunks += event["chunks"]
                if event["state"] == "refused":
                    refused.append({name: event[name] for name in ("path", "code", "message")})
                else:
                    counts[event["state"]] += 1
        finally:
            self.close()
        took = round(time.monotonic() - self._begun, 3)
        told: Reply = {"queued": len(self.files), **counts, "chunks": chunks, "refused": refused, "took_s": took}
        return {**told, **({"left_out": self.left_out} if self.left_out else {})}

    async def _next(self, left: set[str]) -> Reply:
        """Return the next event."""
        from batos.memory.ingest import ended_files

        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SILENCE_S):
                    return await self._heard.get()
            if not self._ingest.under_way:  # while it reads, it tells; a look over very many files costs
                with contextlib.suppress(BatosError):  # the server of the image is away
                    for event in await answering(self._image.read, ended_files, tuple(left)):
                        self._heard.put_nowait(event)

    def close(self) -> None:
        """Stop receiving events of these files."""
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None


def _has_document(root: Root, number: int) -> bool:
    from batos.memory.store import library_of

    document = library_of(root).documents.get(number)
    return document is not None and bool(document.sections or not document.archives)  # a document that is archived whole does not count


def _described(root: Root, documents: int | None, away: dict[str, str], left: dict[str, Reply]) -> Reply:
    from batos.memory.objects import memory_contents

    return memory_contents(root, documents, away, left)


def _archived(root: Root, most: int) -> Reply:
    from batos.memory.curation import list_archives

    return list_archives(root, most)
