"""Telling a torn tail from damage, before FileStorage is let near the file.

FileStorage cuts a file off at the first transaction whose length makes no sense. That is right for the one that a crash
tore. After one flipped byte in an older header it would cut off everything acknowledged since.
"""

from __future__ import annotations

import os
import pathlib
from typing import BinaryIO

from ZODB.FileStorage.format import CorruptedError

from batos.image import indexes
from batos.image.seals import HEADER, LENGTH

_MAGIC = 4  # bytes before the first transaction
_FIRST = 1024  # bytes; more than the first transaction of an image, which a crash may tear as any other


def check_tail(path: pathlib.Path) -> None:
    """Walk the transactions since the index was written, by their lengths.

    :raises CorruptedError: if whole transactions follow the place at which FileStorage would cut.
    """
    size = path.stat().st_size
    if size < _MAGIC + HEADER.size:
        return
    with path.open("rb") as file:
        position = _walk(file, _indexed(file, path, size), size)
        if position == size:
            return
        if position == _MAGIC and size > _FIRST:
            raise CorruptedError("not one transaction of it can be read")
        (length,) = LENGTH.unpack(_read(file, size - LENGTH.size, LENGTH.size))
        start = size - LENGTH.size - length
        if start < position or length < HEADER.size:
            return  # no whole transaction at the end: torn
        _, declared, status, *_ = HEADER.unpack(_read(file, start, HEADER.size))
        unfinished = start == position and declared == length and status == b"c"  # written, never committed
        if not unfinished and (start == position or declared == length):
            raise CorruptedError(
                f"a transaction at byte {position} of {size} has a header that makes no sense, and is not the torn last one"
            )


def _walk(file: BinaryIO, position: int, size: int) -> int:
    """The end of the last whole transaction that is reached from `position`."""
    while position + HEADER.size <= size:
        _, length, status, *texts = HEADER.unpack(_read(file, position, HEADER.size))
        end = position + length
        if end + LENGTH.size > size or status == b"c" or length < HEADER.size + sum(texts):
            break
        if LENGTH.unpack(_read(file, end, LENGTH.size)) != (length,):
            break
        position = end + LENGTH.size
    return position


def _indexed(file: BinaryIO, path: pathlib.Path, size: int) -> int:
    """Up to where the index knows the file, if that is the end of a transaction; else the beginning."""
    known = indexes.position(path.with_name(path.name + ".index"))
    if known is not None and _MAGIC + HEADER.size < known <= size:
        (length,) = LENGTH.unpack(_read(file, known - LENGTH.size, LENGTH.size))
        start = known - LENGTH.size - length
        if start >= _MAGIC and _walk(file, start, known) == known:
            return known
    return _MAGIC


def _read(file: BinaryIO, position: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, position)
