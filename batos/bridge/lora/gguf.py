"""GGUF files: read the header within bounds, write files, and re-quantise weights.

The format: github.com/ggml-org/ggml/blob/master/docs/gguf.md. BAT OS reads it with its own code, because adapters come from anywhere and
their headers must be checked before a heavier library touches them.

Re-quantising keeps weights in blocks of another kind: as exact, some larger, and faster to read. A CPU evaluates a prompt on Q8_0 nearly
twice as fast as on Q4_1. For Q4_1, llama.cpp multiplies one row at a time and not matrices. Ollama quantises nothing that is quantised
already. So a base that a package holds in such blocks is rewritten on its way in.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from batos import private_files

if TYPE_CHECKING:
    import numpy as np

MAGIC, VERSIONS = b"GGUF", (2, 3)
ALIGNMENT = 32
F32, F16, BF16, Q8_0 = 0, 1, 30, 8
SIZES = {F32: 4, F16: 2, BF16: 2}
"""Bytes of an element for each type without blocks."""

FILE_TYPE = "general.file_type"

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY, _U32, _FLOAT = 8, 9, 4, 6
_ITEMS = 4_000_000  # greatest number of entries of an array, of tensors, or of keys; vocabularies have about 300,000 entries
_TEXT = 16 * 1024 * 1024  # greatest number of bytes of one string


class Malformed(ValueError):
    """Error: the file is not a GGUF file, or ends before its header says."""


class EndsWithin(Malformed):
    """The file ends within its header."""


class TensorInfo(NamedTuple):
    """One tensor: `dims` in GGUF's order (the fastest first), `offset` from the beginning of the data."""

    name: str
    dims: tuple[int, ...]
    kind: int
    offset: int

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return math.prod(self.dims)


class Header(NamedTuple):
    """Header of a file. `metadata` has arrays as their length; `places` maps each key to the offset of its value."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    places: dict[str, int]
    keys: bytes
    keys_at: int
    data_at: int


def read_header(path: Path) -> Header:
    """Return the header of a GGUF file.

    :raises Malformed: if it is none, or ends too soon.
    :raises OSError: if it cannot be read.
    """
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise Malformed(f"{path.name} is not a GGUF file")
        version, tensors, pairs = struct.unpack("<IQQ", _exactly(file, 20))
        if version not in VERSIONS or tensors > _ITEMS or pairs > _ITEMS:
            raise Malformed(f"{path.name}: GGUF version {version} with {tensors} tensors and {pairs} keys cannot be read here")
        metadata: dict[str, Any] = {}
        places: dict[str, int] = {}
        keys_at = file.tell()
        for _ in range(pairs):
            key = _string(file)
            kind = _number(file, "I")
            places[key] = file.tell()
            metadata[key] = _value(file, kind)
        end = file.tell()
        infos = {info.name: info for info in _infos(file, tensors)}
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or not 1 <= alignment <= 4096:
            raise Malformed(f"{path.name}: an alignment of {alignment!r}")
        data_at = -(-file.tell() // alignment) * alignment
        file.seek(keys_at)
        return Header(metadata, infos, places, _exactly(file, end - keys_at), keys_at, data_at)


def read_keys(beginning: bytes) -> dict[str, Any]:
    """Return the keys at the start of a GGUF file, as far as they are in the data. Keys after a vocabulary may lie beyond the end of the
    data.

    :raises Malformed: if it is none.
    """
    file = io.BytesIO(beginning)
    if file.read(4) != MAGIC:
        raise Malformed("the file is not a GGUF file")
    keys: dict[str, Any] = {}
    try:
        version, tensors, pairs = struct.unpack("<IQQ", _exactly(file, 20))
        if version not in VERSIONS or tensors > _ITEMS or pairs > _ITEMS:
            raise Malformed(f"GGUF version {version} with {tensors} tensors and {pairs} keys cannot be read here")
        for _ in range(pairs):
            key, kind = _string(file), _number(file, "I")
            keys[key] = _value(file, kind)
    except EndsWithin:
        pass
    return keys


def check_length(path: Path, header: Header) -> None:
    """See that every tensor of plain numbers lies within the file.

    :raises Malformed: if one does not, or is of another type.
    """
    size = path.stat().st_size
    for info in header.tensors.values():
        if info.kind not in SIZES:
            raise Malformed(f"{path.name}: tensor {info.name} is of the type {info.kind}; adapters are F32, F16 or BF16")
        end = header.data_at + info.offset + info.elements * SIZES[info.kind]
        if end > size:
            raise Malformed(f"{path.name}: {info.name} ends at byte {end}, the file has {size}: it was not copied whole")


def write(path: Path, metadata: dict[str, str | int | float], tensors: Iterable[tuple[str, np.ndarray[Any, Any]]]) -> None:
    """Write a GGUF file of F32 tensors, each in numpy's order."""
    listed = list(tensors)
    keys = b"".join(packed(key, value) for key, value in metadata.items())
    with private_files.renew(path) as file:
        infos = [(name, tuple(reversed(array.shape)), F32) for name, array in listed]
        write_header(file, keys, len(metadata), infos)
        for _, array in listed:
            write_tensor(file, array.astype("<f4"))


