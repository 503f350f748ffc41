"""Selection of embedders: the one in the settings, and the previous one while searches still use its vectors.

The embedder that asks Ollama is here too. It knows no HTTP: the calls that embed texts and return the model's digest are passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.memory.embedders import NORMALISATION, Embedder, Identity, Maker, Vectors, normalised, unit_rows
from batos.memory.embedders.local import PACKAGED, Backend, LocalEmbedder

Ask = Callable[[list[str]], Awaitable[list[list[float]]]]
QUESTION_TEXTS = 2  # most texts that one question embeds
_PROBE = "probe"


@dataclass(frozen=True, slots=True)
class EmbedderLimits(Limits):
    """Limits of requests to an embedder."""

    texts: int = limit(16, ge=1, le=32)
    """Greatest number of texts in one batch; a question waits for one batch at most."""
    deadline_s: float = limit(60.0, gt=0, le=3600)
    """Seconds for Ollama to embed one batch."""
    search_s: float = limit(5.0, gt=0, le=600)
    """Seconds for the embedder to embed a question; after a timeout the search uses words alone."""


class OllamaEmbedder:
    """An `Embedder`. The model's digest is asked for each time; the number of its dimensions once for each digest."""

    def __init__(self, model: str, ask: Ask, digest: Callable[[], Awaitable[str]], *, batch: int) -> None:
        """
        :param ask: makes one vector for each text; a text longer than the model reads must get the mean of its parts.
        :param digest: returns the present digest of the model.
        :param batch: texts in one request. One request of documents is under way at a time: several at once are no faster
            (docs/rationale.md, decision 17).
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
        """Do nothing: the connection belongs to the caller that gave `ask`."""

    async def _rows(self, texts: list[str]) -> Vectors:
        if len(texts) <= QUESTION_TEXTS:
            rows = await self._ask(texts)
        else:
            async with self._turn:
                rows = await self._ask(texts)
        return unit_rows(rows, len(texts), f"the embedder {self._model}")


class Service(Protocol):
    """Interface that the Ollama embedder needs of an inference service (`batos.bridge.inference.Inference` implements it)."""

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """Return one vector for each text; one that is longer than the model reads gets the mean of its parts."""
        ...

    async def digest(self, model: str) -> str:
        """Return the content digest of a model."""
        ...


class Origin(NamedTuple):
    """Source of an embedder: its kind, model and folder, whatever its weights are now."""

    kind: str
    model: str
    place: str = ""


def embedder_of(settings: Settings, service: Service, model: str) -> Embedder:
    """Return the embedder of the memory. Creating it makes no request and loads nothing.

    :param model: model of Ollama, if `embedder` is "ollama": the profile's.
    """
    return _made(_chosen(settings, model), settings, service)


class Readers:
    """Embedders of questions: `present`, from the settings, or the one that made the vectors now in use."""

    def __init__(self, settings: Settings, service: Service, asked_only: Service, model: str) -> None:
        """
        :param asked_only: the same service, which neither waits for a model nor fetches one: an earlier model may be gone.
        :param model: see `embedder_of`.
        """
        self._settings, self._service = settings, asked_only
        self._chosen = _chosen(settings, model)
        self.present = _made(self._chosen, settings, service)
        self._former: dict[Origin, Embedder] = {}

    def of(self, maker: Maker) -> Embedder:
        """Return the embedder of questions for vectors of that maker. The caller checks by its identity that it is still the same."""
        return self.former(maker) or self.present

    def former(self, maker: Maker) -> Embedder | None:
        """Return the embedder that made the vectors if it differs from that of the settings, loaded on first use; else None."""
        origin = _origin(maker)
        if origin is None or origin == self._chosen:
            return None
        if origin not in self._former:
            self._former[origin] = _made(origin, self._settings, self._service)
        return self._former[origin]

    async def let_go(self) -> None:
        """Close the former embedder, because no vectors of it remain. Later calls to it fail."""
        while self._former:
            await self._former.popitem()[1].close()

    async def close(self) -> None:
        """Release threads and models."""
        await self.let_go()
        await self.present.close()


_LOCAL: dict[str, Backend] = {"sentence-transformers": "torch", "onnx": "onnx", "onnx-int8": "onnx-int8"}


def _chosen(settings: Settings, model: str) -> Origin:
    if settings.memory.embedder == "ollama":
        return Origin("ollama", model)
    if not settings.memory.embedder_folder:
        return Origin(settings.memory.embedder, PACKAGED)
    folder = Path(settings.memory.embedder_folder)
    return Origin(settings.memory.embedder, folder.name, str(folder))


def _origin(maker: Maker) -> Origin | None:
    """Return the origin of a maker's vectors; None if unknown, as in an image that does not record the folder."""
    kind, _, rest = maker.identity.partition(":")
    model = rest.rpartition("@")[0]
    known = kind == "ollama" or (kind in _LOCAL and (maker.place or model == PACKAGED))
    return Origin(kind, model, maker.place) if known and model else None


def _made(origin: Origin, settings: Settings, service: Service) -> Embedder:
    if origin.kind == "ollama":
        ask = partial(service.embed, origin.model, deadline_s=EmbedderLimits.of(settings).deadline_s)
        return OllamaEmbedder(origin.model, ask, partial(service.digest, origin.model), batch=EmbedderLimits.of(settings).texts)
    folder = Path(origin.place) if origin.place else None
    return LocalEmbedder(_LOCAL[origin.kind], folder, settings.data / "embedders", batch=EmbedderLimits.of(settings).texts)
