"""Question analysis before a search: words, the text for the dense channel, names, days, and the kind of answer wanted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from datetime import MAXYEAR, MINYEAR, date, timedelta
from typing import NamedTuple

from batos.memory.segments import NUMBER, WHEN, folded_key
from batos.memory.tokenizer import STOP, content_words, former, words

_NAME_WORDS = 3
"""Greatest number of words of a name."""
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH = {name[:size]: number for number, name in enumerate(_MONTHS, 1) for size in (3, len(name))} | {"sept": 9}
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|\d+")
_POSSESSIVE = re.compile(r"['’]s?$")

_ISO = re.compile(r"\b(?P<year>\d{4})-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?\b")
_SPOKEN = re.compile(
    r"\b(?:(?P<before>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?)?"
    rf"(?P<month>{'|'.join(sorted(_MONTH, key=len, reverse=True))})\b\.?"
    r"(?:\s+(?P<after>\d{1,2})(?:st|nd|rd|th)?\b)?"
    r"(?:,?\s+(?:of\s+)?(?P<year>\d{4})\b)?"
)
"""Matches dates in words: 7 May 2023, 7th of May, May 7, May 7th, 2023, May 2023, Sept. 2023."""
_DATED = re.compile(rf"\d|{'|'.join(name[:3] for name in _MONTHS)}")
_IN = re.compile(r"\b(?:in|of|since|last|next|during|until|till|by|from|before|after)\s+$")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_RELATIVE = re.compile("day|week|month|year")
_AGO = re.compile(r"\b(\d{1,4}|a|an|one|two|three|four|five|six|seven|ten) (day|week|month|year)s? ago\b")
_COUNTED = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "ten": 10}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}

_ASKS_WHEN = re.compile(
    r"^\W*(?:\w+\W+){0,2}when\b|\b(?:what|which) (?:\w+ )?(?:year|month|date|day|time)\b|\bhow long ago\b|\bsince when\b"
)
_ASKS_NUMBER = re.compile(r"\bhow (?:many|much|long|often|old|far|tall|big|large|old)\b|\b(?:what|which) (?:number|age|percentage|price)\b")
_BRIDGES = re.compile(
    r"^\W*(?:\w+\W+){3,}(?:who|whom|whose|which|that|where|what)\b"  # the company that made it; by a firm in which town?
    r"|\b(?:of|by|in|at|for|from|with|to) (?:the|a|an) [\w' -]*?\bof\b"  # the mother of the director of it
    r"|^\W*(?:where|when|(?:what|which) \w+) (?:is|are|was|were|do|does|did|has|had) (?:the|a|an) [\w' -]*?\bof\b"  # its director's town
    r"|\b(?:same|both)\b"
)


class Span(NamedTuple):
    """Days from the first to the last, each `date.toordinal()`."""

    first: int
    last: int


class Question(NamedTuple):
    """A question, understood."""

    text: str
    words: list[str]
    """Index terms of the question."""
    cleaned: str
    """Text for the dense channel, without stop words and without names that are facets; the whole text if nothing else is left."""
    speakers: tuple[int, ...]
    """Keys of the speakers that the question names. A name that several speakers share gives several keys."""
    people: int
    """Number of names of speakers in the question."""
    spans: tuple[Span, ...]
    """Spans of days that the question names. A day gives its day, its month and its year, so that near misses count too."""
    wants: int
    """Flags that an answer must have: WHEN, NUMBER."""
    bridges: bool
    """True if the question identifies a thing only by its relation to another thing."""


def parse_question(
    text: str,
    speakers: Set[int] = frozenset(),
    *,
    called: Callable[[str], Iterable[int]] = lambda name: (),
    days: Callable[[], Span | None] = lambda: None,
    today: date | None = None,
) -> Question:
    """Return the parsed question.

    :param speakers: keys (`speaker_key`) of the speakers in the catalogue.
    :param called: returns keys of speakers whose names begin with a name, given its casefolded words: "caroline" is Caroline Smith, too.
    :param days: returns the first and last day of the catalogue; called if the question names a month without a year.
    :param today: day that "yesterday" and "last week" count from; without it they are ignored.
    """
    low = text.lower()
    named, parts, people = _names(text, speakers, called)
    cleaned = " ".join(word for word in content_words(text) if word not in parts)
    wants = (WHEN if _ASKS_WHEN.search(low) else 0) | (NUMBER if _ASKS_NUMBER.search(low) else 0)
    spans = (*_dates(low, days), *(_relative(low, today) if today is not None else ()))
    return Question(text, [*words(text), *former(text)], cleaned or text, named, people, spans, wants, bool(_BRIDGES.search(low)))


def _names(text: str, speakers: Set[int], called: Callable[[str], Iterable[int]]) -> tuple[tuple[int, ...], set[str], int]:
    """Return the keys of the named speakers, the words of their names, and the number of names. Longer names come first."""
    said = [_POSSESSIVE.sub("", word) if not word.isalnum() else word for word in _WORD.findall(text)]
    low = [word.casefold() for word in said]
    written = text[1:] != text[1:].lower()
    keys: dict[int, None] = {}
    names: set[str] = set()
    taken: set[int] = set()
    for size in range(_NAME_WORDS, 0, -1):
        for at in range(len(said) - size + 1):
            if (taken and not taken.isdisjoint(range(at, at + size))) or (size == 1 and _only_a_word(said[at], at, written)):
                continue
            name = " ".join(low[at : at + size])
            those = (folded_key(name), *called(name))
            if not speakers.isdisjoint(those):
                keys |= dict.fromkeys(key for key in those if key in speakers)
                names.add(name)
                taken |= set(range(at, at + size))
    return tuple(keys), {part for name in names for part in content_words(name)}, len(names)


def _only_a_word(name: str, at: int, written: bool) -> bool:
    """Return True if a word that may be a name is not one. Examples are `will` and `may` at the start or in lower case, and `mark` in lower
    case where other names have capitals.
    """
    return (name.islower() and (written or name in STOP)) or (at == 0 and name.casefold() in STOP)


def _dates(low: str, days: Callable[[], Span | None]) -> list[Span]:
    spans: list[Span] = []
    if not _DATED.search(low):  # most questions have no date: the expressions below take longer
        return spans
    for match in _ISO.finditer(low):
        spans += _nested(int(match["year"]), int(match["month"]), _number(match["day"]), days)
    low = _ISO.sub(" ", low)
    for match in _SPOKEN.finditer(low):
        year, day = _number(match["year"]), _number(match["before"] or match["after"])
        # "may", "mar" and "march" are verbs as well
        if year is not None or day is not None or _IN.search(low, 0, match.start()):
            spans += _nested(year, _MONTH[match["month"]], day, days)
    for match in _YEAR.finditer(_SPOKEN.sub(" ", low)):
        spans += _nested(int(match[0]), None, None, days)
    return list(dict.fromkeys(spans))


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _nested(year: int | None, month: int | None, day: int | None, days: Callable[[], Span | None]) -> list[Span]:
    """Return the year, the month in it and the day in that, as far as they are given and exist. Without a year, return them for each year
    that `days` touches.
    """
    if year is not None:
        years = range(year, year + 1)
    elif (known := days()) is not None:
        years = range(date.fromordinal(known.first).year, date.fromordinal(known.last).year + 1)
    else:
        return []
    spans = []
    for one in years:
        if not MINYEAR < one < MAXYEAR:
            continue
        if year is not None:
            spans.append(Span(date(one, 1, 1).toordinal(), date(one, 12, 31).toordinal()))
        if month is not None and 1 <= month <= 12:
            begin = date(one, month, 1)
            after = date(one + month // 12, month % 12 + 1, 1)
            spans.append(Span(begin.toordinal(), after.toordinal() - 1))
            if day is not None and 1 <= day <= (after - begin).days:
                spans.append(Span(begin.toordinal() + day - 1, begin.toordinal() + day - 1))
    return spans


def _relative(low: str, today: date) -> list[Span]:
    if not _RELATIVE.search(low):
        return []
    now = today.toordinal()
    monday = now - today.weekday()
    month = today.replace(day=1)
    before = (month - timedelta(days=1)).replace(day=1)
    known = {
        "today": Span(now, now),
        "yesterday": Span(now - 1, now - 1),
        "this week": Span(monday, now),
        "last week": Span(monday - 7, monday - 1),
        "this month": Span(month.toordinal(), now),
        "last month": Span(before.toordinal(), month.toordinal() - 1),
        "this year": Span(date(today.year, 1, 1).toordinal(), now),
        "last year": Span(date(today.year - 1, 1, 1).toordinal(), date(today.year - 1, 12, 31).toordinal()),
    }
    spans = [span for words_, span in known.items() if re.search(rf"\b{words_}\b", low)]
    for match in _AGO.finditer(low):
        unit = _UNIT_DAYS[match[2]]
        middle = now - (int(match[1]) if match[1].isdigit() else _COUNTED[match[1]]) * unit
        if middle > unit:  # day 0 marks chunks without a day
            spans.append(Span(middle - unit // 2, middle + unit // 2))
    return spans
