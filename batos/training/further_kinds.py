"""Further kinds of arguments, registered with those of `batos.training.kinds` when this is imported."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from batos.training.kinds import KEYS, NAMES, T_VALUES, WORDS, _first, _half, _name, _numbers, _plain, _some, _words, kind

# --- of further families
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
