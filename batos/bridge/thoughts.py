"""Thought and answer apart, for models that write both into one text: `<think>…</think>` and the like before, or within, the answer.

A mark counts where a text begins with it, as in Ollama's own parser (ollama/thinking/parser.go), after another thought, and after a short
opening such as "Sure.". One that only closes a thought ends what the model's template opened. In code, and in a sentence about such marks,
they are text.
"""

from __future__ import annotations

import re
import string

_TAGS = ("think", "thinking", "thought", "thoughts", "reasoning", "reflection", "scratchpad", "seed:think", "longcat_think")
_OTHERS = (
    ("[think]", "[/think]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|start_thinking|>", "<|end_thinking|>"),
    ("<unused94>", "<unused95>"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<|channel|>commentary<|message|>", "<|channel|>final<|message|>"),
)
THOUGHTS = (*((f"<{tag}>", f"</{tag}>") for tag in _TAGS), *_OTHERS)
"""What models write before and after a thought, in small letters: Qwen, DeepSeek and most others; EXAONE; Seed; LongCat; Magistral; Kimi;
Sky-T1; Command; MedGemma; Gemma; gpt-oss."""
_SAID = (("here is my thought process:", "here is my response:"), ("here's my thought process:", "here's my response:"))
"""The same in words (Granite): a thought only where both are there."""
_ENVELOPES = ("<|start|>assistant", "<|channel|>final<|message|>", "<|start_response|>")
"""What stands before an answer and is nothing of it."""
_ENDS = ("<|end_response|>", "<|return|>", "<|end|>")
_OPENINGS = tuple(opening for opening, _ in THOUGHTS)
_LONGEST = max(map(len, _OPENINGS))
_SHORT = 120  # characters of an opening such as "Sure."
_SENTENCE_ENDS, _CLOSERS = ".!?…。！？", "\"'”’»)]*_"  # of a sentence, and what may follow that
_FOLDED = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_CLOSE = "|".join(re.escape(close) for _, close in THOUGHTS)
_ORPHAN = re.compile(
    rf"^[ \t]*(?:{_CLOSE})(?=[ \t]*$|\S)"  # begins a line, and is alone on it or has the answer right behind it
    rf"|(?<=[.!?…。！？:)\]*\"”])(?:{_CLOSE})(?=[ \t]*$|[^\s`'\".,;:)])",  # right behind the end of a sentence
    re.MULTILINE,
)


class ThoughtSplitter:
    """Parts a stream of text into thought and answer. A thought that is never closed is one to its end, where the text begins with it."""

    def __init__(self) -> None:
        self._state = "undecided"  # thought, maybe (held until it is closed), closed (held until more comes), answer
        self._opening = self._close = ""
        self._held = ""
        self._aside = ""  # what a thought within the answer stands for, should it turn out to be none
        self._told = ""  # of the answer
        self._before = ""  # the mark of the thought before

    def feed(self, piece: str) -> tuple[str, str]:
        """Add a piece; what is known to be answer and what is known to be thought since the last one."""
        self._held += piece
        answers, thoughts = "", ""
        while True:
            state, held = self._state, len(self._held)
            answer, thought = self._step()
            self._told += answer
            answers, thoughts = answers + answer, thoughts + thought
            if not self._held or (self._state, len(self._held)) == (state, held):
                return answers, thoughts

    def _step(self) -> tuple[str, str]:
        """Answer and thought that can be told now; the same state with as much held: nothing more can be."""
        match self._state:
            case "undecided":
                self._decide()
                return "", ""
            case "thought" | "maybe":
                return self._within()
            case "closed":
                if not self._held.strip():  # nothing may come behind it
                    return "", ""
                thought, self._aside = self._aside[len(self._opening) : -len(self._close)], ""
                self._state, self._before = "answer", self._opening
                return "", thought
            case _:
                return self._answer(), ""

    def _decide(self) -> None:
        """Find out what comes: a thought, or the answer."""
        solid = self._held.lstrip()
        small = solid.translate(_FOLDED)
        for mark in _ENVELOPES:
            if small.startswith(mark):
                self._held, self._before = solid[len(mark) :], mark
                return
        for marks, state in ((THOUGHTS, "thought"), (_SAID, "maybe")):
            for opening, close in marks:
                if small.startswith(opening):
                    self._state, self._opening, self._close = state, opening, close
                    self._aside = "" if state == "thought" else self._held[: len(self._held) - len(solid)] + solid[: len(opening)]
                    self._held = solid[len(opening) :]
                    return
        if any(opening.startswith(small) for opening in (*_OPENINGS, *_ENVELOPES, *(said for said, _ in _SAID))):
            return
        self._state = "answer"
        if self._before:
            self._held = solid

    def _within(self) -> tuple[str, str]:
        """Look for the mark that closes a thought."""
        at = self._held.translate(_FOLDED).find(self._close)
        if at < 0:
            if self._state == "maybe":
                return "", ""
            kept = _begun_at_end(self._held.translate(_FOLDED), self._close)
            thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
            return "", thought
        thought, end = self._held[:at], at + len(self._close)
        closed, self._held = self._held[at:end], self._held[end:]
        if self._state == "maybe" and self._told:
            self._state, self._aside = "closed", self._aside + thought + closed
            return "", ""
        self._state, self._before, self._aside = "undecided", self._opening, ""
        return "", thought

    def _answer(self) -> str:
        """What of the answer can be told: all of it, up to a mark that may open another thought."""
        if not self._before and len(self._told) > _SHORT:
            text, self._held = self._held, ""
            return text
        small = self._held.translate(_FOLDED)
        found = [(at, mark) for mark in THOUGHTS if (at := small.find(mark[0])) >= 0]
        at, (opening, close) = min(found, default=(-1, ("", "")))
        if at < 0:
            kept = max(_begun_at_end(small[-_LONGEST:], opening) for opening in _OPENINGS)
            text, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
            return text
        if not self._may_open(self._told + self._held[:at], opening):
            text, self._held = self._held[: at + len(opening)], self._held[at + len(opening) :]
            return text
        text, self._aside = self._held[:at], self._held[at : at + len(opening)]
        self._held = self._held[at + len(opening) :]
        self._state, self._opening, self._close = "maybe", opening, close
        return text

    def _may_open(self, before: str, opening: str) -> bool:
        if _in_code(before):
            return False
        return opening == self._before or (not self._before and len(before) <= _SHORT and _line_ended(before))

    def end(self) -> tuple[str, str]:
        """Nothing more comes: what was held back, as `feed` answers it."""
        held, self._held = self._aside + self._held, ""
        if self._state == "thought":
            return "", held
        if self._state == "closed" and self._opening == self._before:  # the model thought about its answer in the end
            return "", self._aside[len(self._opening) : -len(self._close)]
        return (held.lstrip() if self._before and not self._told else held), ""


def without_thought(text: str) -> tuple[str, str]:
    """A whole text as answer and thought.

    A mark that closes a thought, outside of code, where none was opened, closes one that the model's template opened: what is before it
    is thought.
    """
    splitter = ThoughtSplitter()
    fed, rest = splitter.feed(text), splitter.end()
    answer, thought = fed[0] + rest[0], fed[1] + rest[1]
    small = answer.translate(_FOLDED)
    if thought or answer != text:
        bare = answer.rstrip()
        end = next((mark for mark in _ENDS if bare.translate(_FOLDED).endswith(mark)), "")
        return (bare[: -len(end)] if end else answer), thought
    for orphan in _ORPHAN.finditer(small):
        before = answer[: orphan.start()]
        if not _in_code(before) and not any(opening in small[: orphan.start()] for opening in _OPENINGS):
            return answer[orphan.end() :].lstrip(), before.strip()
    return answer, thought


def _line_ended(text: str) -> bool:
    """Return True where a text ends with a sentence and then a line break."""
    said = text.rstrip()
    return "\n" in text[len(said) :] and said.rstrip(_CLOSERS)[-1:] in tuple(_SENTENCE_ENDS)


def _in_code(before: str) -> bool:
    """Whether what follows a text stands in a fence, or in code within a line."""
    return before.count("```") % 2 == 1 or before.rpartition("\n")[2].replace("```", "").count("`") % 2 == 1


def _begun_at_end(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)
