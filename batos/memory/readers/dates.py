"""Dates in texts and names of files: in ISO form, in words of some languages, and in the formats of chat programs.

They are for the readers' processes: these patterns take half a megabyte.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable

MONTHS = {name: number for number, names in enumerate(
    (
     "january jan januar jänner janvier janv enero ene gennaio gen janeiro januari января январь янв січня stycznia styczeń ledna ocak"
     " tammikuuta január januára ianuarie ιανουαρίου sausio jaanuar يناير जनवरी ינואר",
     "february feb februar februari février févr fév febrero febr febbraio fevereiro fev февраля февраль фев лютого lutego luty února"
     " şubat helmikuuta február februára februarie φεβρουαρίου vasario فبراير फ़रवरी फरवरी פברואר",
     "march mar märz mrz mars marzo março maart марта март мар березня marca marzec března mart marts maaliskuuta március martie"
     " μαρτίου kovo مارس मार्च מרץ",
     "april apr avril avr abril abr aprile апреля апрель апр квітня kwietnia kwiecień dubna nisan huhtikuuta április apríla aprilie"
     " απριλίου balandžio أبريل ابريل अप्रैल אפריל",
     "may mai mayo maggio mag maio mei мая май травня maja maj května mayıs toukokuuta május mája μαΐου μαίου gegužės مايو मई מאי",
     "june jun juni juin junio giugno giu junho июня июнь июн червня czerwca czerwiec června haziran kesäkuuta június júna iunie"
     " ιουνίου birželio يونيو जून יוני",
     "july jul juli juillet juil julio luglio lug julho июля июль июл липня lipca lipiec července temmuz heinäkuuta július júla iulie"
     " ιουλίου liepos يوليو जुलाई יולי",
     "august aug août agosto ago augustus augusti августа август авг серпня sierpnia sierpień srpna ağustos elokuuta augusztus augusta"
     " αυγούστου rugpjūčio أغسطس अगस्त אוגוסט",
     "september sep sept septembre septiembre settembre set setembro сентября сентябрь сен вересня września wrzesień září eylül"
     " syyskuuta szeptember septembra septembrie σεπτεμβρίου rugsėjo سبتمبر सितंबर सितम्बर ספטמבר",
     "october oct oktober okt octobre octubre ottobre ott outubro out октября октябрь окт жовтня października październik října ekim"
     " lokakuuta október októbra octombrie οκτωβρίου spalio أكتوبر अक्टूबर אוקטובר",
     "november nov novembre noviembre novembro ноября ноябрь ноя листопада listopada listopad listopadu kasım marraskuuta noiembrie"
     " νοεμβρίου lapkričio نوفمبر नवंबर नवम्बर נובמבר",
     "december dec dezember dez décembre déc diciembre dic dicembre dezembro desember декабря декабрь дек грудня grudnia grudzień"
     " prosince aralık joulukuuta decembra decembrie δεκεμβρίου gruodžio ديسمبر दिसंबर दिसम्बर דצמבר"),
    1) for name in names.split()}  # fmt: skip
DAY_FIRST, MONTH_FIRST = "day first", "month first"
_WORD = "|".join(sorted(MONTHS, key=len, reverse=True))
_NUMBERS = re.compile(r"(?<!\d)(?P<d>\d{1,2})[./-][ ]?(?P<m>\d{1,2})[./-][ ]?(?P<y>\d{4}|\d{2})(?!\d)")
_FORMS = (
    re.compile(r"(?<!\d)(?P<y>\d{4})[-/.][ ]?(?P<m>\d{1,2})[-/.][ ]?(?P<d>\d{1,2})(?!\d)"),
    re.compile(r"(?<!\d)(?P<y>\d{4})[ ]?[年년][ ]?(?P<m>\d{1,2})[ ]?[月월][ ]?(?P<d>\d{1,2})[ ]?[日일]"),
    re.compile(
        rf"(?<!\d)(?P<d>\d{{1,2}})(?:st|nd|rd|th|er|\.|º)?[ ]{{1,3}}(?:(?:of|de)[ ]{{1,3}})?(?P<w>{_WORD})\.?,?[ ]{{1,3}}(?:de[ ]{{1,3}})?"
        r"(?P<y>\d{4})(?!\d)",
        re.IGNORECASE,
    ),
    re.compile(rf"(?<!\d)(?P<y>\d{{4}})\.?[ ]{{1,3}}(?P<w>{_WORD})\.?[ ]{{1,3}}(?P<d>\d{{1,2}})(?!\d)", re.IGNORECASE),
    re.compile(rf"\b(?P<w>{_WORD})\.?[ ]{{1,3}}(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?[ ]{{1,3}}(?P<y>\d{{4}})(?!\d)", re.IGNORECASE),
    re.compile(rf"(?<!\d)(?P<d>\d{{1,2}})-(?P<w>{_WORD})-(?P<y>\d{{4}}|\d{{2}})(?!\d)", re.IGNORECASE),
    _NUMBERS,
)
_COMPACT = re.compile(r"(?<!\d)(?P<y>(?:19|20)\d\d)(?P<m>\d\d)(?P<d>\d\d)(?!\d)")
_LAST_CENTURY = 70  # the first two-digit year that belongs to the last century
_BUDDHIST, _BUDDHIST_YEARS = 543, range(2400, 2700)  # years in the calendar of Thailand


def day_in(text: str, order: str = DAY_FIRST) -> int:
    """Return the first day that a short text names, as `datetime.date.toordinal`; 0 if it names none.

    :param order: order of two numbers before a year, unless only one of them can be the month.
    """
    for form in _FORMS:
        for match in form.finditer(text):
            if day := _ordinal(match.groupdict(), order if form is _NUMBERS else DAY_FIRST):
                return day
    return 0


def day_in_name(name: str) -> int:
    """Return the day that the name of a file names; 0 if it names none."""
    plain = name.replace("_", " ")
    return day_in(plain) or next((day for match in _COMPACT.finditer(plain) if (day := _ordinal(match.groupdict()))), 0)


_AS_AMERICANS = re.compile(r"(?<!\d)[1-9]\d?/[1-9]\d?/\d\d(?:\d\d)?,? {1,3}[1-9]\d?:\d\d(?::\d\d)?[ \u202f\xa0]?[AP]M")
"""Matches how programs of the United States write a time: with capitals, and no zero before a number."""


def date_order(texts: Iterable[str]) -> tuple[str, bool]:
    """Return the order of day and month in the dates of a file, and True if that is certain. The dates are given in the file's order.

    One date that allows only one reading decides. Otherwise the order wins in which time moves forward, in smaller steps.
    """
    held = list(texts)
    pairs = [found for text in held if (found := _NUMBERS.search(text)) and all(form.search(text) is None for form in _FORMS[:2])]
    if all("." in one[0] for one in pairs):  # dates with full stops never have the month first
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
        if all(map(_AS_AMERICANS.search, held)):
            return MONTH_FIRST, all(one["d"] == one["m"] for one in pairs)
        return DAY_FIRST, all(one["d"] == one["m"] for one in pairs)
    return min(ways, key=lambda order: ways[order]), True


def _ordinal(parts: dict[str, str | None], order: str = DAY_FIRST) -> int:
    year, day = int(parts["y"] or 0), int(parts["d"] or 0)
    month = MONTHS[str(parts["w"]).lower()] if parts.get("w") else int(parts["m"] or 0)
    if year < 100:
        year += 1900 if year >= _LAST_CENTURY else 2000
    year -= _BUDDHIST if year in _BUDDHIST_YEARS else 0
    if month > 12 >= day or (order == MONTH_FIRST and day <= 12):
        month, day = day, month
    try:
        return datetime.date(year, month, day).toordinal()
    except ValueError:
        return 0
