"""Literals of parts: texts, lists and records, found by inversion of what is expected.

A text such as `text + ', ' + text2 + '!'` is read as parts and fixed pieces, in the cheapest way (string programs from examples: Gulwani
2011, doi:10.1145/1926385.1926423). A list `[min(items), max(items)]` or a record of fixed names tells its entries. Each entry is looked for
among the parts (top-down by inverse semantics: Polozov and Gulwani 2015, doi:10.1145/2814270.2814310).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from batos.synthesis.enumeration import Expression
from batos.synthesis.handbook import words_in
from batos.synthesis.terms import Computed

_LENGTH = 4  # greatest number of entries of a list or record
_EACH = 3  # number of the cheapest expressions for each entry
_NAME = 0.3  # cost of a key that no word of the request names


def built(parts: Sequence[Computed], expected: Sequence[Any], said: frozenset[str]) -> Iterator[Expression]:
    """Yield list and record literals of parts that give the expected values, one of each row.

    :param parts: expressions with one value of each row, the cheapest first.
    :param said: words of the request.
    """
    if all(isinstance(one, list) for one in expected):
        names: list[str | None] = [None] * len(expected[0])
        rows = [one for one in expected if len(one) == len(names)]
    elif all(isinstance(one, dict) and all(isinstance(key, str) for key in one) for one in expected):
        names = list(expected[0])
        rows = [[one[key] for key in names] for one in expected if list(one) == names]
    else:
        return
    least = 2 if None in names else 1
    if not least <= len(names) <= _LENGTH or len(rows) != len(expected):
        return
    found: list[list[Computed]] = [[] for _ in names]
    for part in parts:
        values = [value for (value,) in part.values]
        for n, held in enumerate(found):
            if len(held) < _EACH and all(type(a) is type(row[n]) and a == row[n] for a, row in zip(values, rows, strict=True)):
                held.append(part)
    fixed = [words_in(name.replace("_", " ")) if name else frozenset() for name in names]
    unsaid = _NAME * sum(not words <= said for words in fixed)
    for together in itertools.product(*found):
        if len({part.part.text for part in together}) == len(together) > 0:
            cost = unsaid + sum(part.part.cost for part in together)
            words = frozenset[str]().union(*fixed, *(part.part.words for part in together))
            yield Expression(cost, _build(names, [part.part.text for part in together]), words)


def _build(names: Sequence[str | None], texts: Sequence[str]) -> str:
    if names[0] is None:
        return f"[{', '.join(texts)}]"
    return f"{{{', '.join(f'{name!r}: {text}' for name, text in zip(names, texts, strict=True))}}}"


_CHARS, _PIECES, _ATOMS = 120, 7, 200
_READ = (str, int, float)  # types of values that may be parts of a text
_BEST = 3  # number of the cheapest ways to build the text before a place
# costs of fixed text: the text itself, each word that the request does not say, and a single letter
_FIXED, _UNSAID, _ALONE = 0.4, 0.3, 1.2
_SHORT = {1: 1.2, 2: 0.5}  # extra cost of a part that may match by chance, by its length


class _Way(NamedTuple):
    """A way to read the beginning of a text: its cost, and its pieces, each a part or a fixed text."""

    cost: float
    pieces: tuple[Computed | str, ...]


def joined(parts: Sequence[Computed], expected: Sequence[Any], said: frozenset[str]) -> Iterator[Expression]:
    """Yield concatenations of parts and fixed texts that give the expected texts, one of each example.

    :param parts: expressions of the inputs as a whole, the cheapest first.
    :param said: words of the request.
    """
    if not all(isinstance(one, str) and 0 < len(one) <= _CHARS for one in expected):
        return
    given = " ".join(str(one.values[0][0]) for one in parts[:_ATOMS] if type(one.values[0][0]) in _READ).lower()
    for way in _ways(expected[0], _there(parts, expected)[:_ATOMS], said, given):
        parts_of = [one for one in way.pieces if isinstance(one, Computed)]
        if len(way.pieces) < 2 or not parts_of:
            continue
        if all("".join(_read(piece, n) for piece in way.pieces) == text for n, text in enumerate(expected)):
            text = " + ".join(_written(piece) for piece in way.pieces)
            fixed = words_in(" ".join(one for one in way.pieces if isinstance(one, str)))
            yield Expression(way.cost, text, fixed.union(*(one.part.words for one in parts_of)))


def _there(parts: Sequence[Computed], expected: Sequence[str]) -> list[Computed]:
    """Return the parts that stand in each expected text, the cheapest of equal ones. Short parts, which stand there by chance, must be
    cheap.
    """
    found: list[Computed] = []
    seen: set[tuple[str, ...]] = set()
    for one in parts:
        if not all(type(values[0]) in _READ for values in one.values):
            continue
        texts = tuple(str(values[0]) for values in one.values)
        there = texts not in seen and all(text and text in whole for text, whole in zip(texts, expected, strict=True))
        if there and (len(seen) < _ATOMS or min(map(len, texts)) > max(_SHORT)):
            found.append(one)
        seen.add(texts)
    return found


def _ways(text: str, parts: Sequence[Computed], said: frozenset[str], given: str) -> list[_Way]:
    """Return the cheapest ways to split a text into parts, with at most one fixed text between two of them.

    :param given: see `_fixed`.
    """
    starts: dict[int, list[tuple[str, Computed]]] = {}
    for one in parts:
        value = str(one.values[0][0])
        for at in (match.start() for match in re.finditer(f"(?={re.escape(value)})", text)):
            starts.setdefault(at, []).append((value, one))
    best: list[list[_Way]] = [[] for _ in range(len(text) + 1)]
    best[0].append(_Way(0.0, ()))
    for at in range(len(text)):
        for way in sorted(best[at], key=lambda one: one.cost)[:_BEST]:
            if len(way.pieces) == _PIECES:
                continue
            for value, one in starts.get(at, ()):
                best[at + len(value)].append(_Way(way.cost + one.part.cost + _SHORT.get(len(value), 0.0), (*way.pieces, one)))
            if not way.pieces or not isinstance(way.pieces[-1], str):
                for end in range(at + 1, len(text) + 1):
                    best[end].append(_Way(way.cost + _fixed(text[at:end], said, given), (*way.pieces, text[at:end])))
    return [one for one in sorted(best[-1], key=lambda one: one.cost)[: 2 * _BEST] if one.cost < math.inf]


def _fixed(text: str, said: frozenset[str], given: str) -> float:
    """Return the cost of a fixed text; infinite for a number or an input's word that the request does not mention.

    :param given: the values of the cheapest parts, in lower case.
    """
    words = [word for word in re.findall(r"[^\W\d_]{2,}", text) if words_in(word) - said]
    figures = [figure for figure in re.findall(r"\d+", text) if figure not in said]
    if figures or any(word.lower() in given for word in words):
        return math.inf
    alone = re.search(r"(?<![^\W_])[^\W_](?![^\W_])", text)
    return _FIXED + _UNSAID * len(words) + (_ALONE if alone else 0.0)


def _read(piece: Computed | str, example: int) -> str:
    return piece if isinstance(piece, str) else str(piece.values[example][0])


def _written(piece: Computed | str) -> str:
    if isinstance(piece, str):
        return repr(piece)
    return f"({piece.part.text})" if all(isinstance(values[0], str) for values in piece.values) else f"str({piece.part.text})"
