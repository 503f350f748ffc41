"""Times of a schedule: when it runs next, and which times passed, in a time zone whose clocks are put forward and back.

A rule is text: `cron 0 8 * * 1-5`, `every 900 from 1764201600` (seconds, and the time that is counted from), or `at 1764568800`. Another
form is `days 14 from 2026-11-30 on 0,3 at 9:30` (days of the calendar, the first one, days after it, and times of the day).

Where the clock is put forward, a time that it jumps over comes when the jump is over, once. Where it is put back, a time that comes twice
counts the first time. Only an expression whose hours begin with a star (every hour, every second hour) counts both. `every` counts seconds
that pass, whatever clocks say. `cronsim` says which dates and times of a calendar without jumps an expression means.
"""

from __future__ import annotations

import datetime
import itertools
import math
import os
import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass

from cronsim import CronSim, CronSimError

from batos.config import nearest
from batos.errors import InvalidInput

SHORTEST_S = 60
"""Shortest time between two runs, in seconds."""
_FIELDS = 5
_RULE_CHARS = 200
_LOCALTIME, _ZONES = "/etc/localtime", "/zoneinfo/"
_WINDOW_S = 48 * 3600.0  # no zone is put forward or back by more; two jumps are further apart
MOST_DAYS = 366
"""Days after which a cycle of days comes again, at most."""
_CYCLE = re.compile(r"(\d{1,3}) from (\d{4}-\d{2}-\d{2}) on (\d{1,3}(?:,\d{1,3}){0,30}) at (\d{1,2}:\d{2}(?:,\d{1,2}:\d{2}){0,30})")
_SECOND = datetime.timedelta(seconds=1)
_EPOCH = datetime.datetime(1970, 1, 1)
_FURTHEST = 2**33  # seconds since the epoch: the year 2242


