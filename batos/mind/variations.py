"""Calls that are like a call: what tells whether two methods that pass an example do the same elsewhere, too."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from batos.mind.side_by_side import Call

_SEED = 5  # the same calls vary the same way in each replay
_DATES = ("2024-02-29", "2023-12-31", "2025-07-04", "2022-01-09")
_OFTEN, _SELDOM = 0.7, 0.5  # shares of arguments and of slots that are changed


def variations(calls: Sequence[Call], count: int) -> list[Call]:
    """So many calls, each made of one of these: numbers near it, texts with other words, lists and records with more or less in them."""
    rng = random.Random(_SEED)
    found = []
    for _ in range(count):
        call = rng.choice(calls)
        args = [_changed(value, rng) if rng.random() < _OFTEN else value for value in call.args]
        kwargs = {name: _changed(value, rng) if rng.random() < _OFTEN else value for name, value in call.kwargs.items()}
        slots = {name: _changed(value, rng) if rng.random() < _SELDOM else value for name, value in call.slots.items()}
        found.append(Call(args, kwargs, slots))
    return found


def _changed(value: Any, rng: random.Random) -> Any:
    """Another value of its kind."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((value + 1, value - 1, 2 * value + 3, -value, 0, value + 7))
        case float():
            return rng.choice((value + 1.5, -value, 2 * value))
        case str() if re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            return rng.choice(_DATES)
        case str():
            words = value.split(" ")
            less, more, turned = " ".join(words[1:]), f"{value} {words[0] or 'a'}", " ".join(reversed(words))
            return rng.choice((value.upper(), more, value[1:], value[::-1], turned, value + "x", less))
        case list() if value:
            at = rng.randrange(len(value))
            other = [*value[:at], _changed(value[at], rng), *value[at + 1 :]]
            return rng.choice((value[1:], value[::-1], [*value, value[at]], other, other))
        case Mapping() if value:
            key = rng.choice(list(value))
            if rng.random() < 1 / 4:
                return {name: held for name, held in value.items() if name != key}
            return {**value, key: _changed(value[key], rng)}
    return value
