"""Forms of answers, streams, models and errors: OpenAI's, then Ollama's."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse

from batos.doors.answer_text import Answered
from batos.errors import (
    BatosError,
    Busy,
    DaemonUnavailable,
    InvalidInput,
    MessageTooLarge,
    RoleRefused,
    UnknownMission,
    UnknownPersona,
)

STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
BEAT = b": the mission goes on\n\n"
DONE = b"data: [DONE]\n\n"
_STATUS: tuple[tuple[type[BatosError], int], ...] = (
    (UnknownPersona, 404),
    (UnknownMission, 404),
    (MessageTooLarge, 413),
    (RoleRefused, 403),
    (InvalidInput, 400),
    (Busy, 503),
    (DaemonUnavailable, 503),
)
_TYPES = {401: "authentication_error", 403: "permission_error", 503: "overloaded_error"}
"""Types of errors by status; of others, those of a client's are `invalid_request_error`, the rest `server_error`."""
_CODES = {401: "invalid_api_key", 404: "model_not_found"}


def status_of(error: BatosError) -> int:
    """Return the HTTP status for an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def error_body(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Return an error as OpenAI has it."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    found = code or _CODES.get(status)
    return {"error": {"message": message, "type": kind, "param": None, "code": found}}


def error_answer(status: int, message: str, code: str | None = None) -> JSONResponse:
    """Return the answer for an error. A failure that does not pass by itself says that it is not to be sent again."""
    headers = {"x-should-retry": "false"} if status == 500 else {}
    return JSONResponse(error_body(status, message, code), status, headers=headers)


def model_entry(name: str) -> dict[str, Any]:
    """Return a model of the list."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "batos"}


class CompletionForm:
    """Chat completion of one turn."""

    def __init__(self, id: str, model: str) -> None:
        """
        :param id: of the mission; of a plain inference any.
        """
        self._head = {"id": f"chatcmpl-{id}", "created": int(time.time()), "model": model, "system_fingerprint": None}

    def whole(self, text: str, usage: dict[str, int], *, cut: bool, annotations: list[dict[str, Any]], thought: str = "") -> dict[str, Any]:
        """Return a whole answer."""
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        message |= {"annotations": annotations} if annotations else {}
        message |= {"reasoning_content": thought} if thought else {}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "length" if cut else "stop"}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage}

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        """Return an event of a stream."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head, "object": "chat.completion.chunk", "choices": [choice]})

    def usage(self, usage: dict[str, int]) -> bytes:
        """Return the event that tells the tokens, which has no choices."""
        return event({**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage})


def event(value: dict[str, Any]) -> bytes:
    """Return a server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def usage_of(prompt: int, answer: int) -> dict[str, int]:
    """Return the numbers of tokens."""
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def tokens_of(answered: Answered) -> dict[str, int]:
    """Return the numbers of tokens that a mission took."""
    return usage_of(int(answered.usage.get("prompt_tokens") or 0), int(answered.usage.get("answer_tokens") or 0))


def annotations_of(answered: Answered) -> list[dict[str, Any]]:
    """Return the citations of an answer as `url_citation`, with the place of each mark `[n]` in the text."""
    found = []
    for one in answered.citations:
        source, mark = str(one.get("source") or ""), f"[{one.get('n')}]"
        at = answered.text.find(mark)
        url = f"file://{quote(source)}" if source.startswith("/") else source or f"batos:{one.get('chunk', '')}"
        place = {"start_index": max(at, 0), "end_index": at + len(mark) if at >= 0 else 0}
        found.append({"type": "url_citation", "url_citation": {"url": url, "title": str(one.get("title") or source), **place}})
    return found


# --- Ollama

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


def _capabilities(*, embeds: bool) -> list[str]:
    return ["embedding"] if embeds else _CAPABILITIES


def listed_model(name: str, *, embeds: bool) -> dict[str, Any]:
    """Return an entry of `/api/tags`."""
    tagged = tagged_name(name)
    told = {"name": tagged, "model": tagged, "modified_at": _MADE, "size": 0, "digest": hashlib.sha256(name.encode()).hexdigest()}
    return {**told, "details": _DETAILS, "capabilities": _capabilities(embeds=embeds)}


def loaded_model(listed: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of `/api/ps` for a model that is listed."""
    entry = {key: value for key, value in listed.items() if key not in ("modified_at", "capabilities")}
    return {**entry, "expires_at": "2100-01-01T00:00:00Z", "size_vram": 0, "context_length": _CONTEXT}


def shown_model(name: str, *, embeds: bool) -> dict[str, Any]:
    """Return what `/api/show` tells of a model."""
    info = {"general.architecture": "batos", "general.basename": name, "batos.context_length": _CONTEXT}
    told: dict[str, Any] = {"license": "", "modelfile": "", "parameters": "", "template": "", "details": _DETAILS}
    return {**told, "model_info": info, "capabilities": _capabilities(embeds=embeds), "modified_at": _MADE}


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
