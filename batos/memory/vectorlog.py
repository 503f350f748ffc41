"""The log of vectors: half-precision rows in blocks, 1 -> 32 -> 1,024 rows. One log for each embedder.

Half precision loses nothing that a search would notice (measured: the same recall to three digits), and is half the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from persistent import Persistent

from batos.memory.packed import pack_sorted, unpack_sorted
from batos.memory.partlog import PartLog
from batos.memory.segments import Array


class Block(Persistent):
    """Rows of vectors with the ids of their chunks. Never changed."""

    __module__ = "batos.memory"

    def __init__(self, ids: Array, rows: Array) -> None:
        self.size = len(ids)
        self.ids = pack_sorted(ids)
        self.rows = rows.astype("<f2").tobytes()

    def __len__(self) -> int:
        return int(self.size)

    def held(self) -> Array:
        """int64: the id of each row."""
        return unpack_sorted(self.ids)

    def load(self) -> Array:
        """float16[n, d]: the rows, for reading."""
        return np.frombuffer(self.rows, "<f2").reshape(self.size, -1)


class VectorLog(PartLog):
    """The vectors that one embedder made of chunks.

    :param identity: of the embedder: kind, model and digest. Vectors of another are not to be compared with these.
    :param dimensions: numbers of a vector.
    :param place: where the embedder's weights are, if the identity does not tell (`batos.memory.embedders.Identity`).
    """

    __module__ = "batos.memory"
    FAN, MOST = 32, 1024
    place = ""

    def __init__(self, identity: str, dimensions: int, place: str = "") -> None:
        super().__init__()
        self.identity, self.dimensions = identity, dimensions
        if place:
            self.place = place

    def add(self, ids: Sequence[int] | Array, vectors: Array) -> None:
        """Keep the vectors of chunks that have none here yet (else `drop` them first), as a block.

        :param vectors: [n, d], unit rows.
        :raises ValueError: for vectors of another shape.
        """
        if vectors.shape != (len(ids), self.dimensions):
            raise ValueError(f"{len(ids)} vectors of {self.dimensions} numbers were expected, not an array of shape {vectors.shape}")
        for begin in range(0, len(ids), self.MOST):
            end = begin + self.MOST
            self._add(Block(np.asarray(ids[begin:end], np.int64), vectors[begin:end]))

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """(ids, float16 rows) of all that are held, a block at a time."""
        for block, mask in self._each():
            ids, rows = block.held(), block.load()
            yield (ids, rows) if mask is None else (ids[~mask], rows[~mask])

    def ids(self) -> set[int]:
        """The chunks that have a vector here."""
        return {id for ids, _ in self.blocks() for id in ids.tolist()}

    def _merged(self, parts: Sequence[Any], masks: Sequence[Array | None]) -> Block:
        kept = [np.ones(len(part), bool) if mask is None else ~mask for part, mask in zip(parts, masks, strict=True)]
        ids = [part.held()[keep] for part, keep in zip(parts, kept, strict=True)]
        rows = [part.load()[keep] for part, keep in zip(parts, kept, strict=True)]
        return Block(np.concatenate(ids), np.concatenate(rows))
