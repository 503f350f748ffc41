"""Lists of a few parts, and records of parts under fixed names: `[min(items), max(items)]`, `{'name': item[0], 'points': item[1]}`.

What is wanted tells of which values it is made, and each of these is looked for among the parts (top-down, by the inverse of what builds
it: Polozov and Gulwani 2015, doi:10.1145/2814270.2814310).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from batos.mind.growing import Part
from batos.mind.handbook.entries import words_in
from batos.mind.parts import Computed

_LENGTH = 4  # entries, at most
_EACH = 3  # of what comes to one of them, the cheapest
_NAME = 0.3  # what costs a name that nobody speaks of


def built(parts: Sequence[Computed], expected: Sequence[Any], said: frozenset[str]) -> Iterator[Part]:
    """Parts that put others together to what is expected, one of each row.

    :param parts: the cheapest first; one value of each row.
    :param said: the words of what is asked.
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
            yield Part(cost, _build(names, [part.part.text for part in together]), words)


def _build(names: Sequence[str | None], texts: Sequence[str]) -> str:
    if names[0] is None:
        return f"[{', '.join(texts)}]"
    return f"{{{', '.join(f'{name!r}: {text}' for name, text in zip(names, texts, strict=True))}}}"
