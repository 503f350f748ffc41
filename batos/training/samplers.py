"""Samplers: the values that a task is tried with, by the kind of its arguments and slots.

A kind that ends in `_of` (and some others) looks at the values before it: a word of the text, an item of the list. So a membership is
tried both ways.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Sequence
from typing import Any

from batos.synthesis.families import N_FIELDS, T_FIELDS, words_of

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
    """Draw a value of a kind.

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

# --- kinds that depend on earlier values


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


# --- kinds that depend on the slot, which is drawn first


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


# --- kinds of the far set
_plain("repeated_numbers", lambda r: _some(r, range(1, 12)))
_plain("with_positive", lambda r: [*_numbers(r), r.randint(1, 30)])
_plain("record_of_lists", lambda r: {key: _numbers(r, 1, 4, 0, 20) for key in r.sample(KEYS, 3)})


# --- texts, lists and records
for _key_further_kinds, _draw_further_kinds in {
    "path": lambda r: "/".join((*_words(r, 1, 3), f"{r.choice(WORDS)}.txt")),
    "web": lambda r: f"{r.choice(('http', 'https'))}://{r.choice(WORDS)}.org/{'/'.join(_words(r, 1, 3))}",
    "hexadecimal": lambda r: f"{r.randint(10, 4000):x}",
    "exclaimed": lambda r: " ".join(_words(r, 1, 3)) + r.choice(("!", "!!", "...", "?!", "")),
    "camel": lambda r: "".join(w if i == 0 else w.capitalize() for i, w in enumerate(_words(r, 2, 4))),
    "snake": lambda r: "_".join(_words(r, 2, 4)),
    "hyphened": lambda r: "-".join(_words(r, 2, 4)),
    "tabbed": lambda r: "\t".join(_words(r, 2, 4)),
    "decimal_text": lambda r: f"{r.uniform(0, 90):.2f}",
    "range_text": lambda r: f"{r.randint(1, 5)}-{r.randint(6, 12)}",
    "unit_text": lambda r: f"{r.randint(1, 99)} {r.choice(('kg', 'm', 'km', 'litres'))}",
    "number_words": lambda r: " ".join(str(r.randint(0, 40)) for _ in range(r.randint(3, 5))),
    "mixed_case": lambda r: " ".join(r.choice((str.upper, str.capitalize, str.lower))(w) for w in _words(r)),
    "runs_text": lambda r: "".join(c * r.randint(1, 3) for c in r.choice(WORDS)),
    "maybe_text": lambda r: r.choice(("", "  ", r.choice(WORDS), " ".join(_words(r)))),
    "maybe_capitals": lambda r: r.choice((str.upper, str.title, str.lower, str.capitalize))(" ".join(_words(r, 1, 3))),
    "ordered_word": lambda r: r.choice(("".join(sorted(r.choice(WORDS))), r.choice(WORDS))),
    "mail_anywhere": lambda r: f"{r.choice(KEYS)}@{r.choice(WORDS)}.{r.choice(('org', 'de', 'com', 'info'))}",
    "char_word": lambda r: r.choice(WORDS)[:4],
    "brackets": lambda r: "".join(r.choice("()ab") for _ in range(2)) + r.choice(("(())", "()", ")(", "((a)b)")),
    "doubled_or_not": lambda r: r.choice((1, 2)) * r.choice(WORDS),
    "flags": lambda r: r.choice(([True] * 3, [False] * 4, [r.random() < 0.5 for _ in range(r.randint(3, 5))])),
    "three_flags": lambda r: [r.random() < 0.5 for _ in range(3)],
    "maybe_numbers": lambda r: r.choice(([], _numbers(r), _numbers(r))),
    "maybe_falling": lambda r: sorted(_numbers(r), reverse=r.random() < 0.5),
    "names_twice": lambda r: [r.choice((n, n.lower(), n.upper())) for n in _some(r, NAMES)],
    "words_alike": lambda r: r.choice((["tea", "ant", "toe"], ["cat", "cup", "cloud"], ["oak", "key", "yellow"], _words(r, 2, 3))),
    "padded_list": lambda r: [r.choice((w, f" {w}", f"{w}  ", "  ")) for w in _words(r)],
    "full_names": lambda r: [_name(r) for _ in range(r.randint(3, 5))],
    "short_words": lambda r: r.sample(WORDS, 3),
    "three_words": lambda r: r.sample(WORDS, r.randint(2, 3)),
    "three_positive": lambda r: [r.randint(1, 9) for _ in range(3)],
    "mirror_list": lambda r: r.choice(([1, 2, 1], ["a", "b", "b", "a"], [n := r.randint(3, 9), 5, n], _numbers(r), _words(r))),
    "grid_text": lambda r: "\n".join(" ".join(str(r.randint(0, 9)) for _ in range(3)) for _ in range(r.randint(2, 3))),
    "fractions": lambda r: [round(r.uniform(-3, 30), 3) for _ in range(r.randint(3, 5))],
    "texts": lambda r: [" ".join(_words(r, 1, 3)) for _ in range(r.randint(3, 5))],
    "filenames": lambda r: [f"{w}.{r.choice(('txt', 'pdf', 'py'))}" for w in _words(r)],
    "mails": lambda r: [f"{key}@{r.choice(WORDS[:3])}.org" for key in r.sample(KEYS, r.randint(3, 4))],
    "equations": lambda r: [f"{key}={r.randint(1, 30)}" for key in r.sample(KEYS, r.randint(2, 4))],
    "table_text": lambda r: "\n".join(f"{key}: {r.randint(1, 30)}" for key in r.sample(KEYS, r.randint(2, 4))),
    "many_pairs": lambda r: [[r.choice(KEYS[:3]), r.randint(1, 20)] for _ in range(r.randint(4, 6))],
    "tagged": lambda r: [{"name": key, "tags": r.sample(WORDS[:6], r.randint(1, 3))} for key in r.sample(KEYS, r.randint(3, 4))],
    "lacking": lambda r: [
        {"name": key, **({"age": r.randint(1, 60)} if r.random() < 0.6 else {})} for key in r.sample(KEYS, r.randint(3, 5))
    ],
    "record_of_records": lambda r: {key: {"age": r.randint(1, 60), "city": r.choice(T_VALUES)} for key in r.sample(KEYS, r.randint(3, 4))},
    "mixed_record": lambda r: {key: r.choice((r.randint(0, 20), r.choice(WORDS), None)) for key in r.sample(KEYS, 4)},
    "digit_record": lambda r: {key: str(r.randint(0, 99)) for key in r.sample(KEYS, 3)},
    "flag_record": lambda r: {key: r.random() < 0.5 for key in r.sample(KEYS, 4)},
    "repeating_record": lambda r: {key: r.choice(T_VALUES) for key in r.sample(KEYS, r.randint(4, 6))},
    "records_of_numbers": lambda r: [{key: r.randint(0, 9) for key in r.sample(KEYS[:4], 2)} for _ in range(3)],
}.items():
    _plain(_key_further_kinds, _draw_further_kinds)


