"""The Composite Entropy Metric: four numbers from 0 to 1 and their weighted sum. Pure functions of plain values.

Formulas, their sources, and their blind spots: docs/entropy.md. No numpy: a mission is compared with a few dozen others, which takes a
millisecond or two. The window holds the last thoughts, with the similarity of their answers. A thought is measured against the window,
then joins it.

Entropic decay is a lasting fall of the metric, found by Page's cumulative sum (1954). Each value is compared with the baseline. Its
deficit, in standard deviations and beyond a slack, adds up; the absence of one subtracts. One value counts `CLIP` at most, and the
alarm needs more than four of those: it takes a change that lasts.
"""

from __future__ import annotations

import collections
import math
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple, TypeAlias

Words = Mapping[str, float]
"""A text as a vector of length 1 over its words."""
Meaning: TypeAlias = "array[float]"
"""Embedding of a text, of length 1."""

EMBEDDING, WORDS = "embedding", "words"
PARTS = ("relevance", "diversity", "novelty", "structure")
NEAREST = 3  # number of the most similar past answers whose mean distance is the novelty
HALF_BYTES = 150  # bytes of a description: a thought of this length scores one half
_STEM = 5  # letters of a word that count: "walking" and "walked" are the same word
_WORD = re.compile(r"\w+")
_EMPTY = len(zlib.compress(b"", 9))


class Parts(NamedTuple):
    """Hrel, Hcog, Hsol, Hstruc: each from 0 to 1."""

    relevance: float
    diversity: float
    novelty: float
    structure: float


class Text(NamedTuple):
    """A text to be compared: by its words always, by its meaning where there is an embedder."""

    words: Words
    meaning: Meaning | None = None


class Thought(NamedTuple):
    """Data of a mission that the metric uses."""

    personas: tuple[str, ...]
    """Personas whose cycles took part."""
    facets: tuple[str, ...]
    """Facets that contributed to the answer, each with its persona."""
    brief: Text
    answer: Text
    described: int
    """Bytes of the description of the thought's structure (`description_length`)."""


class Kinds(NamedTuple):
    """Numbers of personas and facets to choose from."""

    personas: int
    facets: int


# --- texts


def words_of(text: str) -> Words:
    """Return the words of a text with the square roots of their counts, as a vector of length 1; short ones are left out."""
    counts = Counter(word[:_STEM] for word in _WORD.findall(text.lower()) if len(word) > 3)
    length = math.sqrt(sum(counts.values()))
    return {word: math.sqrt(count) / length for word, count in counts.items()}


def meaning_of(vector: Sequence[float]) -> Meaning | None:
    """Return an embedding as a vector of length 1; None for one without direction."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    return array("d", (value / length for value in vector)) if math.isfinite(length) and length > 0 else None


def alike(one: Text, other: Text, source: str) -> float:
    """Return the cosine of two texts, not below 0. By `EMBEDDING`, both must have a meaning of the same length."""
    if source == WORDS:
        few, many = sorted((one.words, other.words), key=len)
        return _unit(sum(weight * many.get(word, 0.0) for word, weight in few.items()))
    assert one.meaning is not None
    assert other.meaning is not None
    return _unit(sum(map(mul, one.meaning, other.meaning)))


# --- the four parts


def relevance(thought: Thought, source: str) -> float:
    """Return Hrel: the similarity of the answer to the brief."""
    return alike(thought.brief, thought.answer, source)


def diversity(window: Sequence[Thought], similarities: Sequence[Sequence[float]], kinds: Kinds) -> float:
    """Return Hcog: how evenly personas and facets take part in a window of thoughts, and how different the answers are; the mean of three.

    :param similarities: similarities of each thought's answer to the earlier ones in the window.
    """
    personas = Counter(name for thought in window for name in thought.personas)
    facets = Counter(name for thought in window for name in thought.facets)
    return (evenness(personas, kinds.personas) + evenness(facets, kinds.facets) + spread(similarities)) / 3


def novelty(similarities: Iterable[float]) -> float:
    """Return Hsol: the mean distance of an answer to the nearest past ones; 1 if there are none."""
    nearest = sorted(similarities, reverse=True)[:NEAREST]
    return 1.0 - sum(nearest) / len(nearest) if nearest else 1.0


def structure(described: int) -> float:
    """Return Hstruc: the length of the structure's description, relative to `HALF_BYTES`."""
    return described / (described + HALF_BYTES)


def composite(parts: Parts, weights: Parts) -> float:
    """Return the CEM: the weighted sum of the parts. Weights that sum to one give a value from 0 to 1."""
    return _unit(sum(map(mul, parts, weights)))


# --- what they are made of


def evenness(counts: Mapping[str, int], kinds: int) -> float:
    """Return the Shannon entropy of choices, as a share of its maximum for that many kinds and choices; 1 if there is no choice."""
    total = sum(counts.values())
    most = min(max(kinds, len(counts)), total)
    if most < 2:
        return 1.0
    return _unit(-sum(count / total * math.log(count / total) for count in counts.values()) / math.log(most))


