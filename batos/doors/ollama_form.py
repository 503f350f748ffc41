"""Ollama's form of answers, streams, models and errors."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime
from typing import Any

from starlette.responses import JSONResponse

VERSION = "0.17.4"
"""Told where no Ollama says its own: clients ask for a number, and for one that is new enough."""
_MADE = "2026-01-01T00:00:00Z"
_DETAILS = {
    "parent_model": "", "format": "gguf", "family": "batos", "families": ["batos"], "parameter_size": "", "quantization_level": "",
}  # fmt: skip
_CAPABILITIES = ["completion", "tools", "thinking", "vision"]
"""VS Code lists only models with tools: the missions behind these have tools of their own."""
_CONTEXT = 32_768


def failed(status: int, message: str) -> JSONResponse:
    """Return the answer for an error."""
    return JSONResponse({"error": message}, status)


def tagged_name(name: str) -> str:
    """Return a model's name with its tag."""
    return name if ":" in name else f"{name}:latest"


def listed_model(name: str) -> dict[str, Any]:
    """Return an entry of `/api/tags`."""
    tagged = tagged_name(name)
    told = {"name": tagged, "model": tagged, "modified_at": _MADE, "size": 0, "digest": hashlib.sha256(name.encode()).hexdigest()}
    return {**told, "details": _DETAILS, "capabilities": _CAPABILITIES}


def loaded_model(name: str) -> dict[str, Any]:
    """Return an entry of `/api/ps`."""
    entry = {key: value for key, value in listed_model(name).items() if key not in ("modified_at", "capabilities")}
    return {**entry, "expires_at": "2100-01-01T00:00:00Z", "size_vram": 0, "context_length": _CONTEXT}


def shown_model(name: str) -> dict[str, Any]:
    """Return what `/api/show` tells of a model."""
    info = {"general.architecture": "batos", "general.basename": name, "batos.context_length": _CONTEXT}
    told: dict[str, Any] = {"license": "", "modelfile": "", "parameters": "", "template": "", "details": _DETAILS}
    return {**told, "model_info": info, "capabilities": _CAPABILITIES, "modified_at": _MADE}


class OllamaForm:
    """Answer of one turn, for `/api/chat` or `/api/generate`."""

    def __init__(self, model: str, *, generates: bool, thinks: bool) -> None:
        """
        :param generates: True for `/api/generate`.
        :param thinks: True if the client wants to see thoughts.
        """
        self._model, self._generates, self.thinks = model, generates, thinks
        self._began = time.monotonic_ns()

    def part(self, text: str = "", thinking: str = "") -> dict[str, Any]:
        """Return a part of the answer."""
        head: dict[str, Any] = {"model": self._model, "created_at": datetime.now(UTC).isoformat().replace("+00:00", "Z"), "done": False}
        thought = {"thinking": thinking} if thinking else {}
        if self._generates:
            return {**head, "response": text, **thought}
        return {**head, "message": {"role": "assistant", "content": text, **thought}}

    def end(self, text: str, prompt: int, answer: int, *, reason: str = "stop", thinking: str = "") -> dict[str, Any]:
        """Return the last part, or the whole answer."""
        took = time.monotonic_ns() - self._began
        cost = {"total_duration": took, "load_duration": 0, "prompt_eval_count": prompt, "prompt_eval_duration": 0}
        return {**self.part(text, thinking), "done": True, "done_reason": reason, **cost, "eval_count": answer, "eval_duration": took}


def line(value: dict[str, Any]) -> bytes:
    """Return a line of a stream."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
