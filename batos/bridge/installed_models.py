"""Installed models: list them, measure the memory that each takes, and choose the best one to think with. Nothing is pulled or loaded.

For an Ollama that does not run, its folder tells which models it lists once it is started.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batos.bridge.capabilities import Capabilities, figure
from batos.bridge.failures import retry_on_race
from batos.bridge.model_status import AGAIN, ServerErrors
from batos.bridge.modelfile import tagged
from batos.bridge.profiles import EXPERT_MARK, is_own_model
from batos.config import MIB

if TYPE_CHECKING:
    from ollama import AsyncClient

LOOK_S = 10.0  # seconds for an Ollama to list its models
LOOKED_AT = 256  # greatest number of models of one Ollama that are looked at; a usual Ollama has about ten
SHOWN_AT_ONCE = 8
LEAST_PARAMETERS = 300_000_000
"""Number of parameters below which a model is not better than the one that comes with BAT OS."""
LEAST_CONTEXT = 2048
CONTEXTS = (8192, 4096, 2048)
"""Context sizes in tokens. A model gets the first one that it supports and that fits: prompts of a mission have about 1,000 to 4,000
tokens.
"""
BESIDE = 256 * MIB
"""Bytes that a model takes besides weights and cache, and the embedder with it."""
UNKNOWN_CACHE = 128 * 1024
"""Bytes of cache for each token, if a model does not report its shape: those of an 8B model."""
LACKING = 0.8
"""Factor for a model that cannot use tools, or has a short context."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model of an Ollama.

    :ivar bytes: bytes of its files. `cache`: bytes for each token of its context. `ours`: True if BAT OS made it, on another model.
    """

    name: str
    digest: str
    bytes: int
    cache: int
    can: Capabilities
    ours: bool = False

    @classmethod
    def of(cls, name: str, digest: str, size: int, shown: Mapping[str, Any]) -> Candidate:
        """Return the model that `/api/show` tells of."""
        can, cache = Capabilities.claimed(shown), cache_of(shown.get("model_info") or {})
        ours = is_own_model(name) or EXPERT_MARK.search(str(shown.get("license") or "")) is not None
        return cls(tagged(name), digest, size, cache, can, ours)

    def memory(self, context: int) -> int:
        """Return the bytes that it takes with such a context, about."""
        return self.bytes + self.cache * min(context, self.can.context or context) + BESIDE

    def context_within(self, budget: int) -> int:
        """Return the context that it is given: the largest one that it has and that fits; the smallest where none does."""
        most = self.can.context or CONTEXTS[0]
        had = [context for context in CONTEXTS if context <= most] or [most]
        return next((context for context in had if self.memory(context) <= budget), had[-1])

    @property
    def least_memory(self) -> int:
        """Return the bytes that it takes at least."""
        return self.memory(CONTEXTS[-1])

    @property
    def worth(self) -> float:
        """Rate it beside others: by its parameters, tools and context counted."""
        lacks = int(not self.can.tools) + int((self.can.context or 0) < CONTEXTS[0])
        return (self.can.parameters or 0) * LACKING**lacks

    def unfit(self, budget: int) -> str:
        """Return the reason why the model is used only by explicit request; empty if it may be chosen."""
        if self.ours:
            return "BAT OS made it, on another model"
        if not self.can.chats:
            return "it does not answer messages"
        if self.can.remote:
            return "it is a model of a service elsewhere, which would be sent every brief"
        if (self.can.parameters or 0) < LEAST_PARAMETERS:
            return "it is not larger than the model that comes with BAT OS"
        if self.can.context is not None and self.can.context < LEAST_CONTEXT:
            return f"its context has {self.can.context} tokens"
        if self.least_memory > budget:
            return f"it takes {self.least_memory / 1e9:.1f} GB, and inference.memory_bytes is {budget / 1e9:.1f} GB"
        return ""


def cache_of(info: Mapping[str, Any]) -> int:
    """Return the bytes of cache (keys and values of 16 bits, every layer) that each token of a model's context takes.

    :param info: `model_info` of `/api/show`.
    """
    layers, heads, width = (figure(info, name) for name in ("block_count", "attention.head_count", "embedding_length"))
    kv = figure(info, "attention.head_count_kv") or heads
    if not all(isinstance(one, int) and one > 0 for one in (layers, heads, width, kv)):
        return UNKNOWN_CACHE
    key = figure(info, "attention.key_length") or width // heads
    value = figure(info, "attention.value_length") or key
    return int(layers * kv * (key + value) * 2)


async def list_models(
    client: AsyncClient, hear: Callable[[str, Mapping[str, Any]], object] = lambda digest, shown: None
) -> list[Candidate]:
    """Return the models that an Ollama has, by name.

    :param hear: told of each, by its digest, what `/api/show` says.

    :raises Cannot: if it does not say.
    """
    with ServerErrors("cannot list the models", AGAIN):
        async with asyncio.timeout(LOOK_S):
            listed = (await retry_on_race(client.list)).models[:LOOKED_AT]
            turns = asyncio.Semaphore(SHOWN_AT_ONCE)

            async def look(name: str, digest: str, size: int) -> Candidate | None:
                async with turns:
                    shown = await show_model(client, name)
                if shown is None:  # deleted after it was listed
                    return None
                hear(digest, shown)
                return Candidate.of(name, digest, size, shown)

            found = await asyncio.gather(*(look(m.model, m.digest or "", int(m.size or 0)) for m in listed if m.model))
    return sorted((one for one in found if one is not None), key=lambda one: one.name)


async def listed_name(client: AsyncClient, name: str) -> str:
    """Return a model's name as its Ollama lists it, because FROM accepts no other spelling; the given name if the model is missing.

    :raises ollama.ResponseError, ConnectionError, httpx.HTTPError: if the Ollama does not answer.
    """
    wanted = tagged(name)
    return next((m.model for m in (await retry_on_race(client.list)).models if m.model and tagged(m.model) == wanted), name)


async def show_model(client: AsyncClient, name: str) -> dict[str, Any] | None:
    """Ask `/api/show` about a model; return None if it does not exist. `AsyncClient.show` omits fields that it does not know.

    :raises ollama.ResponseError, ConnectionError, httpx.HTTPError, ValueError: where the Ollama does not say.
    """
    from batos.bridge.client_library import ResponseError

    try:
        reply = await client._request_raw("POST", "/api/show", json={"model": name})  # type: ignore[no-untyped-call]
    except ResponseError as e:
        if e.status_code == 404:
            return None
        raise
    shown = reply.json()
    if not isinstance(shown, dict):
        raise ValueError(f"/api/show of {name} answers no object")
    return shown


def best_model(found: Sequence[Candidate], budget: int) -> Candidate | None:
    """Return the best model to think with that fits, None if there is none.

    :param budget: bytes that models may take.
    """
    return max((one for one in found if not one.unfit(budget)), key=lambda one: (one.worth, one.bytes, one.name), default=None)


def models_in_folder(folder: Path) -> frozenset[str]:
    """Return the names of the models in a folder of Ollama's (`OLLAMA_MODELS`) that are there with all their blobs."""
    manifests = folder / "manifests"
    try:
        found = [path for path in manifests.glob("*/*/*/*") if path.is_file()]
    except OSError:
        return frozenset()
    return frozenset(_name(path.relative_to(manifests).parts) for path in found if _is_whole(path, folder / "blobs"))


def _name(parts: tuple[str, ...]) -> str:
    *before, tag = parts
    return tagged(f"{'/'.join(before)}:{tag}")


def _is_whole(manifest: Path, blobs: Path) -> bool:
    try:
        told = json.loads(manifest.read_text("utf-8"))
        parts = [told["config"], *told["layers"]]
        return all((blobs / part["digest"].replace(":", "-")).stat().st_size == part["size"] for part in parts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # use what could be read: Ollama itself will report the rest
        return False
