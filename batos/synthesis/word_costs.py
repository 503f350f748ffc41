"""A noisy-channel model of how well the pieces of a method explain the words of a request, and the tables of idioms.

Which words come of which pieces is learned from the handbook's methods and their purposes. Words come of pieces as words of one language
come of those of another (IBM model 1: Brown et al. 1993, https://aclanthology.org/J93-2003/). Yin and Neubig (2019,
doi:10.18653/v1/P19-1447) do so for code and words. Idioms with their words count as methods. Nothing is learned from users, so the model is
the same in each process.

Idioms stand in `idioms.txt` and `phrases.txt`. They are expressions in which `{it}` stands for the value, and `{number}`, `{text}`,
`{items}`, `{record}`, `{flag}`, `{date}` and `{moment}` for another of that kind. Those of `phrases.txt` are many; each is looked at only
where the request has one of each group of words that begins with `!`. All are constants: no client's text is among them.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batos.concurrency import once
from batos.synthesis.handbook import HandbookEntry, entries, words_in

_NEEDED = "!"  # prefix of a group of words, separated by commas; the request must say one of them
FILE, PHRASES = (Path(__file__).parent / name for name in ("idioms.txt", "phrases.txt"))
HOLES = re.compile(r"\{(it|number2?|text2?|items|record|flag|date|moment)\}")
KINDS = ("number", "text", "flag", "items", "record", "date", "moment")
"""Kinds of value that `{it}` may be."""


class Spoken(NamedTuple):
    """An idiom: an expression of `{it}`, with the words by which people ask for it.

    :ivar words: stems that speak of it; none where it needs no words.
    :ivar needs: groups of stems. A request must have one of each, or the idiom is not looked at.
    """

    template: str
    words: frozenset[str]
    needs: tuple[frozenset[str], ...] = ()

    def meant(self, said: frozenset[str]) -> bool:
        """Return True if a request of such words may mean the idiom."""
        return not any(map(said.isdisjoint, self.needs))


def holes(template: str) -> tuple[str, ...]:
    """Return the operands of a template, `it` first."""
    return tuple(dict.fromkeys(("it", *HOLES.findall(template))))


class Tables(NamedTuple):
    """The idioms of both files.

    :ivar made_of: idioms by the kind of `{it}`.
    :ivar long: idioms whose value, or time, is large for a large number.
    :ivar numeric: idioms for lists and records of numbers alone: a text times a number may be very long.
    :ivar counted: idioms for counts of items, which are large for large counts.
    :ivar of_any: idioms of any value.
    :ivar of_two: idioms of two numbers, each of which may be computed.
    """

    made_of: Mapping[str, tuple[Spoken, ...]]
    long: Mapping[str, tuple[Spoken, ...]]
    numeric: Mapping[str, tuple[Spoken, ...]]
    counted: Mapping[str, tuple[Spoken, ...]]
    of_any: tuple[Spoken, ...]
    of_two: tuple[Spoken, ...]

    def everything(self) -> Iterator[Spoken]:
        for titled in (self.made_of, self.long, self.numeric, self.counted):
            for held in titled.values():
                yield from held
        yield from (*self.of_any, *self.of_two)


@cache
def pairs() -> tuple[tuple[str, str], ...]:
    """Return pairs of answers in words: the first for a condition that holds, the second for one that does not."""
    lines = FILE.read_text("utf-8").partition("[pairs]\n")[2].splitlines()
    return tuple((one, other) for one, _, other in (line.partition(" | ") for line in lines))


@once
def tables() -> Tables:
    """Return all idioms. It takes some tenths of a second the first time."""
    found = _sections()

    def titled(beginning: str) -> dict[str, tuple[Spoken, ...]]:
        return {title.removeprefix(beginning): held for title, held in found.items() if title.startswith(beginning)}

    plain = {kind: found[kind] for kind in KINDS}
    return Tables(plain, titled("long "), titled("numeric "), titled("counted "), found["any"], found["two"])


def _sections() -> dict[str, tuple[Spoken, ...]]:
    """Return the idioms of both files by the title of their section."""
    groups: dict[str, str] = {}
    found: dict[str, tuple[Spoken, ...]] = {}
    for file in (FILE, PHRASES):
        for title, text in re.findall(r"^\[([a-z ]+)\]\n(.*?)(?=^\[[a-z ]+\]\n|\Z)", file.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            told = [[part.strip() for part in line.rpartition("|")[::2]] for line in text.splitlines() if line.strip()]
            if title == "words":
                groups = {f"+{name}": words for name, words in told}
            elif title != "pairs":
                held = tuple(entry(one, words, groups) for one, words in told)
                found[title] = (*found.get(title, ()), *held)
    return found


def entry(template: str, words: str, groups: Mapping[str, str]) -> Spoken:
    needs = tuple(words_in(one.replace(",", " ")) for one in words.split() if one.startswith(_NEEDED))
    return Spoken(template, _spoken(words, groups), needs)


def _spoken(words: str, groups: Mapping[str, str]) -> frozenset[str]:
    return words_in(" ".join(groups.get(word, word.replace(",", " ")) for word in words.split()))


_PER_NAT, _PER_CHAR, _SCALE = 0.45, 0.015, 0.6
"""Costs: of a nat by which words are likelier elsewhere, of a character, and the scale of a cost of 1. Fitted to right and wrong
candidates that passed the examples of families of the handbook and for validation: docs/synthesis.md.
"""
_TURNS, _SMOOTH, _LEAST = 6, 3.0, 0.1
_WORDS = 2  # least number of words of an idiom from which the model learns
_BUILT_IN = frozenset(dir(builtins))
_SMALL = (0, 1, -1)
_NAMELESS = frozenset({"", "Return", "Expr", "comprehension", "self", "name", "keyword"})
_WITHIN = frozenset({"value", "args", "elt", "left", "right", "operand", "iter", "ifs"})
"""Fields of a syntax node whose pieces include the node around them."""

Told = tuple[Collection[str], Collection[str]]
"""Pieces of code, and the words that they explain."""


class Channel:
    """A translation model between pieces of code and words."""

    def __init__(self, held: Iterable[Told], also: Iterable[Told] = ()) -> None:
        """
        :param held: for each method its pieces, and the words of its purpose.
        :param also: the same of pieces that are not methods: it does not say how often methods have a piece.
        """
        pairs = [(sorted(pieces), sorted(words)) for pieces, words in held]
        self._often = Counter(one for pieces, _ in pairs for one in pieces)
        self._methods = len(pairs)
        pairs += [(sorted(pieces), sorted(words)) for pieces, words in also]
        self._pieces = {one: n for n, one in enumerate(dict.fromkeys(["", *(one for pieces, _ in pairs for one in pieces)]))}
        self._words = {one: n for n, one in enumerate(dict.fromkeys(one for _, words in pairs for one in words))}
        size = len(self._words) or 1
        said, owned = self._links(pairs, size)
        self._cells, cell = np.unique(said, return_inverse=True)
        places, place = np.unique(owned, return_inverse=True)
        self._cells = self._cells.astype(np.int64)  # the dtype of the values that the search looks up
        of = self._cells // size
        often = np.bincount(places % size, minlength=size).astype(float)
        self._usual = often / (often.sum() or 1.0)
        usual, share = self._usual[self._cells % size], self._usual[self._cells % size]
        for _ in range(_TURNS):
            each = share[cell]
            counts = np.bincount(cell, each / np.bincount(place, each)[place], minlength=len(self._cells))
            whole = np.bincount(of, counts, minlength=len(self._pieces))
            share = (counts + _SMOOTH * usual) / (whole[of] + _SMOOTH)
        self._left = _SMOOTH / (np.bincount(of, counts, minlength=len(self._pieces)) + _SMOOTH) if len(of) else np.ones(1)
        self._shares = share

    def seldom(self, pieces: Collection[str]) -> float:
        """Return the log of one in how many methods has the rarest of these pieces."""
        return math.log((self._methods + 1) / (1 + min((self._often[one] for one in pieces), default=self._methods)))

    def rarest(self, words: Collection[str], most: int) -> list[str]:
        """Return the words that the model knows; of many, the `most` rarest, which tell most."""
        known = sorted((float(self._usual[number]), one) for one in words if (number := self._words.get(one)) is not None)
        return sorted(one for _, one in known[:most])

    def _links(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]], size: int) -> tuple[Any, Any]:
        """Return two arrays of all pairs of a piece and a word of one method: by piece, and by owner.

        The nameless piece 0 speaks of words that no other explains. There are millions, so no list of arrays, which would fragment the
        memory.
        """
        whole = sum((1 + len(pieces)) * len(words) for pieces, words in pairs)
        kind = np.int32 if max(len(pairs), len(self._pieces)) * size < 2**31 else np.int64
        found, owned, at = np.empty(whole, kind), np.empty(whole, kind), 0
        for owner, (pieces, words) in enumerate(pairs):
            of = np.array([0, *(self._pieces[one] for one in pieces)])
            said = np.array([self._words[one] for one in words], np.int64)
            end = at + len(of) * len(said)
            found[at:end] = (of[:, None] * size + said).ravel()
            owned[at:end] = np.tile(owner * size + said, len(of))
            at = end
        return found, owned

    def explains(self, words: Sequence[str], pieces: Collection[str]) -> float:
        """Return how much likelier words are beside such pieces than anywhere, as the sum of the logarithms.

        :param words: stems, as `words_in` returns them.
        :param pieces: as `pieces_of` returns them.
        """
        said = np.array([number for one in words if (number := self._words.get(one)) is not None], np.int64)
        if not len(said) or not len(self._cells):
            return 0.0
        of = np.array(sorted(self._pieces[one] for one in pieces if one in self._pieces) or [0])[:, None]
        cells = of * len(self._words) + said
        at = np.searchsorted(self._cells, cells).clip(max=len(self._cells) - 1)
        each = np.where(self._cells[at] == cells, self._shares[at], self._left[of] * self._usual[said])
        return float(np.log(_LEAST + (1 - _LEAST) * each.mean(0) / self._usual[said]).sum())


def pieces_of(source: str, said: Collection[str]) -> frozenset[str]:
    """Return the pieces of a method, or of an expression, by the names that Python gives them, without names of its own.

    :param source: a valid source.
    :param said: stems and numbers of the request: a constant among them counts as mentioned.
    """
    (tree,) = ast.parse(source.strip()).body
    body = tree.body if isinstance(tree, ast.FunctionDef) else [tree]
    given = {one.arg: _kind(one.arg) for one in tree.args.args[1:]} if isinstance(tree, ast.FunctionDef) else {}
    return frozenset(piece for one in body if not _housekeeping(one) for piece in _pieces(one, "", "", said, given))


@cache
def pieces_of_idiom(template: str) -> frozenset[str]:
    """Return the pieces of an idiom, without its operands."""
    return pieces_of(template.format(**{name: f"{name}_" for name in holes(template)}), frozenset())


def _housekeeping(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self._p_changed")


def _kind(name: str) -> str:
    kind = name.rstrip("0123456789")
    return kind if kind in ("items", "text", "number", "record", "flag") else "other"


def _pieces(node: ast.AST, place: str, around: str, said: Collection[str], given: Mapping[str, str]) -> Iterator[str]:
    label = _label(node, said, given)
    if label not in _NAMELESS:
        yield label
        if place in _WITHIN and around not in _NAMELESS:
            yield f"{around} > {label}"
    for name, held in _parts(node):
        yield from _pieces(held, name, label, said, given)


def _parts(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the parts of a node, by the names of their places, without what its label tells."""
    match node:
        case ast.Call(func, args, keywords):
            match func:
                case ast.Attribute(value=ast.Name("self")) | ast.Name():
                    pass
                case ast.Attribute(value=owner):
                    yield "value", owner
                case _:
                    yield "func", func
            for n, one in enumerate(args):
                yield "args" if n == 0 else "more", one
            for keyword in keywords:
                yield "keyword", keyword
        case ast.Attribute(value=ast.Name("self")):
            pass
        case ast.Attribute(value=owner):
            yield "object", owner
        case _:
            for name, held in ast.iter_fields(node):
                for one in held if isinstance(held, list) else [held]:
                    if isinstance(one, ast.AST) and not isinstance(one, ast.expr_context | ast.operator | ast.cmpop | ast.unaryop):
                        yield name, one


