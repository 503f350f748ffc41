"""Days that texts name: in ISO form, in words, in the forms of chat programs."""

from __future__ import annotations

import datetime
import re

MONTHS = {name: number for number, names in enumerate(
    ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug", "september sep sept",
     "october oct", "november nov", "december dec"), 1) for name in names.split()}  # fmt: skip
_WORD = "|".join(sorted(MONTHS, key=len, reverse=True))
_FORMS = (
    re.compile(r"(?<!\d)(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)"),
    re.compile(rf"(?<!\d)(?P<d>\d{{1,2}})(?:st|nd|rd|th)?[ ]+(?:of[ ]+)?(?P<w>{_WORD})\.?,?[ ]+(?P<y>\d{{4}})(?!\d)", re.IGNORECASE),
    re.compile(rf"\b(?P<w>{_WORD})\.?[ ]+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?[ ]+(?P<y>\d{{4}})(?!\d)", re.IGNORECASE),
    re.compile(r"(?<!\d)(?P<d>\d{1,2})[./-](?P<m>\d{1,2})[./-](?P<y>\d{4}|\d{2})(?!\d)"),
)
_COMPACT = re.compile(r"(?<!\d)(?P<y>(?:19|20)\d\d)(?P<m>\d\d)(?P<d>\d\d)(?!\d)")


def found(text: str) -> int:
    """The first day that a short text names, as `datetime.date.toordinal`; 0 if it names none.

    Of two numbers before a year the first is the day, unless it can only be the month.
    """
    for form in _FORMS:
        for match in form.finditer(text):
            if day := _ordinal(match.groupdict()):
                return day
    return 0


def in_name(name: str) -> int:
    """The day that the name of a file names; 0 if it names none."""
    plain = name.replace("_", " ")
    return found(plain) or next((day for match in _COMPACT.finditer(plain) if (day := _ordinal(match.groupdict()))), 0)


def _ordinal(parts: dict[str, str | None]) -> int:
    year, day = int(parts["y"] or 0), int(parts["d"] or 0)
    month = MONTHS[str(parts["w"]).lower()] if parts.get("w") else int(parts["m"] or 0)
    if year < 100:
        year += 2000
    if month > 12 >= day:
        month, day = day, month
    try:
        return datetime.date(year, month, day).toordinal()
    except ValueError:
        return 0
