"""Kinds of arguments and slots: what values a task is tried with.

A kind that ends in `_of` (and some others) looks at the values before it: a word of the text, an item of the list, so that a
membership is tried both ways.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from typing import Any

from batos.mind.handbook.holes import N_FIELDS, T_FIELDS, words_of

Sampler = Callable[[random.Random, Sequence[Any]], Any]

WORDS = words_of(
    "apple bread cloud door eagle field grape house island jacket kettle lemon mountain night ocean paper quiet "
    "river stone table uncle valley window yellow zebra anna level noon radar cat dog sun tea oak ant bee cup ice "
    "key map pen red sky toe"
)
NAMES = words_of("Ada Alan Grace Edsger Barbara Donald Linus Margaret Ken Frances Tony Radia")
FAMILY_NAMES = words_of("Lovelace Turing Hopper Dijkstra Liskov Knuth Torvalds Hamilton Thompson Allen Hoare Perlman")
KEYS = words_of("ada bob cleo dan eve finn gus hal ida joe")
T_VALUES = ("red", "blue", "green")
KINDS: dict[str, Sampler] = {}


def kind(*names: str) -> Callable[[Sampler], Sampler]:
    """Register a sampler under names."""

    def register(sampler: Sampler) -> Sampler:
        KINDS.update(dict.fromkeys(names, sampler))
        return sampler

    return register


def sample(name: str, rng: random.Random, before: Sequence[Any]) -> Any:
    """A value of a kind.

    :param before: the values drawn before it.
    """
    return KINDS[name](rng, before)


def _plain(name: str, draw: Callable[[random.Random], Any]) -> None:
    KINDS[name] = lambda rng, before: draw(rng)


def _words(rng: random.Random, low: int = 3, high: int = 6) -> list[str]:
    return rng.sample(WORDS, rng.randint(low, high))


def _numbers(rng: random.Random, low: int = 3, high: int = 6, least: int = -9, most: int = 30) -> list[int]:
    return [rng.randint(least, most) for _ in range(rng.randint(low, high))]


def _some(rng: random.Random, values: Sequence[Any], low: int = 4, high: int = 7) -> list[Any]:
    few = rng.sample(list(values), 3)
    return [rng.choice(few) for _ in range(rng.randint(low, high))]


def _date(rng: random.Random) -> str:
    return f"{rng.randint(1990, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _time(rng: random.Random) -> str:
    return f"{rng.randint(0, 22):02d}:{rng.randint(0, 59):02d}"


def _name(rng: random.Random) -> str:
    return f"{rng.choice(NAMES)} {rng.choice(FAMILY_NAMES)}"


def _record(rng: random.Random, least: int = -5, most: int = 30) -> dict[str, int]:
    return {key: rng.randint(least, most) for key in rng.sample(KEYS, rng.randint(3, 5))}


def _records(rng: random.Random, low: int = 3, high: int = 5) -> list[dict[str, Any]]:
    names = rng.sample(KEYS, rng.randint(low, high))
    scores = {field: rng.sample(range(1, 60), len(names)) for field in N_FIELDS}
    return [
        {"name": name, **{f: scores[f][i] for f in N_FIELDS}, **{f: rng.choice(T_VALUES) for f in T_FIELDS}} for i, name in enumerate(names)
    ]


def _first(before: Sequence[Any], kind_of: type) -> Any:
    return next(value for value in before if isinstance(value, kind_of))


def _half(rng: random.Random, one: Any, other: Any) -> Any:
    return one if rng.random() < 0.5 else other


# --- texts
for _key, _draw in {
    "text": lambda r: " ".join(_words(r)),
    "longtext": lambda r: " ".join(rng_words for rng_words in (r.choice(WORDS) for _ in range(r.choice((10, 20, 50))))),
    "name_text": lambda r: " ".join(r.choice((w, w.capitalize())) for w in _words(r)),
    "repeats": lambda r: " ".join(_some(r, WORDS)),
    "lines": lambda r: "\n".join(" ".join(_words(r, 1, 2)) for _ in range(r.randint(2, 4))),
    "gaps": lambda r: "\n".join(r.choice((w, w, "")) for w in _words(r)),
    "sentences": lambda r: " ".join(f"{' '.join(_words(r, 1, 2)).capitalize()}." for _ in range(r.randint(1, 4))),
    "padded": lambda r: "  " + "   ".join(_words(r, 2, 3)) + r.choice((" ", "")),
    "word": lambda r: r.choice(WORDS),
    "word2": lambda r: r.choice(WORDS),
    "mark": lambda r: r.choice(("*", "-", "+", "--", "; ", "/", "~")),
    "char": lambda r: r.choice(string.ascii_lowercase),
    "code": lambda r: (
        "".join(r.choice(string.ascii_lowercase[:6] + "0123456789" + " ") for _ in range(r.randint(5, 9))) + str(r.randint(1, 99))
    ),
    "code2": lambda r: str(r.randint(1000, 9999999)),
    "code_or_number": lambda r: r.choice((str(r.randint(1, 9999)), r.choice(WORDS), f"a{r.randint(1, 99)}")),
    "digits": lambda r: str(r.randint(0, 5000)),
    "bits": lambda r: bin(r.randint(1, 60))[2:],
    "name": _name,
    "names": lambda r: [r.choice((n, n.lower())) for n in r.sample(NAMES, r.randint(3, 5))],
    "palindrome": lambda r: r.choice(("level", "noon", "Never odd or even", "radar", r.choice(WORDS), " ".join(_words(r, 2, 2)))),
    "mail": lambda r: f"{r.choice(KEYS)}@{r.choice(WORDS)}.org",
    "mail_or_not": lambda r: r.choice(
        (f"{r.choice(KEYS)}@{r.choice(WORDS)}.org", r.choice(WORDS), f"{r.choice(KEYS)}@{r.choice(WORDS)}", "a@b@c.de")
    ),
    "mailtext": lambda r: " ".join(r.choice((w, f"{w}@{r.choice(KEYS)}.org")) for w in _words(r)),
    "tagtext": lambda r: " ".join(r.choice((w, "#" + w, "@" + w)) for w in _words(r)),
    "filename": lambda r: f"{r.choice(WORDS)}{r.choice(('', '.' + r.choice(WORDS)))}.{r.choice(('txt', 'pdf', 'py', 'csv'))}",
    "maybe_question": lambda r: " ".join(_words(r)) + r.choice(("?", ".", "")),
    "commas": lambda r: r.choice((", ", ",", " , ")).join(_words(r)),
    "settings_text": lambda r: ",".join(f"{k}={r.randint(1, 9)}" for k in r.sample(KEYS, 3)),
    "bracketed": lambda r: f"{r.choice(WORDS)} ({' '.join(_words(r, 1, 2))}) {r.choice(WORDS)}",
    "labelled": lambda r: f"{r.choice(WORDS)}: {' '.join(_words(r, 1, 3))}",
    "template": lambda r: "{name} likes {thing}",
    "key": lambda r: r.choice(KEYS),
    "tvalue": lambda r: r.choice(T_VALUES),
    "date": _date,
    "dates": lambda r: [_date(r) for _ in range(r.randint(3, 5))],
    "european": lambda r: f"{r.randint(10, 28)}.{r.randint(10, 12)}.{r.randint(1990, 2030)}",
    "time": _time,
    "stamp": lambda r: f"{_date(r)}T{_time(r)}:00",
    # --- numbers
    "number": lambda r: r.randint(-5, 40),
    "positive": lambda r: r.choice((1, 2, 4, 5, 8, 10, 12, 20, 25, 50, 80, 100)),
    "n": lambda r: r.randint(2, 9),
    "n2": lambda r: r.randint(1, 2),
    "n3": lambda r: r.randint(1, 3),
    "n30": lambda r: r.randint(1, 30),
    "n100": lambda r: r.randint(30, 100),
    "zero_or_not": lambda r: r.choice((0, 0, 3, -2, 7)),
    "square": lambda r: r.randint(1, 12) ** 2,
    "low": lambda r: r.randint(-3, 5),
    "high": lambda r: r.randint(8, 20),
    "width": lambda r: r.randint(3, 12),
    "places": lambda r: r.randint(1, 3),
    "fraction": lambda r: round(r.uniform(-3, 50), 3),
    "big": lambda r: r.randint(11, 9999),
    "huge": lambda r: r.randint(1000, 99999999),
    "year": lambda r: r.choice((1900, 2000, 2023, 2024, r.randint(1800, 2100))),
    "year2": lambda r: r.randint(1990, 2030),
    "month": lambda r: r.randint(1, 12),
    "day": lambda r: r.randint(1, 28),
    "weekday": lambda r: r.randint(0, 6),
    "weight": lambda r: r.randint(50, 100),
    "height": lambda r: round(r.uniform(1.5, 2.0), 2),
    "flag": lambda r: r.random() < 0.5,
    # --- lists
    "numbers": _numbers,
    "short_numbers": lambda r: _numbers(r, 3, 3, -4, 9),
    "small_numbers": lambda r: _numbers(r, 2, 4, -3, 6),
    "positive_numbers": lambda r: _numbers(r, 3, 4, 1, 20),
    "sorted_numbers": lambda r: sorted(_numbers(r)),
    "distinct": lambda r: r.sample(range(-9, 20), r.randint(3, 7)),
    "distinct_small": lambda r: r.sample(range(1, 9), r.randint(2, 5)),
    "maybe_sorted": lambda r: r.choice((sorted(_numbers(r)), _numbers(r), [1, 2, 2, 5], [3, 7, 9])),
    "words": _words,
    "distinct_words": lambda r: r.sample(WORDS, 3),
    "numbers_as_words": lambda r: _words(r, 2, 4),
    "items": lambda r: r.choice((_numbers, _words))(r),
    "short_items": lambda r: r.choice((r.sample(WORDS, 3), r.sample(range(20), 3))),
    "maybe_empty": lambda r: r.choice(([], _words(r), _numbers(r))),
    "repeated": lambda r: _some(r, r.choice((WORDS, range(1, 12)))),
    "repeats_list": lambda r: _some(r, WORDS),
    "equal_or_not": lambda r: r.choice(([r.randint(1, 9)] * 3, [r.choice(WORDS)] * 2, _some(r, WORDS))),
    "with_none": lambda r: [r.choice((None, r.randint(1, 20))) for _ in range(5)],
    "with_empty": lambda r: [r.choice(("", w)) for w in _words(r)],
    "mixed": lambda r: [r.choice((r.randint(1, 20), r.choice(WORDS))) for _ in range(5)],
    "digit_words": lambda r: [str(r.randint(0, 99)) for _ in range(4)],
    "nested": lambda r: [_numbers(r, 1, 4, 0, 20) for _ in range(r.randint(2, 4))],
    "matrix": lambda r: [_numbers(r, 3, 3, 0, 20) for _ in range(3)],
    "pairs": lambda r: [[key, r.randint(1, 20)] for key in r.sample(KEYS, 3)],
    # --- records
    "record": _record,
    "record_positive": lambda r: _record(r, 1),
    "record_distinct": lambda r: dict(zip(r.sample(KEYS, 4), r.sample(range(30), 4), strict=True)),
    "fraction_record": lambda r: {key: round(r.uniform(0, 20), 2) for key in r.sample(KEYS, 3)},
    "text_record": lambda r: dict(zip(r.sample(KEYS, 3), r.sample(WORDS, 3), strict=True)),
    "text_record2": lambda r: {"name": r.choice(NAMES), "thing": r.choice(WORDS)},
    "maybe_empty_record": lambda r: r.choice(({}, _record(r))),
    "records": _records,
    "one_record": lambda r: _records(r, 1, 1)[0],
    "orders": lambda r: [{"price": r.randint(1, 20), "quantity": r.randint(1, 5)} for _ in range(r.randint(2, 4))],
}.items():
    _plain(_key, _draw)

# --- what looks at the values before it


@kind("word_of")
def _word_of(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_half(rng, rng.choice(_first(before, str).split()), rng.choice(WORDS)))


@kind("prefix_of")
def _prefix_of(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_half(rng, _first(before, str)[: rng.randint(1, 5)], rng.choice(WORDS)[:3]))


@kind("suffix_of")
def _suffix_of(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_half(rng, _first(before, str)[-rng.randint(1, 4) :], rng.choice(WORDS)[-3:]))


@kind("part_of")
def _part_of(rng: random.Random, before: Sequence[Any]) -> str:
    text = _first(before, str)
    at = rng.randrange(max(1, len(text) - 3))
    return str(_half(rng, text[at : at + rng.randint(2, 4)], rng.choice(WORDS)[:3]))


@kind("char_of")
def _char_of(rng: random.Random, before: Sequence[Any]) -> str:
    return str(rng.choice(_first(before, str).replace(" ", "") + "xz"))


@kind("anagram_of")
def _anagram_of(rng: random.Random, before: Sequence[Any]) -> str:
    text = _first(before, str)
    return str(_half(rng, "".join(rng.sample(text, len(text))), rng.choice(WORDS)))


@kind("case_of")
def _case_of(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_half(rng, _first(before, str).capitalize(), rng.choice(WORDS)))


@kind("prefixed")
def _prefixed(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_first(before, str)[: rng.randint(1, 4)] + rng.choice(WORDS))


@kind("dictionary")
def _dictionary(rng: random.Random, before: Sequence[Any]) -> dict[str, str]:
    return {word: rng.choice(WORDS) for word in rng.sample(_first(before, str).split(), 2)}


@kind("date_near", "date_later")
def _date_near(rng: random.Random, before: Sequence[Any]) -> str:
    year = _first(before, str)[:4]
    return f"{year}-{_first(before, str)[5:7]}-{rng.randint(1, 28):02d}" if rng.random() < 0.5 else f"{int(year) + 7}{_date(rng)[4:]}"


@kind("item_of")
def _item_of(rng: random.Random, before: Sequence[Any]) -> Any:
    items = _first(before, list)
    other = rng.choice(WORDS) if items and isinstance(items[0], str) else rng.randint(1, 30)
    return _half(rng, rng.choice(items), other) if items else other


@kind("member_of")
def _member_of(rng: random.Random, before: Sequence[Any]) -> Any:
    return rng.choice(_first(before, list))


@kind("shuffled_of")
def _shuffled_of(rng: random.Random, before: Sequence[Any]) -> Any:
    items = _first(before, list)
    return _half(rng, rng.sample(items, len(items)), _numbers(rng, 3, 3, -4, 9))


@kind("first_of", "last_of", "letter_of")
def _letter_of(rng: random.Random, before: Sequence[Any]) -> str:
    return str(rng.choice([*(c for w in _first(before, list) for c in (w[0], w[-1])), "e"]))


@kind("key_of")
def _key_of(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_half(rng, rng.choice(list(_first(before, dict))), rng.choice(KEYS)))


@kind("member_key")
def _member_key(rng: random.Random, before: Sequence[Any]) -> str:
    return str(rng.choice(list(_first(before, dict))))


@kind("value_of")
def _value_of(rng: random.Random, before: Sequence[Any]) -> int:
    return int(_half(rng, rng.choice(list(_first(before, dict).values())), rng.randint(-5, 30)))


@kind("keys_list")
def _keys_list(rng: random.Random, before: Sequence[Any]) -> list[str]:
    return [*rng.sample(list(_first(before, dict)), rng.randint(1, 3)), *rng.sample(KEYS, rng.randint(0, 1))]


@kind("record_changed")
def _record_changed(rng: random.Random, before: Sequence[Any]) -> dict[str, int]:
    return {key: value if rng.random() < 0.5 else value + 1 for key, value in _first(before, dict).items()}


@kind("name_in")
def _name_in(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_half(rng, rng.choice(_first(before, list))["name"], rng.choice(KEYS)))


@kind("member_name")
def _member_name(rng: random.Random, before: Sequence[Any]) -> str:
    return str(rng.choice(_first(before, list))["name"])


# --- what looks at the slot, which is drawn first


@kind("member_word")
def _member_word(rng: random.Random, before: Sequence[Any]) -> str:
    return str(rng.choice(before[0]))


@kind("member_or_word")
def _member_or_word(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_half(rng, rng.choice(before[0]), rng.choice(WORDS)))


@kind("member_key_slot")
def _member_key_slot(rng: random.Random, before: Sequence[Any]) -> str:
    return str(rng.choice(list(before[0])))


@kind("key_slot")
def _key_slot(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_half(rng, rng.choice(list(before[0])), rng.choice(KEYS)))


@kind("word_in_slot")
def _word_in_slot(rng: random.Random, before: Sequence[Any]) -> str:
    return str(_half(rng, rng.choice([before[0], before[0].split()[0]]), rng.choice(WORDS)))


@kind("any")
def _any(rng: random.Random, before: Sequence[Any]) -> Any:
    return sample(rng.choice(("number", "text", "words", "numbers", "record")), rng, before)


# --- of the far set
_plain("repeated_numbers", lambda r: _some(r, range(1, 12)))
_plain("with_positive", lambda r: [*_numbers(r), r.randint(1, 30)])
_plain("record_of_lists", lambda r: {key: _numbers(r, 1, 4, 0, 20) for key in r.sample(KEYS, 3)})
