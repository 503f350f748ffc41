"""Idioms as functions, and what each costs where some words are said.

The idioms are those of `batos.mind.idioms`; what one costs is how unlikely it is among those of its kind, by the words that stand beside
it and by what the handbook says that the words come of.
"""

from __future__ import annotations

import ast
import collections
import datetime
import itertools
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from batos.mind.channel import channel, pieces_of
from batos.mind.idioms import COUNTED, LONG, MADE_OF, NUMERIC, OF_ANY, OF_TWO, Spoken

_TELLS, _SELDOM, _SAID = 0.4, 0.5, 1.0  # what the handbook tells of an idiom, that methods have it seldom, and its own words
_MEANT = 60  # words by which idioms are weighed, at most
_TWO = 2  # words of what is seldom asked for that are said, if it is likely to be meant
_WORDLESS = 0.8  # what costs at most what needs no words: that something is the same, or stands under a name
_ANY, _NATS = 0.2, 3.5  # what any idiom is likely, of all of them; and a cost of 1, in nats
_LARGE = 100  # a number with which what is `LONG` is too long, and items with which it takes too long, as with a text of so many `CHARS`
_COUNT = 500  # a number that says how often something is there, at most
CHARS = 500
"""Characters of a value that is computed, at most."""
_HOLES = re.compile(r"\{(it|number2?|text2?|items|record|flag|date|moment)\}")
MODULES = {module.__name__: module for module in (collections, datetime, itertools, math, re, statistics)}
"""Modules that idioms use."""
FAILS = (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError, MemoryError, re.error)
"""What an idiom may raise for what it is given."""
KINDS = tuple(MADE_OF)
"""What `{it}` may be."""


class Idiom(NamedTuple):
    """An idiom that can be computed.

    :ivar holes: what `compute` takes, `it` first.
    :ivar able: whether it may be given a value; any, where this is None.
    :ivar pieces: by which the handbook's channel knows it.
    """

    spoken: Spoken
    holes: tuple[str, ...]
    compute: Callable[..., Any]
    able: Callable[[Any], bool] | None
    pieces: frozenset[str]


Priced = Sequence[tuple[float, Idiom]]
"""Idioms with what each costs."""


@lru_cache(maxsize=1)
def all_idioms() -> dict[str, tuple[Idiom, ...]]:
    """All idioms by the kind of `{it}`; those of any kind under "any", those of two numbers under "two".

    A second the first time: call it in a thread then.
    """
    bounds = ((LONG, _small), (NUMERIC, _numeric), (COUNTED, _counts))
    found = {
        kind: (*computed(held), *(one for titled, able in bounds for one in computed(titled.get(kind, ()), able)))
        for kind, held in MADE_OF.items()
    }
    return found | {"any": computed(OF_ANY), "two": computed(OF_TWO)}


def computed(held: Sequence[Spoken], able: Callable[[Any], bool] | None = None) -> tuple[Idiom, ...]:
    """Idioms that can be computed, of what the tables say.

    :param able: what all of them are bounded by.
    """

    def bound(value: Any) -> bool:
        return _short(value) and (able is None or able(value))

    made = [(one, _holes(one.template), bound if one.seldom else able) for one in held]
    return tuple(Idiom(one, holes, _computing(one.template, holes), can, _pieces(one.template, holes)) for one, holes, can in made)


def _holes(template: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(("it", *_HOLES.findall(template))))


def _pieces(template: str, holes: Sequence[str]) -> frozenset[str]:
    return pieces_of(template.format(**{name: f"{name}_" for name in holes}), frozenset())


def _computing(template: str, holes: Sequence[str]) -> Callable[..., Any]:
    text = template.format(**{name: name for name in holes})
    made: Callable[..., Any] = eval(f"lambda {', '.join(holes)}: {text}", dict(MODULES))  # noqa: S307 - idioms are constants
    return made


@lru_cache(maxsize=64)
def priced(said: frozenset[str]) -> Mapping[str, Priced]:
    """All idioms with what each costs, where such words are said: how unlikely it is among those of its kind. Likelier is what the
    handbook says that the words come of, what they speak of, and what many methods have."""
    learned = channel()
    words = learned.rarest(said, _MEANT)
    found: dict[str, list[tuple[float, Idiom]]] = {}
    for kind, known in all_idioms().items():
        held = [one for one in known if one.spoken.meant(said)]
        likely = [
            _TELLS * learned.explains(words, one.pieces) - _SELDOM * learned.seldom(one.pieces) + _ours(one.spoken, said) for one in held
        ]
        most = max(likely)
        weights = [math.exp(one - most) for one in likely]
        whole = sum(weights)
        shares = [(1 - _ANY) * weight / whole + _ANY / len(held) for weight in weights]
        found[kind] = [(_cost(share, one.spoken), one) for share, one in zip(shares, held, strict=True)]
    return found


def _cost(share: float, spoken: Spoken) -> float:
    """What an idiom costs that is so likely among those of its kind; `_WORDLESS` at most where it needs no words."""
    cost = -math.log(share) / _NATS
    return cost if spoken.words or spoken.learned else min(cost, _WORDLESS)


def _ours(spoken: Spoken, said: frozenset[str]) -> float:
    """How much likelier an idiom is by the words that stand beside it, as a logarithm."""
    if spoken.learned:
        return 0.0
    if spoken.seldom:  # of what may be meant by a word of its own there is very much
        return _SAID * (min(len(spoken.words & said), _TWO) - 1)
    return _SAID if not spoken.words or spoken.words & said else -_SAID


@lru_cache(maxsize=1)
def reserved() -> frozenset[str]:
    """Names that idioms use: what is given by such a name could not be read in them."""
    nodes = [node for held in all_idioms().values() for one in held for node in ast.walk(ast.parse(_text_of(one), mode="eval"))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)} | {node.arg for node in nodes if isinstance(node, ast.arg)}
    return frozenset(used - set(KINDS) - {"it", "number2", "text2"})


def _text_of(idiom: Idiom) -> str:
    return idiom.spoken.template.format(**{name: name for name in idiom.holes})


def _small(value: Any) -> bool:
    return _short(value) and (not isinstance(value, int | float) or -_LARGE <= value <= _LARGE)


def _short(value: Any) -> bool:
    return not isinstance(value, list | dict | str) or len(value) <= (CHARS if isinstance(value, str) else _LARGE)


def _counts(value: Any) -> bool:
    """Whether it holds small numbers alone, as a list does of how often each of something is, or holds texts."""
    if isinstance(value, list):
        return all(map(_counts, value))
    return isinstance(value, str) or (isinstance(value, int) and -_COUNT <= value <= _COUNT)


def _numeric(value: Any) -> bool:
    """Whether it holds nothing but numbers, or is a text: the key of an entry."""
    held = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return all(isinstance(one, int | float) for one in held)
