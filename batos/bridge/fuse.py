"""Fusing: an adapter merged into its base, so that an expert has weights of its own and stays resident beside others.

Works on the base's GGUF, a tensor at a time: memory for the largest one, disk for the whole in half precision. Needs the `gguf` package,
which knows how to read quantised weights.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

from batos import private_files
from batos.bridge import gguf
from batos.bridge.adapters import Adapter, Base, Unfit, matrices
from batos.bridge.requantize import Stopped

_MOSTLY_F16 = 1  # of llama.cpp's file types


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
        keys = gguf.with_file_type(header, _MOSTLY_F16)
    except gguf.Malformed as e:
        raise Unfit(f"the base cannot be read: {e}") from None
    changes = {f"blk.{layer}.{name}.weight": (a, b) for layer, name, a, b in matrices(adapter, base)}
    if missing := changes.keys() - header.tensors.keys():
        raise Unfit(f"the base has no tensor {min(missing)}")
    # Norms and biases stay as exact as they are: they are small, and Ollama's quantiser expects them so.
    kinds = {info.name: gguf.F32 if len(info.dims) == 1 else gguf.F16 for info in header.tensors.values()}
    with private_files.renew(out) as file:
        gguf.write_header(file, keys, len(header.metadata), [(i.name, i.dims, kinds[i.name]) for i in header.tensors.values()])
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
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        rows = gguf.read_rows(source, header, info)
        return dequantize(rows, GGMLQuantizationType(info.kind)).reshape(tuple(reversed(info.dims))).astype(np.float32)
    except (ValueError, NotImplementedError) as e:
        raise Unfit(f"the base's tensor {info.name} of type {info.kind} cannot be read: {e}") from None
