"""Model output: separate thought from answer, detect loops, and clean fences.

Some models write thought and answer into one text: `<think>…</think>` and similar marks before, or within, the answer. A mark counts where
a text begins with it, as in Ollama's own parser (ollama/thinking/parser.go). It also counts after another thought, and after a short
opening such as "Sure.". A closing mark alone ends the thought that the model's template opened. In code, and in a sentence about such
marks, they are text.

An answer is processed as it streams: text and thought apart, watched for loops.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable

_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[^\n`]*+\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)

WHITESPACE_RUN = 160  # characters of whitespace in a row; deep JSON indentation stays well below
LOOP_REPEATS = 4
LOOP_SPAN = 240  # total characters of the repeats; table rulers stay below
LOOP_PERIOD = 240  # greatest length of a repeated unit
CHECK_EVERY = 48  # characters between two checks: each check costs some microseconds


def strip_fences(text: str) -> str:
    """Return the content of the first fenced block, or the text itself if it has none, stripped at both ends.

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
        """Return all that was fed."""
        return self._text

    def feed(self, piece: str) -> str | None:
        """Add a piece. Return None if the text is sound, else the text without its runaway tail."""
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
    """Return the number of times that the last `period` characters repeat at the end of `text`."""
    unit, count, at = text[-period:], 1, len(text) - 2 * period
    while at >= 0 and text.startswith(unit, at):
        count, at = count + 1, at - period
    return count


def leaves_open(template: str) -> bool:
    """Return True if a chat template (Go's text/template, as in Ollama) leaves a last message of the assistant open.

    A template with `.Messages` does if it treats the last message apart; one that has only `.Response` always does, since Ollama ends it
    there (ollama/template/template.go).
    """
    if ".Messages" not in template:
        return ".Response" in template
    return "$last" in template or "$.Messages" in template


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
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|think|>", "<|content|>"),
)
THOUGHTS = (*((f"<{tag}>", f"</{tag}>") for tag in _TAGS), *_OTHERS)
"""Marks before and after a thought, in lower case. They are those of Qwen, DeepSeek and most others; EXAONE; Seed; LongCat; Magistral;
Kimi; Sky-T1; Command; MedGemma; Gemma; gpt-oss; Apertus; Solar.
"""
_SAID = (("here is my thought process:", "here is my response:"), ("here's my thought process:", "here's my response:"))
"""Marks in words (Granite): the text is a thought only if both are there."""
_ENVELOPES = ("<|start|>assistant", "<|channel|>final<|message|>", "<|start_response|>", "<|begin_of_solution|>")
"""Marks before an answer that are not part of it."""
_ENDS = ("<|end_response|>", "<|return|>", "<|end|>", "<|end_of_solution|>")
_WRAPPED = (("<answer>", "</answer>"), ("<response>", "</response>"))
"""Marks around the answer that follows a thought: Hunyuan, DeepSeek-R1's kin, Granite."""
_OPENINGS = tuple(opening for opening, _ in THOUGHTS)
_LONGEST = max(map(len, _OPENINGS))
_BEGINS = re.compile(f"[{''.join(re.escape(mark) for mark in sorted({opening[0] for opening in _OPENINGS}))}]")
"""First character of an opening mark: most pieces of an answer have none, and need no further look."""
_SHORT = 120  # greatest number of characters of an opening such as "Sure."
_SENTENCE_ENDS, _CLOSERS = ".!?…。！？", "\"'”’»)]*_"  # ends of a sentence, and characters that may follow them
_FOLDED = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_CLOSE = "|".join(re.escape(close) for _, close in THOUGHTS)
_SPOKEN_CLOSE = "|".join(re.escape(close) for _, close in THOUGHTS if close.startswith("</"))
_TOKEN_CLOSE = "|".join(re.escape(close) for _, close in THOUGHTS if not close.startswith("</"))
_ORPHAN = re.compile(
    rf"^[ \t]*(?i:{_CLOSE})(?=[ \t]*$|\S)"  # starts a line, and is alone on it or comes right before the answer
    rf"|(?<=[.!?…。！？:)\]*\"”])(?i:{_CLOSE})(?=[ \t]*$|[^\s`'\".,;:)])"  # right behind the end of a sentence
    rf"|(?<=[.!?…。！？] )(?i:{_CLOSE})(?= [^\sa-z`'\".,;:)])"  # between two sentences
    rf"|(?<=[\w>])(?i:{_TOKEN_CLOSE})(?=\s*+\S)",  # a mark that no sentence has
    re.MULTILINE,
)
_GLUED = re.compile(
    rf"(?<=\w)(?i:{_SPOKEN_CLOSE})(?=[ \t]*+\n\s*+\S|\w)"  # right behind a word, at the end of a line or right before the answer
    rf"|(?<=\w )(?i:{_SPOKEN_CLOSE})(?=[ \t]*+\n[ \t]*+\n\s*+\S|\w)"  # before a blank line, or right before the answer
)
_THOUGHT_WORDS = 6  # least number of words before a mark that only stands close to a word
_BEGUN = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|user|>", "<|system|>", "<s>", "[INST]")
"""Marks that begin a turn. Behind one of them, marks of ends belong to an example of a conversation."""
_OWN_TURN = re.compile(
    r"\s*+(?:<\|(?:begin_of_text|im_start|start_header_id|assistant)\|>|<start_of_turn>|<bos>|<s>)\s*+"
    r"(?:(?:assistant|model)\b(?:<\|end_header_id\|>)?\s*+)?"
)
"""Matches the marks with which a template begins the model's turn."""
_TURN_END = re.compile(
    r"(?:(?<=[^\s`'\"“„(\[/])|^[ \t]*+)"  # right behind the text, or first on a line
    r"(?:<\|(?:im_end|endoftext|end_of_text|eot_id|eom_id|end|return|eot|end_of_turn)\|>|</s>|<eos>|<end_of_turn>|<turn\|>|"
    r"<｜end▁of▁sentence｜>)(?![`'\"])"
    r"|(?<=[^\s`'\"“„(\[/])(?:<\|(?:im_start|user|assistant|start_header_id)\|>|<start_of_turn>)(?![`'\"])"
    r"|(?<=[.!?…。！？])[ \t]*+\[/?INST\]",
    re.MULTILINE,
)
"""Matches a mark that ends the model's turn, where it came as text: what follows is a conversation with itself."""


