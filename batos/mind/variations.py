"""Calls that are like a call: what tells whether two methods that pass an example do the same elsewhere, too."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batos.mind.side_by_side import Call

_SEED = 5  # the same calls vary the same way in each replay
_DATES = ("2024-02-29", "2023-12-31", "2025-07-04", "2022-01-09")
_TIMES = ("00:05", "23:59", "12:00", "09:30")
_OFTEN, _SELDOM = 0.7, 0.5  # shares of arguments and of slots that are changed
_WITHIN = 0.3  # and of changed ones that become a part of another value: what is looked for is there then
_PARTS = 40  # of another value, at most


def variations(calls: Sequence[Call], count: int) -> list[Call]:
    """So many calls, each made of one of these: numbers near it, texts with other words or some of them twice, lists and records with more
    or less in them, and what is looked for where it is to be found. Each way to change a value has its turn."""
    rng = random.Random(_SEED)
    found = []
    for number in range(count):
        call = rng.choice(calls)
        given = [*call.args, *call.kwargs.values(), *call.slots.values()]
        shares = [_OFTEN] * (len(call.args) + len(call.kwargs)) + [_SELDOM] * len(call.slots)
        other = [at for at, share in enumerate(shares) if rng.random() < share] or ([rng.randrange(len(given))] if given else [])
        new = [_other(at, given, number + at, rng) if at in other else value for at, value in enumerate(given)]
        args, rest = new[: len(call.args)], iter(new[len(call.args) :])
        found.append(Call(args, dict(zip(call.kwargs, rest, strict=False)), dict(zip(call.slots, rest, strict=False))))
    return found


def _other(at: int, given: Sequence[Any], turn: int, rng: random.Random) -> Any:
    """Another value in place of one that is given: a part of the others that is of its kind, or one that is like it."""
    value = given[at]
    if type(value) in (str, int) and rng.random() < _WITHIN:
        parts = [one for n, held in enumerate(given) if n != at for one in itertools.islice(_parts(held), _PARTS)]
        if alike := [one for one in parts if type(one) is type(value) and one != value]:
            return rng.choice(alike)
    return _changed(value, turn, rng)


def _parts(value: Any) -> Iterator[Any]:
    """What may be looked for in a value."""
    match value:
        case str():
            yield from (one for one in (*value.split(), *re.findall(r"[^\W_]", value)) if one)
        case list():
            yield from (one for one in value if isinstance(one, str | int))
            yield len(value)
            for one in value:
                if isinstance(one, Mapping):
                    yield from (held for held in one.values() if isinstance(held, str | int))
        case Mapping():
            yield from value
            yield from (one for one in value.values() if isinstance(one, str | int))


def _changed(value: Any, turn: int, rng: random.Random) -> Any:
    """Another value of its kind.

    :param turn: says in which way it is changed.
    """
    match value:
        case bool():
            return not value
        case int():
            return _at(turn, value + 1, value - 1, 2 * value + 3, 10 * value + 9, -value, 0, value + 7)
        case float():
            return _at(turn, value + 1.5, -value, 2 * value)
        case str() if re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            return _at(turn, *_DATES)
        case str() if re.fullmatch(r"\d\d:\d\d", value):
            return _at(turn, *_TIMES)
        case str():
            words = value.split(" ")
            less, more, turned = " ".join(words[1:]), f"{value} {words[0] or 'a'}", " ".join(reversed(words))
            twice, doubled, between = f"{value} {value}", " ".join(word * 2 for word in words), " ".join([words[0], words[-1], *words[1:]])
            return _at(turn, doubled, value.upper(), more, value[1:], value[::-1], between, turned, value + "x", less, twice, value.title())
        case list() if value:
            at = rng.randrange(len(value))
            other = [*value[:at], _changed(value[at], rng.randrange(_PARTS), rng), *value[at + 1 :]]
            return _at(turn, other, value[::-1], [*value, value[at]], value[1:], other, [*value, *value], [value[at], *value])
        case Mapping() if value:
            key, same = rng.choice(list(value)), rng.choice(list(value.values()))
            if turn % 4 == 0:
                return {name: held for name, held in value.items() if name != key}
            if turn % 4 == 1 and type(same) is type(value[key]):
                return {**value, key: same}
            return {**value, key: _changed(value[key], rng.randrange(_PARTS), rng)}
    return value


def _at(turn: int, *ways: Any) -> Any:
    return ways[turn % len(ways)]
