"""What is often made of a value, by its kind, and the words by which people ask for it: the parts that methods are put together of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from batos.mind.handbook.entries import words_in


class Spoken(NamedTuple):
    """An expression of what stands for `{it}`, with what else is given: `{number}`, `{text}`, `{items}`, `{record}`.

    :ivar words: that speak of it, as `words_in` has them; none where it needs no words.
    """

    template: str
    words: frozenset[str]


def _spoken(told: Mapping[str, str]) -> tuple[Spoken, ...]:
    return tuple(Spoken(template, words_in(words)) for template, words in told.items())


def _by_kind(told: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[Spoken, ...]]:
    return {kind: _spoken(templates) for kind, templates in told.items()}


_NOT = "not no other different except without missing isn doesn don none"
_MORE = "more bigger greater larger above over exceed longer higher older heavier"
_LESS = "less fewer smaller below under shorter lower younger"
_WITHIN = "contain contains containing anywhere inside has have including somewhere mention part"
_CASE = "capital capitals case ignoring upper lower"
MADE_OF = _by_kind({
    "number": {
        "{it} > {number}": f"{_MORE} after later", "{it} < {number}": f"{_LESS} before earlier",
        "{it} >= {number}": "least minimum or reach from", "{it} <= {number}": "most maximum up until within or", "{it} == {number}": "",
        "{it} != {number}": _NOT, "{it} + {number}": "add plus more", "{it} - {number}": "minus subtract less difference",
        "{it} * {number}": "times multiply multiplied product percent", "{it} / {number}": "divide divided per share",
        "{it} // {number}": "whole full divide divided", "{it} % {number}": "rest remainder left after",
        "{it} % {number} == 0": "divisible multiple multiples divide", "max({it}, {number})": "max largest least larger never below",
        "min({it}, {number})": "min smallest most never above", "{it} % 2 == 0": "even", "{it} % 2 == 1": "odd",
        "{it} > 0": "positive more above left", "{it} < 0": "negative below", "{it} == 0": "zero nothing empty out",
        "{it} ** 2": "square squares squared", "{it} ** 3": "cube cubes third", "abs({it})": "absolute", "{record}.get({it}, 0)": "",
        "{it} + 1": "one next plus more", "{it} - 1": "one before previous less without", "{it} * 2": "double doubled twice",
        "{it} / 2": "half", "{it} // 2": "half whole", "{it} / 100": "percent", "{it} * 100": "percent",
        "round({it}, 2)": "round rounded cents", "round({it}, 1)": "round rounded", "round({it})": "round rounded whole",
        "str({it})": "text", "{items}[{it}]": "",
    },
    "text": {
        "{it} == {text}": "", "{it} != {text}": _NOT, "{text} in {it}": _WITHIN, "{text} not in {it}": _NOT,
        "{it}.startswith({text})": "start starts begin begins", "{it}.endswith({text})": "end ends",
        "{it}.lower() == {text}.lower()": _CASE, "{text}.lower() in {it}.lower()": _CASE,
        "{it}.lower().startswith({text}.lower())": _CASE, "{it} < {text}": "before earlier", "{it} > {text}": "after later",
        "{it} >= {text}": "from since or", "{it} <= {text}": "until or",
        "len({it})": "long longer longest length letters characters short shortest size", "{it}.lower()": _CASE,
        "{it}.upper()": "upper capital capitals", "{it}.title()": "title capital capitals", "{it}.capitalize()": "capital capitals",
        "{it}.strip()": "space strip trim blank", "{it}[0]": "first initial initials begin", "{it}[0].upper()": "initial initials",
        "{it}[0].lower()": _CASE, "{it}[-1]": "last end", "{it}[::-1]": "reverse reversed backwards",
        "{it}.isdigit()": "digit digits number", "{it}.isalpha()": "letter letters", "{it}.isupper()": "upper capital capitals",
        "int({it})": "number numbers digit digits", "{record}[{it}]": "", "{record}.get({it}, 0)": "",
        "{it} + {text}": "behind append then add put followed", "{it} * 2": "twice double doubled", "{it}[1:]": "without first rest",
        "{it}[:-1]": "without last", "{it}[1:-1]": "inside without", "{it}[:{number}]": "first up begin", "{it}[:4]": "year",
        "{it}[4:]": "year",
        "{it}[:7]": "month", "{it}[5:7]": "month", "{it}[5:]": "day birthday", "{it}[8:10]": "day",
        "{it}[{number}:]": "without after behind rest", "{it}[-{number}:]": "last end",
        "{it}.replace(' ', '')": "without spaces blanks space", "{it}.replace(' ', '-')": "dash dashes hyphen hyphens",
        "{it}.replace(' ', '_')": "underscore underscores", "{it}.replace(' ', '+')": "plus",
        "{it}.replace({text}, '')": "without remove removed", "{it}.split()": "word words", "{it}.split(',')": "comma commas",
        "{it}.split({text})": "split parts", "{it}.splitlines()": "line lines", "{it}.count({text})": "often many count times",
        "{items}.index({it})": "place position index", "{items}.count({it})": "often many count times",
    },
    "flag": {
        "not {it}": f"{_NOT} open still undone left",
    },
    "items": {
        "len({it})": "many length long count number size", "sum({it})": "sum total altogether",
        "max({it})": "max largest highest biggest best", "min({it})": "min smallest lowest least",
        "sum({it}) / len({it})": "average mean", "sorted({it})": "sort sorted order", "{it}[0]": "first begin", "{it}[-1]": "last end",
        "{it}[1:]": "without first rest", "{it}[:-1]": "without last", "{it}[1:-1]": "without inside middle",
        "{it}[::-1]": "reverse reversed backwards", "{it}[::2]": "second other odd", "{it}[1::2]": "second other even",
        "{it}[:{number}]": "first up begin", "{it}[{number}:]": "without after behind rest", "{it}[-{number}:]": "last end",
        "{it} + {items}": "add append both", "{it} + [{text}]": "add append put", "{it} + [{number}]": "add append put",
        "' '.join({it})": "text words space", "''.join({it})": "text letters together", "', '.join({it})": "comma commas",
        "'\\n'.join({it})": "line lines", "sorted(set({it}))": "differ different distinct unique once",
        "list(dict.fromkeys({it}))": "distinct unique once twice", "len(set({it}))": "differ different distinct unique",
    },
    "record": {
        "len({it})": "many size count number", "list({it})": "keys names", "sorted({it})": "sort sorted order alphabetical",
        "list({it}.values())": "values", "sum({it}.values())": "sum total altogether",
        "max({it}.values())": "max largest highest biggest best", "min({it}.values())": "min smallest lowest least",
        "max({it}, key={it}.get)": "max largest highest biggest best most", "min({it}, key={it}.get)": "min smallest lowest least",
        "{{**{it}, **{record}}}": "merge add update put both entries", "{{**{it}, {text}: {number}}}": "put set add",
    },
})  # fmt: skip
"""What is made of a part of an item, or of what is given, by its kind, with what else is given."""
LONG = _by_kind({
    "number": {
        "{text} * {it}": "times repeat repeated",
    },
    "text": {
        "{it} * {number}": "times repeat repeated", "{it}.zfill({number})": "zero zeros digits",
        "{it}.rjust({number})": "right width wide", "{it}.ljust({number})": "left width wide",
        "{it}.center({number})": "center middle width wide",
    },
})  # fmt: skip
"""What is very long where a number is large."""
OF_ANY = _spoken({
    "{it} in {items}": "in of known allowed", "{it} not in {items}": f"{_NOT} yet", "{it} in {record}": "",
    "{it} not in {record}": f"{_NOT} yet",
})  # fmt: skip
OF_TWO = _spoken({
    "{it} * {other}": "times price cost quantity product worth total value altogether", "{it} + {other}": "sum plus together",
    "{it} - {other}": "difference minus left change", "{it} / {other}": "per divide ratio share", "{it} > {other}": _MORE,
    "{it} < {other}": _LESS, "{it} >= {other}": "least reach", "{it} <= {other}": "most within", "{it} == {other}": "equal same",
})  # fmt: skip
"""What is made of two numbers of an item."""
