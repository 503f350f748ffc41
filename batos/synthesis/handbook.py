"""The handbook: one method of each family that an expert is trained on, with the words by which it is found.

Methods nearest to a purpose are ranked by inverse document frequency (Sparck Jones 1972). Each further one is taken for the words that
those before it do not explain (maximal marginal relevance: Carbonell and Goldstein, SIGIR 1998).
"""

from __future__ import annotations

import math
import random
import re
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from batos.concurrency import once
from batos.synthesis.families import HOLE, Family, draw, families, fill, words_of

_NUMBER = (
    "armstrong_or_not big composite day fraction fraction_or_whole height high huge huge_seconds item_of low low_number member_of month "
    "month_in n n100 n2 n3 n30 number number_wide palindrome_number percentage perfect_or_not places positive power_or_not square value_of "
    "weekday weight width year year2 zero_or_not"
)
_ITEMS = (
    "beginning_of dates digit_words distinct distinct_small distinct_words equal_or_not equations filenames flags fractions full_names "
    "items keys_list keys_list_or_others keys_of_slot keys_only lacking mails many_pairs matrix maybe_empty maybe_falling maybe_numbers "
    "maybe_sorted mirror_list mixed names names_twice nested numbers numbers_as_words orders padded_list pair_of pairs positive_numbers "
    "records records_of_numbers repeated repeated_numbers repeats_list short_items short_numbers short_words shuffled_of small_numbers "
    "some_keys_slot sorted_numbers tagged texts three_flags three_positive three_words times times_of_day triple two_numbers with_empty "
    "with_none with_positive words words_alike words_found_in"
)
_RECORD = (
    "dictionary digit_record few_values flag_record fraction_record maybe_empty_record mixed_record one_record record record_changed "
    "record_distinct record_of_lists record_of_records record_or_other record_positive repeating_record text_record text_record2"
)
_ARGUMENTS = {
    kind: name
    for name, kinds in {"number": _NUMBER, "items": _ITEMS, "record": _RECORD, "flag": "flag"}.items()
    for kind in words_of(kinds)
}
"""Type of an argument -> the name of its kind; any other type is a `text`."""
_LITTLE = frozenset(words_of("a an the of in to is and or that it for with by be as at on from shall answer please now i need"))
LONGEST = 400
"""Greatest number of characters of a method that a prompt shows."""
_LONGEST_WORD = 64
_ONE = threading.Lock()  # a stemmer keeps the current word as its state


@dataclass(frozen=True)
class HandbookEntry:
    """A method of the handbook.

    :ivar purpose: its purpose in words.
    :ivar words: stems by which it is found.
    :ivar parameters: kinds of its parameters: `text`, `number`, `items`, `record`, `flag`.
    :ivar keeps: True if it reads or changes slots.
    :ivar shape: `Family.shape`.
    """

    purpose: str
    source: str
    words: frozenset[str]
    parameters: tuple[str, ...]
    keeps: bool
    shape: str


@once
def entries() -> tuple[HandbookEntry, ...]:
    """Return the methods of all families for training. Those that only ask a persona are left out."""
    found = (entry_of(family) for family in families() if family.part == "train" and family.group != "thinking")
    return tuple(entry for entry in found if len(entry.source) <= LONGEST)


def argument_names(kinds: Sequence[str]) -> list[str]:
    """Return the names of arguments of these kinds, as `plain_values.signature` gives them: `number`, `number2`."""
    plain = [_ARGUMENTS.get(kind, "text") for kind in kinds]
    return [name if (before := plain[:i].count(name)) == 0 else f"{name}{before + 1}" for i, name in enumerate(plain)]


def words_in(text: str) -> frozenset[str]:
    """Return the stems of a text's words, and its numbers, without the most common words."""
    return frozenset(_stem(word) for word in re.findall(r"[a-z]+|\d+", text.lower()) if word not in _LITTLE)


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    with _ONE:
        return str(_stemmer().stemWord(word[:_LONGEST_WORD]))


@cache
def _stemmer() -> Any:
    import snowballstemmer  # late import: it loads the stemmers of all languages

    return snowballstemmer.stemmer("english")


