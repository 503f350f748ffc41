"""Embeddings of the doors: OpenAI's `/v1/embeddings`, Ollama's `/api/embed` and the older `/api/embeddings`.

The model is the one with which the memory embeds. A text that is longer than it reads gets the mean of its parts: nothing is cut.
"""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from batos.doors.bodies import Body, Model, body_of, checked_body
from batos.doors.models import LATEST, ModelNames
from batos.doors.routes import DoorServices, route
from batos.doors.turns import EmbeddedReply
from batos.errors import InvalidInput, UnknownPersona

Tokens = list[Annotated[int, Field(strict=True)]]


class _Embeddings(Body):
    model: Model
    input: str | list[str] | Tokens | list[Tokens]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None

    @property
    def texts(self) -> list[str]:
        """Return the texts that are embedded.

        :raises InvalidInput: for tokens, or an empty text.
        """
        given = [self.input] if isinstance(self.input, str) else self.input
        texts = [one for one in given if isinstance(one, str)]
        if len(texts) < len(given):
            raise InvalidInput("input: tokens of another model mean nothing to this one; send the text")
        if not texts or not all(texts):
            raise InvalidInput("input: an empty text has no embedding")
        return texts


class _OllamaEmbed(Body):
    model: Model
    input: str | list[str] = ""
    dimensions: int | None = None


class _OllamaEmbeddings(Body):
    model: Model
    prompt: str = ""


class _Embedder:
    def __init__(self, services: DoorServices) -> None:
        self._plain, self._limits, self._names = services.plain, services.limits, ModelNames(services)

    def routes(self) -> Iterator[BaseRoute]:
        yield route("/v1/embeddings", self.openai, "POST")
        yield route("/api/embed", self.ollama, "POST")
        yield route("/api/embeddings", self.ollama_single, "POST")

    async def openai(self, request: Request) -> Response:
        """Embed texts, as OpenAI does."""
        body = checked_body(_Embeddings, await body_of(request, self._limits))
        found = await self._embedded(body.model, body.texts, body.dimensions)
        data = [
            {"object": "embedding", "index": index, "embedding": _packed(vector) if body.encoding_format == "base64" else list(vector)}
            for index, vector in enumerate(found.vectors)
        ]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        return JSONResponse({"object": "list", "data": data, "model": body.model, "usage": usage})

    async def ollama(self, request: Request) -> Response:
        """Embed texts, as Ollama's `/api/embed` does."""
        began = time.monotonic_ns()
        body = checked_body(_OllamaEmbed, await body_of(request, self._limits))
        texts = [body.input] if isinstance(body.input, str) else body.input
        found = await self._embedded(body.model, texts if any(texts) else [], body.dimensions)  # nothing: a client loads the model
        cost = {"total_duration": time.monotonic_ns() - began, "load_duration": 0, "prompt_eval_count": found.tokens}
        return JSONResponse({"model": body.model, "embeddings": [list(one) for one in found.vectors], **cost})

    async def ollama_single(self, request: Request) -> Response:
        """Embed one text, as Ollama's older `/api/embeddings` does."""
        body = checked_body(_OllamaEmbeddings, await body_of(request, self._limits))
        found = await self._embedded(body.model, [body.prompt] if body.prompt else [], None)
        return JSONResponse({"embedding": [x for one in found.vectors for x in one]})

    async def _embedded(self, model: str, texts: Sequence[str], dimensions: int | None) -> EmbeddedReply:
        if model.casefold().removesuffix(LATEST) != self._names.embedder:
            raise UnknownPersona(f"the model {model[:64]!r} does not embed; the one that does is {self._names.embedder}")
        if len(texts) > self._limits.texts:
            raise InvalidInput(f"input: {len(texts)} texts in one request; at most {self._limits.texts} are taken")
        if not texts:
            return EmbeddedReply([], 0)
        found = await self._plain.embed(texts, deadline_s=self._limits.plain_s)
        if dimensions not in (None, size := len(found.vectors[0])):
            raise InvalidInput(f"dimensions: {dimensions}: the vectors of {self._names.embedder} have {size} numbers; leave it out")
        return found


def _packed(vector: Sequence[float]) -> str:
    """Return a vector as base64 of floats of 4 bytes, the lowest byte first."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def embedding_routes(services: DoorServices) -> Iterator[BaseRoute]:
    """Yield the routes of embeddings."""
    yield from _Embedder(services).routes()
