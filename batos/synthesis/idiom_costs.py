"""Idioms as functions, and what each costs where some words are said.

The idioms are those of `batos.synthesis.translation_model`; what one costs is how unlikely it is among those of its kind, by the
words that stand beside it and by what the handbook says that the words come of.

Expressions that are computed in the daemon's own process, kept from becoming too much.

What an idiom does is a constant; what it is given is not. `c * int(n)` of the text `x20240208` is 20 MB, of a few digits more all memory
that there is. So what multiplies, raises to a power, shifts, fills up or counts is done by functions that refuse what nobody would keep.
"""

from __future__ import annotations

import ast
import collections
import datetime
import functools
import itertools
import keyword
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from batos.concurrency import once
from batos.synthesis.translation_model import HOLES, KINDS, Spoken, channel, holes, pieces_of_idiom, tables

LONGEST = 100_000
"""Items or characters, numbers that are counted through, and bits of a number, at most."""
_COUNTED = 1_000  # of which number a factorial, or a number of choices, may be
_FEW = 1_000  # a constant by which anything may be multiplied
_MATTERS = re.compile(r"\*|<<|range\(|just\(|center\(|zfill\(|expandtabs\(|pow\(|factorial\(|comb\(|perm\(|prod\(|:[^}]*\{")
"""What tells that there is something to bound in an expression; most have nothing of it."""
_FILLING = ("ljust", "rjust", "center", "zfill", "expandtabs")
_COUNTING = ("factorial", "comb", "perm")


def compiled(text: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that an expression of ours is.

    :param names: what it may use beside the builtins.
    :return: raises `OverflowError` where something would become too much.
    """
    tree = ast.parse(text, mode="eval")
    if _MATTERS.search(text):
        tree = ast.fix_missing_locations(_Bounding().visit(tree))
    made: Callable[..., Any] = eval(compile(tree, "<idiom>", "eval"), {**names, **_IN_PLACE})  # noqa: S307 - idioms are constants
    return made


def times(left: Any, right: Any) -> Any:
    """`left * right`."""
    if isinstance(left, int) and isinstance(right, int):
        _check(left.bit_length() + right.bit_length())
    for held, often in ((left, right), (right, left)):
        if isinstance(held, Sized) and isinstance(often, int):
            _check(len(held) * often)
    return left * right


def power(base: Any, exponent: Any, *modulus: Any) -> Any:
    """`base ** exponent`, and `pow`."""
    if isinstance(base, int) and isinstance(exponent, int) and not modulus:
        _check(base.bit_length() * exponent)
    return pow(base, exponent, *modulus)


def product(values: Iterable[Any], *, start: Any = 1) -> Any:
    """`math.prod`."""
    return functools.reduce(times, values, start)


def _shifted(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check(left.bit_length() + right)
    return left << right


def _range(*given: Any) -> range:
    found = range(*given)
    if found:
        _check((found[-1] - found[0]) // found.step)
    return found


def _filled(held: Any, name: str, *given: Any) -> Any:
    return getattr(held, name)(*map(_width, given))


def _counted(module: Any, name: str, *given: Any) -> Any:
    if any(isinstance(one, int) and one > _COUNTED for one in given):
        raise OverflowError(f"{name} of more than {_COUNTED}")
    return getattr(module, name)(*given)


def _width(given: Any) -> Any:
    if isinstance(given, int):
        _check(given)
    return given


def _check(size: int) -> None:
    if size > LONGEST:
        raise OverflowError(f"more than {LONGEST}")


_IN_PLACE = {
    "range": _range, "pow": power, "_times": times, "_power": power, "_shifted": _shifted, "_product": product, "_filled": _filled,
    "_counted": _counted, "_width": _width,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {ast.Mult: "_times", ast.Pow: "_power", ast.LShift: "_shifted"}


class _Bounding(ast.NodeTransformer):
    """Puts the functions above where operators and methods stand."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = _OPERATORS.get(type(node.op))
        if name is None or (name == "_times" and (_is_few(node.left) or _is_few(node.right))):
            return node
        return _call(name, node.left, node.right)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return node
        held, name = node.func.value, node.func.attr
        if name in _FILLING and not all(isinstance(one, ast.Constant) for one in node.args):
            return _call("_filled", held, ast.Constant(name), *node.args)
        if name in _COUNTING:
            return _call("_counted", held, ast.Constant(name), *node.args)
        if name == "prod":
            node.func = ast.Name("_product", ast.Load())
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.format_spec, ast.JoinedStr):
            for part in node.format_spec.values:
                if isinstance(part, ast.FormattedValue):
                    part.value = _call("_width", part.value)
        return node


