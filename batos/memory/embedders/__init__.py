"""Embedders: texts to vectors, behind one interface; `tests/contract/test_embedder_contract.py` holds all of them to it.

`ollama` asks the service (default); `local` computes in this process with sentence-transformers, on torch or on ONNX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

Vectors = Any
"""A numpy array, float32 of shape (texts, dimensions), its rows of length 1. Named so, since numpy is imported late."""


class Identity(NamedTuple):
    """What made a vector. Vectors of two identities are never compared; `str(identity)` is the key that they are kept under."""

    kind: str
    model: str
    digest: str
    dimensions: int
    place: str = ""
    """Where its weights are, if its name does not tell: a folder. No part of what it is: weights may be moved."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.model}@{self.digest}:{self.dimensions}"


class Maker(NamedTuple):
    """Who made the vectors of a collection."""

    identity: str = ""
    """`str` of an `Identity`; empty while there are no vectors."""
    place: str = ""
    """See `Identity`."""


class Embedder(Protocol):
    """Something that makes vectors of texts. Safe to be called by several tasks at once; one call works at a time."""

    async def identity(self) -> Identity:
        """Who it is now; cheap to ask. It may change while the daemon runs: a model that was pulled anew has another digest.

        :raises BatosError: EmbedderFailed or InferenceFailed, while it is not to be had.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, in order. Texts are normalised here (`normal.normalised`); callers give them as they are.

        What is longer than the model reads is embedded in parts, whose mean it gets: nothing is cut silently. A text of
        no words at all gets a row as well, that of the empty text.

        :raises BatosError: EmbedderFailed or InferenceFailed; then no row of this call is to be had.
        """
        ...

    async def close(self) -> None:
        """Let go of threads and models."""
        ...
