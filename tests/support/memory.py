"""A memory without a daemon: a real image, real files, and an embedder that counts words."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batos.app.memory import MemoryRuntime
from batos.bridge.inference import ChatReply, ChatRequest
from batos.concurrency import Lifetime
from batos.config import Settings
from batos.errors import InferenceFailed
from batos.image import LivingImage, checksums, kernels
from batos.image.committer import Committer
from batos.image.living_image import awaken
from batos.image.storage import open_database
from batos.memory import objects
from batos.memory.embedding_worker import load_collection
from batos.memory.search_index import Collection
from batos.memory.segments import signatures
from batos.memory.store import Library, library_of, title_of

QUICK: dict[str, Any] = {"watch_s": 0.05, "embed_retry_s": 0.05, "ingest_retry_s": 0.05, "embed_check_s": 0.1}
DIMENSIONS = 64


class CountsWords:
    """The embedding half of an `Inference`: a text's vector says which words it has. `away` makes it fail."""

    def __init__(self) -> None:
        self.away = False
        self.digest_now = "d1"
        self.texts: list[str] = []

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        if self.away:
            raise InferenceFailed("nobody answers", cause="unreachable")
        self.texts += texts
        return [self.vector(text) for text in texts]

    async def digest(self, model: str) -> str:
        if self.away:
            raise InferenceFailed("nobody answers", cause="unreachable")
        return self.digest_now

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        raise AssertionError("the memory asks for vectors only")

    async def continues(self, model: str) -> bool:
        return False

    def vector(self, text: str) -> list[float]:
        row = [0.01] * DIMENSIONS
        for word in text.lower().split():
            row[zlib.crc32(word.strip(".,:;!?#*").encode()) % DIMENSIONS] += 1.0
        return row


class Memory:
    """An open memory, and what a test asks of it."""

    def __init__(self, image: LivingImage, recollection: MemoryRuntime, embedder: CountsWords) -> None:
        self.image, self.recollection, self.embedder = image, recollection, embedder

    async def read(self, *paths: Path | str, follow: Sequence[Path] = (), exclude: Sequence[str] = ()) -> dict[str, Any]:
        """Have files read; the figures, with all events as `events`."""
        events: list[dict[str, Any]] = []
        asked = await self.recollection.ask([str(path) for path in paths], [str(folder) for folder in follow], exclude)
        return {**await asked.done(events.append), "events": events}

    def look(self, function: Callable[[Library], Any]) -> Any:
        """What a function of the library answers."""
        return self.image.read(lambda root: function(library_of(root)))

    async def until(self, condition: Callable[[], Any], limit_s: float = 90.0) -> None:
        """Wait until it is so."""
        async with asyncio.timeout(limit_s):
            while not condition():
                await asyncio.sleep(0.01)

    async def embedded(self) -> None:
        """Wait until every chunk has its vector."""
        await self.until(
            lambda: self.recollection.vectors.facts()["state"] == "ready" and not self.look(lambda library: list(library.without_vectors()))
        )

    def texts(self, source: Path | str) -> list[str]:
        """The texts of a document's chunks."""
        return self.look(lambda library: [chunk.text for chunk in library.chunks_of(library.document(str(source)))])  # type: ignore[no-any-return]

    def numbers(self, source: Path | str) -> list[int]:
        """The numbers of a document's chunks."""
        return self.look(lambda library: [chunk.number for chunk in library.chunks_of(library.document(str(source)))])  # type: ignore[no-any-return]

    def found(self, question: str) -> list[str]:
        """The texts that have words of a question, the best first; an empty one for what the library has let go of already."""
        from batos.memory.tokenizer import words

        view = self.recollection.collection.view()
        scores = view.bm25(words(question))
        best = [int(view.ids[row]) for row in scores.argsort()[::-1] if scores[row] > 0 and not view.gone[row]]
        return self.look(lambda library: [library.chunks[id].text if id in library.chunks else "" for id in best])  # type: ignore[no-any-return]

    async def whole(self) -> None:
        """Once nothing is under way, the library, its index, its vectors and the collection say the same."""
        await self.embedded()
        async with self.recollection.ingest.alone:  # what the last transaction did has been told
            view = self.recollection.collection.view()
        there = {int(id) for id, gone in zip(view.ids, view.gone, strict=True) if not gone}
        with_vector = {int(id) for id, has, gone in zip(view.ids, view.has, view.gone, strict=True) if has and not gone}

        def check(library: Library) -> None:
            chunks, held = consistent(library)
            assert there == chunks
            assert with_vector == held

        self.look(check)


def flip(path: Path, *places: int) -> None:
    """Change a byte of the data of each record there."""
    data = bytearray(path.read_bytes())
    for at in places:
        data[at + checksums.RECORD.size + 60] ^= 1
    path.write_bytes(data)


