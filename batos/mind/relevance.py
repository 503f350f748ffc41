"""Tell whether an answer has to do with what was asked: by words that both have, and where they have too few, by their embeddings.

The bounds were fitted on the open half of `bench/answers.jsonl` and `bench/open_briefs.jsonl`, with what the embedded model says to them
(148 answers in question): one in four has too few words of its brief, one in twenty is found to be foreign, and each of these
has in truth nothing to do with it, on the half that was held back as well. Of answers to another brief four in five are found. An embedder
to which all texts are more alike than to MiniLM finds fewer, and none that is not foreign.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from batos.mind import language, weaving

Nearness: TypeAlias = Callable[[str, Sequence[str]], Awaitable[float | None]]
"""The cosine of a text to the one of others that is most alike; None where that cannot be told now."""


async def not_told(text: str, others: Sequence[str]) -> None:
    """A `Nearness` of who has no embedder: nothing can be told."""


FOREIGN = "it has nothing to do with the request"
_SHORTEST = 25  # words: of a shorter answer neither words nor embeddings tell
_SAYING = (
    4  # content words that something asked must have to be about something: "Surprise me" is like nothing that it may be answered with
)
_SHARED = 0.1  # cosine of content words from which an answer is about the brief
_ALIKE = 0.15  # cosine of embeddings, likewise


async def is_foreign(answer: str, asked: Sequence[str], nearness: Nearness) -> bool:
    """Whether an answer has nothing to do with any of the texts that it answers to; False where that cannot be told: of a list, say.

    :param asked: the brief, and what was said before it.
    """
    asked = [one for one in asked if len(weaving.content(one)) >= _SAYING]
    if not asked or len(answer.split()) < _SHORTEST or language.language_of(answer) is None:
        return False
    if any(_shared(answer, one) >= _SHARED for one in asked):
        return False
    alike = await nearness(answer, asked)
    return alike is not None and alike < _ALIKE


def _shared(one: str, other: str) -> float:
    words, others = weaving.content(one), weaving.content(other)
    return len(words & others) / (len(words) * len(others)) ** 0.5 if words and others else 0.0