@kind("letter_in")
def _letter_in(rng: random.Random, before: Sequence[Any]) -> str:
    return str(rng.choice(_first(before, str).replace(" ", "")))


@kind("member_value")
def _member_value(rng: random.Random, before: Sequence[Any]) -> Any:
    return rng.choice(list(_first(before, dict).values()))


@kind("words_found_in")
def _words_found_in(rng: random.Random, before: Sequence[Any]) -> list[str]:
    found = _first(before, str).split()
    return rng.sample([*rng.sample(found, min(len(found), rng.randint(1, 3))), *_words(rng, 1, 2)], 2)


@kind("beginning_of")
def _beginning_of(rng: random.Random, before: Sequence[Any]) -> list[Any]:
    return list(_half(rng, _first(before, list)[: rng.randint(1, 3)], _numbers(rng, 1, 2)))


@kind("pair_of")
def _pair_of(rng: random.Random, before: Sequence[Any]) -> list[Any]:
    items = _first(before, list)
    at = rng.randrange(len(items) - 1)
    return list(_half(rng, items[at : at + 2], rng.sample(items, 2)))


@kind("member_tag")
def _member_tag(rng: random.Random, before: Sequence[Any]) -> str:
    return str(rng.choice(rng.choice(_first(before, list))["tags"]))


@kind("record_or_other")
def _record_or_other(rng: random.Random, before: Sequence[Any]) -> dict[str, int]:
    return dict(_half(rng, {key: rng.randint(0, 9) for key in _first(before, dict)}, dict.fromkeys(rng.sample(KEYS, 3), 1)))


_plain("keys_only", lambda r: r.sample(KEYS, r.randint(2, 4)))
_plain("json_text", lambda r: json.dumps({key: r.randint(0, 20) for key in r.sample(KEYS, r.randint(2, 3))}))
_plain("few_values", lambda r: {key: r.randint(0, 7) for key in r.sample(KEYS, 3)})
_plain("keys_list_or_others", lambda r: r.sample(KEYS, r.randint(2, 5)))
_plain("keys_text", lambda r: " ".join(r.sample((*KEYS, *WORDS[:4]), 6)))
_plain("underscored", lambda r: f"{r.choice(WORDS)} ___ {r.choice(WORDS)}")
_plain("direction", lambda r: r.choice(("left", "right", "up", "down")))


