"""Which methods of the handbook are nearest to a purpose: by their words, rare ones first, each method adding what those before lack.

Words are weighed by inverse document frequency (Sparck Jones 1972); what is taken after the first is what tells most of the words that
are not told yet (maximal marginal relevance: Carbonell and Goldstein, SIGIR 1998).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache

from batos.mind.handbook.entries import Entry, entries, words_in

NEAR = 3
"""Methods that an expert is shown."""
_TOLD = 0.35  # what is left of a word's weight once a method tells it
_SAME_PARAMETERS, _SAME_KEEPING = 0.3, 0.15


class Handbook:
    """An index of methods by their words."""

    def __init__(self, held: Sequence[Entry]) -> None:
        self._held = held
        counts: dict[str, int] = defaultdict(int)
        for entry in held:
            for word in entry.words:
                counts[word] += 1
        self._weights = {word: math.log(len(held) / count) ** 2 for word, count in counts.items()}
        self._by_word: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, entry in enumerate(held):
            length = sum(self._weights[word] for word in entry.words) ** 0.25 or 1.0
            for word in entry.words:
                self._by_word[word].append((number, self._weights[word] / length))

    def near(
        self, text: str, parameters: Sequence[str], *, keeps: bool, without: Collection[str] = (), but: Collection[str] = ()
    ) -> list[Entry]:
        """The methods nearest to a purpose, `NEAR` at most, of different shapes.

        :param parameters: what it is called with, as `Entry.parameters`.
        :param keeps: whether it has to do with slots.
        :param without: names whose words say nothing: those of slots.
        :param but: shapes that are left out.
        """
        left = dict.fromkeys(sorted(words_in(text) - words_in(" ".join(without).replace("_", " "))), 1.0)
        found: list[Entry] = []
        while len(found) < NEAR and (best := self._best(left, tuple(parameters), keeps, {*but, *(one.shape for one in found)})) is not None:
            found.append(best)
            for word in best.words & left.keys():
                left[word] *= _TOLD
        return found

    def _best(self, words: dict[str, float], parameters: tuple[str, ...], keeps: bool, but: Collection[str]) -> Entry | None:
        scores: dict[int, float] = defaultdict(float)
        for word, share in words.items():
            for number, weight in self._by_word.get(word, ()):
                scores[number] += share * weight
        best, most = None, 0.0
        for number, score in scores.items():
            entry = self._held[number]
            fit = 1.0 + _SAME_PARAMETERS * (entry.parameters == parameters) + _SAME_KEEPING * (entry.keeps == keeps)
            if score * fit > most and entry.shape not in but:
                best, most = entry, score * fit
        return best


@cache
def handbook() -> Handbook:
    """The handbook of the families that experts are trained on. Half a second the first time: call it in a thread then."""
    return Handbook(entries())
