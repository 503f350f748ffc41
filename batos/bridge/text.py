"""Texts on their way from models: their own output put right (loops, fences, thoughts)."""

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


THOUGHTS = (
    ("<think>", "</think>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
"""What models write before and after a thought: Qwen, DeepSeek and most others; EXAONE; Seed; Magistral; Kimi; Sky-T1; gpt-oss."""
_ORPHAN = re.compile(r"^[ \t]*(?:" + "|".join(re.escape(close) for _, close in THOUGHTS) + r")[ \t]*$", re.MULTILINE)


class ThoughtSplitter:
    """Parts a stream of text into thought and answer, for models that write `<think>…</think>` or the like before their answer.

    Only a mark that begins the text counts, or follows another thought, white space before it aside, as in Ollama's own parser
    (ollama/thinking/parser.go): a text about such marks stays a text. A thought that is never closed is one to its end.
    """

    def __init__(self) -> None:
        self._state = "undecided"
        self._close = ""
        self._held = ""
        self._thought_before = False

    def feed(self, piece: str) -> tuple[str, str]:
        """Add a piece; what is known to be answer and what is known to be thought since the last one."""
        thoughts = ""
        self._held += piece
        while self._state != "answer":
            if self._state == "undecided" and not self._decide():
                return "", thoughts
            if self._state == "thought":
                thought, closed, rest = self._held.partition(self._close)
                if not closed:
                    kept = _begun_at_end(thought, self._close)
                    self._held = thought[len(thought) - kept :]
                    return "", thoughts + thought[: len(thought) - kept]
                thoughts += thought
                self._state, self._held, self._thought_before = "undecided", rest, True
        answer, self._held = self._held, ""
        return answer, thoughts

    def _decide(self) -> bool:
        """Whether it is known what comes: a thought, or the answer."""
        solid = self._held.lstrip()
        for opening, close in THOUGHTS:
            if solid.startswith(opening):
                self._state, self._close, self._held = "thought", close, solid[len(opening) :]
                return True
        if any(opening.startswith(solid) for opening, _ in THOUGHTS):
            return False
        self._state = "answer"
        if self._thought_before:
            self._held = solid
        return True

    def end(self) -> tuple[str, str]:
        """Nothing more comes: what was held back, as `feed` answers it."""
        held, self._held = self._held, ""
        if self._state == "thought":
            return "", held
        return (held.lstrip() if self._thought_before else held), ""


def without_thought(text: str) -> tuple[str, str]:
    """A whole text as answer and thought.

    A mark that closes a thought, alone on a line and outside of a fence, where none was opened, closes one that the model's template
    opened: what is before it is thought.
    """
    splitter = ThoughtSplitter()
    fed, rest = splitter.feed(text), splitter.end()
    answer, thought = fed[0] + rest[0], fed[1] + rest[1]
    orphan = None if thought else _ORPHAN.search(answer)
    if orphan is not None:
        before = answer[: orphan.start()]
        if before.count("```") % 2 == 0 and not any(opening in before for opening, _ in THOUGHTS):
            return answer[orphan.end() :].lstrip(), before.strip()
    return answer, thought


def _begun_at_end(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)


def leaves_open(template: str) -> bool:
    """Whether a chat template (Go's text/template, as Ollama has them) leaves a last message of the assistant open.

    One that knows `.Messages` does if it treats the last message apart; one that only knows `.Response` always does, since
    Ollama ends it there (ollama/template/template.go).
    """
    if ".Messages" not in template:
        return ".Response" in template
    return "$last" in template or "$.Messages" in template
