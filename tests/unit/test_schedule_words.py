"""Words of schedules, as rules; what may mean two things is refused."""

from __future__ import annotations

import datetime
import subprocess
import sys

import pytest

from batos.errors import InvalidInput
from batos.schedules.grammar import rule_of
from batos.schedules.times import Timing

BERLIN = "Europe/Berlin"
NOW = datetime.datetime(2026, 11, 27, 12, 30, tzinfo=datetime.UTC).timestamp()  # a Friday
MIDNIGHT = int(datetime.datetime(2026, 11, 26, 23, 0, tzinfo=datetime.UTC).timestamp())
RULES = {
    "every day at 8": "cron 0 8 * * *",
    "Every Weekday at 8:00": "cron 0 8 * * 1-5",
    "weekdays at 8:00": "cron 0 8 * * 1-5",
    "every monday at 9:30": "cron 30 9 * * 1",
    "every monday, wed and friday at 6 pm": "cron 0 18 * * 1,3,5",
    "mondays at noon": "cron 0 12 * * 1",
    "daily at 12am": "cron 0 0 * * *",
    "every day at 8 and 18": "cron 0 8,18 * * *",
    "on the first of each month at 7": "cron 0 7 1 * *",
    "on the last day of the month at 18:05": "cron 5 18 L * *",
    "every month on the 15th at 7": "cron 0 7 15 * *",
    "every 15 minutes": f"every 900 from {MIDNIGHT}",
    "every 2 hours": f"every 7200 from {MIDNIGHT}",
    "hourly": f"every 3600 from {MIDNIGHT}",
    "in 2 hours": f"at {int(NOW) + 7200}",
    "tomorrow at 8": f"at {MIDNIGHT + 86400 + 8 * 3600}",
    "at 2026-12-01 08:00": f"at {MIDNIGHT + 5 * 86400 - 86400 + 8 * 3600}",
    "every 3 days at 8": "days 3 from 2026-11-28 on 0 at 8:00",
    "every 3 days at 8 and 18:30": "days 3 from 2026-11-27 on 0 at 8:00,18:30",
    "every other day at noon": "days 2 from 2026-11-28 on 0 at 12:00",
    "every second day at 14": "days 2 from 2026-11-27 on 0 at 14:00",
    "every other monday at 9": "days 14 from 2026-11-30 on 0 at 9:00",
    "every other week on monday at 9:05": "days 14 from 2026-11-30 on 0 at 9:05",
    "every 2 weeks on tuesday and friday at 6 pm": "days 14 from 2026-11-23 on 1,4 at 18:00",
    "every 2 weeks on tuesday and friday at 9": "days 14 from 2026-11-30 on 1,4 at 9:00",
    "every third week on sunday at 7": "days 21 from 2026-11-23 on 6 at 7:00",
    "every other weekend at noon": "days 14 from 2026-11-23 on 5,6 at 12:00",
    "every week on monday at 9": "cron 0 9 * * 1",
    "*/5 8-18 * * MON-FRI": "cron */5 8-18 * * MON-FRI",
    "@weekly": "cron 0 0 * * 0",
}


@pytest.mark.parametrize("words", RULES)
def test_words_and_their_rule(words: str) -> None:
    rule = rule_of(words, BERLIN, NOW)
    assert rule == RULES[words]
    assert Timing(rule, BERLIN).after(NOW) > NOW


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "does not begin with"),
        ("when it rains", "does not begin with"),
        ("every day", "time of the day is missing"),
        ("every day at 25", "not a time of the day"),
        ("every day at 13 pm", "not a time of the day"),
        ("every day at 8:00 sharp", "'sharp' is not understood"),
        ("monday at 8", "may mean one day or each"),
        ("on friday at 8", "may mean one day or each"),
        ("every evening at 8", "after `every` comes"),
        ("every 0 minutes", "the number is 0"),
        ("every 30 seconds", "'seconds' is not one of"),
        ("today at 8", "has passed"),
        ("at 2026-02-30 08:00", "is not a date"),
        ("every day at 8:00 and 18:30", "different minutes"),
        ("on the 32nd of each month at 7", "not a day of a month"),
        ("every second monday at 9", "may mean one of each month"),
        ("every other weekday at 9", "may mean two things"),
        ("every 2 weeks at 9", "come its days"),
        ("every 400 days at 9", "1 to 366"),
        ("every 60 weeks on monday at 9", "1 to 52"),
        ("every other year at 9", "come its days"),
        ("every 0 days at 9", "the number is 0"),
        ("x" * 201, "at most 200"),
    ],
)
def test_words_that_are_refused(words: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        rule_of(words, BERLIN, NOW)


@pytest.mark.parametrize(
    "rule",
    [
        "cron 61 * * * *",
        "cron 0 8 * *",
        "cron 0 0 30 2 *",
        "every 59 from 0",
        "every x",
        "sometimes",
        "days 2 from 2026-02-30 on 0 at 8:00",
        "days 2 from 2026-02-01 on 2 at 8:00",
        "days 0 from 2026-02-01 on 0 at 8:00",
    ],
)
def test_rules_that_are_refused(rule: str) -> None:
    with pytest.raises(InvalidInput):
        Timing(rule, BERLIN)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "/etc/localtime", "Europe", ""])
def test_zones_that_are_refused(zone: str) -> None:
    with pytest.raises(InvalidInput, match="is not a time zone"):
        Timing("cron 0 8 * * *", zone)


def test_a_daemon_without_schedules_loads_nothing_for_them() -> None:
    looked = "import sys, batos.app.kernel; print([one for one in ('cronsim', 'zoneinfo', 'batos.schedules.alarm') if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", looked], capture_output=True, text=True, check=True)
    assert "cronsim" not in done.stdout
    assert "alarm" not in done.stdout
