"""An `Inference` that names models by the digests that an image holds, not by those of its own Ollama (`batos.image.shared_models`).

So a mission that another kernel began finds its journal here, if the model's content is the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from batos.bridge.inference import ChatReply, ChatRequest, Inference
from batos.bridge.modelfile import tagged
from batos.errors import InferenceFailed


class SharedName(Protocol):
    """Digest and content that a name is held to in an image of several kernels (`batos.image.shared_models.SharedModel`)."""

    @property
    def digest(self) -> str:
        """Return the digest that journals have."""
        ...

    @property
    def content(self) -> str:
        """Return the name of all that decides its answers."""
        ...


Publish = Callable[[str, str, str], Awaitable[SharedName]]
"""Publishes a model of this kernel (name, digest, content) in the image, and returns what its name is held to."""


class SharedDigests:
    """An `Inference` in front of another one: see the module."""

    def __init__(self, inference: Inference, content_of: Callable[[str], str], publish: Publish) -> None:
        """
        :param content_of: returns the content of the model of a digest of this Ollama; "" while that is not known.
        """
        self._inference, self._content_of, self._publish = inference, content_of, publish
        self._held: dict[tuple[str, str], str] = {}  # name and digest here -> the digest in the image, of the same content

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        """See `Inference.chat`. The reply has the image's digest, too."""
        own = await self._own(request.model)
        shared = await self._shared(request.model, own)
        if request.digest == shared:
            request = replace(request, digest=own)
        reply = await self._inference.chat(request, deadline_s=deadline_s, on_text=on_text)
        return replace(reply, digest=shared) if reply.digest == own else reply

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """See `Inference.embed`."""
        return await self._inference.embed(model, texts, deadline_s=deadline_s)

    async def continues(self, model: str) -> bool:
        """See `Inference.continues`."""
        return await self._inference.continues(model)

    async def digest(self, model: str) -> str:
        """Return the digest that the image holds for a model's content.

        :raises InferenceFailed: with cause `model_changed` if other kernels have another content under that name.
        """
        return await self._shared(model, await self._own(model))

    def forget(self) -> None:
        """Publish all models anew when they are next used: under another name of this kernel, or after another choice of models."""
        self._held.clear()

    async def _own(self, model: str) -> str:
        """Return the digest of a model of this Ollama. One that is missing is published anew when it is there again."""
        try:
            return await self._inference.digest(model)
        except InferenceFailed as e:
            if e.cause == "model_missing":
                self._held = {key: value for key, value in self._held.items() if key[0] != tagged(model)}
            raise

    async def _shared(self, model: str, own: str) -> str:
        name = tagged(model)
        if (found := self._held.get((name, own))) is not None:
            return found
        if not (content := self._content_of(own)):
            raise InferenceFailed(f"it is not known yet what {model} is made of: its Ollama did not say", cause="unreachable", model=model)
        held = await self._publish(name, own, content)
        if held.content != content:
            raise InferenceFailed(differs(model, content, held.content), cause="model_changed", model=model)
        self._held = {key: value for key, value in self._held.items() if key[0] != name} | {(name, own): held.digest}
        return held.digest


def differs(model: str, content: str, held: str) -> str:
    """Return in words that a model is another one here than at other kernels, and the remedy."""
    return (
        f"{model} is another model here (content {content[:12]}) than at the image's other kernels ({held[:12]}). Give all machines the "
        f"same: by `ollama pull {model}`, or the same Modelfiles where it is built"
    )
