"""Grammar of schedules: what a user writes about when it runs, as a rule (`batos.schedules.times`).

`every weekday at 8:00`, `every monday and friday at 9:30`, `on the first of each month at 7`, `every 15 minutes`, `hourly`,
`every 3 days at 8`, `every other monday at 9`, `every 2 weeks on tuesday and friday at 18`,
`tomorrow at 8`, `at 2026-12-01 08:00`, `in 2 hours`, or a cron expression. A word that the grammar does not have is refused, so that
nothing runs at a time that its user did not mean.
"""

from __future__ import annotations

import datetime
import re

from batos.errors import InvalidInput
from batos.schedules.times import MOST_DAYS, SHORTEST_S, zone_of

_CHARS = 200
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_SETS = {"day": "*", "morning": "*", "weekday": "1-5", "workday": "1-5", "weekend": "6,0"}
_UNITS = {"minute": 60, "hour": 3600}
_LATER = {**_UNITS, "day": 86400, "week": 7 * 86400}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": 0}
_CYCLES = {"second": 2, "third": 3, "fourth": 4, "2nd": 2, "3rd": 3, "4th": 4}
_SHORTHANDS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_CRON = re.compile(r"[0-9*]")
_CRON_FIELD = re.compile(r"[0-9A-Za-z*,/#-]+")
_TIME = re.compile(r"(\d{1,2})(?:[:.](\d{2}))?(am|pm|h)?")
_NUMBER = re.compile(r"\d{1,5}")
_NTH = re.compile(r"(\d{1,2})(?:st|nd|rd|th|\.)?")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_FORMS = (
    "Allowed are: every day at 8, every weekday at 8:00, every monday and friday at 9:30, every day at 8 and 18. "
    "Or on the first of each month at 7, on the last of each month at 18:00. Or every 3 days at 8, every other monday at 9, "
    "every 2 weeks on tuesday at 18. Or every 15 minutes, every 2 hours, hourly. "
    "Or tomorrow at 8, at 2026-12-01 08:00, in 2 hours, or a cron expression such as 0 8 * * 1-5"
)


def rule_of(words: str, zone: str, now: float) -> str:
    """Return the rule that words mean.

    :param zone: name of the time zone of the words.
    :param now: seconds since the epoch; `tomorrow`, `in 2 hours` and the times of `every 2 hours` are counted from it.
    :raises InvalidInput: for words that are not understood, a time that does not exist, and one that has passed.
    """
    text = words.strip()
    if len(text) > _CHARS:
        raise InvalidInput(f"the words of a schedule have {len(text)} characters; at most {_CHARS} are allowed")
    if shorthand := _SHORTHANDS.get(text.lower()):
        return f"cron {shorthand}"
    fields = text.split()
    if len(fields) == 5 and _CRON.match(text) and all(_CRON_FIELD.fullmatch(one) for one in fields):
        return f"cron {' '.join(fields)}"
    return _Reading(text, zone, now).rule()


