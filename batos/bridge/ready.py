"""Inference that waits for its model: what comes before provisioning is done waits; what vanished is brought back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from batos.bridge.types import ChatReply, ChatRequest, Inference
from batos.errors import InferenceFailed

T = TypeVar("T")
Ensure = Callable[[str], Awaitable[object]]


class ReadyInference:
    """An `Inference` in front of another one."""

    def __init__(self, inference: Inference, *, ready: Ensure, heal: Ensure) -> None:
        """
        :param ready: returns when a model is there; raises ProvisioningFailed when it cannot be had.
        :param heal: brings back a model that was there and is gone.
        """
        self._inference, self._ready, self._heal = inference, ready, heal

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        return await self._with(request.model, lambda: self._inference.chat(request, deadline_s=deadline_s, on_text=on_text))

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        return await self._with(model, lambda: self._inference.embed(model, texts, deadline_s=deadline_s))

    async def continues(self, model: str) -> bool:
        return await self._with(model, lambda: self._inference.continues(model))

    async def digest(self, model: str) -> str:
        return await self._with(model, lambda: self._inference.digest(model))

    async def _with(self, model: str, ask: Callable[[], Awaitable[T]]) -> T:
        await self._ready(model)
        try:
            return await ask()
        except InferenceFailed as e:
            if e.cause != "model_missing":
                raise
        await self._heal(model)  # deleted by hand, say
        await self._ready(model)
        return await ask()
