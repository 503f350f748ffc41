"""Idioms as functions, and the cost of each given the words of a request.

The idioms are those of `batos.synthesis.word_costs`. The cost of one is its improbability among the idioms of its kind. It counts the words
beside it, and the words with which the handbook's methods of such pieces are asked for.
"""

from __future__ import annotations

import collections
import datetime
import itertools
import keyword
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from batos.concurrency import once
from batos.synthesis.transformations import compiled
from batos.synthesis.word_costs import HOLES, KINDS, Spoken, channel, holes, pieces_of_idiom, tables

_TELLS, _SELDOM = 0.4, 0.5  # weights of how well the handbook explains an idiom, and of how seldom methods use it
_PLAIN, _DEMANDING = (-3.3, -1.8, -0.9, 0.0), (-2.4, -2.4, -2.4, -2.0, -0.9)
"""Log likelihood of an idiom by how many of its own words the request says (none, one, two, ...). The first row is for idioms that are
always tried, the second for idioms that demand words. Fitted to the methods of the handbook and for validation (docs/synthesis.md).
"""
_MEANT = 60  # greatest number of request words that weigh idioms
_WORDLESS = 0.8  # the highest cost of an idiom that needs no words, such as equality or a lookup by name
_ANY, _NATS = 0.2, 3.5  # share of the likelihood that all idioms get equally; nats that make a cost of 1
_LARGE = 100  # the largest number for which an idiom marked `long` is evaluated, and the largest number of items; `CHARS` limits texts
_COUNT = 500  # the largest number that may count repetitions
CHARS = 500
"""Greatest number of characters of a computed value."""
_STRING = re.compile(r"""(?<!\w)([bfr]{0,2})((['"])(?:(?!\3)[^\\]|\\.)*\3)""")
_COMPUTED = re.compile(r"\{([^{}]+)")
_NAME = re.compile(r"(?<![\w.%])(?![a-z_]+=(?!=))[a-z_]\w*")
MODULES = {module.__name__: module for module in (collections, datetime, itertools, math, re, statistics)}
"""Modules that idioms use, by name."""
FAILS = (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError, MemoryError, re.error)
"""Exceptions that an idiom may raise for its inputs."""


@dataclass(frozen=True, eq=False)
class Idiom:
    """An idiom that can be evaluated. It is compiled when it is first asked for: most never are.

    :ivar holes: the operands of `compute`, `it` first.
    :ivar able: returns False for a value that the idiom may not be given; None if it takes any.
    """

    spoken: Spoken
    able: Callable[[Any], bool] | None

    @cached_property
    def holes(self) -> tuple[str, ...]:
        return holes(self.spoken.template)

    @cached_property
    def compute(self) -> Callable[..., Any]:
        text = self.spoken.template.format(**{name: name for name in self.holes})
        return compiled(f"lambda {', '.join(self.holes)}: {text}", MODULES)

    @cached_property
    def pieces(self) -> frozenset[str]:
        """Return the pieces of code by which the translation model knows the idiom."""
        return pieces_of_idiom(self.spoken.template)


Priced = Sequence[tuple[float, Idiom]]
"""Idioms with their costs."""


@once
def all_idioms() -> Mapping[str, tuple[Idiom, ...]]:
    """Return all idioms by the kind of `{it}`: "any" for idioms of any kind, "two" for idioms of two numbers."""
    held = tables()
    bounds = ((held.long, _small), (held.numeric, _numeric), (held.counted, _counts))
    found = {
        kind: (*callables(plain), *(one for titled, able in bounds for one in callables(titled.get(kind, ()), able)))
        for kind, plain in held.made_of.items()
    }
    return found | {"any": callables(held.of_any), "two": callables(held.of_two)}


def callables(held: Sequence[Spoken], able: Callable[[Any], bool] | None = None) -> tuple[Idiom, ...]:
    """Return idioms of the tables as evaluable functions.

    :param able: a bound on the values of all of them.
    """

    def bound(value: Any) -> bool:
        return _short(value) and (able is None or able(value))

    return tuple(Idiom(one, bound if one.needs else able) for one in held)


@lru_cache(maxsize=64)
def priced(said: frozenset[str]) -> Mapping[str, Priced]:
    """Return all idioms with their costs for a request: the improbability of each among those of its kind.

    The chance grows by what the translation model says of the words, by the idiom's own words, and by how many methods have its pieces.
    """
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
    """Return the cost of an idiom of such a share; `_WORDLESS` at most for one that needs no words."""
    cost = -math.log(share) / _NATS
    return cost if spoken.words else min(cost, _WORDLESS)


def _ours(spoken: Spoken, said: frozenset[str]) -> float:
    """Return the log odds of an idiom by the words that stand beside it."""
    known = _DEMANDING if spoken.needs else _PLAIN
    return known[min(len(spoken.words & said), len(known) - 1)] if spoken.words else known[1]


@once
def reserved() -> frozenset[str]:
    """Return the names that idioms use. An input of such a name could not be read in them."""
    used: set[str] = set()
    for one in tables().everything():
        text = HOLES.sub(r"\1", one.template).replace("{{", "{").replace("}}", "}")
        used.update(_NAME.findall(_STRING.sub(_read_in, text)))  # a regular expression: parsing ten thousand expressions takes a second
    return frozenset(used - {*KINDS, *keyword.kwlist, "it", "number2", "text2"})


def _read_in(string: re.Match[str]) -> str:
    """Return the expressions inside an f-string."""
    return _STRING.sub("", " ".join(_COMPUTED.findall(string[2]))) if "f" in string[1] else ""


def _small(value: Any) -> bool:
    return _short(value) and (not isinstance(value, int | float) or -_LARGE <= value <= _LARGE)


def _short(value: Any) -> bool:
    return not isinstance(value, list | dict | str) or len(value) <= (CHARS if isinstance(value, str) else _LARGE)


def _counts(value: Any) -> bool:
    """Return True for a small count, a list of small counts, or a text."""
    if isinstance(value, list):
        return all(map(_counts, value))
    return isinstance(value, str) or (isinstance(value, int) and -_COUNT <= value <= _COUNT)


def _numeric(value: Any) -> bool:
    """Return True for a text, and for a list or record of numbers alone."""
    held = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return all(isinstance(one, int | float) for one in held)
