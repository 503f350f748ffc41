"""The library as it is: what a chunk costs with its document, section, speaker, entity and catalogue, and one note more in it.

The parts `add` and `size` measure a chunk's object, text and vector alone, as their peers have them.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from batos.image import LivingImage
from batos.image.packing import pack
from batos.memory import embedding_worker, objects, section_builder
from batos.memory.chunking import ChunkLimits
from batos.memory.drafts import Draft, DraftPart, Turn
from batos.memory.embedding_worker import load_collection
from batos.memory.records import Numbers
from batos.memory.section_builder import KnownNames, PreparedDocument, Shelver, prepare_document, store_document
from batos.memory.segments import Segment, build
from batos.memory.store import epoch_of, library_of
from bench.memory_parts.catalogue import DIMENSIONS, SECTION, percentiles, texts, tidy_logs, unit_vectors

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"library_bytes_per_chunk_packed": ("<=", 1400)}
DOCUMENT = 1000  # chunks
ADDED = 300
EMBEDDER = "bench"


async def measure(bench: Bench) -> dict[str, Any]:
    path = bench.folder / "live_image.fs"
    image = await LivingImage.open(f"file://{path}", steps=(objects.install,))
    empty, count = path.stat().st_size, bench.args.chunks // DOCUMENT * DOCUMENT
    shelver = Shelver(Numbers(image.read(epoch_of)), ChunkLimits(), KnownNames())
    await image.system(embedding_worker.adopt_embedder, EMBEDDER, DIMENSIONS)
    said, vectors = texts(count), unit_vectors(DOCUMENT)
    begun = time.perf_counter()
    for first in range(0, count, DOCUMENT):
        made = _conversation(first, said[first : first + DOCUMENT], shelver)
        await image.system(_store, made, build(made.entries), vectors)
        await image.system(_tidy)
    filled = time.perf_counter() - begun
    pack(image.db, path, time.time(), threading.Event())
    packed = path.stat().st_size - empty
    collection = image.read(load_collection)
    times = []
    for number, text in enumerate(texts(ADDED, seed=9)):
        begun = time.perf_counter()
        made = prepare_document(Draft("note", "", [DraftPart(text)]), shelver, source=f"note:{number}", mission="", section_chars=20_000)
        segment = build(made.entries)
        await image.system(_store, made, segment, vectors[:1])
        collection.append(segment)
        collection.vectors(segment.ids, vectors[:1])
        times.append(time.perf_counter() - begun)
        assert collection.view().row_of(int(segment.ids[0])) is not None
    await image.close()
    return {
        "library_fill_chunks_per_s": round(count / filled),
        "library_bytes_per_chunk_packed": round(packed / count),
        "library_add_note_ms_p50": percentiles(times)[0],
        "library_add_note_ms_p95": percentiles(times)[1],
    }


def _conversation(first: int, said: list[str], shelver: Shelver) -> PreparedDocument:
    """A document of sections, each of some turns."""
    parts = []
    for begin in range(0, len(said), SECTION):
        turns, text = [], ""
        for at, words in enumerate(said[begin : begin + SECTION]):
            start, speaker = len(text), ("Ann", "Ben")[at % 2]
            text += f"{speaker}: {words}\n"
            turns.append(Turn(start, len(text), speaker))
        parts.append(DraftPart(text, f"Session {first + begin}", 738_000 + begin, tuple(turns)))
    draft = Draft("conversation", f"Talk {first}", parts)
    return prepare_document(draft, shelver, source=f"talk:{first}", mission="", section_chars=20_000)


def _store(root: Any, made: PreparedDocument, segment: Segment, vectors: Any) -> None:
    """System transaction: a document with the vectors of its chunks."""
    store_document(root, made, segment)
    begin, rows = 0, []
    for each in made.shelved:
        size = each.shelf.section.size
        rows.append(section_builder.EmbeddedSection(each.shelf.section, None, vectors[begin : begin + size]))
        begin += size
    section_builder.store_vectors(root, EMBEDDER, rows)


def _tidy(root: Any) -> None:
    library = library_of(root)
    tidy_logs(library.text, library.vectors[EMBEDDER])
