"""Script of a scripted Ollama: the answer or fault for each request, and the requests that are held back.

Without a scripted answer it gives a default: deterministic, sane, and in the requested format.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

DIMENSIONS = 384
_WORD = re.compile(r"\w+", re.UNICODE)
_PIECE = re.compile(r"\s*\S+|\s+$")


def default_answer(request: dict[str, Any]) -> str:
    """Return the answer to a chat request: JSON of its `format`, else a text that quotes the user's words."""
    asked = user_text(request)
    schema = request.get("format")
    if isinstance(schema, dict):
        try:
            value = _Instances(schema).of(schema, _words(asked))
        except (_Endless, RecursionError):  # the schema has no finite value, or none of reasonable depth
            value = {}
        return json.dumps(value, ensure_ascii=False)
    if schema == "json":
        return json.dumps({"answer": " ".join(_words(asked)[:12])}, ensure_ascii=False)
    return f"You said: {' '.join(asked.split())[:200]}. One thing follows from it, and here it is in plain words."


def user_text(request: dict[str, Any]) -> str:
    """Return the last message of the user."""
    messages = request.get("messages") or []
    return next((str(m.get("content", "")) for m in reversed(messages) if m.get("role") == "user"), "")


def pieces(text: str) -> list[str]:
    """Return a text in parts, as a stream brings it; a piece counts as a token."""
    return _PIECE.findall(text)


def stopped(text: str, stop: Sequence[str]) -> str:
    """Return a text up to the first of the sequences that end it."""
    return text[: min((at for sequence in stop if (at := text.find(sequence)) >= 0), default=len(text))]


def parted(text: str) -> tuple[str, str]:
    """Return thought and answer of a text that may begin with `<think>`."""
    if not text.lstrip().startswith("<think>"):
        return "", text
    thought, _, answer = text.lstrip().removeprefix("<think>").partition("</think>")
    return thought.lstrip(), answer.lstrip()


def embedding(text: str) -> list[float]:
    """Return a unit vector that depends on the words of the text: shared words make vectors alike."""
    total = [0.0] * DIMENSIONS
    for word in _words(text.lower()) or [text]:
        total = [x + y for x, y in zip(total, _direction(word), strict=True)]
    length = math.sqrt(sum(x * x for x in total))
    return [x / length for x in total]


@functools.lru_cache(maxsize=4096)
def _direction(word: str) -> tuple[float, ...]:
    draw = random.Random(int.from_bytes(hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[:8], "big"))
    return tuple(draw.gauss(0, 1) for _ in range(DIMENSIONS))


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


class _Endless(Exception):
    """A schema refers to itself, so that each value would contain another one."""


class _Instances:
    """Values of a JSON schema: the subset that Ollama turns into grammars. None holds one of its own schema again that need not."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._open = ["#"]  # references on the path to this schema

    def of(self, schema: dict[str, Any], words: list[str], name: str = "") -> Any:
        """Return a value of a schema.

        :param words: of which texts are made. `name`: of the property that it is for.
        :raises _Endless: if every value would hold another one.
        """
        if "$ref" in schema:
            return self._referred(str(schema["$ref"]), words, name)
        for choice in ("anyOf", "oneOf"):
            if schema.get(choice):
                return self._first(schema[choice], words, name)
        if schema.get("allOf"):
            merged: dict[str, Any] = {}
            for part in schema["allOf"]:
                merged |= part
            return self.of(merged, words, name)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = kind[0]
        if kind == "object":
            return self._object(schema, words)
        if kind == "array":
            return self._array(schema, words, name)
        return _scalar(kind, schema, words, name)

    def _referred(self, pointer: str, words: list[str], name: str) -> Any:
        if pointer in self._open:
            raise _Endless
        self._open.append(pointer)
        try:
            return self.of(_resolve(pointer, self._root), words, name)
        finally:
            self._open.pop()

    def _first(self, choices: list[dict[str, Any]], words: list[str], name: str) -> Any:
        for choice in choices:
            try:
                return self.of(choice, words, name)
            except _Endless:
                continue
        raise _Endless

    def _object(self, schema: dict[str, Any], words: list[str]) -> dict[str, Any]:
        found, required = {}, schema.get("required", ())
        for key, part in schema.get("properties", {}).items():
            try:
                found[key] = self.of(part, words, key)
            except _Endless:
                if key in required:
                    raise
        return found

    def _array(self, schema: dict[str, Any], words: list[str], name: str) -> list[Any]:
        least = int(schema.get("minItems", 0))
        count = max(least, min(2, int(schema.get("maxItems", 2))))
        try:
            return [self.of(schema.get("items", {}), [*words[at:], str(at + 1)], name) for at in range(count)]
        except _Endless:
            if least:
                raise
            return []


def _scalar(kind: str, schema: dict[str, Any], words: list[str], name: str) -> Any:
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        value = min(low, schema["maximum"]) if "maximum" in schema else low
        return int(value) if kind == "integer" else float(value)
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    if kind != "string":
        raise LookupError(f"no grammar for the type {kind!r}")
    text = " ".join([name.replace("_", " "), *words[:8]]).strip() or "text"
    text += "." * max(0, int(schema.get("minLength", 0)) - len(text))
    return text[: int(schema.get("maxLength", len(text)))]


def _resolve(pointer: str, root: dict[str, Any]) -> dict[str, Any]:
    found: Any = root
    for part in pointer.removeprefix("#").removeprefix("/").split("/") if pointer != "#" else ():
        found = found[part.replace("~1", "/").replace("~0", "~")]
    assert isinstance(found, dict)
    return found


FaultKind = Literal[
    "refuse", "status_404", "status_500", "status_503", "overtaken", "layer_gone", "cut", "stall", "error", "junk", "slow", "hang", "full"
]
WaitKind = Literal["held", "release", "seconds", "good"]
When = str | Callable[[dict[str, Any]], bool] | None
Answer = str | Callable[[dict[str, Any]], str]

GONE_CHECK_S = 0.02  # seconds within which a client that left is noticed


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to play: `seconds` is how long `slow` waits before the first token (None: until `release`)."""

    kind: FaultKind
    seconds: float | None = None


