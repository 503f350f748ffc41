"""The Composite Entropy Metric: four numbers from 0 to 1 and their weighted sum. Pure functions of plain values.

Formulas, where they are from, and what they cannot see: docs/entropy.md. No numpy: a mission is compared with a few dozen others,
which takes a millisecond or two.
"""

from __future__ import annotations

import math
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import NamedTuple, TypeAlias

Words = Mapping[str, float]
"""A text as a vector of length 1 over its words."""
Meaning: TypeAlias = "array[float]"
"""A text's embedding, of length 1."""

EMBEDDING, WORDS = "embedding", "words"
PARTS = ("relevance", "diversity", "novelty", "structure")
NEAREST = 3  # past answers that novelty is the distance to
HALF_BYTES = 150  # of description: a thought that takes as much scores one half
_STEM = 5  # letters: "walking" and "walked" are one word
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
    """What of a mission the metric looks at."""

    personas: tuple[str, ...]
    """Those whose cycles took part."""
    facets: tuple[str, ...]
    """Those that had something to say, each with its persona."""
    brief: Text
    answer: Text
    described: int
    """Bytes that its structure takes to describe (`description_length`)."""


class Kinds(NamedTuple):
    """How many personas and facets there are to choose from."""

    personas: int
    facets: int


# --- texts


def words_of(text: str) -> Words:
    """The words of a text with the square roots of their counts, as a vector of length 1; short ones are left out."""
    counts = Counter(word[:_STEM] for word in _WORD.findall(text.lower()) if len(word) > 3)
    length = math.sqrt(sum(counts.values()))
    return {word: math.sqrt(count) / length for word, count in counts.items()}


def meaning_of(vector: Sequence[float]) -> Meaning | None:
    """An embedding as a vector of length 1; None for one without direction."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    return array("d", (value / length for value in vector)) if math.isfinite(length) and length > 0 else None


def alike(one: Text, other: Text, source: str) -> float:
    """The cosine of two texts, not below 0. By `EMBEDDING`, both must have a meaning of the same length."""
    if source == WORDS:
        few, many = sorted((one.words, other.words), key=len)
        return _unit(sum(weight * many.get(word, 0.0) for word, weight in few.items()))
    assert one.meaning is not None
    assert other.meaning is not None
    return _unit(sum(map(mul, one.meaning, other.meaning)))


# --- the four parts


def relevance(thought: Thought, source: str) -> float:
    """Hrel: how near the answer is to the brief."""
    return alike(thought.brief, thought.answer, source)


def diversity(window: Sequence[Thought], similarities: Sequence[Sequence[float]], kinds: Kinds) -> float:
    """Hcog: how evenly personas and facets took part in a window of thoughts, and how different the answers are; the mean of three.

    :param similarities: of each thought's answer with those before it in the window.
    """
    personas = Counter(name for thought in window for name in thought.personas)
    facets = Counter(name for thought in window for name in thought.facets)
    return (evenness(personas, kinds.personas) + evenness(facets, kinds.facets) + spread(similarities)) / 3


def novelty(similarities: Iterable[float]) -> float:
    """Hsol: the mean distance of an answer to the nearest of past ones; 1 where there are none."""
    nearest = sorted(similarities, reverse=True)[:NEAREST]
    return 1.0 - sum(nearest) / len(nearest) if nearest else 1.0


def structure(described: int) -> float:
    """Hstruc: how much it takes to describe the structure, against `HALF_BYTES`."""
    return described / (described + HALF_BYTES)


def composite(parts: Parts, weights: Parts) -> float:
    """CEM: the weighted sum; with weights that sum to one it is from 0 to 1."""
    return _unit(sum(map(mul, parts, weights)))


# --- what they are made of


def evenness(counts: Mapping[str, int], kinds: int) -> float:
    """Shannon entropy of choices, as a share of what it could be with so many kinds and choices; 1 where there is no choice."""
    total = sum(counts.values())
    most = min(max(kinds, len(counts)), total)
    if most < 2:
        return 1.0
    return _unit(-sum(count / total * math.log(count / total) for count in counts.values()) / math.log(most))


def spread(similarities: Sequence[Sequence[float]]) -> float:
    """Entropy of order 2 of a set by its similarity matrix (the logarithm of its Vendi score), as a share of what it could be.

    :param similarities: of each member with those before it: a triangle.
    """
    size = len(similarities)
    if size < 2:
        return 1.0
    squares = size + 2 * sum(value * value for row in similarities for value in row)
    return _unit(-math.log(squares / (size * size)) / math.log(size))


def description_length(lines: Iterable[str]) -> int:
    """Bytes that a description takes when it is compressed: what repeats costs next to nothing."""
    return max(0, len(zlib.compress("\n".join(lines).encode("utf-8", "replace"), 9)) - _EMPTY)


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))
