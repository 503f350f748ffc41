"""What a search costs without the question's embedding: words, vectors, all signals, the best 10. Beside FTS5, which has words only."""

from __future__ import annotations

import gc
import sqlite3
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from batos.memory.search import QuestionVectors, prepare_question, search
from batos.memory.search_index import Collection
from batos.memory.segments import Entry, Facts, build, speaker_key, traits
from batos.memory.tokenizer import words
from bench.memory_parts.catalogue import BATCH, SECTION, percentiles, questions, texts, unit_vectors

if TYPE_CHECKING:
    from bench.memory import Bench

SMALL = 10_000
AIMS = {"search_10000_ms_p95": ("<=", 1.5), "search_100000_ms_p95": ("<=", 10.0)}
K = 10
PEOPLE = tuple(map(speaker_key, ("Ann", "Ben", "Cleo")))


def measure(bench: Bench) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for count in sorted({SMALL, bench.args.chunks}):
        said = texts(count)
        fresh, known = _searches(said)
        figures[f"search_{count}_ms_p50"], figures[f"search_{count}_ms_p95"] = percentiles(known)
        figures[f"search_{count}_first_ms_p50"], figures[f"search_{count}_first_ms_p95"] = percentiles(fresh)
        figures[f"fts5_text_only_{count}_ms_p95"] = percentiles(_fts5(said))[1]
    return figures


def _searches(said: list[str]) -> tuple[list[float], list[float]]:
    """Seconds of each question the first time its words are asked for, and the second time."""
    collection = Collection()
    for first in range(0, len(said), BATCH):
        collection.append(build([_entry(first + at, text) for at, text in enumerate(said[first : first + BATCH])]))
        collection.vectors(np.arange(first, min(first + BATCH, len(said))), unit_vectors(min(BATCH, len(said) - first), seed=first))
    view = collection.view()
    asked, rows = questions(), unit_vectors(2 * len(questions()), seed=7)
    gc.collect()
    rounds: list[list[float]] = [[], []]
    for times in rounds:
        for at, text in enumerate(asked):
            begun = time.perf_counter()
            hits = search(view, prepare_question(view, text), QuestionVectors(rows[2 * at], rows[2 * at + 1]), K).hits
            times.append(time.perf_counter() - begun)
            assert len(hits) == K
    return rounds[0], rounds[1]


def _entry(id: int, text: str) -> Entry:
    flags, told = traits(text)
    return Entry(id, words(text), Facts(1, id // SECTION, speaker=PEOPLE[id % 3], day=738_000 + id // 1000, length=told, flags=flags))


def _fts5(said: list[str]) -> list[float]:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE chunks USING fts5(text, tokenize='porter unicode61')")
    db.executemany("INSERT INTO chunks(rowid, text) VALUES (?, ?)", enumerate(said))
    times = []
    for text in questions():
        begun = time.perf_counter()
        query = " OR ".join(f'"{word}"' for word in words(text))
        db.execute("SELECT rowid FROM chunks WHERE chunks MATCH ? ORDER BY rank LIMIT 10", (query,)).fetchall()
        times.append(time.perf_counter() - begun)
    db.close()
    return times
