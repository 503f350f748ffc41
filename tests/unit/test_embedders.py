"""Embedders: what they ask for, what they make of the answers, which one the settings choose."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from batos.bridge.client import OllamaInference, embed_whole
from batos.config import Settings
from batos.errors import EmbedderFailed, InferenceFailed
from batos.memory.embedders import local as exporting
from batos.memory.embedders.local import LocalEmbedder, digest_of
from batos.memory.embedders.selection import OllamaEmbedder, embedder_of
from batos.testing import ScriptedOllama

MODEL = "minilm:embedded"


class Service:
    """Vectors of the length of each text; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.under_way, self.most_under_way = 0, 0
        self.hangs = False
        self.name = "a" * 64
        self.answer = lambda texts: [[float(len(text) + 1), 0.0, 1.0] for text in texts]

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        self.asked.append(list(texts))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await (asyncio.Event().wait() if self.hangs else asyncio.sleep(0))
        self.under_way -= 1
        return self.answer(texts)

    async def digest(self, model: str) -> str:
        return self.name


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def embedder(service: Service) -> OllamaEmbedder:
    chosen = embedder_of(Settings(embed_texts=4), service, MODEL)
    assert isinstance(chosen, OllamaEmbedder)
    return chosen


async def test_texts_are_normalised_and_asked_for_in_batches(service: Service, embedder: OllamaEmbedder) -> None:
    rows = await embedder.embed(["café"] * 9)
    assert service.asked == [["cafe"] * 4, ["cafe"] * 4, ["cafe"]]
    assert (rows.shape, rows.dtype) == ((9, 3), np.float32)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1)


async def test_one_batch_of_documents_is_under_way_at_a_time_and_questions_wait_for_none(
    service: Service, embedder: OllamaEmbedder
) -> None:
    """Where they wait is at the Ollama that all ask, and there they go first."""
    await asyncio.gather(embedder.embed(["long"] * 8), embedder.embed(["other"] * 8), embedder.embed(["question"]))
    assert service.most_under_way == 2
    assert service.asked == [["long"] * 4, ["question"], ["other"] * 4, ["long"] * 4, ["other"] * 4]


async def test_a_cancelled_caller_lets_the_next_one_in(service: Service, embedder: OllamaEmbedder) -> None:
    service.hangs = True  # the first request never ends
    task = asyncio.create_task(embedder.embed(["a"]))
    await asyncio.sleep(0)
    service.hangs = False
    task.cancel()
    assert (await embedder.embed(["b"])).shape == (1, 3)


async def test_the_identity_follows_the_model(service: Service, embedder: OllamaEmbedder) -> None:
    first = await embedder.identity()
    assert str(first) == f"ollama:{MODEL}@{'a' * 16}.1:3"
    assert await embedder.identity() == first
    assert len(service.asked) == 1  # the probe for the number of dimensions
    service.name, service.answer = "b" * 64, lambda texts: [[1.0, 0.0] for _ in texts]
    second = await embedder.identity()
    assert (second.digest, second.dimensions) == (f"{'b' * 16}.1", 2)


async def test_no_texts_are_no_rows(service: Service, embedder: OllamaEmbedder) -> None:
    assert (await embedder.embed([])).shape == (0, 3)


@pytest.mark.parametrize("answer", [[[math.nan, 1.0]], [[0.0, 0.0]], [], [[]], [[1.0], [1.0]], [[math.inf, 0.0]]])
async def test_what_is_no_vector_is_refused(service: Service, embedder: OllamaEmbedder, answer: list[list[float]]) -> None:
    service.answer = lambda texts: answer
    with pytest.raises(EmbedderFailed, match=MODEL):
        await embedder.embed(["a"])


async def test_rows_of_different_lengths_are_refused(service: Service, embedder: OllamaEmbedder) -> None:
    service.answer = lambda texts: [[1.0], [1.0, 2.0]]
    with pytest.raises(EmbedderFailed, match="different lengths"):
        await embedder.embed(["a", "b"])


async def test_an_ollama_that_is_away_says_so(scripted: ScriptedOllama) -> None:
    inference = OllamaInference(scripted.host)
    embedder = embedder_of(Settings(), inference, MODEL)
    assert (await embedder.embed(["a", "b"])).shape[0] == 2
    scripted.fail("status_404", path="/api/embed")
    with pytest.raises(InferenceFailed, match="not found"):
        await embedder.embed(["a"])
    await inference.close()


