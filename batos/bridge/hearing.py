"""One answer as it comes: text and thought apart, watched for loops."""

from __future__ import annotations

from collections.abc import Callable

from batos.bridge.text import RunawayWatch
from batos.bridge.thoughts import ThoughtSplitter, without_thought


class Hearing:
    """Collects the pieces of one answer and passes those of its text on."""

    def __init__(self, on_text: Callable[[str], None] | None, begun: str = "") -> None:
        """
        :param begun: the beginning of the answer, from an earlier attempt; it is not passed on again.
        """
        self._on_text = on_text
        self._content, self._thoughts = RunawayWatch(), RunawayWatch()
        self._kept: str | None = None
        self._kept_thoughts: str | None = None
        self._splitter = ThoughtSplitter()
        self._splitter.feed(begun)
        self._content.feed(begun)
        self.parts = 0

    def hear(self, content: str, thought: str) -> bool:
        """Take the next piece; False when the model has run away and should be stopped."""
        self.parts += 1
        self._tell(self._splitter.feed(content)[0])
        self._kept = self._content.feed(content)
        self._kept_thoughts = self._thoughts.feed(thought)
        return self._kept is None and self._kept_thoughts is None

    def end(self) -> None:
        """The model is done."""
        self._tell(self._splitter.end()[0])

    def _tell(self, text: str) -> None:
        if text and self._on_text is not None:
            self._on_text(text)

    @property
    def length(self) -> int:
        """Characters that have come."""
        return len(self._content.text) + len(self._thoughts.text)

    def answer(self) -> tuple[str, str]:
        """The text and the thought, without what ran away."""
        text, inner = without_thought(self._content.text if self._kept is None else self._kept)
        outer = self._thoughts.text if self._kept_thoughts is None else self._kept_thoughts
        return text, "\n".join(part for part in (outer, inner) if part)
