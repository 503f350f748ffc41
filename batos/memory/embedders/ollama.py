"""The embedder that asks Ollama. It knows no HTTP: what asks and what tells the model's digest are given to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from batos.memory.embedders import NORMALISATION, Identity, Vectors, normalised, unit_rows

Ask = Callable[[list[str]], Awaitable[list[list[float]]]]
QUESTION_TEXTS = 2  # that a question asks for at most
_PROBE = "probe"


class OllamaEmbedder:
    """An `Embedder`. The model's digest is asked for each time; the number of its dimensions once for each digest."""

    def __init__(self, model: str, ask: Ask, digest: Callable[[], Awaitable[str]], *, batch: int) -> None:
        """
        :param ask: makes one vector for each text; a text longer than the model reads must get the mean of its parts.
        :param digest: of the model as it is now.
        :param batch: texts in one request. Of documents one is under way at a time: more at once are no faster (docs/decisions.md).
            A question does not wait for its turn here, but where all who ask that Ollama wait (`batos.concurrency.ShortFirst`).
        """
        self._model, self._ask, self._digest, self._batch = model, ask, digest, batch
        self._turn = asyncio.Lock()
        self._known: dict[str, int] = {}

    async def identity(self) -> Identity:
        """See `Embedder.identity`."""
        digest = await self._digest()
        if digest not in self._known:
            rows = await self._rows([_PROBE])
            self._known = {digest: int(rows.shape[1])}
        return Identity("ollama", self._model, f"{digest[:16]}.{NORMALISATION}", self._known[digest])

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        import numpy as np

        if not texts:
            return np.empty((0, (await self.identity()).dimensions), np.float32)
        plain = [normalised(text) for text in texts]
        return np.concatenate([await self._rows(plain[at : at + self._batch]) for at in range(0, len(plain), self._batch)])

    async def close(self) -> None:
        """Nothing to let go of: the connection belongs to whoever gave `ask`."""

    async def _rows(self, texts: list[str]) -> Vectors:
        if len(texts) <= QUESTION_TEXTS:
            rows = await self._ask(texts)
        else:
            async with self._turn:
                rows = await self._ask(texts)
        return unit_rows(rows, len(texts), f"the embedder {self._model}")
