"""The curve of a training, as text and as a picture."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Sequence

from batos.training.lora import Point

WIDTH, HEIGHT, MARGIN = 640, 320, 24
INK, TRAINED, CHECKED = (60, 60, 60), (31, 119, 180), (214, 39, 40)
Colour = tuple[int, int, int]


def as_text(curve: Sequence[Point]) -> str:
    """A line a point: step, minutes, loss, and the loss on the validation where it was taken."""
    lines = ["step  minutes  loss    validation"]
    for point in curve:
        checked = "" if point.validation is None else f"{point.validation:.4f}"
        lines.append(f"{point.step:<5} {point.seconds / 60:<8.1f} {point.loss:.4f}  {checked}".rstrip())
    return "\n".join(lines) + "\n"


def as_png(curve: Sequence[Point]) -> bytes:
    """A picture of it, as a PNG: loss over steps from zero on, the training in blue, the validation in red."""
    picture = [[(255, 255, 255)] * WIDTH for _ in range(HEIGHT)]
    steps = max((point.step for point in curve), default=1)
    top = max((max(point.loss, point.validation or 0) for point in curve), default=1) or 1

    def place(step: int, loss: float) -> tuple[int, int]:
        return MARGIN + step * (WIDTH - 2 * MARGIN) // steps, HEIGHT - MARGIN - round(loss / top * (HEIGHT - 2 * MARGIN))

    _line(picture, [(MARGIN, MARGIN), (MARGIN, HEIGHT - MARGIN), (WIDTH - MARGIN, HEIGHT - MARGIN)], INK)
    _line(picture, [place(point.step, point.loss) for point in curve], TRAINED)
    _line(picture, [place(point.step, point.validation) for point in curve if point.validation is not None], CHECKED)
    return _png(picture)


def _line(picture: list[list[Colour]], points: Sequence[tuple[int, int]], colour: Colour) -> None:
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        for i in range(length := max(abs(to_x - x), abs(to_y - y), 1)):
            picture[y + (to_y - y) * i // length][x + (to_x - x) * i // length] = colour


def _png(picture: list[list[Colour]]) -> bytes:
    """The bytes of a PNG file (W3C PNG, 2003: 8 bits a sample, RGB, no filter)."""
    rows = b"".join(b"\0" + bytes(sample for pixel in row for sample in pixel) for row in picture)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