def consistent(library: Library) -> tuple[set[int], set[int]]:
    """All parts of a library say the same; the numbers of its chunks, and of those with a vector."""
    chunks = set(library.chunks)
    sizes = {name: len(getattr(library, name)) for name in ("documents", "sections", "chunks", "entities")}
    assert library.counts.told() == sizes
    assert {int(id) for segment in library.text.segments() for id in segment.ids} == chunks
    sections = [library.section(number) for number in library.sections]
    assert {n for section in sections for n in section.numbers} == chunks
    assert dict(library.starts) == {section.first: section.number for section in sections}
    assert {n for d in library.documents.values() for n in d.sections} == set(library.sections)
    assert all(library.documents[section.document].sections.count(section.number) == 1 for section in sections)
    assert set(library.without_vectors()) <= set(library.sections)
    for entity in library.entities.values():
        assert entity.chunks
        assert set(entity.chunks) <= chunks
    assert dict(library.by_source) == {source: d.number for d in library.documents.values() for source in d.sources}
    titled = {(title_of(d), d.number) for d in library.documents.values() if title_of(d) and d.complete and (d.sections or not d.archives)}
    listed = {*library.by_title.items(), *library.namesakes} - {("", 0)}
    assert sorted(number for _, number in titled) == sorted(number for _, number in listed), "under one title each"
    archived = {title_of(d) for d in library.documents.values() if d.archives and not d.sections}
    assert {title for title, _ in listed} - archived <= set(library.by_title)
    for number, chunk in library.chunks.items():
        assert (chunk.number, chunk.document.number in library.documents) == (number, True)
    held: set[int] = set(library.vectors[library.embedder].ids()) if library.embedder else set()
    identities = {library.embedder, library.change.identity} if library.change is not None else {library.embedder}
    assert set(library.vectors) == identities or not library.embedder
    for identity, log in library.vectors.items():
        lack = library.lacking(identity).keys(0, excludemin=True)
        assert set(log.ids()) == chunks - {n for number in lack for n in library.section(number).numbers}
    return chunks, held


@contextlib.asynccontextmanager
async def memory(folder: Path, *, embedder: CountsWords | None = None, model: str = "words", **settings: Any) -> AsyncIterator[Memory]:
    """An open memory with its image in a folder.

    :param model: what the embedder is asked for.
    """
    embedder = embedder or CountsWords()
    failed: list[BaseException] = []
    async with Lifetime(lambda part, failure: failed.append(failure)) as life:
        image = await LivingImage.open(f"file://{folder / 'image.fs'}", steps=(objects.install,))
        life.push_async_callback(image.close)

        made = MemoryRuntime(image, Settings(**{**QUICK, "data": folder / "data", **settings}))
        await made.open(embedder, model, life=life)
        yield Memory(image, made, embedder)
        assert not failed, failed


@contextlib.asynccontextmanager
async def shared_memories(folder: Path, count: int = 2, **settings: Any) -> AsyncIterator[list[Memory]]:
    """Memories of several kernels on one storage, in one process, each with a committer and a collection of its own. The test looks."""
    failed: list[BaseException] = []
    uri = f"file://{folder / 'image.fs'}"
    db = open_database(uri, cache_size=2000, pool_size=40)
    kernels.name_database(db, "shared.1")
    async with Lifetime(lambda part, failure: failed.append(failure)) as life:
        life.callback(db.close)
        made = []
        for at in range(count):
            image = LivingImage(uri, db, Committer(db, batch=64, on_failed=failed.append))
            life.push_async_callback(_left, image)
            if not at:
                await image.system(awaken, (objects.install,))
            memory = MemoryRuntime(image, Settings(**{**QUICK, "data": folder / f"data{at}", **settings}))
            embedder = CountsWords()
            await memory.open(embedder, "words", life=life)
            made.append(Memory(image, memory, embedder))
        yield made
        assert not failed, failed


async def _left(image: LivingImage) -> None:
    """Close an image whose storage others use."""
    await image.committer.close()
    for _, connection in image.idle:
        connection.close()


def equals_a_fresh_one(root: Any, collection: Collection, words: Sequence[str] = ("word1", "more", "part")) -> None:
    """The collection holds what one has that is loaded from this view of the image: chunks, their entries and their vectors, and it scores
    as that one does.
    """
    fresh = load_collection(root)
    numbers, with_vectors = _held(collection)
    assert (numbers, with_vectors.keys()) == (_held(fresh)[0], _held(fresh)[1].keys())
    assert all(np.array_equal(row, _held(fresh)[1][number]) for number, row in with_vectors.items())
    assert _entries(collection, numbers) == _entries(fresh, numbers)
    assert collection.maker == fresh.maker
    for word in words:
        assert _scores(collection, word) == pytest.approx(_scores(fresh, word), rel=1e-4)


def _held(collection: Collection) -> tuple[list[int], dict[int, Any]]:
    view = collection.view()
    rows = {int(number): row for row, number in enumerate(view.ids) if not view.gone[row]}
    return sorted(rows), {number: view.matrix[row] for number, row in rows.items() if view.has[row]}


def _scores(collection: Collection, word: str) -> dict[int, float]:
    view = collection.view()
    return {int(number): float(score) for number, score, gone in zip(view.ids, view.bm25([word]), view.gone, strict=True) if not gone}


def _entries(collection: Collection, numbers: list[int]) -> dict[int, int]:
    segment, _, _ = collection.excerpt(numbers)
    return dict(zip(segment.ids.tolist(), signatures(segment).tolist(), strict=True))
