"""Weights kept in blocks of another kind: as exact, some larger, and read faster.

A CPU evaluates a prompt on Q8_0 nearly twice as fast as on Q4_1, for which llama.cpp has no product of matrices but one row at a time;
Ollama quantises nothing that is quantised already. So a base that a package holds in such blocks is written anew on its way in.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

from batos import private_files
from batos.bridge import gguf

KINDS = {"q8_0": (gguf.Q8_0, 7)}
"""Type of the tensors, and llama.cpp's file type, by the name that a profile gives."""


class Unreadable(ValueError):
    """The weights are of no kind that can be written anew."""


class Stopped(Exception):
    """The daemon stops; what was written is of no use."""


def requantize(source: Path, kind: str, out: Path, stop: Event) -> None:
    """Write the GGUF at `source` with its matrices in blocks of `kind`; whatever is no matrix in blocks stays as it is.

    A tensor at a time. Values are those of `source` to within the rounding of the new blocks: 1/254 of the largest of 32.

    :param stop: looked at between two tensors.
    :raises Unreadable: where the file cannot be read.
    :raises OSError: where it is not there, or the disk is full.
    :raises Stopped: when `stop` was set.
    """
    target, file_type = KINDS[kind]
    try:
        header = gguf.read_header(source)
        keys = gguf.with_file_type(header, file_type)
    except gguf.Malformed as e:
        raise Unreadable(str(e)) from None
    kinds = {i.name: i.kind if i.kind in gguf.SIZES or len(i.dims) == 1 or i.dims[0] % 32 else target for i in header.tensors.values()}
    with private_files.renew(out) as file:
        gguf.write_header(file, keys, len(header.metadata), [(i.name, i.dims, kinds[i.name]) for i in header.tensors.values()])
        for info in header.tensors.values():
            if stop.is_set():
                raise Stopped
            gguf.write_tensor(file, _blocks(source, header, info, kinds[info.name]))


def _blocks(source: Path, header: gguf.Header, info: gguf.TensorInfo, kind: int) -> Any:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    try:
        rows = gguf.read_rows(source, header, info)
        if kind == info.kind:
            return rows
        return quantize(dequantize(rows, GGMLQuantizationType(info.kind)), GGMLQuantizationType(kind))
    except (ValueError, NotImplementedError) as e:
        raise Unreadable(f"{source.name}: the tensor {info.name} of the type {info.kind} cannot be read: {e}") from None
