"""Pictures for tests: real files of the formats that Ollama reads, and of nothing else."""

from __future__ import annotations

import base64
import random
import struct
import zlib


def png(width: int = 8, height: int = 8, seed: int = 1) -> bytes:
    """A picture of random pixels: no byte of it can be squeezed out, so that it is as large as it looks."""
    chance = random.Random(seed)
    return _png(width, height, b"".join(b"\0" + chance.randbytes(3 * width) for _ in range(height)))


def plain(brightness: int, size: int = 64) -> bytes:
    """A square of one grey, from 0 (black) to 255 (white)."""
    return _png(size, size, (b"\0" + bytes([brightness]) * 3 * size) * size)


def webp(width: int = 48, height: int = 32) -> bytes:
    """A white WebP, without loss: codes of one symbol each, which take no bits for a pixel."""
    bits = f"{0x2F:08b}"[::-1] + f"{width - 1:014b}"[::-1] + f"{height - 1:014b}"[::-1] + "1" + "000"  # alpha, version
    bits += "0" * 3  # no transform, no cache of colours, one set of codes
    bits += ("1" + "0" + "1" + "1" * 8) * 4  # green, red, blue, alpha: the symbol 255
    bits += "1" + "0" + "0" + "0"  # distance: the symbol 0
    bits += "0" * (-len(bits) % 8)
    data = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
    return _riff(b"VP8L" + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2))


def webp_header(kind: bytes, body: bytes) -> bytes:
    """The beginning of a WebP of another kind: what says its size."""
    return _riff(kind + struct.pack("<I", len(body)) + body)


JPEG = base64.b64decode(
    "/9j/2wCEABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERXRTc4UG1RV19iZ2hnPk1xeXBkeFxlZ2MBERISGBUYLxoaL2NCOEJjY2NjY2NjY2NjY2Nj"
    "Y2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY//AAAsIACAAMAEBEQD/xADSAAABBQEBAQEBAQAAAAAAAAAAAQIDBAUGBwgJCgsQAAIBAwMCBAMFBQQEAAAB"
    "fQECAwAEEQUSITFBBhNRYQcicRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkqNDU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6g4SFhoeIiYqS"
    "k5SVlpeYmZqio6Slpqeoqaqys7S1tre4ubrCw8TFxsfIycrS09TV1tfY2drh4uPk5ebn6Onq8fLz9PX29/j5+v/aAAgBAQAAPwD0Ciiiiiiiiiiiiiiiiiiiiiiiv//Z"
)
"""A white JPEG of 48 × 32 pixels, in grey, as Go's encoder writes it."""


def _png(width: int, height: int, rows: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    )


def _riff(data: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(data) + 4) + b"WEBP" + data
