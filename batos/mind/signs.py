"""Signs by their names: of `the number of commas` the constant is `','`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from batos.mind.handbook.entries import words_in

_NAMES = {
    ",": "comma", ".": "dot point period stop", ":": "colon", ";": "semicolon", "-": "dash hyphen minus", "_": "underscore", "/": "slash",
    "\\": "backslash", "*": "star asterisk", "#": "hash", "+": "plus", "=": "equals equal", "|": "bar pipe", " ": "space blank",
    "?": "question", "!": "exclamation", "%": "percent", "&": "ampersand", "'": "apostrophe", '"': "quote quotation", "\t": "tab",
    "\n": "newline", "~": "tilde", "$": "dollar", "€": "euro", "[": "bracket", "]": "bracket",
    "(": "bracket parenthesis parentheses", ")": "bracket parenthesis parentheses",
}  # fmt: skip
_LONGEST = 4000  # characters of the values that are looked at


def named(said: frozenset[str], values: Iterable[Any]) -> Mapping[str, frozenset[str]]:
    """The signs that words name and that occur in any of the values, with the words that name them.

    :param said: as `words_in` has them.
    """
    spoken = {sign: words & said for sign, words in ((sign, words_in(names)) for sign, names in _NAMES.items())}
    if not any(spoken.values()):
        return {}
    there = set("".join(itertools.islice(_characters(values), _LONGEST)))
    return {sign: words for sign, words in spoken.items() if words and sign in there}


def _characters(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield from value
        elif isinstance(value, dict):
            yield from _characters(value)
            yield from _characters(value.values())
        elif isinstance(value, list | tuple):
            yield from _characters(value)
