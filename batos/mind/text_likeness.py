"""Likeness of texts: cosines of an embedder's vectors, each text embedded once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from batos.bridge.inference import Inference
from batos.errors import BatosError
from batos.memory.embedders import normalised

REMEMBERED = 4096
"""Greatest number of texts whose vectors are kept. The oldest go first."""


class TextLikeness:
    """Compares texts by the vectors of one embedder. What tools say of themselves is embedded once and kept in memory."""

    def __init__(self, inference: Inference, model: str, *, deadline_s: float) -> None:
        """
        :param model: the embedder.
        :param deadline_s: time for a batch of texts.
        """
        self._inference, self._model, self._deadline_s = inference, model, deadline_s
        self._vectors: dict[str, list[float]] = {}

    async def __call__(self, ones: Sequence[str], others: Sequence[str]) -> list[list[float]] | None:
        """Return the cosine of each of some texts to each of the others, row by row; None if the embedder does not answer."""
        plain = {text: normalised(text) for text in (*ones, *others)}
        missing = [text for text in dict.fromkeys(plain.values()) if text not in self._vectors]
        try:
            found = await self._inference.embed(self._model, missing, deadline_s=self._deadline_s) if missing else []
        except BatosError:
            return None
        vectors = self._vectors | {text: _unit(vector) for text, vector in zip(missing, found, strict=True)}
        self._vectors = dict(list(vectors.items())[-REMEMBERED:])
        rows, columns = ([vectors[plain[text]] for text in texts] for texts in (ones, others))
        return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in rows]


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector] if length > 0 and math.isfinite(length) else [0.0] * len(vector)
