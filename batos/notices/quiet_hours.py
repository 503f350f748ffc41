"""Quiet hours of a channel: a span of each day in a time zone, in which BAT OS sends nothing to it."""

from __future__ import annotations

import datetime
import re

from batos.errors import InvalidInput
from batos.schedules.times import zone_of

_SPAN = re.compile(r"(\d{1,2})(?::(\d{2}))?-(\d{1,2})(?::(\d{2}))?")


class QuietHours:
    """A span of each day; one that ends before it begins goes over midnight."""

    def __init__(self, text: str, zone: str) -> None:
        """
        :param text: such as `22:00-7:00`; empty: no quiet hours.
        :param zone: name of a time zone.
        :raises InvalidInput: if one of them is not valid.
        """
        self._zone = zone_of(zone)
        self._begin = self._end = datetime.time()
        if not text:
            return
        found = _SPAN.fullmatch(text.replace(" ", ""))
        try:
            if found is None:
                raise ValueError
            self._begin = datetime.time(int(found[1]), int(found[2] or 0))
            self._end = datetime.time(int(found[3]), int(found[4] or 0))
        except ValueError:
            raise InvalidInput(f"the quiet hours {text!r} are not valid; write them as 22:00-7:00") from None
        if self._begin == self._end:
            raise InvalidInput(f"the quiet hours {text!r} begin when they end; `batos notices pause` makes a channel rest")

    def until(self, moment: float) -> float:
        """Return when the quiet hours end that a moment lies in, in seconds since the epoch; the moment itself outside of them."""
        if self._begin == self._end:
            return moment
        local = datetime.datetime.fromtimestamp(moment, self._zone)
        now, over_midnight = local.time(), self._begin > self._end
        inside = now >= self._begin or now < self._end if over_midnight else self._begin <= now < self._end
        if not inside:
            return moment
        day = local.date() + datetime.timedelta(days=int(over_midnight and now >= self._begin))
        return max(moment, datetime.datetime.combine(day, self._end, self._zone).timestamp())
