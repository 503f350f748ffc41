"""The embedder that the settings ask for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from batos.config import Settings
from batos.memory.embedders import Embedder
from batos.memory.embedders.local import LocalEmbedder
from batos.memory.embedders.ollama import OllamaEmbedder


class Service(Protocol):
    """What the Ollama embedder needs of an inference (`batos.bridge.types.Inference` is one)."""

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """One vector for each text; one that is longer than the model reads gets the mean of its parts."""
        ...

    async def digest(self, model: str) -> str:
        """The content digest of a model."""
        ...


def embedder_of(settings: Settings, service: Service, model: str) -> Embedder:
    """The embedder of memory. It is made without asking anybody or loading anything.

    :param model: of Ollama, where `embedder` is "ollama": the profile's.
    """
    if settings.embedder == "ollama":
        ask = partial(service.embed, model, deadline_s=settings.embed_deadline_s)
        return OllamaEmbedder(model, ask, partial(service.digest, model), batch=settings.embed_texts)
    folder = Path(settings.embedder_folder).expanduser() if settings.embedder_folder else None
    backend = "torch" if settings.embedder == "sentence-transformers" else settings.embedder
    return LocalEmbedder(backend, folder, settings.data / "embedders", batch=settings.embed_texts)