def _is_few(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) <= _FEW


def _call(name: str, *given: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(given), [])


_TELLS, _SELDOM = 0.4, 0.5  # what the handbook tells of an idiom, and that methods have it seldom
_PLAIN, _DEMANDING = (-3.3, -1.8, -0.9, 0.0), (-2.4, -2.4, -2.4, -2.0, -0.9)
"""How much likelier an idiom is, as a logarithm, where none of its own words is said, where one is, two, and so on: of those always looked
at, and of those that demand words. Fitted to what the methods of the handbook and for validation have (docs/training.md)."""
_MEANT = 60  # words by which idioms are weighed, at most
_WORDLESS = 0.8  # what costs at most what needs no words: that something is the same, or stands under a name
_ANY, _NATS = 0.2, 3.5  # what any idiom is likely, of all of them; and a cost of 1, in nats
_LARGE = 100  # a number with which what is `long` is too long, and items with which it takes too long, as with a text of so many `CHARS`
_COUNT = 500  # a number that says how often something is there, at most
CHARS = 500
"""Characters of a value that is computed, at most."""
_STRING = re.compile(r"""(?<!\w)([bfr]{0,2})((['"])(?:(?!\3)[^\\]|\\.)*\3)""")
_COMPUTED = re.compile(r"\{([^{}]+)")
_NAME = re.compile(r"(?<![\w.%])(?![a-z_]+=(?!=))[a-z_]\w*")
MODULES = {module.__name__: module for module in (collections, datetime, itertools, math, re, statistics)}
"""Modules that idioms use."""
FAILS = (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError, MemoryError, re.error)
"""What an idiom may raise for what it is given."""


@dataclass(frozen=True, eq=False)
class Idiom:
    """An idiom that can be computed. What that takes is made when it is first asked for: of most it never is.

    :ivar holes: what `compute` takes, `it` first.
    :ivar able: whether it may be given a value; any, where this is None.
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
        """By which the handbook's channel knows it."""
        return pieces_of_idiom(self.spoken.template)


Priced = Sequence[tuple[float, Idiom]]
"""Idioms with what each costs."""


@once
def all_idioms() -> Mapping[str, tuple[Idiom, ...]]:
    """All idioms by the kind of `{it}`; those of any kind under "any", those of two numbers under "two"."""
    held = tables()
    bounds = ((held.long, _small), (held.numeric, _numeric), (held.counted, _counts))
    found = {
        kind: (*callables(plain), *(one for titled, able in bounds for one in callables(titled.get(kind, ()), able)))
        for kind, plain in held.made_of.items()
    }
    return found | {"any": callables(held.of_any), "two": callables(held.of_two)}


def callables(held: Sequence[Spoken], able: Callable[[Any], bool] | None = None) -> tuple[Idiom, ...]:
    """Idioms that can be computed, of what the tables say.

    :param able: what all of them are bounded by.
    """

    def bound(value: Any) -> bool:
        return _short(value) and (able is None or able(value))

    return tuple(Idiom(one, bound if one.needs else able) for one in held)


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
    return cost if spoken.words else min(cost, _WORDLESS)


def _ours(spoken: Spoken, said: frozenset[str]) -> float:
    """How much likelier an idiom is by the words that stand beside it, as a logarithm."""
    known = _DEMANDING if spoken.needs else _PLAIN
    return known[min(len(spoken.words & said), len(known) - 1)] if spoken.words else known[1]


@once
def reserved() -> frozenset[str]:
    """Names that idioms use: what is given by such a name could not be read in them."""
    used: set[str] = set()
    for one in tables().everything():
        text = HOLES.sub(r"\1", one.template).replace("{{", "{").replace("}}", "}")
        used.update(_NAME.findall(_STRING.sub(_read_in, text)))  # to parse ten thousand takes a second
    return frozenset(used - {*KINDS, *keyword.kwlist, "it", "number2", "text2"})


def _read_in(string: re.Match[str]) -> str:
    """What is computed in a string."""
    return _STRING.sub("", " ".join(_COMPUTED.findall(string[2]))) if "f" in string[1] else ""


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
