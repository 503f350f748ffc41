"""Statements: what the user tells of himself in a brief, word for word, by rule; no model is asked and nothing is concluded.

A statement is a whole sentence that says something of who speaks ("My name is Kim"), or that he asks to have remembered ("Remember that
…"); a brief of nothing but statements may be of anything ("The bins are collected on Tuesdays."). What is wished, felt, asked, supposed or
quoted is none. A statement too many is shown where it does not belong, one too few has to be told again: so in doubt there is none. How
sentences begin, by language, is data: `statements.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from typing import NamedTuple

from batos.memory.sentences import sentences
from batos.mind.depth import kind_of

LONGEST = 2000
"""Characters of a brief that are looked at: what is longer is a paste."""
_MOST = 12  # statements of one brief
_SENTENCE = 400  # characters of one
_WORDS, _LEAST = 3, 2
"""Words of a statement at least; of one about oneself."""
_QUESTION = re.compile(r"[?？]\W{0,5}$")
_ANNOUNCES = re.compile(r"[:：]\s{0,5}$")


def statements_of(brief: str) -> list[str]:
    """What a brief tells, sentence by sentence, as it stands there; empty where it tells nothing."""
    text, found, alone = brief.partition("```")[0][:LONGEST], list[tuple[str, bool]](), True
    for part in (text[start:end] for start, end in sentences(text)):
        if kept := _asked_to_keep(part):
            found.append((kept, True))
        elif _patterns().text.search(part) and not _patterns().first.match(part):
            alone = False
            break  # what comes after it is what it is about
        elif (surely := _tells(part, after=bool(found))) is not None:
            found.append((part, surely))
        elif not _is_remark(part):
            alone = False
    said = (part for part, surely in found if (surely or alone) and len(part) <= _SENTENCE)
    return list(dict.fromkeys(said))[:_MOST]


def _asked_to_keep(part: str) -> str:
    """What a sentence asks to remember; empty where it asks nothing of the kind."""
    found = _patterns().keep.match(part)
    return part[found.end() :].strip() if found else ""


def _tells(part: str, *, after: bool) -> bool | None:
    """Whether a sentence surely tells something; False: where all others do, too; None: it tells nothing.

    :param after: whether one before it told something.
    """
    patterns, length = _patterns(), len(part.split())
    if _QUESTION.search(part) or _ANNOUNCES.search(part) or patterns.supposed.match(part):
        return None
    if patterns.first.match(part):
        plain = not (patterns.wish.match(part) or patterns.quoted.search(part))
        return True if plain and length >= _LEAST else None
    if after and length >= _WORDS and patterns.anaphora.match(part):
        return True
    return False if patterns.third.match(part) and not patterns.remark.match(part) and kind_of(part)[0] is not True else None


def _is_remark(part: str) -> bool:
    if _QUESTION.search(part) or _patterns().supposed.match(part):
        return False
    return _patterns().remark.match(part) is not None or len(part.split()) < _WORDS


class _Patterns(NamedTuple):
    keep: re.Pattern[str]
    first: re.Pattern[str]
    wish: re.Pattern[str]
    supposed: re.Pattern[str]
    third: re.Pattern[str]
    anaphora: re.Pattern[str]
    remark: re.Pattern[str]
    text: re.Pattern[str]
    quoted: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """The patterns, compiled when a brief is first looked at."""
    table = tomllib.loads(resources.files(__package__).joinpath("statements.toml").read_text("utf-8"))
    greeting, begin = table["greeting"], r"\W{0,5}"
    third = [pattern.replace("{named}", table["named"]) for pattern in table["third"]]

    def compiled(patterns: Iterable[str], before: str = begin, after: str = "", flags: int = re.IGNORECASE) -> re.Pattern[str]:
        return re.compile(f"{before}(?:{'|'.join(_each(patterns))}){after}", flags)

    return _Patterns(
        keep=compiled(table["keep"], rf"{begin}(?:(?:please|bitte|por favor|per favore|alsjeblieft),? )?", r"\s{0,5}"),
        first=compiled(table["first"], rf"{begin}{greeting}(?:and |also,? |und |et |y |e |en )?", r"(?= |['’])"),
        wish=compiled(table["wish"], rf"{begin}{greeting}"),
        supposed=compiled(table["supposed"]),
        third=compiled(third, flags=0),
        anaphora=compiled(table["anaphora"]),
        remark=compiled(table["remark"]),
        text=compiled(table["text"], before=""),
        quoted=compiled(table["quoted"], before=""),
    )


def _each(patterns: Iterable[str]) -> Iterator[str]:
    return (f"(?:{pattern})" for pattern in patterns)