def write_header(file: IO[bytes], keys: bytes, key_count: int, tensors: list[tuple[str, tuple[int, ...], int]]) -> None:
    """Write all that stands before the data.

    :param tensors: name, dims (the fastest first) and type of each, in the order in which they are written.
    """
    file.write(MAGIC + struct.pack("<IQQ", 3, len(tensors), key_count) + keys)
    offset = 0
    for name, dims, kind in tensors:
        file.write(_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        offset += -(-bytes_of(kind, math.prod(dims)) // ALIGNMENT) * ALIGNMENT
    _pad(file)


def write_tensor(file: IO[bytes], array: np.ndarray[Any, Any]) -> None:
    """Write the data of the next tensor."""
    file.write(array.tobytes())
    _pad(file)


def bytes_of(kind: int, elements: int) -> int:
    """Return the size in bytes of a number of elements of a type.

    :raises Malformed: for an unknown type, or elements that do not fill whole blocks of it.
    """
    if kind in SIZES:
        return elements * SIZES[kind]
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise Malformed(f"tensors of the unknown type {kind}") from None
    if elements % block:
        raise Malformed(f"{elements} elements are not a multiple of the block size {block}")
    return elements // block * size


def with_file_type(header: Header, kind: int) -> bytes:
    """Return the keys of a file, saying that its tensors are mostly of another of llama.cpp's file types.

    :raises Malformed: if it does not say so.
    """
    if FILE_TYPE not in header.places:
        raise Malformed(f"it does not give its {FILE_TYPE}")
    keys = bytearray(header.keys)
    struct.pack_into("<I", keys, header.places[FILE_TYPE] - header.keys_at, kind)
    return bytes(keys)


def read_rows(path: Path, header: Header, info: TensorInfo) -> np.ndarray[Any, Any]:
    """Return the bytes of a tensor, a row of it in each row.

    :raises Malformed: for an unknown type, or a file that ends too soon.
    """
    import numpy as np

    size = bytes_of(info.kind, info.elements)
    raw = np.fromfile(path, np.uint8, size, offset=header.data_at + info.offset)
    if raw.size != size:
        raise Malformed(f"{path.name}: the file ends within the tensor {info.name}: it was not copied whole")
    return raw.reshape(info.elements // info.dims[0], -1)


def _pad(file: IO[bytes]) -> None:
    file.write(b"\0" * (-file.tell() % ALIGNMENT))


def packed(key: str, value: str | int | float) -> bytes:
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, int):
        return _text(key) + struct.pack("<II", _U32, value)
    return _text(key) + struct.pack("<If", _FLOAT, value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _infos(file: IO[bytes], count: int) -> Iterator[TensorInfo]:
    for _ in range(count):
        name = _string(file)
        dimensions = _number(file, "I")
        if not 1 <= dimensions <= 4:
            raise Malformed(f"tensor {name[:80]!r} with {dimensions} dimensions")
        dims = struct.unpack(f"<{dimensions}Q", _exactly(file, 8 * dimensions))
        yield TensorInfo(name, dims, _number(file, "I"), _number(file, "Q"))


def _value(file: IO[bytes], kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind in _SCALARS:
        return _number(file, _SCALARS[kind])
    if kind != _ARRAY:
        raise Malformed(f"a value of the unknown type {kind}")
    of, count = _number(file, "I"), _number(file, "Q")
    if count > _ITEMS or of not in (_STRING, *_SCALARS):
        raise Malformed(f"an array of {count} values of the type {of}")
    if of == _STRING:
        for _ in range(count):
            _string(file)
    else:
        _exactly(file, count * struct.calcsize(_SCALARS[of]))
    return count


def _string(file: IO[bytes]) -> str:
    length = _number(file, "Q")
    if length > _TEXT:
        raise Malformed(f"a text of {length} bytes")
    return _exactly(file, length).decode("utf-8", "replace")


def _number(file: IO[bytes], code: str) -> Any:
    return struct.unpack(f"<{code}", _exactly(file, struct.calcsize(code)))[0]


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise EndsWithin("the file ends within its header: it was not copied whole")
    return data


KINDS = {"q8_0": (Q8_0, 7)}
"""Quantisation in a profile -> type of the tensors, and file type of llama.cpp."""


class UnreadableWeights(ValueError):
    """The weights are of no kind that can be written anew."""


class WritingStopped(Exception):
    """Signal that the daemon stops; the partly written file is useless."""


def requantize(source: Path, kind: str, out: Path, stop: Event) -> None:
    """Write the GGUF at `source` with its matrices in blocks of `kind`; everything else is copied.

    It works a tensor at a time. Values are those of `source` to within the rounding of the new blocks: 1/254 of the largest of 32.

    :param stop: checked between two tensors.
    :raises Unreadable: if the file cannot be read.
    :raises OSError: if it is missing, or the disk is full.
    :raises Stopped: when `stop` was set.
    """
    target, file_type = KINDS[kind]
    try:
        header = read_header(source)
        keys = with_file_type(header, file_type)
    except Malformed as e:
        raise UnreadableWeights(str(e)) from None
    kinds = {i.name: i.kind if i.kind in SIZES or len(i.dims) == 1 or i.dims[0] % 32 else target for i in header.tensors.values()}
    with private_files.renew(out) as file:
        write_header(file, keys, len(header.metadata), [(i.name, i.dims, kinds[i.name]) for i in header.tensors.values()])
        for info in header.tensors.values():
            if stop.is_set():
                raise WritingStopped
            write_tensor(file, _blocks(source, header, info, kinds[info.name]))


def _blocks(source: Path, header: Header, info: TensorInfo, kind: int) -> Any:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    try:
        rows = read_rows(source, header, info)
        if kind == info.kind:
            return rows
        return quantize(dequantize(rows, GGMLQuantizationType(info.kind)), GGMLQuantizationType(kind))
    except (ValueError, NotImplementedError) as e:
        raise UnreadableWeights(f"{source.name}: the tensor {info.name} of the type {info.kind} cannot be read: {e}") from None
