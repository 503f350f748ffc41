"""The quality gate: what an answer must be, whoever wrote it. Deterministic, without inference.

Each check answers why a text is not fit, in words that can be put to the model for its revision and to the user.
"""

from __future__ import annotations

import re

from batos.mind import language

LONGEST = 20_000  # characters of an answer: far above what `num_predict` lets through by default
_WORD = re.compile(r"\w")
_ECHO_WORDS = 8  # an answer this much longer than the brief says something of its own


def fault_of(text: str, brief: str = "", *, shortest: int = 1, longest: int = LONGEST) -> str | None:
    """Why a text is not fit to be the answer to a brief; None if it is.

    :param brief: what was asked; empty: the checks against it are left out.
    :param shortest: characters that it must have.
    :param longest: characters that it may have.
    """
    words = text.lower().split()
    if not _WORD.search(text):
        return "it is empty"
    if len(text) < shortest:
        return f"it has {len(text)} characters and must have {shortest}"
    if len(text) > longest:
        return f"it has {len(text)} characters and may have {longest}"
    if len(words) >= 24 and len(set(words)) * 8 < len(words):
        return "it repeats a few words over and over"
    if brief and _echoes(words, brief.lower().split()):
        return "it only repeats the brief"
    return language.differs(text, brief) if brief else None


def _echoes(words: list[str], asked: list[str]) -> bool:
    """Whether an answer is the brief again, word for word, or the brief with a few words around it."""
    if words == asked:
        return True
    if len(asked) < _ECHO_WORDS or len(words) >= len(asked) + _ECHO_WORDS:
        return False
    return " ".join(_bare(asked)) in " ".join(_bare(words))


def _bare(words: list[str]) -> list[str]:
    return [word.strip(".,;:!?\"'()") for word in words]
