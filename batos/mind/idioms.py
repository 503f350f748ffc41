"""What is often made of a value, by its kind, and the words by which people ask for it: the parts that methods are put together of.

They stand in `idioms.txt` and `phrases.txt`: expressions in which `{it}` stands for the value, and `{number}`, `{text}`, `{items}`,
`{record}`, `{flag}`, `{date}` and `{moment}` for another of that kind. Those of `phrases.txt` are many, and each
is looked at only where its words are said, one of each group that begins with `!`. They are constants: nothing that a client says is among
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from batos.concurrency import once
from batos.mind.handbook.entries import words_in

_NEEDED = "!"  # what words begin with of which one has to be said, with commas between them
FILE, PHRASES = (Path(__file__).parent / name for name in ("idioms.txt", "phrases.txt"))
HOLES = re.compile(r"\{(it|number2?|text2?|items|record|flag|date|moment)\}")
KINDS = ("number", "text", "flag", "items", "record", "date", "moment")
"""What `{it}` may be."""


class Spoken(NamedTuple):
    """An expression of what stands for `{it}`, with what else there is.

    :ivar words: that speak of it, as `words_in` has them; none where it needs no words.
    :ivar needs: words of which one each has to be said, or it is not looked at.
    """

    template: str
    words: frozenset[str]
    needs: tuple[frozenset[str], ...] = ()

    def meant(self, said: frozenset[str]) -> bool:
        """Whether it is looked at, where such words are said."""
        return not any(map(said.isdisjoint, self.needs))


def holes(template: str) -> tuple[str, ...]:
    """What stands in an expression for what it is made of, `it` first."""
    return tuple(dict.fromkeys(("it", *HOLES.findall(template))))


class Tables(NamedTuple):
    """What stands in both files.

    :ivar made_of: what is made of a part of an item, or of what is given, by its kind.
    :ivar long: what is very long, or takes long, where a number is large.
    :ivar numeric: what is made of what holds numbers only: a text times a number may be very long.
    :ivar counted: what is made of what holds how often each of something is there: much, where that is often.
    :ivar of_any: what is made of any value.
    :ivar of_two: what is made of two numbers of which each may be computed.
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
    """Answers in words, of which one is given where something is so, and the other where it is not."""
    lines = FILE.read_text("utf-8").partition("[pairs]\n")[2].splitlines()
    return tuple((one, other) for one, _, other in (line.partition(" | ") for line in lines))


@once
def tables() -> Tables:
    """All idioms. Some tenths of a second the first time."""
    found = _sections()

    def titled(beginning: str) -> dict[str, tuple[Spoken, ...]]:
        return {title.removeprefix(beginning): held for title, held in found.items() if title.startswith(beginning)}

    plain = {kind: found[kind] for kind in KINDS}
    return Tables(plain, titled("long "), titled("numeric "), titled("counted "), found["any"], found["two"])


def _sections() -> dict[str, tuple[Spoken, ...]]:
    """What stands in both files, by the title of the section."""
    groups: dict[str, str] = {}
    found: dict[str, tuple[Spoken, ...]] = {}
    for file in (FILE, PHRASES):
        for title, text in re.findall(r"^\[([a-z ]+)\]\n(.*?)(?=^\[[a-z ]+\]\n|\Z)", file.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            told = [[part.strip() for part in line.rpartition("|")[::2]] for line in text.splitlines() if line.strip()]
            if title == "words":
                groups = {f"+{name}": words for name, words in told}
            elif title != "pairs":
                held = tuple(_entry(one, words, groups) for one, words in told)
                found[title] = (*found.get(title, ()), *held)
    return found


def _entry(template: str, words: str, groups: Mapping[str, str]) -> Spoken:
    needs = tuple(words_in(one.replace(",", " ")) for one in words.split() if one.startswith(_NEEDED))
    return Spoken(template, _spoken(words, groups), needs)


def _spoken(words: str, groups: Mapping[str, str]) -> frozenset[str]:
    return words_in(" ".join(groups.get(word, word.replace(",", " ")) for word in words.split()))
