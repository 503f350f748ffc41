"""Weights turned into ONNX models, once for each digest of weights, and kept. Runs on the embedder's thread."""

from __future__ import annotations

import gc
import hashlib
import importlib
import logging
import shutil
import warnings
from pathlib import Path
from typing import Any, Literal

from batos import private_files

Backend = Literal["torch", "onnx", "onnx-int8"]

_WHOLE, _INT8 = "model.onnx", "model_int8.onnx"
_COUNTS = (".json", ".txt", ".model", ".safetensors", ".bin")


def digest_of(folder: Path) -> str:
    """16 hexadecimal digits over the files that decide what vectors a sentence-transformers model makes."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _COUNTS and path.is_file()):
        with path.open("rb") as file:
            total.update(f"{path.relative_to(folder)}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\0".encode())
    return total.hexdigest()[:16]


def exported(library: Any, source: Path, folder: Path, backend: Backend) -> tuple[Path, str]:
    """The folder of the ONNX model and the name of the file in it; made if it is not there. It appears whole or not at all;
    the data folder is one process's.

    :param library: the module sentence_transformers.
    """
    if not (folder / "onnx" / _INT8).is_file():
        making = folder.parent / f".making-{folder.name}"
        for old in (making, folder):  # of a process that was killed, or not made here
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
        gc.collect()  # it holds a temporary folder, and warns where that goes with it
        # Each channel of the weights has its own scale: cosine to the whole model .99 on average; with one for all it is .97.
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
    """Nothing that is logged to the root itself gets through: the library gives hints there, to those who call it by hand."""
    return False
