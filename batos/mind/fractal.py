"""The fractal: a brief that needs several personas is shared out, and becomes a cycle of cycles.

By rule, and cautiously: only a brief of several sentences, of which two or more speak plainly for different personas, is
shared out. A brief of one sentence is one thought.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

CLEAR = 2.5  # score of a sentence that speaks plainly for a persona: one strong trigger, or two weak ones
LEAD = 1.0  # by which it leads over the next persona
LEAST_WORDS = 3
_BETWEEN = re.compile(r"(?<=[.!?;])\s+|(?<!\s)\s*\n\s*")

Scores = Callable[[str], Mapping[str, float]]
Shares = tuple[tuple[str, str], ...]


def shares(brief: str, scores: Scores, limit: int) -> Shares:
    """The personas that a brief needs, each with its part of it, in the order of the brief; empty if one is enough.

    A sentence that speaks for nobody goes with the one before it (at the beginning: with the one after it).

    :param scores: each persona's score for a sentence.
    :param limit: personas at most; a brief that needs more is not shared out.
    """
    parts: dict[str, list[str]] = {}
    waiting: list[str] = []
    current: str | None = None
    for sentence in filter(None, _BETWEEN.split(brief.strip())):
        current = _persona_of(sentence, scores) or current
        if current is None:
            waiting.append(sentence)
        else:
            parts.setdefault(current, []).extend((*waiting, sentence))
            waiting.clear()
    if not 2 <= len(parts) <= limit:
        return ()
    return tuple((persona, " ".join(sentences)) for persona, sentences in parts.items())


def _persona_of(sentence: str, scores: Scores) -> str | None:
    if len(sentence.split()) < LEAST_WORDS:
        return None
    ranked = sorted(scores(sentence).items(), key=lambda pair: pair[1], reverse=True)
    if not ranked or ranked[0][1] < CLEAR or (len(ranked) > 1 and ranked[0][1] - ranked[1][1] < LEAD):
        return None
    return ranked[0][0]