def _label(node: ast.AST, said: Collection[str], given: Mapping[str, str]) -> str:
    match node:
        case ast.Constant(value):
            return _constant(value, said)
        case ast.Name(name):
            return f"given {given[name]}" if name in given else name if name in _BUILT_IN else "self" if name == "self" else "name"
        case ast.Attribute(value=ast.Name("self"), ctx=ctx):
            return "slot" if isinstance(ctx, ast.Load) else "slot ="
        case ast.Attribute(attr=name):
            return f".{name}"
        case ast.Call(ast.Name(name)) if name in _BUILT_IN:
            return f"{name}()"
        case ast.Call(ast.Attribute(value=ast.Name("self"))):
            return "send"
        case ast.Call(ast.Attribute(attr=name)):
            return f".{name}()"
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.UnaryOp(op=op):
            return type(op).__name__
        case ast.AugAssign(op=op):
            return f"{type(op).__name__} ="
        case ast.Compare(ops=ops):
            return "/".join(type(one).__name__ for one in ops)
        case ast.keyword(arg=name):
            return f"{name}="
    return type(node).__name__


def _constant(value: Any, said: Collection[str]) -> str:
    match value:
        case bool() | None:
            return repr(value)
        case int() | float():
            return "number said" if value not in _SMALL and str(value) in said else repr(value)
        case str() if len(value) <= 2 and not value.isalnum():
            return repr(value)
        case str():
            words = words_in(value.replace("_", " "))
            return "text said" if words and words <= {*said} else "text fixed"
    return "constant"


