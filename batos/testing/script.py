"""The script of a scripted Ollama: which answer or fault meets a request, and who is kept waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from batos.testing.answers import default_answer

FaultKind = Literal[
    "refuse", "status_404", "status_500", "status_503", "overtaken", "layer_gone", "cut", "stall", "error", "junk", "slow", "hang", "full"
]
WaitKind = Literal["held", "release", "seconds", "good"]
When = str | Callable[[dict[str, Any]], bool] | None
Answer = str | Callable[[dict[str, Any]], str]

GONE_CHECK_S = 0.02  # how soon a client that left is noticed


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
        """Whether the rule is for this request; counts it if so."""
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
        """The fault that meets this request."""
        with self._changed:
            return next((r.fault for r in self._rules if r.fault is not None and r.take(path, request)), None)

    def answer_for(self, request: dict[str, Any]) -> str:
        """The text that answers this chat."""
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
        """Let all that wait go on."""
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

        :param gone: whether the client has left.
        :return: True when it was let go on; False when the client left or the server ends.
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
