"""Times of schedules against a model that goes from minute to minute: zones, changes of the clock, leap days."""

from __future__ import annotations

import datetime
import functools
import math
import zoneinfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from batos.schedules.times import Timing

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kathmandu", "Africa/Casablanca",
    "Africa/Cairo", "Pacific/Apia", "America/St_Johns", "Asia/Beirut", "Europe/Dublin", "Pacific/Chatham", "America/Havana",
)  # fmt: skip
MINUTE, HOUR, DAY = 60, 3600, 86400


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.integers(1, 20).map(lambda step: f"*/{step}")
    return st.one_of(
        st.just("*"), number.map(str), spans, steps, st.lists(number, min_size=2, max_size=3).map(lambda few: ",".join(map(str, few)))
    )


expressions = st.tuples(
    field(0, 59), field(0, 23), st.one_of(st.just("*"), field(1, 28)), st.just("*"), st.one_of(st.just("*"), field(0, 6))
)


@functools.cache
def jumps(zone: zoneinfo.ZoneInfo, year: int) -> list[int]:
    """The hours of a year in which the clock is put forward or back."""
    begin = int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp())
    return [at for at in range(begin, begin + 366 * DAY, HOUR) if ahead(at, zone) != ahead(at + HOUR, zone)]


def ahead(moment: float, zone: zoneinfo.ZoneInfo) -> datetime.timedelta:
    offset = datetime.datetime.fromtimestamp(moment, zone).utcoffset()
    assert offset is not None
    return offset


@st.composite
def moments(draw: st.DrawFn, zone: str) -> int:
    """A whole minute, most often close to a change of the clock."""
    year = draw(st.sampled_from([2011, 2024, 2026]))
    found = jumps(zoneinfo.ZoneInfo(zone), year)
    if found and draw(st.integers(0, 4)):
        return draw(st.sampled_from(found)) + draw(st.integers(-30 * 60, 5 * 60)) * MINUTE
    return int(datetime.datetime(year, 2, 27, tzinfo=datetime.UTC).timestamp()) + draw(st.integers(0, 3 * 24 * 60)) * MINUTE


@functools.cache
def values(text: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for term in text.split(","):
        span, _, step = term.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)


def fits(expression: str, local: datetime.datetime) -> bool:
    """Whether a calendar without jumps shows a time of the expression."""
    minute, hour, day, _, weekday = expression.split()
    by_day, by_weekday = local.day in values(day, 1, 31), (local.weekday() + 1) % 7 in values(weekday, 0, 6)
    both = day.startswith("*") or weekday.startswith("*")
    on_day = (by_day and by_weekday) if both else (by_day or by_weekday)
    return on_day and local.minute in values(minute, 0, 59) and local.hour in values(hour, 0, 23)


def naive(expression: str, zone: str, since: int, until: int) -> list[float]:
    """The times of an expression, minute by minute."""
    held, found = zoneinfo.ZoneInfo(zone), []
    hourly = expression.split()[1].startswith("*")
    for at in range(since + MINUTE, until + 1, MINUTE):
        local = datetime.datetime.fromtimestamp(at, held)
        before = datetime.datetime.fromtimestamp(at - MINUTE, held).replace(tzinfo=None, fold=0) + datetime.timedelta(minutes=1)
        shown = local.replace(tzinfo=None, fold=0)
        comes = fits(expression, shown) and (hourly or not local.fold)
        while not comes and before < shown:  # minutes that the clock jumped over
            comes, before = fits(expression, before), before + datetime.timedelta(minutes=1)
        if comes:
            found.append(float(at))
    return found


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(ZONES), expressions)
def test_times_of_an_expression_are_those_of_a_clock_that_is_watched(data: st.DataObject, zone: str, fields: tuple[str, ...]) -> None:
    expression = " ".join(fields)
    since = data.draw(moments(zone))
    until = since + DAY
    timing, expected = Timing(f"cron {expression}", zone), naive(expression, zone, since, until)
    found, at = [], float(since)
    while (at := timing.after(at)) <= until:
        found.append(at)
    assert found == expected
    assert timing.passed(since, until, 10**6) == expected
    assert timing.passed(since, until, 3) == expected[-3:]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(ZONES), st.integers(1, 100), st.integers(0, 2**31), st.integers(-(10**7), 10**7))
@example("Europe/Berlin", 15, 1_792_890_000, 0)
def test_an_interval_goes_by_seconds_that_pass(zone: str, minutes: int, start: int, later: int) -> None:
    timing = Timing(f"every {minutes * MINUTE} from {start}", zone)
    first, second = timing.next_times(start + later, 2)
    assert second - first == minutes * MINUTE
    assert start + later < first <= start + later + minutes * MINUTE
    assert (first - start) % (minutes * MINUTE) == 0


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(ZONES), st.integers(1, 20), st.integers(0, 23), st.integers(0, 59))
def test_days_that_come_again_are_counted_by_the_calendar(data: st.DataObject, zone: str, days: int, hour: int, minute: int) -> None:
    offsets = data.draw(st.sets(st.integers(0, days - 1), min_size=1, max_size=3))
    since = data.draw(moments(zone))
    held = zoneinfo.ZoneInfo(zone)
    first = datetime.datetime.fromtimestamp(since, held).date() - datetime.timedelta(days=data.draw(st.integers(-30, 400)))
    rule = f"days {days} from {first.isoformat()} on {','.join(map(str, sorted(offsets)))} at {hour}:{minute:02}"
    daily = naive(f"{minute} {hour} * * *", zone, since, since + 3 * DAY)
    wanted = [at for at in daily if _counts(at, held, (hour, minute), first, days, offsets)]
    assert Timing(rule, zone).passed(since, since + 3 * DAY, 10**6) == wanted


def _counts(at: float, zone: zoneinfo.ZoneInfo, clock: tuple[int, int], first: datetime.date, days: int, offsets: set[int]) -> bool:
    """Whether a daily time is of a day of the cycle. A time that was jumped over belongs to the day that lacks it."""
    shown, before = (datetime.datetime.fromtimestamp(one, zone).replace(tzinfo=None, fold=0) for one in (at, at - MINUTE))
    step, found = datetime.timedelta(minutes=1), [shown]
    while (before := before + step) < shown:
        found.append(before)
    passed = [(one.date() - first).days for one in found if (one.hour, one.minute) == clock]
    return any(one >= 0 and one % days in offsets for one in passed)


def test_a_leap_day_comes_each_fourth_year_and_one_that_never_comes_ends() -> None:
    timing = Timing("cron 0 8 29 2 *", "UTC")
    begin = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC).timestamp()
    assert [timing.local(at).isoformat() for at in timing.next_times(begin, 2)] == [
        "2028-02-29T08:00:00+00:00",
        "2032-02-29T08:00:00+00:00",
    ]
    assert timing.after(2.0**33) == math.inf
    once = Timing("at 1000", "UTC")
    assert once.next_times(0, 5) == [1000.0]
    assert once.after(1000) == math.inf
    assert once.passed(0, 5000, 9) == [1000.0]
