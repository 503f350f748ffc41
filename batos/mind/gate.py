"""The quality gate: what an answer must be, whoever wrote it. Deterministic, without inference.

Each check answers why a text is not fit, in words that can be put to the model for its revision and to the user.
"""

from __future__ import annotations

import functools
import re
from collections import Counter

from batos.mind import language

_SENTENCE_END = re.compile(r"[。！？]++[”’」』）]*+|(?<![.!?…])[.!?…]++[\"'”’»)\]*_]*+(?=\s|$)")
_KEPT = 0.25  # of an answer that was cut must be whole sentences, or all of it is kept
_RUN = 7  # words in a row that an answer has from the prompt's own
_AGAIN = 3  # times that one sentence may be said
_NO_WORDS = 0.5  # share of strings that are no words
LONGEST = 20_000  # characters of an answer: far above what `num_predict` lets through by default
_PART_END = re.compile(r"[。！？]|(?<![.!?…])[.!?…]++(?=\s|$)|\n++")
_WORD = re.compile(r"\w")
_LONG = 20  # characters of a sentence with which a loop begins
_MOST = 0.7  # share of sentences said before, in a loop
_VOWELS = frozenset("aeiouy")
_ECHO_WORDS = 8  # an answer this much longer than the brief says something of its own


def whole(text: str, *, cut: bool) -> str:
    """An answer that came to the longest that it may be, up to its last whole sentence or line; any other as it is.

    What such an answer says again and again at its end is left out, too.

    :param cut: whether the model was stopped, and did not end by itself.
    """
    if not cut:
        return text
    text = _before_loop(text)
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    end = max(ends[-1] if ends else 0, text.rfind("\n"))
    kept = text[:end].rstrip() if end >= _KEPT * len(text) else f"{text.rstrip()}…"
    return f"{kept}\n```" if kept.count("```") % 2 else kept


def _before_loop(text: str) -> str:
    """A text up to where it begins to say, to its end and for the most part, what it has said before."""
    if "```" in text:
        return text
    ends = [*(found.end() for found in _PART_END.finditer(text)), len(text)]
    said = [(begin, " ".join(_bare(text[begin:end].lower().split()))) for begin, end in zip([0, *ends], ends, strict=False)]
    said = [(begin, words) for begin, words in said if words]
    known: set[str] = set()
    again = []  # of each sentence: whether it was said before
    for _, words in said:
        again.append(words in known)
        known.add(words)
    for at, (begin, words) in enumerate(said):
        rest = again[at:-1] if at + 1 < len(said) else again[at:]  # the last one is cut off somewhere
        if again[at] and len(words) >= _LONG and sum(rest) >= _MOST * len(rest):
            return text[:begin].rstrip()
    return text


def fault_of(text: str, brief: str = "", *, shortest: int = 1, longest: int = LONGEST, prompt: str = "", tongue: bool = True) -> str | None:
    """Why a text is not fit to be the answer to a brief; None if it is.

    :param brief: what was asked; empty: the checks against it are left out.
    :param prompt: what the model was told beside the brief: an answer does not tell it back.
    :param shortest: characters that it must have.
    :param longest: characters that it may have.
    :param tongue: whether it has to be in the brief's language.
    """
    words = text.lower().split()
    if not _WORD.search(text):
        return "it is empty"
    if len(text) < shortest:
        return f"it has {len(text)} characters and must have {shortest}"
    if len(text) > longest:
        return f"it has {len(text)} characters and may have {longest}"
    if (len(words) >= 24 and len(set(words)) * 8 < len(words)) or _repeats(text):
        return "it repeats a few words over and over"
    if _no_words(words):
        return "much of it is no words"
    if prompt and _tells_back(words, prompt, brief):
        return "it tells the instructions back"
    if brief and _echoes(words, brief.lower().split()):
        return "it only repeats the brief"
    return language.differs(text, brief) if brief and tongue else None


def _echoes(words: list[str], asked: list[str]) -> bool:
    """Whether an answer is the brief again, word for word, or the brief with a few words around it."""
    if words == asked:
        return True
    if len(asked) < _ECHO_WORDS or len(words) >= len(asked) + _ECHO_WORDS:
        return False
    return " ".join(_bare(asked)) in " ".join(_bare(words))


def _repeats(text: str) -> bool:
    """Whether one sentence of some length is said again and again, outside of code."""
    if "```" in text:
        return False
    sentences = re.split(r"(?<=[.!?])\s+|\n+", text)
    if len(sentences) <= _AGAIN:
        return False
    said = Counter(" ".join(_bare(one.lower().split())) for one in sentences)
    return any(count > _AGAIN and len(sentence.split()) >= 4 for sentence, count in said.items())


def _no_words(words: list[str]) -> bool:
    """Whether much of a text is strings such as `xkqzrtv`: of Latin letters, long, and without a vowel."""
    latin = [word for word in _bare(words) if word.isascii() and word.isalpha() and len(word) >= 5]
    odd = [word for word in latin if _VOWELS.isdisjoint(word) or len(set(word)) == 1]
    return len(odd) >= 3 and len(odd) >= _NO_WORDS * len(latin)


def _tells_back(words: list[str], prompt: str, asked: str) -> bool:
    """Whether an answer has a run of words from what the model was told, that the brief does not have."""
    said = f" {' '.join(_bare(words))} "
    found = [run for run in _runs(prompt) if run in said]
    return bool(found) and any(run not in f" {' '.join(_bare(asked.lower().split()))} " for run in found)


@functools.lru_cache(maxsize=64)  # a state's own words are the same for all missions
def _runs(prompt: str) -> tuple[str, ...]:
    """Each run of words of a prompt, with a space before and after it."""
    words = _bare(prompt.lower().split())
    return tuple(f" {' '.join(words[at : at + _RUN])} " for at in range(len(words) - _RUN + 1))


def _bare(words: list[str]) -> list[str]:
    return [word.strip(".,;:!?\"'()") for word in words]
