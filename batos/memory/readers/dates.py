"""Days that texts name: in ISO form, in words of some languages, in the forms of chat programs."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable

MONTHS = {name: number for number, names in enumerate(
    ("january jan januar jänner janvier janv enero ene gennaio gen janeiro januari",
     "february feb februar februari février févr fév febrero febr febbraio fevereiro fev",
     "march mar märz mrz mars marzo março maart", "april apr avril avr abril abr aprile", "may mai mayo maggio mag maio mei",
     "june jun juni juin junio giugno giu junho", "july jul juli juillet juil julio luglio lug julho",
     "august aug août agosto ago augustus", "september sep sept septembre septiembre settembre set setembro",
     "october oct oktober okt octobre octubre ottobre ott outubro out", "november nov novembre noviembre novembro",
     "december dec dezember dez décembre déc diciembre dic dicembre dezembro desember"), 1) for name in names.split()}  # fmt: skip
DAY_FIRST, MONTH_FIRST = "day first", "month first"
_WORD = "|".join(sorted(MONTHS, key=len, reverse=True))
_NUMBERS = re.compile(r"(?<!\d)(?P<d>\d{1,2})[./-][ ]?(?P<m>\d{1,2})[./-][ ]?(?P<y>\d{4}|\d{2})(?!\d)")
_FORMS = (
    re.compile(r"(?<!\d)(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)"),
    re.compile(r"(?<!\d)(?P<y>\d{4})[ ]?[年년][ ]?(?P<m>\d{1,2})[ ]?[月월][ ]?(?P<d>\d{1,2})[ ]?[日일]"),
    re.compile(
        rf"(?<!\d)(?P<d>\d{{1,2}})(?:st|nd|rd|th|er|\.|º)?[ ]{{1,3}}(?:(?:of|de)[ ]{{1,3}})?(?P<w>{_WORD})\.?,?[ ]{{1,3}}(?:de[ ]{{1,3}})?"
        r"(?P<y>\d{4})(?!\d)",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?P<w>{_WORD})\.?[ ]{{1,3}}(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?[ ]{{1,3}}(?P<y>\d{{4}})(?!\d)", re.IGNORECASE),
    _NUMBERS,
)
_COMPACT = re.compile(r"(?<!\d)(?P<y>(?:19|20)\d\d)(?P<m>\d\d)(?P<d>\d\d)(?!\d)")
_LAST_CENTURY = 70  # the first year of two digits that is one of the last century


def found(text: str, order: str = DAY_FIRST) -> int:
    """The first day that a short text names, as `datetime.date.toordinal`; 0 if it names none.

    :param order: of two numbers before a year, unless only one of them can be the month.
    """
    for form in _FORMS:
        for match in form.finditer(text):
            if day := _ordinal(match.groupdict(), order if form is _NUMBERS else DAY_FIRST):
                return day
    return 0


def in_name(name: str) -> int:
    """The day that the name of a file names; 0 if it names none."""
    plain = name.replace("_", " ")
    return found(plain) or next((day for match in _COMPACT.finditer(plain) if (day := _ordinal(match.groupdict()))), 0)


def order_of(texts: Iterable[str]) -> tuple[str, bool]:
    """Whether the dates of a file, given in their order, have the day or the month first; and whether that is sure.

    One date that can be only one of both decides. Else it is the order by which time goes forward, in smaller steps.
    """
    pairs = [found for text in texts if (found := _NUMBERS.search(text)) and all(form.search(text) is None for form in _FORMS[:2])]
    if all("." in one[0] for one in pairs):  # nobody writes the month first with full stops
        return DAY_FIRST, True
    first, second = (any(int(one[name]) > 12 for one in pairs) for name in ("d", "m"))
    if first != second:
        return (DAY_FIRST if first else MONTH_FIRST), True
    ways = {}
    for order in (DAY_FIRST, MONTH_FIRST):
        days = [day for one in pairs if (day := _ordinal(one.groupdict(), order))]
        steps = [after - before for before, after in itertools.pairwise(days)]
        ways[order] = (sum(step < 0 for step in steps), sum(map(abs, steps)))
    if ways[DAY_FIRST] == ways[MONTH_FIRST]:
        return DAY_FIRST, all(one["d"] == one["m"] for one in pairs)
    return min(ways, key=lambda order: ways[order]), True


def _ordinal(parts: dict[str, str | None], order: str = DAY_FIRST) -> int:
    year, day = int(parts["y"] or 0), int(parts["d"] or 0)
    month = MONTHS[str(parts["w"]).lower()] if parts.get("w") else int(parts["m"] or 0)
    if year < 100:
        year += 1900 if year >= _LAST_CENTURY else 2000
    if month > 12 >= day or (order == MONTH_FIRST and day <= 12):
        month, day = day, month
    try:
        return datetime.date(year, month, day).toordinal()
    except ValueError:
        return 0
