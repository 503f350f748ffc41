"""What is often made of a value, by its kind, and the words by which people ask for it: the parts that methods are put together of.

They stand in `idioms.txt` and `phrases.txt`: expressions in which `{it}` stands for the value, and `{number}`, `{text}`, `{items}`,
`{record}`, `{flag}`, `{date}` and `{moment}` for another of that kind. Where `?` stands in the place of the words, the handbook tells them
(`batos.mind.channel`). Those of `phrases.txt` are many, and looked at only where some of their words are said, one at least of each group
that begins with `!`. They are constants: nothing that a client says is among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from batos.mind.handbook.entries import words_in

LEARNED = "?"
"""What stands in the place of words that the handbook tells."""
_NEEDED = "!"  # what words begin with of which one has to be said, with commas between them
FILE, PHRASES = (Path(__file__).parent / name for name in ("idioms.txt", "phrases.txt"))


class Spoken(NamedTuple):
    """An expression of what stands for `{it}`, with what else there is.

    :ivar words: that speak of it, as `words_in` has them; none where it needs no words.
    :ivar learned: whether the handbook alone tells which words speak of it (`batos.mind.channel`).
    :ivar seldom: whether it is looked at only where some of its words are said.
    :ivar needs: words of which one each has to be said.
    """

    template: str
    words: frozenset[str]
    learned: bool = False
    seldom: bool = False
    needs: tuple[frozenset[str], ...] = ()

    def meant(self, said: frozenset[str]) -> bool:
        """Whether it is looked at, where such words are said."""
        return not self.seldom or (not self.words.isdisjoint(said) and not any(map(said.isdisjoint, self.needs)))


def _pairs() -> Iterator[tuple[str, str]]:
    for line in FILE.read_text("utf-8").partition("[pairs]\n")[2].splitlines():
        one, _, other = line.partition(" | ")
        yield one, other


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
                held = tuple(_entry(one, words, groups, seldom=file == PHRASES) for one, words in told)
                found[title] = (*found.get(title, ()), *held)
    return found


def _entry(template: str, words: str, groups: Mapping[str, str], *, seldom: bool) -> Spoken:
    needs = tuple(words_in(one.replace(",", " ")) for one in words.split() if one.startswith(_NEEDED))
    return Spoken(template, _spoken(words, groups), words == LEARNED, seldom, needs)


def _spoken(words: str, groups: Mapping[str, str]) -> frozenset[str]:
    return words_in(" ".join(groups.get(word, word.replace(",", " ")) for word in words.split()))


def _titled(beginning: str) -> dict[str, tuple[Spoken, ...]]:
    return {title.removeprefix(beginning): held for title, held in _SECTIONS.items() if title.startswith(beginning)}


_SECTIONS = _sections()
PAIRS = tuple(_pairs())
"""Answers in words, of which one is given where something is so, and the other where it is not."""
OF_ANY = _SECTIONS.pop("any")
OF_TWO = _SECTIONS.pop("two")
"""What is made of two numbers of which each may be computed."""
LONG = _titled("long ")
"""What is very long, or takes long, where a number is large."""
NUMERIC = _titled("numeric ")
"""What is made of what holds numbers only: a text times a number may be very long."""
COUNTED = _titled("counted ")
"""What is made of what holds how often each of something is there: much, where that is often."""
MADE_OF = {title: held for title, held in _SECTIONS.items() if " " not in title}
"""What is made of a part of an item, or of what is given, by its kind."""
