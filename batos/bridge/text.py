"""Texts on their way from models: their own output put right (loops, fences)."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[^\n`]*+\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)

WHITESPACE_RUN = 160  # characters of whitespace in a row; deep JSON indentation stays well below
LOOP_REPEATS = 4
LOOP_SPAN = 240  # characters that the repeats cover together; table rulers stay below
LOOP_PERIOD = 240  # longest repeated unit that is looked for
CHECK_EVERY = 48  # characters between two checks: each costs some microseconds


def strip_fences(text: str) -> str:
    """The content of the first fenced block, or the text itself where there is none, stripped at both ends.

    A fence that is never closed ends with the text: a model that ran out of tokens.
    """
    found = _FENCE.search(text)
    return (found.group(2) if found else text).strip()


class RunawayWatch:
    """Watches a text as it grows, and says when it has run away: endless whitespace, or one unit over and over.

    Small models fall into loops, and structured output may never end for whitespace (ollama#15502), so `num_predict`
    alone would pay for all of it.
    """

    def __init__(self) -> None:
        self._text = ""
        self._checked = 0

    @property
    def text(self) -> str:
        """All that was fed."""
        return self._text

    def feed(self, piece: str) -> str | None:
        """Add a piece. Answers None while all is well, else the text without its runaway tail."""
        self._text += piece
        if len(self._text) - self._checked < CHECK_EVERY:
            return None
        self._checked = len(self._text)
        solid = self._text.rstrip()
        if len(self._text) - len(solid) >= WHITESPACE_RUN:
            return solid
        return self._without_loop()

    def _without_loop(self) -> str | None:
        text = self._text
        if len(text) < LOOP_SPAN:
            return None
        last = text[-1]
        for period in range(1, min(LOOP_PERIOD, len(text) // LOOP_REPEATS) + 1):
            if text[-1 - period] != last:
                continue
            repeats = _repeats_at_end(text, period)
            if repeats >= LOOP_REPEATS and repeats * period >= LOOP_SPAN:
                return text[: len(text) - (repeats - 1) * period].rstrip()
        return None


def _repeats_at_end(text: str, period: int) -> int:
    """How often the last `period` characters stand at the end of `text`, one after another."""
    unit, count, at = text[-period:], 1, len(text) - 2 * period
    while at >= 0 and text.startswith(unit, at):
        count, at = count + 1, at - period
    return count


def leaves_open(template: str) -> bool:
    """Whether a chat template (Go's text/template, as Ollama has them) leaves a last message of the assistant open.

    One that knows `.Messages` does if it treats the last message apart; one that only knows `.Response` always does, since
    Ollama ends it there (ollama/template/template.go).
    """
    if ".Messages" not in template:
        return ".Response" in template
    return "$last" in template or "$.Messages" in template
