"""Vectors of texts from the embedded profile's MiniLM on a real Ollama, kept in a file between runs: making them is not measured."""

from __future__ import annotations

import hashlib
import pathlib
import sqlite3
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from batos.memory.embedders import normalised
from bench.memory_parts.served import served

BATCH = 32
KEPT = pathlib.Path(tempfile.gettempdir()) / "batos-bench-minilm.sqlite"
Array = np.ndarray[Any, np.dtype[np.float32]]


async def vectors(texts: Sequence[str]) -> Array:
    """Unit rows, one for each text, as precise as the image keeps them."""
    plain = [normalised(text) for text in texts]
    with sqlite3.connect(KEPT) as db:
        db.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB)")
        missing = [text for text in dict.fromkeys(plain) if _kept(db, text) is None]
        if missing:
            await _make(db, missing)
        rows = np.stack([np.frombuffer(_kept(db, text) or b"", np.float16) for text in plain]).astype(np.float32)
    db.close()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _kept(db: sqlite3.Connection, text: str) -> bytes | None:
    row = db.execute("SELECT vector FROM vectors WHERE text = ?", (_key(text),)).fetchone()
    return row[0] if row else None


async def _make(db: sqlite3.Connection, texts: Sequence[str]) -> None:
    async with served() as (inference, model):
        for first in range(0, len(texts), BATCH):
            batch = texts[first : first + BATCH]
            made = await inference.embed(model, batch, deadline_s=600)
            rows = [np.array(vector, np.float16).tobytes() for vector in made]
            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", zip(map(_key, batch), rows, strict=True))
            db.commit()
