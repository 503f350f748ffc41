"""Further kinds of arguments and slots (see `kinds`), registered when this is imported."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from batos.training.kinds import KEYS, KINDS, NAMES, T_VALUES, WORDS, _first, _half, _name, _numbers, _plain, _some, _words, kind, sample

# --- texts, lists and records
for _key, _draw in {
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
    _plain(_key, _draw)


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


def _date(rng: random.Random) -> str:
    return str(sample("date", rng, ()))


def _time(rng: random.Random) -> str:
    return str(sample("time", rng, ()))


def _maybe_date(rng: random.Random) -> str:
    year = rng.randint(1990, 2030)
    return rng.choice((_date(rng), _date(rng), f"{year}-13-01", f"{year}-02-30", rng.choice(WORDS)))


for _key, _draw in {
    "compact_date": lambda r: _date(r).replace("-", ""),
    "american": lambda r: f"{r.randint(10, 12)}/{r.randint(10, 28)}/{r.randint(1990, 2030)}",
    "maybe_date": _maybe_date,
    "monday_or_not": lambda r: f"2026-06-{r.choice((1, 8, 15, 22, 29, r.randint(1, 30))):02d}",
    "times": lambda r: [f"{r.randint(0, 3)}:{r.randint(0, 59):02d}" for _ in range(r.randint(2, 4))],
    "times_of_day": lambda r: [_time(r) for _ in range(r.randint(3, 5))],
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
    KINDS[_key] = lambda rng, before, draw=_draw: draw(rng)  # type: ignore[misc]


@kind("date_birthday")
def _date_birthday(rng: random.Random, before: Sequence[Any]) -> str:
    return f"{rng.randint(1990, 2030)}{before[0][4:]}" if rng.random() < 0.5 else _date(rng)


@kind("stamp_near")
def _stamp_near(rng: random.Random, before: Sequence[Any]) -> str:
    return f"{before[0][:10] if rng.random() < 0.5 else _date(rng)}T{_time(rng)}:00"


@kind("month_in")
def _month_in(rng: random.Random, before: Sequence[Any]) -> int:
    return int(before[0][5:7]) if rng.random() < 0.5 else rng.randint(1, 12)


@kind("some_keys_slot")
def _some_keys_slot(rng: random.Random, before: Sequence[Any]) -> list[str]:
    return rng.sample(list(before[0]), rng.randint(1, min(3, len(before[0]))))


@kind("keys_of_slot")
def _keys_of_slot(rng: random.Random, before: Sequence[Any]) -> list[str]:
    return [*_some_keys_slot(rng, before), *rng.sample(KEYS, rng.randint(0, 1))]