# --- texts longer than a model reads


async def test_a_long_text_gets_the_mean_of_its_parts_and_the_others_their_own(scripted: ScriptedOllama) -> None:
    inference = OllamaInference(scripted.host)
    texts = ["short one", "left " * 400 + "right " * 400, "short two"]
    rows = np.array(await inference.embed(MODEL, texts, deadline_s=10))
    alone = np.array([(await inference.embed(MODEL, [text], deadline_s=10))[0] for text in ("short one", "left", "right", "short two")])
    assert rows[[0, 2]] == pytest.approx(alone[[0, 3]])
    assert np.linalg.norm(rows[1]) == pytest.approx(1)
    assert float(rows[1] @ alone[1]) == pytest.approx(float(rows[1] @ alone[2]), abs=0.15)
    assert float(rows[1] @ alone[1]) > 0.5
    await inference.close()


async def test_a_text_without_spaces_is_parted_anywhere_and_one_character_not_at_all() -> None:
    async def ask(texts: list[str]) -> list[list[float]]:
        if any(len(text) > limit for text in texts):
            raise InferenceFailed("the input length exceeds the context length", cause="too_long")
        return [[float(len(text)), 1.0] for text in texts]

    limit = 8
    (row,) = await embed_whole(ask, ["x" * 1000])
    assert math.hypot(*row) == pytest.approx(1)
    limit = 0
    with pytest.raises(InferenceFailed):
        await embed_whole(ask, ["xyz"])


async def test_other_failures_are_not_tried_again_in_parts() -> None:
    calls = 0

    async def ask(texts: list[str]) -> list[list[float]]:
        nonlocal calls
        calls += 1
        raise InferenceFailed("gone", cause="model_missing")

    with pytest.raises(InferenceFailed, match="gone"):
        await embed_whole(ask, ["a", "b"])
    assert calls == 1


# --- embedders of this process


def test_the_settings_choose(tmp_path: Path, service: Service) -> None:
    for name, backend in (("sentence-transformers", "torch"), ("onnx", "onnx"), ("onnx-int8", "onnx-int8")):
        chosen = embedder_of(Settings(embedder=name, data=tmp_path), service, MODEL)  # type: ignore[arg-type]
        assert isinstance(chosen, LocalEmbedder)
        assert chosen.backend == backend
    assert service.asked == []
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    embedder = LocalEmbedder("torch", tmp_path, tmp_path / "cache", batch=4)
    with pytest.raises(EmbedderFailed, match=r"memory\.embedder_folder"):
        await embedder.embed(["a"])
    await embedder.close()


async def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules.json").write_text("[]")
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    embedder = LocalEmbedder("onnx", tmp_path, tmp_path / "cache", batch=4)
    with pytest.raises(EmbedderFailed, match=r"sentence_transformers.* is not installed.*batos\[sentence-transformers\]"):
        await embedder.identity()
    await embedder.close()


def test_the_digest_is_of_what_decides_the_vectors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    first = digest_of(tmp_path)
    (tmp_path / "README.md").write_text("words")
    assert digest_of(tmp_path) == first
    (tmp_path / "model.safetensors").write_bytes(b"Weights")
    assert digest_of(tmp_path) != first


def test_an_export_that_was_cut_short_is_made_anew_and_a_whole_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def make(library: object, source: Path, folder: Path) -> None:
        assert not folder.exists()
        made.append(folder)
        (folder / "onnx").mkdir(parents=True)
        (folder / "onnx" / "model.onnx").touch()
        if len(made) == 1:
            raise OSError(28, "No space left on device")
        (folder / "onnx" / "model_int8.onnx").touch()

    monkeypatch.setattr(exporting, "_make", make)
    target = tmp_path / "embedders" / "digest"
    with pytest.raises(OSError, match="No space"):
        exporting.exported(None, tmp_path, target, "onnx")
    assert not target.exists()
    assert exporting.exported(None, tmp_path, target, "onnx") == (target, "model.onnx")
    assert exporting.exported(None, tmp_path, target, "onnx-int8") == (target, "model_int8.onnx")
    assert len(made) == 2
    assert [path.name for path in target.parent.iterdir()] == ["digest"]