@dataclass(frozen=True)
class DayCycle:
    """Days of a calendar that come again after a number of days, with times of the day."""

    days: int
    """after which they come again"""
    first: datetime.date
    offsets: tuple[int, ...]
    """the days, counted from the first"""
    times: tuple[datetime.time, ...]

    @classmethod
    def parse(cls, text: str) -> DayCycle:
        """Return the cycle of a rule without its first word.

        :raises ValueError: if it is none.
        """
        found = _CYCLE.fullmatch(text)
        if found is None:
            raise ValueError(text)
        days, offsets = int(found[1]), tuple(sorted({int(one) for one in found[3].split(",")}))
        times = [datetime.time(int(hour), int(minute)) for hour, _, minute in (one.partition(":") for one in found[4].split(","))]
        if not (1 <= days <= MOST_DAYS and offsets[-1] < days):
            raise ValueError(text)
        return cls(days, datetime.date.fromisoformat(found[2]), offsets, tuple(sorted(set(times))))

    def after(self, local: datetime.datetime) -> Iterator[datetime.datetime]:
        """Yield the times of a calendar without jumps that come after one."""
        for number in itertools.count(max(0, (local.date() - self.first).days // self.days)):
            begin = self.first + datetime.timedelta(days=number * self.days)
            for offset, time in itertools.product(self.offsets, self.times):
                found = datetime.datetime.combine(begin + datetime.timedelta(days=offset), time)
                if found > local:
                    yield found


class Timing:
    """Times at which a rule comes, as seconds since the epoch."""

    def __init__(self, rule: str, zone: str) -> None:
        """
        :param rule: see above.
        :param zone: name of a time zone, such as `Europe/Berlin`.
        :raises InvalidInput: for a rule or a zone that is not valid.
        """
        self.rule, self.zone = rule, zone_of(zone)
        kind, _, rest = rule[:_RULE_CHARS].partition(" ")
        self._every = self._from = 0
        self._once = math.inf
        self._cron, self._is_hourly = "", False
        self._cycle: DayCycle | None = None
        try:
            if kind == "every":
                seconds, _, start = rest.partition(" from ")
                self._every, self._from = int(seconds), int(start)
            elif kind == "at":
                self._once = float(rest)
            elif kind == "days":
                self._cycle = DayCycle.parse(rest)
        except ValueError:
            raise InvalidInput(f"{rule!r} is not a rule of a schedule") from None
        if kind == "cron":
            self._cron, self._is_hourly = rest, _check_cron(rest)
        elif not (self._every >= SHORTEST_S or kind in ("at", "days")):
            raise InvalidInput(f"{rule!r} comes too often; the shortest time between two runs is {SHORTEST_S} s")

    def after(self, moment: float) -> float:
        """Return the first time after a moment; infinite if there is none."""
        if moment >= _FURTHEST:
            return math.inf
        if self._every:
            return float(self._from + ((math.floor(moment) - self._from) // self._every + 1) * self._every)
        if not self._cron and self._cycle is None:
            return self._once if self._once > moment else math.inf
        try:
            found = self._repeated(moment) if self._is_hourly else self._fixed(moment)
        except (StopIteration, OverflowError):  # the 30th of February
            return math.inf
        return found if found < _FURTHEST else math.inf

    def next_times(self, moment: float, count: int) -> list[float]:
        """Return the first times after a moment."""
        return list(itertools.islice(self._times(moment), count))

    def passed(self, since: float, until: float, most: int) -> list[float]:
        """Return the last times after `since`, up to and with `until`, in order. Its cost does not grow with the time between them.

        :param most: greatest number of times.
        """
        window_s = 3600.0
        while True:
            begin = max(since, until - window_s)
            found = list(itertools.takewhile(lambda time: time <= until, self._times(begin)))
            if len(found) >= most or begin == since:
                return found[-most:]
            window_s *= 4 if not found else 2

    def local(self, moment: float) -> datetime.datetime:
        """Return a moment as the clocks of the zone show it."""
        return datetime.datetime.fromtimestamp(moment, self.zone)

    def _times(self, moment: float) -> Iterator[float]:
        while (moment := self.after(moment)) < math.inf:
            yield moment

    def _fixed(self, moment: float) -> float:
        """Return the first time after a moment, where each time of a day counts once."""
        return next(time for local in self._calendar(self._wall(moment)) if (time := self._first(local)) > moment)

    def _repeated(self, moment: float) -> float:
        """Return the first time after a moment, where a time that comes twice counts twice.

        Between two jumps of the clock, its time and the calendar's differ by a constant. So the next one is looked for up to the next jump,
        and from there on anew.
        """
        at, wall = float(math.floor(moment)), self._wall(moment)
        while True:
            ahead = self._ahead(at)
            local = next(self._calendar(wall))
            found = _seconds(local) - ahead
            until = min(found, at + _WINDOW_S)
            if self._ahead(until) == ahead:
                if found == until:
                    return found
                at = max(until, found - _WINDOW_S)  # nothing comes between them
                wall = self._wall(at)
                continue
            at = self._jump(at, until, ahead)
            wall = self._wall(at)
            if local <= wall:  # it was jumped over, or comes just then
                return at
            wall -= _SECOND  # what comes with the jump counts

    def _jump(self, before: float, after: float, ahead: float) -> float:
        """Return the first second at which the clock is not ahead of UTC by so much any more."""
        while after - before > 1:
            middle = float((before + after) // 2)
            if self._ahead(middle) == ahead:
                before = middle
            else:
                after = middle
        return after

    def _calendar(self, local: datetime.datetime) -> Iterator[datetime.datetime]:
        """Return the times of the expression after a time of a calendar without jumps."""
        return CronSim(self._cron, local) if self._cycle is None else self._cycle.after(local)

    def _wall(self, moment: float) -> datetime.datetime:
        return self.local(math.floor(moment)).replace(tzinfo=None, fold=0)

    def _ahead(self, moment: float) -> float:
        """Return the seconds by which the clock is ahead of UTC at a moment."""
        offset = self.local(moment).utcoffset()
        assert offset is not None
        return offset.total_seconds()

    def _first(self, local: datetime.datetime) -> float:
        """Return when the clock shows a time, at first; where it jumps over it, when the jump is over."""
        moment = local.replace(tzinfo=self.zone).timestamp()
        shown = self._wall(moment)
        if shown == local:
            return moment
        # Taken by the offset before the jump, a time that does not exist lies after it, by as much as the clock jumped too far.
        ahead = self._ahead(moment)
        return self._jump_before(moment, ahead)

    def _jump_before(self, moment: float, ahead: float) -> float:
        """Return the second at which the clock began to be ahead of UTC by as much as it is at a moment."""
        before, after = moment - _WINDOW_S / 2, moment
        while after - before > 1:
            middle = float((before + after) // 2)
            if self._ahead(middle) == ahead:
                after = middle
            else:
                before = middle
        return after


def _seconds(local: datetime.datetime) -> float:
    return (local - _EPOCH).total_seconds()


def _check_cron(expression: str) -> bool:
    """Return True if the hours of an expression begin with a star.

    :raises InvalidInput: if it is not valid, or never comes.
    """
    fields = expression.split()
    if len(fields) != _FIELDS:
        raise InvalidInput(
            f"the cron expression {expression!r} has {len(fields)} fields; it takes 5: minute, hour, day of the month, month, weekday"
        )
    try:
        next(CronSim(expression, datetime.datetime(2000, 1, 1)))
    except CronSimError as e:
        raise InvalidInput(f"the cron expression {expression!r} is not valid: {e}; write it as 0 8 * * 1-5") from None
    except StopIteration:
        raise InvalidInput(f"the cron expression {expression!r} never comes") from None
    return fields[1].startswith("*")


def zone_of(name: str) -> zoneinfo.ZoneInfo:
    """Return the time zone of a name.

    :raises InvalidInput: if this machine knows none of that name.
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):  # a path, a folder, a name that is none
        known = zoneinfo.available_timezones()
        if not known:
            why = "this machine has no data of time zones; install its package tzdata, or `pip install tzdata`"
            raise InvalidInput(f"the time zone {name!r} is not known: {why}") from None
        hint = nearest(name, sorted(known))
        raise InvalidInput(f"{name!r} is not a time zone{hint}; write one such as Europe/Berlin, America/New_York or UTC") from None


def shown_time(moment: float, zone: str) -> str:
    """Return a time (seconds since the epoch) as clocks of its zone show it; in UTC where this machine does not know the zone."""
    held: datetime.tzinfo
    try:
        held = zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        held = datetime.UTC
    return datetime.datetime.fromtimestamp(moment, held).strftime("%a %Y-%m-%d %H:%M %Z")


def local_zone() -> str:
    """Return the name of this machine's time zone; `UTC` where it does not say."""
    _, found, name = os.path.realpath(_LOCALTIME).partition(_ZONES)
    try:
        return zone_of(name).key if found else "UTC"
    except InvalidInput:
        return "UTC"
