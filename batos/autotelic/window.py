"""The window: the last thoughts, and how alike their answers are. A thought is measured against those before it, then joins them."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple

from batos.autotelic import entropy
from batos.autotelic.entropy import EMBEDDING, WORDS, Kinds, Parts, Thought


class _Member(NamedTuple):
    number: int
    thought: Thought
    similar: dict[str, dict[int, float]]
    """By source and number of an earlier member: how alike the answers are."""


class Window:
    """The last `length` thoughts, oldest first."""

    def __init__(self, length: int) -> None:
        self._members: collections.deque[_Member] = collections.deque()
        self._length, self._taken = length, 0

    @property
    def full(self) -> bool:
        """Whether values are comparable: while it fills, everything is new and even."""
        return len(self._members) == self._length

    def take(self, thought: Thought, kinds: Kinds) -> tuple[Parts, str]:
        """Measure a thought and take it in: its four parts, and what texts were compared by.

        By meaning where the thought has one and at least half of the others have one to compare it with; else by words.
        """
        comparable = [member for member in self._members if _comparable(thought, member.thought)]
        by_meaning = thought.brief.meaning is not None and _comparable(thought, thought) and 2 * len(comparable) >= len(self._members)
        source, others = (EMBEDDING, comparable) if by_meaning else (WORDS, list(self._members))
        # both ways, whichever is needed now: later ones may be measured the other way
        similar = {WORDS: _row(thought, list(self._members), WORDS), EMBEDDING: _row(thought, comparable, EMBEDDING)}
        new = _Member(self._taken, thought, similar)
        self._taken += 1
        window = [*others, new]
        parts = Parts(
            relevance=entropy.relevance(thought, source),
            diversity=entropy.diversity([member.thought for member in window], _triangle(window, source), kinds),
            novelty=entropy.novelty(new.similar[source].values()),
            structure=entropy.structure(thought.described),
        )
        self._members.append(new)
        while len(self._members) > self._length:
            gone = self._members.popleft()
            for member in self._members:
                for row in member.similar.values():
                    row.pop(gone.number, None)
        return parts, source


def _comparable(one: Thought, other: Thought) -> bool:
    mine, theirs = one.answer.meaning, other.answer.meaning
    return mine is not None and theirs is not None and len(mine) == len(theirs)


def _row(thought: Thought, others: Sequence[_Member], source: str) -> dict[int, float]:
    return {member.number: entropy.alike(thought.answer, member.thought.answer, source) for member in others}


def _triangle(members: Sequence[_Member], source: str) -> list[list[float]]:
    """Of each member, how alike it is to those of `members` before it."""
    return [[member.similar[source][other.number] for other in members[:n]] for n, member in enumerate(members)]
