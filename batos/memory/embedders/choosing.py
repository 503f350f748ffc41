"""The embedder that the settings ask for, and the one before it, for as long as its vectors are what searches have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from batos.config import Settings
from batos.memory.embedders import Embedder, Maker
from batos.memory.embedders.exported import Backend
from batos.memory.embedders.local import PACKAGED, LocalEmbedder
from batos.memory.embedders.ollama import OllamaEmbedder


class Service(Protocol):
    """What the Ollama embedder needs of an inference (`batos.bridge.types.Inference` is one)."""

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """One vector for each text; one that is longer than the model reads gets the mean of its parts."""
        ...

    async def digest(self, model: str) -> str:
        """The content digest of a model."""
        ...


class Origin(NamedTuple):
    """What an embedder is made from, whatever its weights are now."""

    kind: str
    model: str
    place: str = ""


def embedder_of(settings: Settings, service: Service, model: str) -> Embedder:
    """The embedder of memory. It is made without asking anybody or loading anything.

    :param model: of Ollama, where `embedder` is "ollama": the profile's.
    """
    return _made(_chosen(settings, model), settings, service)


class Readers:
    """Who reads questions: the embedder of the settings, `present`, or the one that the vectors which searches have are from."""

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
        """Who reads a question for vectors of that maker; whether it is the same still is for the caller to see, by its identity."""
        return self.former(maker) or self.present

    def former(self, maker: Maker) -> Embedder | None:
        """Another embedder than the settings' that vectors are from, loaded when it is first asked; None where there is none."""
        origin = _origin(maker)
        if origin is None or origin == self._chosen:
            return None
        if origin not in self._former:
            self._former[origin] = _made(origin, self._settings, self._service)
        return self._former[origin]

    async def let_go(self) -> None:
        """Close the former embedder: nothing is from it any more. Whoever asks it nevertheless is told so."""
        while self._former:
            await self._former.popitem()[1].close()

    async def close(self) -> None:
        """Let go of threads and models."""
        await self.let_go()
        await self.present.close()


_LOCAL: dict[str, Backend] = {"sentence-transformers": "torch", "onnx": "onnx", "onnx-int8": "onnx-int8"}


def _chosen(settings: Settings, model: str) -> Origin:
    if settings.embedder == "ollama":
        return Origin("ollama", model)
    if not settings.embedder_folder:
        return Origin(settings.embedder, PACKAGED)
    folder = Path(settings.embedder_folder)
    return Origin(settings.embedder, folder.name, str(folder))


def _origin(maker: Maker) -> Origin | None:
    """What made these vectors; None where that cannot be told, as of an image that does not know the folder."""
    kind, _, rest = maker.identity.partition(":")
    model = rest.rpartition("@")[0]
    known = kind == "ollama" or (kind in _LOCAL and (maker.place or model == PACKAGED))
    return Origin(kind, model, maker.place) if known and model else None


def _made(origin: Origin, settings: Settings, service: Service) -> Embedder:
    if origin.kind == "ollama":
        ask = partial(service.embed, origin.model, deadline_s=settings.embed_deadline_s)
        return OllamaEmbedder(origin.model, ask, partial(service.digest, origin.model), batch=settings.embed_texts)
    folder = Path(origin.place) if origin.place else None
    return LocalEmbedder(_LOCAL[origin.kind], folder, settings.data / "embedders", batch=settings.embed_texts)
