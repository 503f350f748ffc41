"""What a request itself spells out: words for bands of numbers, `cold below 10, mild below 22, else hot`.

It becomes an idiom of a number (`batos.mind.growing`), whatever that is computed of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from batos.mind.handbook.entries import words_in
from batos.mind.idioms import Spoken

_BOUNDS = {
    "<": "below under before less than smaller than", "<=": "up to until at most", ">=": "from at least", ">": "over above more than after",
}  # fmt: skip
_SIGNS = {
    name: sign for sign, names in _BOUNDS.items() for name in re.findall(r"(?:less|smaller|more) than|up to|at most|at least|\w+", names)
}
_BOUND = re.compile(rf"\b({'|'.join(sorted(_SIGNS, key=len, reverse=True))}) (-?[0-9]{{1,9}}(?:\.[0-9]{{1,6}})?)(?![\w.,:]*\d|[kKmM%]\b)")
_ANY_BOUND = re.compile(rf"\b(?:{'|'.join(_SIGNS)}) -?\d")
_ELSE = re.compile(r"\b(?:else|otherwise)\b:? *(.+)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_QUOTED = re.compile(r"""['"]([\w '-]+)['"]""")
_LINKING = frozenset(["for", "if", "when", "it", "is", "are", "of", "value", "values", "number", "numbers"])
_APART = re.compile(r"[,;:]|\band\b")
_MOST = 8  # bands


class _Band(NamedTuple):
    said: str
    sign: str
    bound: str


def spelled(told: str) -> Iterator[Spoken]:
    """Idioms of a number that the words spell out; none where they do so in no such order.

    :param told: what is asked, in words.
    """
    found = _ELSE.search(told)
    if found is None:
        return
    bands, end = [], 0
    for bound in _BOUND.finditer(told, 0, found.start()):
        figure = repr(float(bound[2])) if "." in bound[2] else str(int(bound[2]))  # `09` is none of Python's
        bands.append(_Band(_APART.split(told[end : bound.start()])[-1].strip(), _SIGNS[bound[1]], figure))
        end = bound.end()
    if not 0 < len(bands) <= _MOST or len(bands) < len(_ANY_BOUND.findall(told, 0, found.start())):  # one of them is no number: `13:00`
        return
    last = found[1].strip()
    count = min((len(_words(one.said)) for one in bands[1:]), default=1)  # the first may stand behind more: "I need cold below 10"
    texts = [_text(one.said, count, at_end=True) for one in bands] + [_text(last, count, at_end=False)]
    if all(texts) and len(set(texts)) > 1:
        parts = [f"{text!r} if {{it}} {one.sign} {one.bound} else " for text, one in zip(texts, bands, strict=False)]
        words = words_in(" ".join((*texts, *(one.bound for one in bands))))
        yield Spoken(f"{''.join(parts)}{texts[-1]!r}", words)


def _text(said: str, count: int, *, at_end: bool) -> str:
    """What is answered: what is quoted, or so many words at one end of what is said."""
    if quoted := _QUOTED.findall(said):
        return str(quoted[-1] if at_end else quoted[0])
    words = _words(said)
    return " ".join(words[-count:] if at_end else words[:count])


def _words(said: str) -> list[str]:
    """The words of it, without those behind them that link them to a number."""
    words = _WORD.findall(said)
    while words and words[-1] in _LINKING:
        words.pop()
    return words