def spread(similarities: Sequence[Sequence[float]]) -> float:
    """Return the entropy of order 2 of a set by its similarity matrix, as a share of the greatest possible value. This entropy is the
    logarithm of the set's Vendi score.

    :param similarities: similarities of each member to the earlier ones: a triangle.
    """
    size = len(similarities)
    if size < 2:
        return 1.0
    squares = size + 2 * sum(value * value for row in similarities for value in row)
    return _unit(-math.log(squares / (size * size)) / math.log(size))


def description_length(lines: Iterable[str]) -> int:
    """Return the bytes that a description takes when it is compressed: what repeats costs next to nothing."""
    return max(0, len(zlib.compress("\n".join(lines).encode("utf-8", "replace"), 9)) - _EMPTY)


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))


class _Member(NamedTuple):
    number: int
    thought: Thought
    similar: dict[str, dict[int, float]]
    """Source of the comparison -> number of an earlier member -> similarity of the answers."""


class Window:
    """The last `length` thoughts, oldest first."""

    def __init__(self, length: int) -> None:
        self._members: collections.deque[_Member] = collections.deque()
        self._length, self._taken = length, 0

    @property
    def full(self) -> bool:
        """Return True if values are comparable: while the window fills, everything is new and even."""
        return len(self._members) == self._length

    def take(self, thought: Thought, kinds: Kinds) -> tuple[Parts, str]:
        """Measure a thought and take it in: its four parts, and what texts were compared by.

        By meaning where the thought has one and at least half of the others have one to compare it with; else by words.
        """
        comparable = [member for member in self._members if _comparable(thought, member.thought)]
        by_meaning = thought.brief.meaning is not None and _comparable(thought, thought) and 2 * len(comparable) >= len(self._members)
        source, others = (EMBEDDING, comparable) if by_meaning else (WORDS, list(self._members))
        # by both sources: a later thought may need the other one
        similar = {WORDS: _row(thought, list(self._members), WORDS), EMBEDDING: _row(thought, comparable, EMBEDDING)}
        new = _Member(self._taken, thought, similar)
        self._taken += 1
        window = [*others, new]
        parts = Parts(
            relevance=relevance(thought, source),
            diversity=diversity([member.thought for member in window], _triangle(window, source), kinds),
            novelty=novelty(new.similar[source].values()),
            structure=structure(thought.described),
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
    return {member.number: alike(thought.answer, member.thought.answer, source) for member in others}


def _triangle(members: Sequence[_Member], source: str) -> list[list[float]]:
    """Return for each member its similarities to the earlier ones of `members`."""
    return [[member.similar[source][other.number] for other in members[:n]] for n, member in enumerate(members)]


CUSUM_SLACK = 0.6  # standard deviations that do not count: about half of the smallest fall that has to be detected soon
CUSUM_LIMIT = 8.0  # limit of the sum: thousands of values between two false alarms, even with a slightly wrong baseline
CUSUM_CLIP = 2.5  # standard deviations: greatest contribution of one value
CUSUM_FLOOR = 0.02  # least standard deviation: smaller ones are rounding errors
CUSUM_RECOVERED = 2.0  # sum below which a fall is over
CUSUM_CEILING = 1.25 * CUSUM_LIMIT  # greatest sum, so that recovery ends in time
CUSUM_ACCEPTED = 8  # lengths of the baseline after which a fallen level becomes the new baseline


class CusumState(NamedTuple):
    """All that the watch remembers."""

    source: str = ""
    learned: int = 0
    """Number of values from which the baseline was learned."""
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean (Welford)."""
    sum: float = 0.0
    fallen: bool = False
    since: int = 0
    """Number of values since the fall."""

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the baseline."""
        return max(CUSUM_FLOOR, math.sqrt(self.squares / (self.learned - 1))) if self.learned > 1 else CUSUM_FLOOR


def cusum_after(state: CusumState, value: float, source: str, baseline: int) -> CusumState:
    """Return the state after one more value. A value from another source starts a new baseline.

    :param baseline: number of values that make a baseline.
    """
    if state.source != source:
        state = CusumState(source=source)
    if state.learned < baseline:
        count = state.learned + 1
        mean = state.mean + (value - state.mean) / count
        return state._replace(learned=count, mean=mean, squares=state.squares + (value - state.mean) * (value - mean))
    lack = max(-CUSUM_CLIP, min(CUSUM_CLIP, (state.mean - value) / state.deviation))
    total = min(CUSUM_CEILING, max(0.0, state.sum + lack - CUSUM_SLACK))
    fallen = total > CUSUM_RECOVERED if state.fallen else total >= CUSUM_LIMIT
    since = state.since + 1 if fallen else 0
    return CusumState(source=source) if since >= CUSUM_ACCEPTED * baseline else state._replace(sum=total, fallen=fallen, since=since)


def cusum_state(plain: dict[str, Any]) -> CusumState:
    """Return the state as the image keeps it; one that is not there, or of other fields, begins anew."""
    return CusumState(**plain) if plain.keys() == set(CusumState._fields) else CusumState()
