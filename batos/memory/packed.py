"""Whole numbers in as few bytes as their range needs: what segments and vector logs are made of."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]

_FEW = 64
_WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}
_HEAD = struct.Struct("<BIq")  # bytes a number (0: all are the least), how many, the least
_FIRST, _NONE = struct.Struct("<q"), _HEAD.pack(0, 0, 0)


def pack(numbers: Numbers) -> bytes:
    """An array of whole numbers (one dimension, within 64 bits, signed) as bytes: the least, and by how much each exceeds it."""
    import numpy as np

    if len(numbers) <= _FEW:
        return _pack_few(list(map(int, numbers.tolist())))
    least, most = int(numbers.min()), int(numbers.max())
    if least == most:
        return _HEAD.pack(0, len(numbers), least)
    width = next(width for width in _WIDTHS if most - least < 1 << 8 * width)
    above = numbers.astype(np.int64) - least if width < 8 else numbers.astype(np.int64).view(np.uint64) - np.uint64(least % 2**64)
    return _HEAD.pack(width, len(numbers), least) + above.astype(f"<u{width}").tobytes()


def _pack_few(numbers: list[int]) -> bytes:
    """As `pack`: what is added alone is made of these, and for a few numpy takes longer to begin than this to end."""
    least, most = (min(numbers), max(numbers)) if numbers else (0, 0)
    if least == most:
        return _HEAD.pack(0, len(numbers), least)
    if most - least < 256:
        return _HEAD.pack(1, len(numbers), least) + bytes([number - least for number in numbers])
    width = next(width for width in _WIDTHS if most - least < 1 << 8 * width)
    return _HEAD.pack(width, len(numbers), least) + struct.pack(f"<{len(numbers)}{_WIDTHS[width]}", *[number - least for number in numbers])


def pack_same(number: int, count: int) -> bytes:
    """As `pack`, of so many times one number."""
    return _HEAD.pack(0, count, number if count else 0)


def unpack(data: bytes, dtype: Any = "i8") -> Numbers:
    """What `pack` was given, as an array of that type of its own."""
    import numpy as np

    width, count, least = _HEAD.unpack_from(data)
    if not width:
        return np.full(count, least, dtype)
    found = np.frombuffer(data, f"<u{width}", count, _HEAD.size).astype(dtype)
    if least:
        found += np.asarray(least).astype(dtype)
    return found


def pack_sorted(numbers: Numbers) -> bytes:
    """As `pack`, for numbers of which each is a little above the one before; `unpack_sorted` reads it."""
    if not len(numbers):
        return b""
    if len(numbers) == 1:
        return pack_one(int(numbers[0]))
    return _FIRST.pack(int(numbers[0])) + pack(numbers[1:] - numbers[:-1])


def pack_one(number: int) -> bytes:
    """As `pack_sorted`, of one number."""
    return _FIRST.pack(number) + _NONE


def unpack_sorted(data: bytes) -> Numbers:
    """What `pack_sorted` was given, as int64."""
    import numpy as np

    if not data:
        return np.empty(0, np.int64)
    found: Numbers = np.cumsum(np.concatenate([_FIRST.unpack_from(data), unpack(data[8:])]))
    return found


def widen(halves: Numbers, out: Numbers) -> None:
    """Write half-precision numbers (little-endian, finite) into a float32 array of the same shape.

    Four times as quick as numpy's own conversion, and that was half of loading a collection. The bits of a half, moved to
    where a single has them, make it too small by the difference of the exponents' biases, 2**112; multiplying is exact.
    """
    import numpy as np

    bits = halves.view("<i2").astype(np.int32)
    bits <<= 13
    bits &= np.int32(0x8FFFE000 - 2**32)  # the sign was spread over the bits below it
    np.multiply(bits.view(np.float32), np.float32(2.0**112), out=out)
