"""The Memory Curator: keeps the memory from growing without bound, in the background and on request.

In each round it looks for clusters (`batos.memory.eviction`), summarises each in a few sentences and archives it, one transaction a
cluster (`batos.memory.archiver`). The daemon may die between any two steps: no cluster is ever archived in part. Before each cluster it
waits until no mission is under way; searches continue meanwhile. A cluster that changed in the meantime is left for the next round.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import structlog
from ZODB.POSException import POSKeyError

from batos.concurrency import Background, in_helper
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import BatosError, ImageDamaged, ImageError
from batos.image import blobs
from batos.image.living_image import LivingImage
from batos.memory import archive_format, archiver, curation, eviction
from batos.memory.chunking import ChunkLimits
from batos.memory.drafts import Draft, DraftPart
from batos.memory.embedders import Embedder
from batos.memory.records import DIGEST, SUMMARY
from batos.memory.search_index import Collection
from batos.memory.section_builder import PreparedDocument, Shelver, prepare_document
from batos.memory.segments import Array, Segment, build
from batos.memory.store import library_of
from batos.objects import Root
from batos.resources import give_memory_back

log = structlog.get_logger("batos.memory")
Reply = dict[str, Any]

_DAY_S = 86400.0
_SEEN = 512  # sections registered in one transaction
_GATHERED = 1000  # tree entries that one transaction compacts
_TITLES = 3  # titles in the name of a summary
_GROWN = 16 << 20  # bytes: a smaller image never starts a round by its growth


@dataclass(frozen=True, slots=True)
class CuratorLimits(Limits):
    """Limits of the curator's rounds."""

    every_s: float = limit(21_600.0, ge=0.05, le=365 * 86400)
    """Seconds between two rounds."""
    check_s: float = limit(60.0, ge=0.05, le=86_400)
    """Seconds between two checks whether a round is due."""
    flush_s: float = limit(300.0, ge=0.05, le=86_400)
    """Seconds between two commits of counts of reads."""
    growth: float = limit(2.0, gt=1, le=1000)
    """Factor by which the image must grow after a round to start the next one."""
    fresh_days: float = limit(1.0, ge=0, le=36_500)
    """Days after a section's arrival or last read in which the curator ignores the section."""
    reads: float = limit(0.5, ge=0, le=1_000_000)
    """Decayed number of reads up to which a section counts as rarely read."""
    half_life_days: float = limit(14.0, gt=0, le=36_500)
    """Days in which the weight of a read halves."""
    alike: float = limit(0.95, ge=0, le=1)
    """Cosine from which two sections count as redundant."""
    cluster: int = limit(64, ge=2, le=10_000)
    """Number of chunks that one archive holds, about."""
    archive: int = limit(512, ge=2, le=100_000)
    """Greatest number of chunks of archives that are merged later."""
    least: int = limit(8, ge=2, le=10_000)
    """Least number of old chunks of one theme that are archived together."""
    sections: int = limit(4096, ge=2, le=1_000_000)
    """Greatest number of sections that one round looks at."""
    clusters: int = limit(32, ge=1, le=100_000)
    """Greatest number of archives that one round makes."""
    sentences: int = limit(12, ge=1, le=50)
    """Greatest number of sentences of a summary."""
    tokens: int = limit(20_000, ge=0, le=100_000_000)
    """Greatest number of tokens of a model that one round spends; 0: rounds never ask a model."""


class Gist(NamedTuple):
    """Summary by a model."""

    text: str = ""
    tokens: int = 0
    mission: str = ""
    """Id of the mission that asked for the round; empty if none could be accepted."""


class CuratorHearer(Protocol):
    """Listener for committed changes (`batos.app.memory.MemoryRuntime`)."""

    @property
    def collection(self) -> Collection: ...

    def stored(self, segment: Segment | None, dropped: Iterable[int]) -> None: ...
    def brought_back(self, change: archiver.MemoryChange) -> None: ...


