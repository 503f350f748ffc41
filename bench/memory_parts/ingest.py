"""Files into the memory, vectors included, beside the embedder's own rate: the same sentences, given to it as fast as it takes them."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from batos.app.memory import MemoryRuntime
from batos.bridge.client import OllamaInference
from batos.concurrency import Lifetime
from batos.config import Settings
from batos.image import LivingImage
from batos.memory import objects, section_builder
from batos.memory.store import library_of
from bench.memory_parts.catalogue import texts
from bench.memory_parts.embedder import served

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"ingest_share_of_embedder": (">=", 0.9)}
FILES, PARAGRAPHS = 6, 30


async def measure(bench: Bench) -> dict[str, Any]:
    notes = bench.folder / "notes"
    notes.mkdir()
    chance = random.Random(5)
    said = iter(texts(FILES * PARAGRAPHS * 3, seed=5))
    for number in range(FILES):
        paragraphs = (" ".join(next(said) for _ in range(chance.choice((1, 2, 3)))) for _ in range(PARAGRAPHS))
        (notes / f"note{number}.md").write_text(f"# Note {number}\n\n" + "\n\n".join(paragraphs) + "\n")
    async with served() as (inference, model):
        return await _measured(bench, notes, inference, model)


async def _measured(bench: Bench, notes: Any, inference: OllamaInference, model: str) -> dict[str, Any]:
    settings = Settings(data=bench.folder)
    async with Lifetime() as life:
        image = await LivingImage.open(f"file://{bench.folder / 'live_image.fs'}", steps=(objects.install,))
        life.push_async_callback(image.close)
        memory = MemoryRuntime(image, settings)
        await memory.open(inference, model, life=life)
        await memory.readers.present.embed(["The model is loaded now."])
        done, heard = asyncio.Event(), memory.embedded

        def embedded(identity: str, ids: list[int], rows: Any) -> None:
            heard(identity, ids, rows)
            if not image.read(_waits):
                done.set()

        memory.embedded = embedded  # type: ignore[method-assign]
        begun = time.perf_counter()
        asked = await memory.ask([str(notes)], [])
        told = await asked.done(lambda event: None)
        searchable_s = time.perf_counter() - begun
        await done.wait()
        whole_s = time.perf_counter() - begun
        sentences = [text for work in image.read(_all) for text in section_builder.plan_embedding(work, memory.vectors.limits).texts]
        begun = time.perf_counter()
        await memory.readers.present.embed(sentences)
        alone_s = time.perf_counter() - begun
        bench.say(f"  {len(sentences)} sentences, {told['chunks']} chunks at first")
    return {
        "ingest_sentences": len(sentences),
        "ingest_searchable_s": round(searchable_s, 3),
        "ingest_with_vectors_s": round(whole_s, 3),
        "ingest_texts_per_s": round(len(sentences) / whole_s, 1),
        "embedder_texts_per_s": round(len(sentences) / alone_s, 1),
        "ingest_share_of_embedder": round(alone_s / whole_s, 3),
    }


def _waits(root: Any) -> bool:
    return any(True for _ in library_of(root).without_vectors())


def _all(root: Any) -> list[section_builder.EmbeddingWork]:
    """Every section as it is now."""
    library = library_of(root)
    return [section_builder.work_of(library, number) for number in library.sections]