class ThoughtSplitter:
    """Parts a stream of text into thought and answer. A thought that is never closed is one to its end, where the text begins with it."""

    def __init__(self) -> None:
        self._state = "undecided"  # thought; maybe (held until it is closed); closed (held until more text comes); answer
        self._opening = self._close = ""
        self._held = ""
        self._aside = ""  # text within the answer that may be a thought
        self._told = ""  # the answer so far
        self._before = ""  # opening mark of the previous thought

    def feed(self, piece: str) -> tuple[str, str]:
        """Add a piece. Return the new certain parts of the answer and of the thought."""
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
        """Return certain parts of answer and thought. If state and held text do not change, no more is certain yet."""
        match self._state:
            case "undecided":
                self._decide()
                return "", ""
            case "thought" | "maybe":
                return self._within()
            case "closed":
                if not self._held.strip():  # no text may follow
                    return "", ""
                thought, self._aside = self._aside[len(self._opening) : -len(self._close)], ""
                self._state, self._before = "answer", self._opening
                return "", thought
            case _:
                return self._answer(), ""

    def _decide(self) -> None:
        """Decide whether a thought or the answer comes."""
        solid = self._held.lstrip()
        small = solid.translate(_FOLDED)
        for mark in _ENVELOPES:
            if small.startswith(mark):
                self._held, self._before = solid[len(mark) :], mark
                return
        closes = [close for opening, close in THOUGHTS if opening == self._before]  # a model may close its thought twice
        if again := next(filter(small.startswith, closes), ""):
            self._held = solid[len(again) :]
            return
        for marks, state in ((THOUGHTS, "thought"), (_SAID, "maybe")):
            for opening, close in marks:
                if small.startswith(opening):
                    self._state, self._opening, self._close = state, opening, close
                    self._aside = "" if state == "thought" else self._held[: len(self._held) - len(solid)] + solid[: len(opening)]
                    self._held = solid[len(opening) :]
                    return
        if any(mark.startswith(small) for mark in (*_OPENINGS, *_ENVELOPES, *closes, *(said for said, _ in _SAID))):
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
        """Return the part of the answer that is certain: everything up to a mark that may open another thought."""
        if not self._before and len(self._told) > _SHORT:
            text, self._held = self._held, ""
            return text
        if _BEGINS.search(self._held) is None:
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
        """End the stream. Return the held text, as `feed` does."""
        held, self._held = self._aside + self._held, ""
        if self._state == "thought":
            return "", held
        if self._state == "closed" and self._opening == self._before:  # the thought about the answer came at the end
            return "", self._aside[len(self._opening) : -len(self._close)]
        return (held.lstrip() if self._before and not self._told else held), ""


