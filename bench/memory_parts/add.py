"""One chunk more in a large image: object, text and vector in one durable transaction, and found by the next search."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

from batos.image import LivingImage
from batos.memory.search_index import Collection
from bench.memory_parts.catalogue import fill, percentiles, remember, texts, tidy, unit_vectors

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"add_ms_p50": ("<=", 1.5)}
ADDED = 400


async def measure(bench: Bench) -> dict[str, Any]:
    path = bench.folder / "live_image.fs"
    image = await LivingImage.open(f"file://{path}")
    await fill(image, bench.args.chunks)
    with image.snapshot() as root:
        collection = Collection.load(root["text"], root["vectors"])
    said, vectors = texts(ADDED, seed=9), unit_vectors(ADDED, seed=9)
    before = path.stat().st_size
    times, merges, seen = [], [], []
    for i, text in enumerate(said):
        begun = time.perf_counter()
        segment = await image.system(remember, 10**9 + i, [text], vectors[i : i + 1])
        collection.append(segment)
        collection.vectors(segment.ids, vectors[i : i + 1])
        times.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        view = collection.view()
        assert view.row_of(10**9 + i) is not None
        view.bm25(segment.terms[:5])
        seen.append(time.perf_counter() - begun)
        if i % 32 == 31:  # what upkeep does now and then
            begun = time.perf_counter()
            await image.system(tidy)
            merges.append(time.perf_counter() - begun)
    grown = path.stat().st_size - before
    await image.close()
    return {
        "add_ms_p50": percentiles(times)[0],
        "add_ms_p95": percentiles(times)[1],
        "add_ms_max": round(max(times) * 1e3, 2),
        "add_first_text_search_ms_p50": percentiles(seen)[0],
        "add_merge_ms_p50": percentiles(merges)[0],
        "add_bytes_each": round(grown / ADDED),
        "fts5_add_ms_p50": _fts5(bench, said),
    }


def _fts5(bench: Bench, said: list[str]) -> float:
    """Text alone, and as durable."""
    db = sqlite3.connect(bench.folder / "fts5.sqlite")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE VIRTUAL TABLE chunks USING fts5(text, tokenize='porter unicode61')")
    times = []
    for text in said:
        begun = time.perf_counter()
        with db:
            db.execute("INSERT INTO chunks(text) VALUES (?)", (text,))
        times.append(time.perf_counter() - begun)
    db.close()
    return percentiles(times)[0]
