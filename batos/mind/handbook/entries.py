"""What the handbook holds: of each family that an expert is trained on one method, with the words it is known by."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from batos.concurrency import once
from batos.mind.handbook.families import HOLE, Family, families, fill
from batos.mind.handbook.holes import draw, words_of

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
"""What an argument of a kind is called, by its type; any other is a `text`."""
_LITTLE = frozenset(words_of("a an the of in to is and or that it for with by be as at on from shall answer please now i need"))
LONGEST = 400
"""Characters of a method; a longer one is not shown."""
_LONGEST_WORD = 64
_ONE = threading.Lock()  # a stemmer holds the word that it is at


@dataclass(frozen=True)
class Entry:
    """A method of the handbook.

    :ivar purpose: what it is for, in words.
    :ivar words: the stems by which it is found.
    :ivar parameters: what it is called with: `text`, `number`, `items`, `record`, `flag`.
    :ivar keeps: whether it reads or changes slots.
    :ivar shape: `Family.shape`.
    """

    purpose: str
    source: str
    words: frozenset[str]
    parameters: tuple[str, ...]
    keeps: bool
    shape: str


@once
def entries() -> tuple[Entry, ...]:
    """The methods of all families that are trained on, but for those that do nothing but ask a persona."""
    found = (entry_of(family) for family in families() if family.part == "train" and family.group != "thinking")
    return tuple(entry for entry in found if len(entry.source) <= LONGEST)


def argument_names(kinds: Sequence[str]) -> list[str]:
    """The names of a method's arguments of such kinds, as `plain_values.signature` gives them: `number`, `number2`."""
    plain = [_ARGUMENTS.get(kind, "text") for kind in kinds]
    return [name if (before := plain[:i].count(name)) == 0 else f"{name}{before + 1}" for i, name in enumerate(plain)]


def words_in(text: str) -> frozenset[str]:
    """The stems of a text's words and its numbers; words that are in any text are left out."""
    return frozenset(_stem(word) for word in re.findall(r"[a-z]+|\d+", text.lower()) if word not in _LITTLE)


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    with _ONE:
        return str(_stemmer().stemWord(word[:_LONGEST_WORD]))


@cache
def _stemmer() -> Any:
    import snowballstemmer  # late: it brings all its languages

    return snowballstemmer.stemmer("english")


def entry_of(family: Family) -> Entry:
    """A method of the family, its holes filled."""
    holes, _, _ = draw(family, random.Random(family.name))
    selector = re.sub("_+", "_", fill(family.selectors[0], holes).lower().rstrip("_")) + ("_" if family.kinds else "")
    names = argument_names(family.kinds)
    parameters = tuple(name.rstrip("0123456789") for name in names)
    body = re.sub(r"\bother(\d?)\b", r"number\1", fill(family.body, holes))
    told = " ".join((*family.intents, *family.selectors))
    return Entry(
        fill(family.intents[0], holes),
        f"def {selector}({', '.join(('self', *names))}):\n{body}".strip(),
        words_in(HOLE.sub(" ", told).replace("_", " ")),
        parameters,
        "SLOT" in family.holes,
        family.shape,
    )