def without_thought(text: str) -> tuple[str, str]:
    """Split a complete text into answer and thought.

    An unopened closing mark outside of code ends a thought that the model's template opened: the text before it is thought.
    """
    splitter = ThoughtSplitter()
    fed, rest = splitter.feed(text), splitter.end()
    answer, thought = fed[0] + rest[0], fed[1] + rest[1]
    if thought or answer != text:
        bare = answer.rstrip()
        end = next((mark for mark in _ENDS if bare.translate(_FOLDED).endswith(mark)), "")
        answer = bare[: -len(end)] if end else answer
    answer, before = _without_orphan(answer, begun=bool(thought))
    answer = _without_next_turn(answer)
    thoughts = [part for part in (thought, before) if part]
    return (_unwrapped(answer) if thoughts else answer), "\n".join(thoughts)


def _without_orphan(text: str, *, begun: bool) -> tuple[str, str]:
    """Split a text at a mark that closes a thought which nothing opened.

    :param begun: True if a thought was before the text: then the mark must begin a line.
    """
    small = text.translate(_FOLDED)
    found = None
    for orphan in sorted((*_ORPHAN.finditer(text), *_GLUED.finditer(text)), key=re.Match.start):
        before = small[: orphan.start()]
        too_little = begun and not _line_ended(before, sentence=False)
        too_little |= orphan.re is _GLUED and len(before.split()) < _THOUGHT_WORDS
        if not too_little and not _in_code(before):
            found = None if any(opening in before for opening in _OPENINGS) else orphan
            break
    return (text, "") if found is None else (text[found.end() :].lstrip(), text[: found.start()].strip())


def _without_next_turn(text: str) -> str:
    """Return an answer up to the first mark of a template that ends its turn. In code, and in a sentence about marks, they are text."""
    if own := _OWN_TURN.match(text):
        text = text[own.end() :]
    for end in _TURN_END.finditer(text):
        before = text[: end.start()]
        if any(mark in before for mark in _BEGUN):
            break
        if before.strip() and not _in_code(before):
            return before.rstrip()
    return text


def _unwrapped(text: str) -> str:
    """Return an answer without marks that are around all of it."""
    bare = text.strip()
    small = bare.translate(_FOLDED)
    around = next(((begin, end) for begin, end in _WRAPPED if small.startswith(begin) and small.endswith(end)), None)
    return text if around is None else bare[len(around[0]) : -len(around[1])].strip()


def _line_ended(text: str, *, sentence: bool = True) -> bool:
    """Return True if a text ends with a line break.

    :param sentence: True if the end of a sentence must be before it.
    """
    said = text.rstrip()
    return "\n" in text[len(said) :] and (not sentence or said.rstrip(_CLOSERS)[-1:] in tuple(_SENTENCE_ENDS))


def _in_code(before: str) -> bool:
    """Return True if the text after `before` is in a fence, or in code within a line."""
    return before.count("```") % 2 == 1 or before.rpartition("\n")[2].replace("```", "").count("`") % 2 == 1


def _begun_at_end(text: str, tag: str) -> int:
    """Return the number of characters at the end of `text` that may be the beginning of `tag`."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)


class StreamedAnswer:
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
        self.calls: list[tuple[str, str]] = []
        """Calls of tools so far: the name, and the arguments as JSON"""

    def hear(self, content: str, thought: str) -> bool:
        """Add the next piece. Return False if the model has run away and should be stopped."""
        self.parts += 1
        self._tell(self._splitter.feed(content)[0])
        self._kept = self._content.feed(content)
        self._kept_thoughts = self._thoughts.feed(thought)
        return self._kept is None and self._kept_thoughts is None

    def end(self) -> None:
        """Record that the model has finished."""
        self._tell(self._splitter.end()[0])

    def _tell(self, text: str) -> None:
        if text and self._on_text is not None:
            self._on_text(text)

    @property
    def length(self) -> int:
        """Return the number of characters so far."""
        return len(self._content.text) + len(self._thoughts.text)

    def answer(self) -> tuple[str, str]:
        """Return the text and the thought, without what ran away."""
        text, inner = without_thought(self._content.text if self._kept is None else self._kept)
        outer = self._thoughts.text if self._kept_thoughts is None else self._kept_thoughts
        return text, "\n".join(part for part in (outer, inner) if part)
