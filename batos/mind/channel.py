"""How well a method explains the words by which it is asked for, as the methods of the handbook tell it.

A noisy channel: which words come of which pieces of code is learned from the handbook's methods and what is said of them, as words of one
language come of those of another (IBM model 1: Brown et al. 1993, https://aclanthology.org/J93-2003/; for code and words Yin and Neubig
2019, doi:10.18653/v1/P19-1447). The idioms and the words by which people ask for them tell it, too (`batos.mind.idioms`): a method for
each thing that the handbook has none of. Nothing is learned of what users say: it is the same in each process.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from batos.concurrency import once
from batos.mind.handbook.entries import Entry, entries, words_in
from batos.mind.idioms import Spoken, holes, tables

_PER_NAT, _PER_CHAR, _SCALE = 0.45, 0.015, 0.6
"""What costs that words are likelier elsewhere, by the logarithm of how much, and a character; and what a cost of 1 then counts. Fitted to
what passed the examples of families of the handbook and for validation, and was right, or not: docs/training.md."""
_TURNS, _SMOOTH, _LEAST = 6, 3.0, 0.1
_WORDS = 2  # of an idiom, if anything is learned of it
_BUILT_IN = frozenset(dir(builtins))
_SMALL = (0, 1, -1)
_NAMELESS = frozenset({"", "Return", "Expr", "comprehension", "self", "name", "keyword"})
_WITHIN = frozenset({"value", "args", "elt", "left", "right", "operand", "iter", "ifs"})
"""Places of what is told together with what it stands in."""

Told = tuple[Collection[str], Collection[str]]
"""Pieces, and the words that come of them."""


class Channel:
    """Which words pieces of code speak of."""

    def __init__(self, held: Iterable[Told], also: Iterable[Told] = ()) -> None:
        """
        :param held: of each method its pieces, and the words of what it is for.
        :param also: the same of what is no method: it does not say how often methods have a piece.
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
        self._cells = self._cells.astype(np.int64)  # as what is looked for in them
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
        """How seldom methods have the rarest of these pieces: the logarithm of one in how many has it."""
        return math.log((self._methods + 1) / (1 + min((self._often[one] for one in pieces), default=self._methods)))

    def rarest(self, words: Collection[str], most: int) -> list[str]:
        """Those of the words that anything is known of; if they are many, those that tell most, as they are said seldom."""
        known = sorted((float(self._usual[number]), one) for one in words if (number := self._words.get(one)) is not None)
        return sorted(one for _, one in known[:most])

    def _links(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]], size: int) -> tuple[Any, Any]:
        """All pieces with all words of each: the piece with the word, and whose it is with the word; the piece without a name speaks of
        what none speaks of. Millions, so no list of arrays, which would leave the memory in pieces."""
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
        """How much likelier words are where such pieces stand than anywhere: the sum of the logarithms.

        :param words: stems, as `words_in` has them.
        :param pieces: as `pieces_of` has them.
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
    """What a method, or an expression, is made of, by the names of what Python has; nothing of its own names.

    :param source: that is valid.
    :param said: stems and figures of what is asked: of constants it tells whether they are spoken of.
    """
    (tree,) = ast.parse(source.strip()).body
    body = tree.body if isinstance(tree, ast.FunctionDef) else [tree]
    given = {one.arg: _kind(one.arg) for one in tree.args.args[1:]} if isinstance(tree, ast.FunctionDef) else {}
    return frozenset(piece for one in body if not _housekeeping(one) for piece in _pieces(one, "", "", said, given))


@cache
def pieces_of_idiom(template: str) -> frozenset[str]:
    """What an idiom is made of, but for what stands in its holes."""
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
    """What a node is made of, by the name of its place; what its own label tells is left out."""
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
    """The stems and figures of a text."""
    return words_in(text) | frozenset(re.findall(r"\d+", text))


def priced(passed: Iterable[tuple[float, str]], told: str, *, without: Collection[str] = ()) -> tuple[tuple[float, str], ...]:
    """Methods with what they cost: what explains the words costs less.

    :param told: what is asked, in words.
    :param without: names whose words say nothing: those of slots.
    """
    passed = tuple(passed)
    if not passed:
        return ()
    said, known = said_of(told), channel()
    words = sorted(words_in(told) - words_in(" ".join(without).replace("_", " ")))

    def price(cost: float, text: str) -> float:
        return _SCALE * (cost - _PER_NAT * known.explains(words, pieces_of(text, said)) + _PER_CHAR * len(text))

    return tuple((price(cost, text), text) for cost, text in passed)


def learned(held: Iterable[Entry], also: Iterable[Spoken] = ()) -> Channel:
    """What methods tell, and idioms that have words of their own."""
    spoken = [one for one in also if len(one.words) >= _WORDS]
    return Channel(
        ((pieces_of(one.source, said_of(one.purpose)), one.words) for one in held),
        ((pieces_of_idiom(one.template), one.words) for one in spoken),
    )


@once
def channel() -> Channel:
    """What the handbook and the idioms tell. Some seconds the first time: call it in a thread then."""
    return learned(entries(), tables().everything())
