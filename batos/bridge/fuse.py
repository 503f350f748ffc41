"""Fusing: an adapter merged into its base, so that an expert has weights of its own and stays resident beside others.

Works on the base's GGUF, a tensor at a time: memory for the largest one, disk for the whole in half precision. Needs the `gguf` package
(extra `training`), which knows how to read quantised weights.
"""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from threading import Event
from typing import Any

from batos.bridge import gguf
from batos.bridge.adapters import Adapter, Base, Unfit, matrices

FILE_TYPE = "general.file_type"
_MOSTLY_F16 = 1  # of llama.cpp's file types


class Stopped(Exception):
    """The daemon stops; what was written is of no use."""


def available() -> bool:
    """Whether the package is there that fusing needs."""
    return importlib.util.find_spec("gguf") is not None


def fuse(source: Path, adapter: Adapter, base: Base, out: Path, stop: Event) -> None:
    """Write the base with the adapter in it: W + alpha / rank * B A, in half precision.

    :param source: the GGUF of the base.
    :param stop: looked at between two tensors.
    :raises Unfit: where base or adapter cannot be merged.
    :raises Stopped: when `stop` was set.
    """
    import numpy as np

    try:
        header = gguf.read_header(source)
    except gguf.Malformed as e:
        raise Unfit(f"the base cannot be read: {e}") from None
    if FILE_TYPE not in header.places:
        raise Unfit(f"the base says nothing of its {FILE_TYPE}; it cannot be fused")
    changes = {f"blk.{layer}.{name}.weight": (a, b) for layer, name, a, b in matrices(adapter, base)}
    if missing := changes.keys() - header.tensors.keys():
        raise Unfit(f"the base has no tensor {min(missing)}")
    keys = bytearray(header.keys)
    struct.pack_into("<I", keys, header.places[FILE_TYPE] - header.keys_at, _MOSTLY_F16)
    # Norms and biases stay as exact as they are: they are small, and Ollama's quantiser expects them so.
    kinds = {info.name: gguf.F32 if len(info.dims) == 1 else gguf.F16 for info in header.tensors.values()}
    with out.open("wb") as file:
        gguf.write_header(file, bytes(keys), len(header.metadata), [(i.name, i.dims, kinds[i.name]) for i in header.tensors.values()])
        for info in header.tensors.values():
            if stop.is_set():
                raise Stopped
            weights = _dequantised(source, header, info)
            if info.name in changes:
                a, b = changes[info.name]
                weights = weights + np.float32(adapter.alpha / a.shape[0]) * (b @ a)
            gguf.write_tensor(file, weights.astype("<f4" if kinds[info.name] == gguf.F32 else "<f2"))


def _dequantised(source: Path, header: gguf.Header, info: gguf.TensorInfo) -> Any:
    import numpy as np
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        kind = GGMLQuantizationType(info.kind)
        block, size = GGML_QUANT_SIZES[kind]
        rows = info.elements // info.dims[0]
        raw = np.fromfile(source, np.uint8, info.elements // block * size, offset=header.data_at + info.offset)
        return dequantize(raw.reshape(rows, -1), kind).reshape(tuple(reversed(info.dims))).astype(np.float32)
    except (ValueError, KeyError, NotImplementedError) as e:
        raise Unfit(f"the base's tensor {info.name} of type {info.kind} cannot be read: {e}") from None