# --- dates, arithmetic, and slots that hold several things


def _date_further_kinds(rng: random.Random) -> str:
    return str(sample("date", rng, ()))


def _time_further_kinds(rng: random.Random) -> str:
    return str(sample("time", rng, ()))


def _maybe_date(rng: random.Random) -> str:
    year = rng.randint(1990, 2030)
    return rng.choice((_date_further_kinds(rng), _date_further_kinds(rng), f"{year}-13-01", f"{year}-02-30", rng.choice(WORDS)))


for _key_further_kinds, _draw_further_kinds in {
    "compact_date": lambda r: _date_further_kinds(r).replace("-", ""),
    "american": lambda r: f"{r.randint(10, 12)}/{r.randint(10, 28)}/{r.randint(1990, 2030)}",
    "maybe_date": _maybe_date,
    "monday_or_not": lambda r: f"2026-06-{r.choice((1, 8, 15, 22, 29, r.randint(1, 30))):02d}",
    "times": lambda r: [f"{r.randint(0, 3)}:{r.randint(0, 59):02d}" for _ in range(r.randint(2, 4))],
    "times_of_day": lambda r: [_time_further_kinds(r) for _ in range(r.randint(3, 5))],
    "clock": lambda r: f"{r.randint(0, 5)}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}",
    "huge_seconds": lambda r: r.randint(3600, 99999),
    "number_wide": lambda r: r.randint(-60, 160),
    "low_number": lambda r: r.randint(1, 4),
    "fraction_or_whole": lambda r: r.choice((float(r.randint(-9, 40)), round(r.uniform(-9, 40), 2))),
    "perfect_or_not": lambda r: r.choice((6, 28, r.randint(2, 40))),
    "power_or_not": lambda r: r.choice((2 ** r.randint(0, 9), r.randint(3, 99))),
    "composite": lambda r: 2 ** r.randint(0, 6) * 3 ** r.randint(0, 3) * 5 ** r.randint(0, 2) * 7 ** r.randint(0, 1),
    "triple": lambda r: r.choice(([3, 4, 5], [5, 12, 13], [6, 8, 10], sorted(r.sample(range(2, 15), 3)))),
    "operator": lambda r: r.choice("+-*"),
    "operation": lambda r: r.choice(("add", "sub", "mul")),
    "maybe_sorted_numbers": lambda r: sorted(_numbers(r)) if r.random() < 0.5 else _numbers(r),
    "maybe_no_numbers": lambda r: [] if r.random() < 0.2 else _numbers(r),
    "two_numbers": lambda r: [r.randint(-9, 30), r.randint(-9, 30)],
    "length_unit": lambda r: r.choice(("mm", "cm", "m", "km")),
    "time_unit": lambda r: r.choice("smhd"),
    "palindrome_number": lambda r: r.choice((r.randint(10, 9999), int((part := str(r.randint(10, 99))) + part[::-1]))),
    "armstrong_or_not": lambda r: r.choice((153, 370, 371, 407, 9474, r.randint(1, 999))),
    "percentage": lambda r: r.randint(0, 100),
    "comma_numbers": lambda r: ",".join(str(r.randint(0, 40)) for _ in range(r.randint(2, 5))),
    "keys_words": lambda r: r.sample(KEYS, r.randint(3, 6)),
}.items():
    KINDS[_key_further_kinds] = lambda rng, before, draw=_draw_further_kinds: draw(rng)  # type: ignore[misc]


@kind("date_birthday")
def _date_birthday(rng: random.Random, before: Sequence[Any]) -> str:
    return f"{rng.randint(1990, 2030)}{before[0][4:]}" if rng.random() < 0.5 else _date_further_kinds(rng)


@kind("stamp_near")
def _stamp_near(rng: random.Random, before: Sequence[Any]) -> str:
    return f"{before[0][:10] if rng.random() < 0.5 else _date_further_kinds(rng)}T{_time_further_kinds(rng)}:00"


@kind("month_in")
def _month_in(rng: random.Random, before: Sequence[Any]) -> int:
    return int(before[0][5:7]) if rng.random() < 0.5 else rng.randint(1, 12)


@kind("some_keys_slot")
def _some_keys_slot(rng: random.Random, before: Sequence[Any]) -> list[str]:
    return rng.sample(list(before[0]), rng.randint(1, min(3, len(before[0]))))


@kind("keys_of_slot")
def _keys_of_slot(rng: random.Random, before: Sequence[Any]) -> list[str]:
    return [*_some_keys_slot(rng, before), *rng.sample(KEYS, rng.randint(0, 1))]
