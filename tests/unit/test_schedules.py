"""Schedules: each time makes one mission, whatever becomes of the daemon and its clock."""

from __future__ import annotations

import datetime
import random
from collections.abc import AsyncIterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from batos.bus import MissionEnded, ScheduleStopped
from batos.errors import InvalidInput
from batos.image import ledger
from batos.schedules import book
from tests.support.schedules import Book, HandClock, opened

HOUR, DAY = 3600.0, 86400.0
BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()
HOURLY = "cron 0 * * * *"


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Book]:
    async with opened(tmp_path) as made:
        yield made


def stamp(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")


def hours(first: float, last: float) -> list[str]:
    """The full hours after a time, up to another one."""
    return [stamp(at) for at in range(int(first // HOUR + 1) * 3600, int(last) + 1, 3600)]


async def test_a_year_of_mornings(held: Book) -> None:
    await held.add("cron 30 2 * * 1-5", BEGIN, zone="Europe/Berlin", name="early")
    await held.add(f"every 86400 from {int(BEGIN)}", BEGIN, name="daily")
    async with held.alarm(HandClock(BEGIN, BEGIN + 365 * DAY), look_s=6 * HOUR):
        pass
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(days=n) for n in range(365)]
    berlin = ZoneInfo("Europe/Berlin")
    # 29 March 2026, when 2:30 does not exist, and 25 October, when it comes twice, are Sundays
    early = [stamp(datetime.datetime(d.year, d.month, d.day, 2, 30, tzinfo=berlin).timestamp()) for d in days if d.weekday() < 5]
    early = [one for one in early if one > stamp(BEGIN)]
    found = [id for id in held.missions() if "-early-" in id]
    assert [id.rpartition("-")[2] for id in found] == early
    assert [id.rpartition("-")[2] for id in held.missions() if "-daily-" in id] == [stamp(BEGIN + n * DAY) for n in range(1, 366)]


@pytest.mark.parametrize("missed", book.MISSED)
async def test_times_that_passed_without_a_daemon(held: Book, missed: str) -> None:
    await held.add(HOURLY, BEGIN, missed=missed)
    away = BEGIN + 5.5 * HOUR
    async with held.alarm(HandClock(away, away + 2 * HOUR)):
        pass
    later = hours(away, away + 2 * HOUR)
    before = {"once": [stamp(BEGIN + 5 * HOUR)], "skip": [], "all": hours(BEGIN, away)}[missed]
    assert held.planned() == before + later


async def test_missed_times_are_bounded(held: Book) -> None:
    await held.add("cron * * * * *", BEGIN, missed="all")
    away = BEGIN + 10 * 365 * DAY
    async with held.alarm(HandClock(away, away + 1)):
        pass
    assert held.planned() == [stamp(away - n * 60) for n in range(99, -1, -1)]


@pytest.mark.parametrize("seed", range(8))
async def test_a_clock_that_jumps_and_a_daemon_that_restarts(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with opened(tmp_path) as held:
        await held.add(HOURLY, BEGIN, missed="all")
    at = high = BEGIN
    reached: set[str] = set()
    for _ in range(6):
        async with opened(tmp_path) as held:
            clock = HandClock(at, at + chance.uniform(1, 8) * HOUR)
            clock.turns = [(chance.uniform(0, 4) * HOUR, chance.uniform(-5, 5) * HOUR)]
            async with held.alarm(clock, look_s=60.0):
                pass
            high = max(high, clock.at)
            found = held.planned()
            reached |= set(hours(BEGIN, clock.at)[-1:])
        at = clock.at + chance.choice([0.0, chance.uniform(0, 3) * HOUR, -chance.uniform(0, 1) * HOUR])
    assert len(found) == len(set(found)), "no time has two missions"
    assert reached <= set(found)
    assert set(found) <= set(hours(BEGIN - 12 * HOUR, high + 5 * HOUR)), "none has a time that the rule does not have"


async def test_a_clock_that_was_years_ahead_does_not_silence_a_schedule(held: Book) -> None:
    await held.add(HOURLY, BEGIN)
    clock = HandClock(BEGIN, BEGIN + 6 * HOUR)
    clock.turns = [(1.5 * HOUR, 10 * 365 * DAY), (1.6 * HOUR, -10 * 365 * DAY)]
    async with held.alarm(clock, look_s=60.0):
        pass
    assert [one for one in held.planned() if one.startswith("2026")] == hours(BEGIN, BEGIN + 6 * HOUR)


async def test_a_run_that_cannot_be_accepted_is_tried_again(held: Book) -> None:
    await held.add(HOURLY, BEGIN)
    held.busy = 3
    async with held.alarm(HandClock(BEGIN, BEGIN + 1.5 * HOUR)):
        pass
    assert held.planned() == hours(BEGIN, BEGIN + 1.5 * HOUR)
    assert held.busy == 0


async def test_pause_resume_and_removal(held: Book) -> None:
    made = await held.add(HOURLY, BEGIN, name="news")
    await held.image.system(book.pause, "news")
    async with held.alarm(HandClock(BEGIN, BEGIN + 3 * HOUR)):
        pass
    assert held.planned() == []
    await held.image.system(book.resume, "news", BEGIN + 3 * HOUR)
    async with held.alarm(HandClock(BEGIN + 3 * HOUR, BEGIN + 4 * HOUR)):
        pass
    assert held.planned() == [stamp(BEGIN + 4 * HOUR)], "times that passed in the pause do not come back"
    await held.image.system(book.remove, "news")
    again = await held.add(HOURLY, BEGIN + 4 * HOUR, name="news", brief="Something else")
    assert again.number != made.number
    async with held.alarm(HandClock(BEGIN + 4 * HOUR, BEGIN + 5 * HOUR)):
        pass
    assert len(held.planned()) == 2


async def test_a_schedule_paused_between_decision_and_acceptance_makes_no_mission(held: Book) -> None:
    made = await held.add(HOURLY, BEGIN, name="news")
    await held.image.system(book.pause, "news")
    with pytest.raises(book.ScheduleChanged):
        await held.submit("m", "b", {}, lambda root: book.settle(root, made, BEGIN + HOUR, "m"))
    assert held.missions() == []


async def test_a_run_now_leaves_the_plan(held: Book) -> None:
    await held.add(HOURLY, BEGIN, name="news")
    async with held.alarm(HandClock(BEGIN, BEGIN + HOUR)) as alarm:
        assert await alarm.run_now("news", "schedule-news-now-1") == "schedule-news-now-1"
        await alarm.run_now("news", "schedule-news-now-1")
        with pytest.raises(InvalidInput, match="did you mean 'news'"):
            await alarm.run_now("new", "x")
    assert held.missions()[0] == "schedule-news-now-1"
    assert held.planned() == hours(BEGIN, BEGIN + HOUR)
    assert [run.mission for run in held.image.read(book.load, "news").runs] == held.missions()


@pytest.mark.parametrize("overlap", book.OVERLAPS)
async def test_a_time_that_comes_while_the_last_run_goes_on(held: Book, overlap: str) -> None:
    await held.add(HOURLY, BEGIN, name="news", overlap=overlap)
    async with held.alarm(HandClock(BEGIN, BEGIN + 3 * HOUR)):
        pass
    expected = hours(BEGIN, BEGIN + 3 * HOUR)
    assert held.planned() == (expected[:1] if overlap == "skip" else expected)
    kept = held.image.read(book.load, "news")
    assert kept.settled == BEGIN + 3 * HOUR, "what was left out does not come back"
    await held.end(held.missions()[0], "done")
    async with held.alarm(HandClock(BEGIN + 3 * HOUR, BEGIN + 4 * HOUR)):
        pass
    assert len(held.missions()) == (2 if overlap == "skip" else 4)


async def test_failures_in_a_row_stop_it_and_are_told(held: Book) -> None:
    await held.add(HOURLY, BEGIN, name="news", stop_after=2)
    told: list[ScheduleStopped] = []
    held.bus.subscribe(ScheduleStopped, told.append)

    async def fail_all() -> None:
        for id in held.missions():
            if not held.image.read(ledger.is_final, id):
                await held.end(id, None)
                held.bus.publish(MissionEnded(id, "FAILED", None, "inference_failed"))

    for n in range(1, 4):
        async with held.alarm(HandClock(BEGIN + (n - 1) * HOUR, BEGIN + n * HOUR)):
            pass
        await fail_all()
    kept = held.image.read(book.load, "news")
    assert kept.paused
    assert "last 2 runs failed" in kept.why
    assert [one.schedule for one in told] == ["news"]
    assert len(held.missions()) == 2
    await held.image.system(book.resume, "news", BEGIN + 3 * HOUR)
    async with held.alarm(HandClock(BEGIN + 3 * HOUR, BEGIN + 4 * HOUR)):
        pass
    assert len(held.missions()) == 3, "earlier failures are forgiven"


async def test_the_last_result_and_the_date_are_in_the_brief(held: Book) -> None:
    zone = "Pacific/Auckland"
    await held.add(HOURLY, BEGIN, name="news", brief="{date}: what changed since {last}? {else}", zone=zone)
    async with held.alarm(HandClock(BEGIN + 11 * HOUR, BEGIN + 11 * HOUR + 1)):
        pass
    (first,) = held.missions()
    await held.end(first, "It said {date}.")
    async with held.alarm(HandClock(BEGIN + 12 * HOUR, BEGIN + 12 * HOUR + 1)):
        pass
    one, two = (held.image.read(ledger.record_of, id) for id in held.missions())
    assert one.brief == "2026-01-02: what changed since (no run has given a result yet)? {else}"
    assert two.brief == "2026-01-02: what changed since It said {date}.? {else}", "what a result says is not filled in again"
    assert two.context == first, "what the earlier mission read counts as read by this one"
    assert two.origin == "schedule"


async def test_one_that_says_the_same_is_not_added_twice(held: Book) -> None:
    one = await held.add("every 7200 from 0", BEGIN, brief="What is new in my notes?")
    assert one.spec.name == "what-is-new-in-my-notes"
    assert (await held.add("every 7200 from 0", BEGIN, brief="What is new in my notes?")).number == one.number
    other = await held.add("every 7200 from 0", BEGIN, brief="What is new in my notes?", persona="robin")
    assert other.spec.name == "what-is-new-in-my-notes-2"
    with pytest.raises(InvalidInput, match="is taken"):
        await held.add(HOURLY, BEGIN, name=one.spec.name)
    for wrong in ({"name": "9 lives"}, {"brief": "  "}, {"missed": "never"}, {"stop_after": 21}, {"overlap": "queue"}):
        with pytest.raises(InvalidInput):
            await held.add(HOURLY, BEGIN, **wrong)