@dataclass(slots=True)
class _Rule:
    path: str
    when: When
    left: int | None
    answer: Answer | None = None
    fault: Fault | None = None

    def take(self, path: str, request: dict[str, Any]) -> bool:
        """Return True if the rule matches this request, and count the match."""
        if path != self.path or self.left == 0 or not _fits(self.when, request):
            return False
        if self.left is not None:
            self.left -= 1
        return True


def _fits(when: When, request: dict[str, Any]) -> bool:
    if when is None:
        return True
    if callable(when):
        return when(request)
    texts = [str(m.get("content", "")) for m in request.get("messages") or ()]
    given = request.get("input") or ()
    texts += [given] if isinstance(given, str) else [str(t) for t in given]
    return any(when in text for text in texts)


class Script:
    """Rules are tried in the order in which they were given; the first that fits and is not used up counts."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self._changed = threading.Condition()
        self._held = False
        self._closed = False
        self._releases = 0

    def say(self, answer: Answer, when: When, times: int | None) -> None:
        """Add an answer to chats."""
        with self._changed:
            self._rules.append(_Rule("/api/chat", when, times, answer=answer))

    def fail(self, fault: Fault, path: str, when: When, times: int | None) -> None:
        """Add a fault; faults are tried before answers."""
        with self._changed:
            self._rules.append(_Rule(path, when, times, fault=fault))

    def clear(self) -> None:
        """Forget all rules."""
        with self._changed:
            self._rules.clear()

    def fault_for(self, path: str, request: dict[str, Any]) -> Fault | None:
        """Return the fault that meets this request."""
        with self._changed:
            return next((r.fault for r in self._rules if r.fault is not None and r.take(path, request)), None)

    def answer_for(self, request: dict[str, Any]) -> str:
        """Return the text that answers this chat."""
        with self._changed:
            answer = next((r.answer for r in self._rules if r.answer is not None and r.take("/api/chat", request)), None)
        if answer is None:
            return default_answer(request)
        return answer if isinstance(answer, str) else answer(request)

    def hold(self) -> None:
        """Keep chats waiting before their first token, until `release`."""
        with self._changed:
            self._held = True

    def release(self) -> None:
        """Release all waiting requests."""
        with self._changed:
            self._held = False
            self._releases += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let everything that waits end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def reopen(self) -> None:
        """Wait again: the server starts anew."""
        with self._changed:
            self._closed = False

    def wait(self, kind: WaitKind, gone: Callable[[], bool], seconds: float = 0) -> bool:
        """Keep a request waiting: while chats are held, until the next `release`, for `seconds`, or for good.

        :param gone: returns True if the client has left.
        :return: True if the request was released; False if the client left or the server ends.
        """
        with self._changed:
            releases, deadline = self._releases, time.monotonic() + seconds
            while not self._closed:
                if gone():
                    return False
                if (
                    (kind == "held" and not self._held)
                    or (kind == "release" and self._releases > releases)
                    or (kind == "seconds" and time.monotonic() >= deadline)
                ):
                    return True
                self._changed.wait(GONE_CHECK_S)
        return False
