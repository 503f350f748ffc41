"""What embedders answer with, made sure of: as many rows as texts, all numbers, of length 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batos.errors import EmbedderFailed


def unit_rows(rows: Sequence[Sequence[float]] | Any, texts: int, who: str) -> Any:
    """The rows as float32 of shape (texts, dimensions), each of length 1.

    :raises EmbedderFailed: where they are not of that shape, or a row has no direction.
    """
    import numpy as np

    try:
        matrix = np.asarray(rows, np.float32)
    except ValueError as e:  # rows of different lengths
        raise EmbedderFailed(f"{who} answered with vectors of different lengths: {e}") from e
    if matrix.ndim != 2 or len(matrix) != texts or not matrix.shape[1]:
        raise EmbedderFailed(f"{who} answered {texts} texts with vectors of shape {matrix.shape}")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise EmbedderFailed(f"{who} answered with what is no vector: its length is {lengths.min()} to {lengths.max()}")
    return matrix / lengths