def said_of(text: str) -> frozenset[str]:
    """Return the stems and numbers of a text."""
    return words_in(text) | frozenset(re.findall(r"\d+", text))


def priced(passed: Iterable[tuple[float, str]], told: str, *, without: Collection[str] = ()) -> tuple[tuple[float, str], ...]:
    """Return methods with their costs, which are lower where their pieces explain the words.

    :param told: the request in words.
    :param without: names whose words tell nothing: those of slots.
    """
    passed = tuple(passed)
    if not passed:
        return ()
    said, known = said_of(told), channel()
    words = sorted(words_in(told) - words_in(" ".join(without).replace("_", " ")))

    def price(cost: float, text: str) -> float:
        return _SCALE * (cost - _PER_NAT * known.explains(words, pieces_of(text, said)) + _PER_CHAR * len(text))

    return tuple((price(cost, text), text) for cost, text in passed)


def learned(held: Iterable[HandbookEntry], also: Iterable[Spoken] = ()) -> Channel:
    """Return the model that methods teach, and idioms that have words of their own."""
    spoken = [one for one in also if len(one.words) >= _WORDS]
    return Channel(
        ((pieces_of(one.source, said_of(one.purpose)), one.words) for one in held),
        ((pieces_of_idiom(one.template), one.words) for one in spoken),
    )


@once
def channel() -> Channel:
    """Return the model of the handbook and the idioms. It takes some seconds the first time: call it in a thread then."""
    return learned(entries(), tables().everything())
