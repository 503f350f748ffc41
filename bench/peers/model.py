"""The model that all contenders ask: a scripted Ollama that writes at a steady pace, and keeps account of who asked what."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from batos.testing import ScriptedOllama
from batos.testing.ollama import ScriptedHandler

BURST = 4  # tokens that come together: a thread wakes for each burst


class PacedOllama(ScriptedOllama):
    """Counts calls, by the mission and the words that were asked, and tokens, as they are sent.

    :param token_s: seconds a token.
    """

    def __init__(self, token_s: float) -> None:
        self.handler = _Paced
        super().__init__()
        self.token_s = token_s
        self.begun: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.tokens = 0
        self._changed = threading.Condition()

    def key(self, request: dict[str, Any]) -> str:
        """One call of one mission: what was asked, but not what had come of the answer already."""
        messages = [m for m in request["messages"] if m.get("role") != "assistant"]
        text = json.dumps([m.get("content", "") for m in messages])
        found = re.search(r"mission-\d+", text)
        return f"{found[0] if found else '?'} {hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def begin(self, key: str) -> None:
        with self._changed:
            self.begun[key] += 1
            self._changed.notify_all()

    def paced(self, key: str, parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The parts of a stream, each burst after its time. Some calls take twice as long as others: they do not end all at once."""
        pause = self.token_s * BURST * (0.7 + 0.7 * int(key[-4:], 16) / 0xFFFF)
        for number, part in enumerate(parts):
            if number % BURST == 0:
                time.sleep(pause)
            yield part
            with self._changed:
                if part.get("done"):
                    self.finished[key] += 1
                else:
                    self.tokens += 1
                self._changed.notify_all()

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Whether it came to be so in time."""
        with self._changed:
            return self._changed.wait_for(until, timeout_s)


class _Paced(ScriptedHandler):
    def _chat(self, request: dict[str, Any], fault: Any) -> None:
        if request.get("messages"):
            self._asked = self._paced_owner.key(request)
            self._paced_owner.begin(self._asked)
        super()._chat(request, fault)

    def _stream(self, parts: Iterable[dict[str, Any]], **more: Any) -> None:
        paced = self.path == "/api/chat"
        super()._stream(self._paced_owner.paced(self._asked, parts) if paced else parts, **more)

    @property
    def _paced_owner(self) -> PacedOllama:
        return cast(PacedOllama, self.owner)
