"""The embedded profile's embedder, MiniLM, on an Ollama of the bench's own or on the one that OLLAMA_HOST names; and its vectors.

Vectors are kept in a file between runs: making them is not measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np

from batos.bridge.client import OllamaInference, connect
from batos.bridge.ollama_server import OllamaService
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.config import load
from batos.memory.embedders import normalised

BATCH = 32
KEPT = pathlib.Path(tempfile.gettempdir()) / "batos-bench-minilm.sqlite"
Array = np.ndarray[Any, np.dtype[np.float32]]


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[OllamaInference, str]]:
    """Yield an inference on the Ollama, and the name of the model."""
    profile = load_profile("embedded")
    with tempfile.TemporaryDirectory(prefix="batos-bench-") as folder:
        service = OllamaService(load({"data": folder}))
        host = await service.start()
        inference = OllamaInference(host)
        try:
            async with connect(host) as client:
                await Provisioner(client, profile, modelfiles_folder()).ensure()
            yield inference, profile.embedder
        finally:
            await inference.close()
            await service.stop()


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