def entry_of(family: Family) -> HandbookEntry:
    """Return a method of a family, with its holes filled."""
    holes, _, _ = draw(family, random.Random(family.name))
    selector = re.sub("_+", "_", fill(family.selectors[0], holes).lower().rstrip("_")) + ("_" if family.kinds else "")
    names = argument_names(family.kinds)
    parameters = tuple(name.rstrip("0123456789") for name in names)
    body = re.sub(r"\bother(\d?)\b", r"number\1", fill(family.body, holes))
    told = " ".join((*family.intents, *family.selectors))
    return HandbookEntry(
        fill(family.intents[0], holes),
        f"def {selector}({', '.join(('self', *names))}):\n{body}".strip(),
        words_in(HOLE.sub(" ", told).replace("_", " ")),
        parameters,
        "SLOT" in family.holes,
        family.shape,
    )


NEAR = 3
"""Number of methods that a prompt shows to an expert."""
_TOLD = 0.35  # share of a word's weight that remains after one method has explained the word
_SAME_PARAMETERS, _SAME_KEEPING = 0.3, 0.15


class Handbook:
    """An index of methods by their words."""

    def __init__(self, held: Sequence[HandbookEntry]) -> None:
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
        more: Sequence[HandbookEntry] = (),
        count: int = NEAR,
    ) -> list[HandbookEntry]:
        """Return the methods nearest to a purpose, of different shapes. After each `NEAR` of them, words that those explained count again.

        :param parameters: the parameters that are wanted, as `HandbookEntry.parameters`.
        :param keeps: True if slots are wanted.
        :param without: names whose words tell nothing: those of slots.
        :param but: shapes that are left out.
        :param more: further methods, for this call.
        :param count: greatest number of methods.
        """
        left = dict.fromkeys(_asked(text, without), 1.0)
        able = {-1 - n: (entry, self._length(entry)) for n, entry in enumerate(more)}
        telling = {word: [*self._by_word.get(word, ()), *(n for n, (entry, _) in able.items() if word in entry.words)] for word in left}
        for number in sorted({number for told in telling.values() for number in told if number >= 0}):
            able[number] = (self._held[number], self._lengths[number])
        able = {number: one for number, one in able.items() if one[0].shape not in but}
        asked, found = tuple(parameters), list[HandbookEntry]()
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
        """Return the words of a request with their weights."""
        return {word: self._weights.get(word, self._rarest) for word in _asked(text, without)}

    def told(self, text: str, entry: HandbookEntry, *, without: Collection[str] = ()) -> float:
        """Return the share of a request's weight that a method's words explain, from 0 to 1."""
        weights = self.weights(text, without=without)
        return sum(weight for word, weight in weights.items() if word in entry.words) / (sum(weights.values()) or 1.0)

    def telling(self, text: str, known: Iterable[HandbookEntry], least: float, *, without: Collection[str] = ()) -> list[HandbookEntry]:
        """Return the methods whose words explain at least the share `least` of a request (`told`)."""
        weights = self.weights(text, without=without)
        whole = sum(weights.values()) or 1.0
        return [one for one in known if sum(weight for word, weight in weights.items() if word in one.words) / whole >= least]

    def alike(self, text: str, *, without: Collection[str] = (), more: Sequence[HandbookEntry] = ()) -> list[tuple[float, HandbookEntry]]:
        """Return all methods with their likeness to a purpose, from 0 to 1, the likest first.

        Likeness is the weight of the words in common, against the geometric mean of both.

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

    # Sums have a fixed order: a difference in the last bit would change the prompt, and the mission would pay for the inference again.

    def _length(self, entry: HandbookEntry) -> float:
        return sum(self._weights.get(word, self._rarest) for word in sorted(entry.words)) ** 0.25 or 1.0


def _asked(text: str, without: Collection[str]) -> list[str]:
    return sorted(words_in(text) - words_in(" ".join(without).replace("_", " ")))


@once
def handbook() -> Handbook:
    """Return the handbook of the families for training. It takes half a second the first time: call it in a thread then."""
    return Handbook(entries())
