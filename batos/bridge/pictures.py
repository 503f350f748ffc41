"""Tells what a picture is by its first bytes: the formats that Ollama reads (PNG, JPEG, WebP), and how large it is drawn out.

Nothing is decoded here. The size is asked for because a file of a few bytes may say that it is a square of 60,000 pixels, for which
whoever decodes it takes 14 GB. No library is taken for it: those that read headers only are no smaller than what is needed, and those that
decode do too much.
"""

from __future__ import annotations

from typing import NamedTuple

from batos.errors import InvalidInput

FORMATS = "PNG, JPEG and WebP"
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_ANIMATED = 0x02
_OTHERS = (
    (0, b"GIF8", "a GIF"), (0, b"BM", "a BMP"), (0, b"II*\0", "a TIFF"), (0, b"MM\0*", "a TIFF"), (4, b"ftypheic", "a HEIC"),
    (4, b"ftypheix", "a HEIC"), (4, b"ftypmif1", "a HEIF"), (4, b"ftypavif", "an AVIF"), (0, b"%PDF", "a PDF"), (0, b"<svg", "an SVG"),
    (0, b"<?xml", "an XML file"),
)  # fmt: skip
"""What a file is that Ollama does not read: where it says so, how, and its name."""


class Look(NamedTuple):
    """What a picture is: its media type, and its size in pixels."""

    type: str
    width: int
    height: int


def look(data: bytes) -> Look:
    """Tell what a picture is.

    :raises InvalidInput: for what Ollama cannot read: another format, one that breaks off before it says its size, one that moves.
    """
    for name, find in (("png", _png), ("jpeg", _jpeg), ("webp", _webp)):
        size = find(data)
        if size is not None:
            if min(size) < 1:
                raise InvalidInput(f"this {name.upper()} is broken: it does not say its size; save it anew")
            return Look(f"image/{name}", *size)
    there = next((f"it is {name}" for at, mark, name in _OTHERS if data[at : at + len(mark)] == mark), "it is none that is known")
    raise InvalidInput(f"models take {FORMATS}, and this is no such picture by its content: {there}; convert it to one of these")


_NO_SIZE = (0, 0)


def _png(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(_PNG):
        return None
    if data[12:16] != b"IHDR" or len(data) < 24:
        return _NO_SIZE
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _jpeg(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(_JPEG):
        return None
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        mark = data[at + 1]
        if mark == 0xFF:  # a byte of filling
            at += 1
        elif 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):  # the beginning of a frame
            frame = data[at + 5 : at + 9]
            return (int.from_bytes(frame[2:], "big"), int.from_bytes(frame[:2], "big")) if len(frame) == 4 else _NO_SIZE
        elif mark == 0x01 or 0xD0 <= mark <= 0xD7:  # marks without a length
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return _NO_SIZE


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    kind, body = data[12:16], data[20:30]
    if len(body) < 10:
        return _NO_SIZE
    if kind == b"VP8X":
        if body[0] & _ANIMATED:
            raise InvalidInput("this WebP moves, and models look at one that stands still; save one of its frames")
        return int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1
    if kind == b"VP8L" and body[0] == 0x2F:
        bits = int.from_bytes(body[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        return int.from_bytes(body[6:8], "little") & 0x3FFF, int.from_bytes(body[8:10], "little") & 0x3FFF
    return _NO_SIZE
