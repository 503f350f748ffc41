"""Which methods of the handbook are nearest to a purpose: by their words, rare ones first, each method adding what those before lack.

Words are weighed by inverse document frequency (Sparck Jones 1972); what is taken after the first is what tells most of the words that
are not told yet (maximal marginal relevance: Carbonell and Goldstein, SIGIR 1998).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from batos.concurrency import once
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
        self._rarest = math.log(max(2, len(held))) ** 2
        self._lengths = [self._length(entry) for entry in held]
        self._by_word: dict[str, list[int]] = defaultdict(list)
        for number, entry in enumerate(held):
            for word in entry.words:
                self._by_word[word].append(number)

    def near(
        self,
        text: str,
        parameters: Sequence[str],
        *,
        keeps: bool,
        without: Collection[str] = (),
        but: Collection[str] = (),
        more: Sequence[Entry] = (),
        count: int = NEAR,
    ) -> list[Entry]:
        """The methods nearest to a purpose, of different shapes. After each `NEAR` of them, words that those told count again.

        :param parameters: what it is called with, as `Entry.parameters`.
        :param keeps: whether it has to do with slots.
        :param without: names whose words say nothing: those of slots.
        :param but: shapes that are left out.
        :param more: further methods, for this once.
        :param count: how many at most.
        """
        left = dict.fromkeys(_asked(text, without), 1.0)
        able = {-1 - n: (entry, self._length(entry)) for n, entry in enumerate(more)}
        telling = {word: [*self._by_word.get(word, ()), *(n for n, (entry, _) in able.items() if word in entry.words)] for word in left}
        for number in sorted({number for told in telling.values() for number in told if number >= 0}):
            able[number] = (self._held[number], self._lengths[number])
        able = {number: one for number, one in able.items() if one[0].shape not in but}
        asked, found = tuple(parameters), list[Entry]()
        while len(found) < count:
            scores = dict.fromkeys(able, 0.0)
            for word, share in left.items():
                weight = share * self._weights.get(word, self._rarest)
                for number in telling[word]:
                    if number in scores:
                        scores[number] += weight
            best, most = None, 0.0
            for number, (entry, length) in able.items():
                fit = 1.0 + _SAME_PARAMETERS * (entry.parameters == asked) + _SAME_KEEPING * (entry.keeps == keeps)
                if (score := scores[number] / length * fit) > most:
                    best, most = entry, score
            if best is None:
                break
            found.append(best)
            able = {number: one for number, one in able.items() if one[0].shape != best.shape}
            for word in best.words & left.keys():
                left[word] *= _TOLD
            if len(found) % NEAR == 0:
                left = dict.fromkeys(left, 1.0)
        return found

    def weights(self, text: str, *, without: Collection[str] = ()) -> dict[str, float]:
        """The words of what is asked, and how much each tells."""
        return {word: self._weights.get(word, self._rarest) for word in _asked(text, without)}

    def told(self, text: str, entry: Entry, *, without: Collection[str] = ()) -> float:
        """How much of what is asked a method's words tell, from 0 to 1."""
        weights = self.weights(text, without=without)
        return sum(weight for word, weight in weights.items() if word in entry.words) / (sum(weights.values()) or 1.0)

    def telling(self, text: str, known: Iterable[Entry], least: float, *, without: Collection[str] = ()) -> list[Entry]:
        """Those methods whose words tell at least such a share of what is asked (`told`)."""
        weights = self.weights(text, without=without)
        whole = sum(weights.values()) or 1.0
        return [one for one in known if sum(weight for word, weight in weights.items() if word in one.words) / whole >= least]

    def alike(self, text: str, *, without: Collection[str] = (), more: Sequence[Entry] = ()) -> list[tuple[float, Entry]]:
        """All methods, the likest first, with how like their words are to those of a purpose, from 0 to 1: the weight of those that they
        have in common, against the geometric mean of both.

        :param more: further methods, which come before others that are as like.
        """
        asked = self.weights(text, without=without)
        common = [0.0] * len(self._held)
        for word, weight in asked.items():
            for number in self._by_word.get(word, ()):
                common[number] += weight
        own = [(sum(weight for word, weight in asked.items() if word in one.words), self._length(one), one) for one in more]
        told = sum(asked.values()) or 1.0
        held = zip(common, self._lengths, self._held, strict=True)
        found = [(shared / math.sqrt(told * length**4), one) for shared, length, one in (*own, *held)]
        return sorted(found, key=lambda one: -one[0])

    # Sums go in an order: a request that differed by the last bit of one would be another request, and be paid for again.

    def _length(self, entry: Entry) -> float:
        return sum(self._weights.get(word, self._rarest) for word in sorted(entry.words)) ** 0.25 or 1.0


def _asked(text: str, without: Collection[str]) -> list[str]:
    return sorted(words_in(text) - words_in(" ".join(without).replace("_", " ")))


@once
def handbook() -> Handbook:
    """The handbook of the families that experts are trained on. Half a second the first time: call it in a thread then."""
    return Handbook(entries())
