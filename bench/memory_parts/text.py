"""The text index: chunks a second with commits, a question's cost, bytes. Beside zope.index's own index and SQLite's FTS5."""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from batos.image import LivingImage
from batos.image.packing import pack
from batos.memory.search_index import Collection
from batos.memory.segments import build
from batos.memory.text_index import OkapiText, SegmentedText
from batos.memory.tokenizer import words
from bench.memory_parts.catalogue import BATCH, entries, percentiles, questions, texts

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"text_index_s": ("<=", 4.0)}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zope-chunks", type=int, default=5_000, help="chunks that zope.index gets (100,000 take it a minute)")


async def measure(bench: Bench) -> dict[str, Any]:
    count = bench.args.chunks
    said, asked = texts(count), questions()
    figures = await _segments(bench, said, asked)
    figures.update(await _zope(bench, said[: bench.args.zope_chunks], asked))
    figures.update(_fts5(bench, said, asked))
    return figures


async def _written(image: Any, add: Callable[..., None], said: list[str]) -> tuple[float, float, float]:
    """Index the texts in batches of one transaction each; seconds, processor seconds, and bytes of the file for each text."""
    before = image.db.getSize()
    begun, spent = time.perf_counter(), time.process_time()
    for first in range(0, len(said), BATCH):
        await image.system(add, first, said[first : first + BATCH])
    took, spent = time.perf_counter() - begun, time.process_time() - spent
    return took, spent, (image.db.getSize() - before) / len(said)


async def _segments(bench: Bench, said: list[str], asked: list[str]) -> dict[str, Any]:
    path = bench.folder / "segments.fs"
    image = await LivingImage.open(f"file://{path}")
    await image.system(lambda root: root.update(text=SegmentedText()))
    empty = image.db.getSize()

    def add(root: Any, first: int, batch: list[str]) -> None:
        root["text"].add(build(entries(first, batch)))
        while root["text"].tidy():
            pass

    took, spent, grown = await _written(image, add, said)
    pack(image.db, path, time.time(), threading.Event())
    packed = image.db.getSize() - empty
    with image.snapshot() as root:
        collection = Collection.load(root["text"])
    await image.close()
    fresh, known = [], []
    for times in (fresh, known):
        for question in asked:
            begun = time.perf_counter()
            scores = collection.view().bm25(words(question))
            np.argpartition(-scores, 10)[:10]  # the other way round it is 20 times slower where most are 0
            times.append(time.perf_counter() - begun)
    return {
        "text_index_s": round(took, 2),
        "text_index_cpu_s": round(spent, 2),
        "text_chunks_per_s": round(len(said) / took),
        "text_query_ms_p50": percentiles(known)[0],
        "text_query_ms_p95": percentiles(known)[1],
        "text_query_first_ms_p50": percentiles(fresh)[0],
        "text_query_first_ms_p95": percentiles(fresh)[1],
        "text_bytes_per_chunk_written": round(grown),
        "text_bytes_per_chunk_packed": round(packed / len(said)),
    }


async def _zope(bench: Bench, said: list[str], asked: list[str]) -> dict[str, Any]:
    path = bench.folder / "zope.fs"
    image = await LivingImage.open(f"file://{path}")
    await image.system(lambda root: root.update(text=OkapiText()))

    def add(root: Any, first: int, batch: list[str]) -> None:
        root["text"].index_docs(enumerate(batch, first))

    took, _, grown = await _written(image, add, said)
    times = []
    with image.snapshot() as root:
        for _ in range(2):  # the second time, all is loaded
            times = []
            for question in asked:
                begun = time.perf_counter()
                scores = root["text"].apply(question) or {}
                sorted(((score, id) for id, score in scores.items()), reverse=True)[:10]
                times.append(time.perf_counter() - begun)
    await image.close()
    return {
        "zope_chunks": len(said),
        "zope_chunks_per_s": round(len(said) / took),
        "zope_query_ms_p50": percentiles(times)[0],
        "zope_query_ms_p95": percentiles(times)[1],
        "zope_bytes_per_chunk_written": round(grown),
    }


def _fts5(bench: Bench, said: list[str], asked: list[str]) -> dict[str, Any]:
    path = bench.folder / "fts5.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE VIRTUAL TABLE chunks USING fts5(text, tokenize='porter unicode61')")
        begun = time.perf_counter()
        for first in range(0, len(said), BATCH):
            with db:
                db.executemany("INSERT INTO chunks(rowid, text) VALUES (?, ?)", enumerate(said[first : first + BATCH], first))
        took = time.perf_counter() - begun
        times = []
        for question in asked:
            begun = time.perf_counter()
            query = " OR ".join(f'"{word}"' for word in words(question))
            db.execute("SELECT rowid FROM chunks WHERE chunks MATCH ? ORDER BY rank LIMIT 10", (query,)).fetchall()
            times.append(time.perf_counter() - begun)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return {
        "fts5_index_s": round(took, 2),
        "fts5_query_ms_p50": percentiles(times)[0],
        "fts5_query_ms_p95": percentiles(times)[1],
        "fts5_bytes_per_chunk": round(path.stat().st_size / len(said)),
    }
