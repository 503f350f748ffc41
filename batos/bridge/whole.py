"""Texts that are longer than an embedder reads, embedded whole: in parts, whose mean they get."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from batos.errors import InferenceFailed

Ask = Callable[[list[str]], Awaitable[list[list[float]]]]


async def embed_whole(ask: Ask, texts: Sequence[str]) -> list[list[float]]:
    """One vector for each text, in order.

    :param ask: makes the vectors of a batch, and raises `InferenceFailed` with cause `too_long` where one is too long. The batch is
        then halved until that text is alone, and the text until its parts are short enough: few batches hold one.
    """
    try:
        return await ask(list(texts))
    except InferenceFailed as e:
        if e.cause != "too_long" or (len(texts) == 1 and len(texts[0]) < 2):
            raise
    if len(texts) > 1:
        half = len(texts) // 2
        return [*await embed_whole(ask, texts[:half]), *await embed_whole(ask, texts[half:])]
    parts = _halves(texts[0])
    return [_mean(await embed_whole(ask, parts), [len(part) for part in parts])]


def _halves(text: str) -> list[str]:
    """The text in two, parted at the space nearest to its middle, or in its middle where there is none."""
    middle = len(text) // 2
    spaces = [at for at in (text.rfind(" ", 1, middle), text.find(" ", middle, len(text) - 1)) if at > 0]
    cut = min(spaces, key=lambda at: abs(at - middle), default=middle)
    return [text[:cut], text[cut:]]


def _mean(vectors: list[list[float]], weights: list[int]) -> list[float]:
    """The direction of the weighted sum, of length 1."""
    total = [sum(x * w for x, w in zip(column, weights, strict=True)) for column in zip(*vectors, strict=True)]
    length = math.sqrt(sum(x * x for x in total))
    return [x / length for x in total] if length > 0 else vectors[0]
