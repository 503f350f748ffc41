"""More kinds of arguments and slots (see `kinds`): those of dates, arithmetic and slots that hold several things."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from batos.training.kinds import KEYS, KINDS, WORDS, kind, sample


def _date(rng: random.Random) -> str:
    return str(sample("date", rng, ()))


def _time(rng: random.Random) -> str:
    return str(sample("time", rng, ()))


def _numbers(rng: random.Random) -> list[int]:
    return list(sample("numbers", rng, ()))


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