class Curator:
    """See the module. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        settings: Settings,
        shelver: Shelver,
        embedder: Callable[[], Embedder],
        hearer: CuratorHearer,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        :param embedder: the present one, which reads the sentences of an extract.
        """
        self._image, self._settings, self._shelver = image, settings, shelver
        self._limits = CuratorLimits.of(settings)
        self._embedder, self._hearer = embedder, hearer
        self.now = now
        """The clock: returns seconds since the epoch."""
        self.reads = eviction.ReadCounter()
        self._quiet: Callable[[], Awaitable[object]] = _at_once
        self._gist: Callable[[str, Sequence[int], int], Awaitable[Gist]] | None = None
        self._alone = asyncio.Lock()
        self._woken = asyncio.Event()
        self._why = ""
        self._flushed = time.monotonic()
        self._full = 0
        self._background = Background()
        self._last: Reply = {}

    def use(self, quiet: Callable[[], Awaitable[object]], gist: Callable[[str, Sequence[int], int], Awaitable[Gist]] | None = None) -> None:
        """Go after missions, and ask models.

        :param quiet: returns when no mission is under way or waits.
        :param gist: asks a model what sections say, given an id for the asking, their numbers and how many sentences. It answers a blank
            gist if no model answers.
        """
        self._quiet, self._gist = quiet, gist

    def trigger(self, why: str) -> None:
        """Request a round soon, for a reason; the loop's triggers and proposals use it."""
        self._why = self._why or why
        self._woken.set()

    def facts(self) -> Reply:
        """Return the facts for `info`: whether it is at work, and the figures of the last round."""
        return {"state": self._settings.memory.curate, "under_way": self._alone.locked(), "last": self._last or None}

    async def run(self) -> None:
        """Look after the memory until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.check_s):
                    await self._woken.wait()
            self._woken.clear()
            self.flush_due()
            try:
                if await in_helper(self._image.read, curation.unsummarised):
                    async with self._alone:
                        await self._quiet()
                        await self._summaries_again()
                if why := self._why or await in_helper(self._image.read, self.due):
                    self._why = ""
                    await self.round(why)
            except (BatosError, OSError) as e:  # a full disk or a damaged archive: the next round tries again
                log.warning("curator_skipped", error=str(e))

    def flush_due(self) -> None:
        """Store the counted reads soon, if it is time."""
        if time.monotonic() - self._flushed >= self._limits.flush_s:
            self.flush()

    def flush(self) -> None:
        """Store the counted reads soon."""
        self._flushed = time.monotonic()
        if counts := self.reads.take():
            self._image.later(eviction.note_reads, counts, self.now(), CuratorLimits.of(self._settings).half_life_days * _DAY_S)

    async def stop(self) -> None:
        """Wait for the end of the current step. All counted reads are stored."""
        self.flush()
        await self._background.drain()

    def due(self, root: Root) -> str:
        """Return the reason for a round now; "" if there is none."""
        last, settings = root["lobby"].memory.curator, self._settings
        if settings.memory.curate == "off" or not blobs.kept_by(self._image.db):
            return ""
        there = library_of(root).counts.chunks
        size = self._image.db.getSize()
        if there > max(settings.memory.curate_chunks, self._full):
            return f"there are {there} chunks (setting curate_chunks)"
        if last.bytes and size >= max(_GROWN, CuratorLimits.of(settings).growth * last.bytes):
            return f"the image grew from {last.bytes} to {size} bytes (setting curate_growth)"
        return (
            "" if 0 <= self.now() - last.at < CuratorLimits.of(settings).every_s else "it is time (setting curate_s)"
        )  # true as well if the clock was set back

    # --- a round

    async def round(self, why: str, *, dry: bool = False) -> Reply:
        """Find sections to archive, and archive them.

        :param dry: only look.
        :returns: `why`, `found`, `clusters` (those that were put away; dry: all that might be), and `took_s`. Of the clusters also
            `chunks`, `bytes` of the archives, how many `by_model`, its `tokens`.
        :raises ImageError: for a storage that keeps no blobs.
        """
        if not blobs.kept_by(self._image.db):
            raise ImageError(f"{self._image.uri} keeps no blobs, and archives are blobs; give the storage a folder for them")
        async with self._alone:
            begun, now = time.monotonic(), self.now()
            self.flush()
            await self._seen(now)
            view = self._hearer.collection.view()
            found = await in_helper(self._image.read, eviction.plan_clusters, view, self._eviction_limits(), now)
            told: Reply = {"why": why, "found": len(found), "clusters": [], "chunks": 0, "bytes": 0, "by_model": 0, "tokens": 0}
            if dry:
                told["clusters"] = await in_helper(self._image.read, curation.described_clusters, found)
            else:
                await self._summaries_again()
                for cluster in found[: self._limits.clusters]:
                    await self._quiet()
                    with _passed_over(cluster.why):
                        await self._one(cluster, told, now)
                await self._image.system(curation.note_round, now, self._image.db.getSize(), mission="curator")
                self._note(told)
                if told["clusters"]:
                    await self._tidied()
            return {**told, "took_s": round(time.monotonic() - begun, 3)}

    async def _seen(self, now: float) -> None:
        """Record new and removed sections, a few in one transaction, because other commits wait for it."""
        await self._image.system(curation.no_op)  # a barrier: the flushed reads are committed
        found = await in_helper(self._image.read, eviction.unseen_sections, now)
        for begin in range(0, max(map(len, found)), _SEEN):
            some = eviction.UnseenSections(*(lot[begin : begin + _SEEN] for lot in found))
            await self._image.system(eviction.note_seen, now, some, mission="curator")

    async def _tidied(self) -> None:
        """Release the space of archived sections."""
        for name in curation.TREES:
            keys = await in_helper(self._image.read, curation.sparse_tree_keys, name)
            for begin in range(0, len(keys), _GATHERED):
                await self._image.system(curation.reinsert_tree_keys, name, keys[begin : begin + _GATHERED], mission="curator")
        await in_helper(give_memory_back)

    def _note(self, told: Reply) -> None:
        """Record the round. After a complete round the next one starts only when there is new work."""
        there = self._hearer.collection.size - self._hearer.collection.dropped
        more = told["found"] > len(told["clusters"]) > 0
        self._full = 0 if more else there + CuratorLimits.of(self._settings).cluster
        self._last = {"at": round(self.now(), 3), **told, "clusters": len(told["clusters"])}
        if told["clusters"]:
            log.info("curated", **self._last)
        if more:
            self.trigger(told["why"])

    def _eviction_limits(self) -> eviction.EvictionLimits:
        settings = self._settings
        return eviction.EvictionLimits(
            age_s=settings.memory.curate_age_days * _DAY_S,
            fresh_s=self._limits.fresh_days * _DAY_S,
            reads=self._limits.reads,
            half_life_s=self._limits.half_life_days * _DAY_S,
            chunks=settings.memory.curate_chunks,
            alike=self._limits.alike,
            cluster=self._limits.cluster,
            archive=self._limits.archive,
            least=self._limits.least,
            looked=self._limits.sections,
        )

    # --- a cluster

    async def _one(self, cluster: eviction.Cluster, told: Reply, now: float) -> None:
        held, facts = await in_helper(self._image.read, curation.read_sections, cluster.sections)
        await self._image.system(curation.no_op)  # a barrier: the collection has every commit that came before this
        material = await in_helper(self._material, held, facts.embedder)
        if material is None or len(held) < len(cluster.sections):
            return  # the sections changed meanwhile
        inner = await in_helper(self._image.read, curation.inner_archives, cluster.documents) if cluster.level > 1 else None
        if cluster.level > 1 and inner is None:
            return
        said, vectors = curation.said_in(material, facts)
        text = await self._extract(said, vectors, curation.sentences_for(cluster.chunks, self._limits.sentences))
        gist = await self._told_by_model(material, told["tokens"])
        told["tokens"] += gist.tokens
        by_model = curation.is_summary(gist.text, said)
        if by_model:
            text = f"{gist.text.strip()}\n{text}"
        documents = cluster.documents if inner is None else inner.documents
        facts = facts if inner is None else facts._replace(titles=inner.titles, left=inner.left)
        summary = await in_helper(self._summary, text, facts, cluster.lived, gist.mission)
        made = archiver.NewSummary(*summary, documents, now, cluster.level, by_model)
        data = await in_helper(archive_format.pack_archive, material if inner is None else inner.material)
        step = (curation.put_away, material) if inner is None else (curation.put_together, inner)
        if await self._shielded(self._changed(*step, data, made, gist.mission)):
            told["clusters"].append({"archive": made.number, "why": cluster.why, "chunks": cluster.chunks, "bytes": len(data)})
            told["chunks"] += cluster.chunks
            told["bytes"] += len(data)
            told["by_model"] += by_model

    def _material(self, held: list[archive_format.ArchivedSection], embedder: str) -> archive_format.ArchiveContent | None:
        """Return the collection's data of sections, with the sections; None if the collection lacks one of them."""
        ids = [number for one in held for number in one.section.numbers]
        segment, vectors, has = self._hearer.collection.excerpt(ids)
        if len(segment) != len(ids) or self._hearer.collection.maker.identity != embedder:
            return None
        found, at = [], 0
        for one in held:
            end = at + one.section.size
            found.append(one._replace(vectors=vectors[at:end] if has[at:end].all() else None))
            at = end
        return archive_format.ArchiveContent(tuple(found), segment, embedder)

    async def _extract(self, said: list[curation.ExtractSource], vectors: Array | None, most: int) -> str:
        found = await in_helper(curation.choose_sentences, said, vectors, most)
        rows = None
        with contextlib.suppress(BatosError):  # without an embedder, compare them by their words
            rows = await self._embedder().embed([sentence for own in found.sentences for sentence in own])
        return await in_helper(curation.extract, said, found, rows)

    async def _told_by_model(self, material: archive_format.ArchiveContent, spent: int) -> Gist:
        """Return a model's summary; blank without a model, and when the round's tokens are spent."""
        if self._gist is None or spent >= CuratorLimits.of(self._settings).tokens:
            return Gist()
        named = ",".join(f"{one.section.number}:{one.section.digest.hex()}:{one.section.size}" for one in material.held)
        # the same id after a kill, so that the journal answers for inferences that are paid for
        id = f"curate-{hashlib.sha256(named.encode()).hexdigest()[:24]}"
        return await self._gist(id, [one.section.number for one in material.held], self._limits.sentences)

    def _summary(
        self, text: str, facts: curation.SectionFacts, lived: bool, mission: str, number: int = 0
    ) -> tuple[int, PreparedDocument, Segment]:
        """Return a summary that is ready to be kept, with the number of its archive: a new one, if it has none yet."""
        number = number or self._shelver.numbers.take()
        more = f" and {len(facts.titles) - _TITLES} more" if len(facts.titles) > _TITLES else ""
        title = f"Summary of {', '.join(facts.titles[:_TITLES])}{more}"
        draft = Draft(DIGEST if lived else SUMMARY, title, [DraftPart(text, title, facts.day)], facts.day)
        longest = ChunkLimits.of(self._settings).section_chars
        prepared = prepare_document(
            draft, self._shelver, source=f"archive:{number}", mission=mission, section_chars=longest, about=facts.left
        )
        return number, prepared, build(prepared.entries)

    async def _changed(self, *step: Any) -> bool:
        """Run a system transaction and tell of it; return whether it changed anything."""
        change: archiver.MemoryChange | None = await self._image.system(*step, mission="curator")
        if change is not None:
            self._hearer.brought_back(change)
        return change is not None

    async def _summaries_again(self) -> None:
        """Make new summaries for archives whose summary was forgotten with a part of its contents."""
        for number in await in_helper(self._image.read, curation.unsummarised):
            with _passed_over(f"archive {number}"):
                await self._summary_again(number)

    async def _summary_again(self, number: int) -> None:
        found = await in_helper(self._image.read, curation.archive_content, number)
        if found is None:
            return
        material, facts, level, lived = found
        said, vectors = curation.said_in(material, facts)
        text = await self._extract(said, vectors, curation.sentences_for(len(material.ids), self._limits.sentences))
        documents = tuple(dict.fromkeys(one.section.document for one in material.held))
        summary = await in_helper(self._summary, text, facts, lived, "", number)
        made = archiver.NewSummary(*summary, documents, self.now(), level)
        await self._shielded(self._changed(archiver.replace_summary, made))

    # --- requests

    async def restore(self, what: str) -> Reply:
        """Restore an archive, by its number, or all archived parts of a document, by its source.

        :returns: `archives` that were brought back, and their `chunks`.
        :raises UnknownSource: if there is none.
        """
        parts = await in_helper(self._image.read, curation.archives_of, what)
        chunks = sum([await self._shielded(self._brought_back(*part)) for part in parts])
        return {"archives": [number for number, _ in parts], "chunks": chunks}

    async def _brought_back(self, number: int, only: int | None) -> int:
        """Restore an archive's content. Return the number of chunks."""
        step = (curation.bring_back, number, only, self.now(), CuratorLimits.of(self._settings).reads + 1)
        change: archiver.MemoryChange | None = await self._image.system(*step, mission="curator")
        if change is None or change.segment is None:
            return 0
        self._hearer.brought_back(change)
        return len(change.segment)

    async def pin(self, source: str, *, stays: bool) -> Reply:
        """Pin or unpin the documents from a source, or below that folder; pinning restores their archived content first.

        :returns: `source`, `stays`, `new` (True if that is a change), `documents` that are pinned now, `restored` chunks.
        :raises UnknownSource: if the memory holds nothing from that source.
        """
        new = await self._image.system(curation.pin, source, stays, mission="pin")
        parts = await in_helper(self._image.read, curation.archived_below, source) if stays else []
        chunks = sum([await self._shielded(self._brought_back(*part)) for part in parts])
        documents = self._image.read(lambda root: len(eviction.pinned_documents(library_of(root))))
        return {"source": source, "stays": stays, "new": new, "documents": documents, "restored": chunks}

    async def _shielded(self, work: Any) -> Any:
        """Run a transaction and tell of it: both, also if the caller is cancelled."""
        return await self._background.run(work, "curation")


@contextlib.contextmanager
def _passed_over(what: str) -> Iterator[None]:
    """Skip unreadable sections: they stay unchanged, and must not block others. The self-audit reports them."""
    try:
        yield
    except (ImageDamaged, POSKeyError) as e:
        log.error("not_curated", what=what, error=str(e), hint="it is unchanged; restore a backup (`batos restore`)")


async def _at_once() -> None:
    """Return at once: without missions it is always quiet."""