class _Reading:
    """Words that are read from left to right."""

    def __init__(self, text: str, zone: str, now: float) -> None:
        self._text = text
        self._zone, self._now = zone_of(zone), now
        self._left = text.lower().replace(",", " , ").split()

    def rule(self) -> str:
        found = self._read()
        if self._left:
            raise self._refused(f"{self._left[0]!r} is not understood here")
        return found

    def _read(self) -> str:
        if self._took("hourly"):
            return self._interval(3600)
        if self._took("daily"):
            return self._daily("* * *")
        if self._took("in"):
            return f"at {int(self._now) + self._count() * self._unit(_LATER)}"
        if self._took("today", "tomorrow") is not None:
            ahead = int(self._taken == "tomorrow")
            return self._once(datetime.datetime.fromtimestamp(self._now, self._zone).date() + datetime.timedelta(days=ahead))
        if self._took("every", "each", "on") is not None:
            return self._every() if self._taken != "on" else self._on()
        if self._took("monthly"):
            self._took("on")
            return self._on()
        self._took("at")
        if self._left and (date := _DATE.fullmatch(self._left[0].partition("t")[0])):
            return self._dated(date)
        if days := self._days(plural=True):
            return self._daily(f"* * {days}")
        raise self._refused("it does not begin with every, on, at, in, today, tomorrow, hourly, daily or a day of the week")

    def _every(self) -> str:
        if count := self._cycles():
            return self._cycle(count)
        if self._left and (self._left[0] in _UNITS or _NUMBER.fullmatch(self._left[0])):
            return self._interval(self._count() * self._unit(_UNITS))
        if days := self._days():
            return self._daily(f"* * {days}")
        if self._took("month"):
            self._took("on")
            return self._on()
        if self._took("week"):
            self._took("on")
            if days := self._days():
                return self._daily(f"* * {days}")
        raise self._refused("after `every` comes a day, a number of minutes, hours, days or weeks, or month")

    def _cycles(self) -> int:
        """Take `other`, or a number in front of days or weeks; return the number, 0 if there is neither."""
        word, then = (*self._left[:2], "", "")[:2]
        if word == "other":
            self._left.pop(0)
            return 2
        number = _CYCLES.get(word) or (int(word) if _NUMBER.fullmatch(word) else 0)
        if not number or then not in ("day", "days", "week", "weeks"):
            if word in _CYCLES and _day(then) is not None:
                raise self._refused(f"`every {word} {then}` may mean one of each month; say `every other {then}`, or cron's {then[:3]}#2")
            return 0
        self._left.pop(0)
        return number

    def _cycle(self, count: int) -> str:
        """Return the rule of days that come again after a number of days or weeks. The first one is the next to come."""
        weeks = self._took("week", "weeks") is not None
        if not weeks and self._took("day", "days") is not None:
            if not 1 <= count <= MOST_DAYS:
                raise self._refused(f"a number of days is 1 to {MOST_DAYS}")
            times = self._times()
            today = self._today()
            first = today if self._is_ahead(today, times) else today + datetime.timedelta(days=1)
            return _cycle_rule(count, first, [0], times)
        if weeks:
            self._took("on")
        elif self._left and self._left[0] in ("weekday", "workday", "morning", "weekdays", "workdays", "mornings"):
            raise self._refused(f"`every other {self._left[0]}` may mean two things; say `every other day`, or name the days of the week")
        days = self._days()
        if not days or "*" in days:
            raise self._refused("after a number of weeks come its days: every 2 weeks on monday and thursday at 9")
        if not 1 <= count * 7 <= MOST_DAYS:
            raise self._refused(f"a number of weeks is 1 to {MOST_DAYS // 7}")
        wanted, times, day = _weekdays(days), self._times(), self._today()
        while day.weekday() not in wanted or not self._is_ahead(day, times):
            day += datetime.timedelta(days=1)
        return _cycle_rule(count * 7, day - datetime.timedelta(days=day.weekday()), sorted(wanted), times)

    def _today(self) -> datetime.date:
        return datetime.datetime.fromtimestamp(self._now, self._zone).date()

    def _is_ahead(self, day: datetime.date, times: list[tuple[int, int]]) -> bool:
        """Return True if one of the times of a day is still to come."""
        latest = datetime.datetime.combine(day, datetime.time(*max(times)), self._zone)
        return latest.timestamp() > self._now

    def _on(self) -> str:
        if days := self._days(plural=True):
            return self._daily(f"* * {days}")
        self._took("the")
        day = self._ordinal()
        self._took("day")
        if self._took("of"):
            self._took("each", "every", "the")
            if not self._took("month"):
                raise self._refused("`of` is followed by: each month")
        return self._daily(f"{day} * *")

    def _ordinal(self) -> str:
        word = self._left[0] if self._left else ""
        number = _ORDINALS.get(word, -1)
        if number < 0 and (found := _NTH.fullmatch(word)):
            number = int(found[1])
            if not 1 <= number <= 31:
                raise self._refused(f"{word!r} is not a day of a month")
        if number < 0:
            raise self._refused("a day of the week is missing, or a day of the month: first, 2nd, 15, last")
        self._left.pop(0)
        return str(number) if number else "L"

    def _days(self, *, plural: bool = False) -> str:
        """Take days of the week; return them as a field of cron, empty if there are none.

        :param plural: refuse a day in the singular, which may mean the next one alone.
        """
        found: list[str] = []
        while self._left:
            word = self._left[0]
            if (day := _day(word)) is None:
                break
            if plural and not word.endswith("s"):
                raise self._refused(f"{word!r} may mean one day or each; say `every {word}` for each, or a date")
            found.append(day)
            self._left.pop(0)
            if not (len(self._left) > 1 and self._left[0] in (",", "and") and _day(self._left[1]) is not None):
                break
            self._left.pop(0)
        return "*" if "*" in found else ",".join(found)

    def _daily(self, days: str) -> str:
        """Return the rule of some days, at the times of day that follow."""
        times = self._times()
        if len({minute for _, minute in times}) > 1:
            raise self._refused("its times have different minutes; make a schedule of each")
        hours = ",".join(map(str, sorted({hour for hour, _ in times})))
        return f"cron {times[0][1]} {hours} {days}"

    def _times(self) -> list[tuple[int, int]]:
        self._took("at")
        found = [self._time()]
        while self._took(",", "and") is not None:
            self._took("at")
            found.append(self._time())
        return found

    def _time(self) -> tuple[int, int]:
        if not self._left:
            raise self._refused("the time of the day is missing: at 8, at 8:30, at 6 pm, at noon")
        word = self._left.pop(0)
        if word in ("noon", "midnight"):
            return (12 if word == "noon" else 0), 0
        found = _TIME.fullmatch(word)
        if found is None:
            raise self._refused(f"{word!r} is not a time of the day")
        hour, minute, half = int(found[1]), int(found[2] or 0), found[3] or ""
        if not half and self._took("am", "pm", "o'clock") is not None:
            half = self._taken
        if half in ("am", "pm"):
            if not 1 <= hour <= 12:
                raise self._refused(f"{word!r} is not a time of the day")
            hour = hour % 12 + (12 if half == "pm" else 0)
        if hour > 23 or minute > 59:
            raise self._refused(f"{word!r} is not a time of the day")
        return hour, minute

    def _interval(self, seconds: int) -> str:
        """Return the rule of an interval that is counted from the midnight before now."""
        day = datetime.datetime.fromtimestamp(self._now, self._zone).date()
        midnight = datetime.datetime.combine(day, datetime.time(), self._zone)
        if seconds < SHORTEST_S:
            raise self._refused(f"the shortest time between two runs is {SHORTEST_S} s")
        return f"every {seconds} from {int(midnight.timestamp())}"

    def _count(self) -> int:
        number = 1
        if self._left and _NUMBER.fullmatch(self._left[0]):
            number = int(self._left.pop(0))
        elif self._took("a", "an") is None and self._taken == "in":
            raise self._refused("a number is missing")
        if not number:
            raise self._refused("the number is 0")
        return number

    def _unit(self, units: dict[str, int]) -> int:
        word = self._left[0] if self._left else ""
        seconds = units.get(word) or units.get(word.removesuffix("s"))
        if seconds is None:
            raise self._refused(f"{word!r} is not one of: {', '.join(f'{unit}s' for unit in units)}")
        self._left.pop(0)
        return seconds

    def _dated(self, found: re.Match[str]) -> str:
        word = self._left.pop(0)
        if rest := word.partition("t")[2]:
            self._left.insert(0, rest)
        try:
            day = datetime.date(*map(int, found.groups()))
        except ValueError:
            raise self._refused(f"{word!r} is not a date") from None
        return self._once(day)

    def _once(self, day: datetime.date) -> str:
        times = self._times()
        if len(times) > 1:
            raise self._refused("a schedule that runs once has one time")
        local = datetime.datetime.combine(day, datetime.time(*times[0]), self._zone)
        moment = int(local.timestamp())
        if moment <= self._now:
            raise self._refused("that time has passed")
        return f"at {moment}"

    def _took(self, *words: str) -> str | None:
        """Take the next word if it is one of these."""
        if self._left and self._left[0] in words:
            self._taken = self._left.pop(0)
            return self._taken
        return None

    _taken = ""

    def _refused(self, why: str) -> InvalidInput:
        return InvalidInput(f"the schedule {self._text!r} is not valid: {why}. {_FORMS}")


def _cycle_rule(days: int, first: datetime.date, offsets: list[int], times: list[tuple[int, int]]) -> str:
    said = ",".join(f"{hour}:{minute:02}" for hour, minute in sorted(set(times)))
    return f"days {days} from {first.isoformat()} on {','.join(map(str, offsets))} at {said}"


def _weekdays(field: str) -> set[int]:
    """Return the days of a field of cron, counted from Monday as 0."""
    found: set[int] = set()
    for term in field.split(","):
        first, _, last = term.partition("-")
        found |= {(day - 1) % 7 for day in range(int(first), int(last or first) + 1)}
    return found


def _day(word: str) -> str | None:
    """Return a word for days as a field of cron; None for any other word."""
    for plain in (word, word.removesuffix("s")):
        if plain in _SETS:
            return _SETS[plain]
        for day, name in enumerate(_DAYS):
            if plain == name or plain == name[:3]:
                return str(day)
    return None
