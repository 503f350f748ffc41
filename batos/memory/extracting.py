"""Extracts: the sentences of a few texts that say most of what all of them say. What a summary is where no model is asked.

First the texts that stand for the others: greedily, each the one that adds most to how near every text has one of the chosen (a medoid
for each theme, so that what comes up once is not drowned by what comes up often; Nemhauser, Wolsey and Fisher 1978 bound what greed
loses). Then of each its most central sentence: by vectors where there are some, else by its words. No image needed; any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from batos.memory.segments import Array
from batos.memory.sentences import sentences
from batos.memory.words import content_words

_LOOKED = 8
"""Sentences of one text that are compared."""
_TELLING = 3
"""Different words of a sentence that tells something, where there are such."""
_LONGEST = 400
"""Characters of a sentence; what is longer is cut."""


class Source(NamedTuple):
    """A text that an extract may take from."""

    text: str
    kind: str = "text"
    speaker: str = ""


class Chosen(NamedTuple):
    """Sentences to choose from, of the texts that stand for the others, in the order of the texts."""

    places: tuple[int, ...]
    """Which of the texts."""
    sentences: tuple[tuple[str, ...], ...]
    """Of each its first few."""


def chosen(sources: Sequence[Source], vectors: Array | None, most: int) -> Chosen:
    """The texts that stand for the others, `most` at most, and their sentences.

    :param vectors: float[n, d], unit rows, of the texts; None: by their words.
    """
    rows = _by_words([source.text for source in sources]) if vectors is None else vectors.astype(np.float32)
    places, parted = [], []
    for place in sorted(_medoids(rows, most)):
        if found := _sentences(sources[place]):
            places.append(place)
            parted.append(found)
    return Chosen(tuple(places), tuple(parted))


def extract(sources: Sequence[Source], found: Chosen, vectors: Array | None) -> str:
    """One sentence of each of these texts, each on a line, with who says it.

    :param vectors: of all sentences, in their order; None: by their words.
    """
    lines: dict[str, None] = {}
    begin = 0
    for place, said in zip(found.places, found.sentences, strict=True):
        rows = _by_words(said) if vectors is None else vectors[begin : begin + len(said)]
        begin += len(said)
        best = said[int(np.argmax(rows @ rows.sum(0)))]
        speaker = sources[place].speaker
        lines[best if not speaker or best.startswith(f"{speaker}:") else f"{speaker}: {best}"] = None
    return "\n".join(lines)


def _medoids(rows: Array, most: int) -> list[int]:
    """Places of the texts that stand for the others."""
    near = rows @ rows.T
    covered = np.zeros(len(rows), np.float32)
    picked: list[int] = []
    while len(picked) < min(most, len(rows)):
        gains = np.maximum(near - covered, 0).sum(1)
        gains[picked] = -1
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        picked.append(best)
        covered = np.maximum(covered, near[best])
    return picked or [0]


def _sentences(source: Source) -> tuple[str, ...]:
    found = [" ".join(source.text[begin:end].split()) for begin, end in sentences(source.text, source.kind)]
    told = [one for one in found if len(set(content_words(one))) >= _TELLING and not (source.kind == "markdown" and one.startswith("#"))]
    told = told or [one for one in found if content_words(one)] or [" ".join(source.text.split())]
    return tuple(one[:_LONGEST] for one in told[:_LOOKED] if one)


def _by_words(texts: Sequence[str]) -> Array:
    """float32[n, words]: unit rows of how often each of their words occurs, rarer words counting more."""
    counts = [Counter(content_words(text)) for text in texts]
    spread = Counter(word for count in counts for word in count)
    place = {word: i for i, word in enumerate(spread)}
    rows = np.zeros((len(texts), max(1, len(place))), np.float32)
    for row, count in zip(rows, counts, strict=True):
        for word, times in count.items():
            row[place[word]] = times * np.log(1 + len(texts) / spread[word])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Array = rows / np.where(lengths > 0, lengths, 1)
    return unit
