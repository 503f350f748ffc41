"""Schedules in the image: objects under `lobby.schedules`, with history and undo like all others.

A schedule holds what its user said, and `settled`, the time up to which its runs are decided. A run is settled in the transaction that
accepts its mission. Its mission's id comes from the schedule and the time that it was planned for. So a kill at any point loses no run.
Neither a restart, nor a clock that is set back, nor an undo makes two missions of one.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from typing import Any, NamedTuple

from batos.config import nearest
from batos.errors import InvalidInput
from batos.image import ledger, notices
from batos.image.notice_channels import SCHEDULE
from batos.image.notices import Notice
from batos.objects import Root, UvmObject, add_missing
from batos.triggers.register import failures_in_row, outcome

ONCE, SKIP, ALL = "once", "skip", "all"
MISSED = (ONCE, SKIP, ALL)
"""Treatment of times that passed while no daemon ran: one run for all of them, none, or one for each."""
RUN, LEAVE = "run", "skip"
OVERLAPS = (RUN, LEAVE)
"""Treatment of a time that comes while the last run has not ended: a run all the same, or none."""
MOST_SCHEDULES = 10_000
RUNS_KEPT = 20
"""Runs whose missions a schedule remembers; the greatest number of failures after which one stops."""
BRIEF_CHARS = 100_000
LAST_CHARS = 4000
PREFIX = "schedule-"
"""Beginning of the ids of missions that schedules make."""
ORIGIN = "schedule"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}\Z")
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_FIELD = re.compile(r"\{(last|date)\}")
_DERIVED_CHARS = 30
_ONE_TIME = "at "  # beginning of the rule of a schedule that runs once
_REPEATED_S = 600.0  # a request that got no answer is sent again
_NONE_YET = "(no run has given a result yet)"


class ScheduleSpec(NamedTuple):
    """Words of a user about a schedule."""

    name: str
    words: str
    """when it runs, as its user wrote it"""
    rule: str
    """the same, as `batos.schedules.times` reads it"""
    zone: str
    brief: str
    """may hold `{last}`, the result of the last run that completed, and `{date}`, the day of the run in the zone"""
    persona: str = ""
    missed: str = ONCE
    stop_after: int = 0
    """failures in a row after which it stops; 0: it goes on"""
    overlap: str = RUN
    """one of `OVERLAPS`"""


class ScheduledRun(NamedTuple):
    """One run of a schedule."""

    mission: str
    planned: float
    """time that it was planned for, in seconds since the epoch"""


class KeptSchedule(NamedTuple):
    """A schedule as plain values."""

    spec: ScheduleSpec
    number: int
    """given once in an image"""
    settled: float
    """time up to which its runs are decided, in seconds since the epoch"""
    paused: bool = False
    why: str = ""
    """why it was paused, where it stopped of itself"""
    runs: tuple[ScheduledRun, ...] = ()
    """the newest last"""
    forgiven: str = ""
    """the last run whose failure does not count any more"""

    def mission_at(self, planned: float) -> str:
        """Return the id of the mission of a planned time."""
        stamp = datetime.datetime.fromtimestamp(planned, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        return f"{PREFIX}{self.spec.name}-{self.number}-{stamp}"


def install(lobby: UvmObject) -> None:
    """Make the object that holds the schedules. A step of genesis."""
    comment = "I hold the schedules: briefs that become missions at times that their user set."
    add_missing(lobby, schedules=lambda: lobby.genesis.derive(name="schedules", comment=comment))
    prototype = "I am the prototype of schedules: a brief, when it becomes a mission, and what became of its runs."
    add_missing(lobby.traits, schedule=lambda: lobby.genesis.derive(comment=prototype, number=0))
    slots = {"words": "", "rule": "", "zone": "UTC", "brief": "", "persona": "", "missed": ONCE, "stop_after": 0, "overlap": RUN}
    add_missing(lobby.traits.schedule, **slots, settled=0.0, paused=False, why="", runs="[]", forgiven="")


def names(root: Root) -> list[str]:
    """Return the names of all schedules."""
    return sorted(name for name, one in root["lobby"].schedules._slots.items() if _is_schedule(root, one))


def holder(root: Root) -> UvmObject:
    """Return the object that is written when a schedule comes or goes."""
    return root["lobby"].schedules  # type: ignore[no-any-return]


def each(root: Root) -> list[tuple[str, UvmObject]]:
    """Return the objects of all schedules, by name."""
    return [(name, one) for name, one in root["lobby"].schedules._slots.items() if _is_schedule(root, one)]


def said(root: Root, name: str) -> tuple[ScheduleSpec, int, bool]:
    """Return what its user said of a schedule: not what became of its runs."""
    held = load(root, name)
    return held.spec, held.number, held.paused


def is_empty(root: Root) -> bool:
    """Return True if there is no schedule."""
    return not any(_is_schedule(root, one) for one in root["lobby"].schedules._slots.values())


def load(root: Root, name: str) -> KeptSchedule:
    """Return the schedule of a name.

    :raises InvalidInput: if there is none.
    """
    return _described(name, _held(root, name))


def load_some(root: Root, wanted: list[str]) -> list[KeptSchedule]:
    """Return the schedules of these names that are there."""
    held = root["lobby"].schedules._slots
    return [_described(name, held[name]) for name in wanted if name in held and _is_schedule(root, held[name])]


def last_id(root: Root, name: str) -> str | None:
    """Return the mission of the last run; None without one."""
    runs = load(root, name).runs
    return runs[-1].mission if runs else None


def failures(root: Root, held: KeptSchedule) -> int:
    """Return the number of its runs that failed in a row."""
    return failures_in_row(root, [run.mission for run in held.runs], held.forgiven)


def is_running(root: Root, held: KeptSchedule) -> bool:
    """Return True if the mission of the last run has not ended."""
    return bool(held.runs) and outcome(root, held.runs[-1].mission)[0] not in ("", *ledger.FINAL)


class PreparedBrief(NamedTuple):
    """The brief of one run."""

    text: str
    follows: str | None = None
    """the mission whose result is in it; what that one read counts as read by this one, too"""


def prepared(root: Root, held: KeptSchedule, date: str) -> PreparedBrief:
    """Return the brief of a run, with its fields filled in.

    :param date: day of the run, in the schedule's zone.
    """
    brief = held.spec.brief
    if "{" not in brief:
        return PreparedBrief(brief)
    follows, last = None, _NONE_YET
    if "{last}" in brief:
        for run in reversed(held.runs):
            if outcome(root, run.mission)[0] == ledger.COMPLETE:
                follows, last = run.mission, _text_of(root, run.mission)
                break
    told = {"last": last, "date": date}
    return PreparedBrief(_FIELD.sub(lambda field: told[field[1]], brief), follows)


def _text_of(root: Root, mission: str) -> str:
    text = str((ledger.record_of(root, mission).result or {}).get("text") or "")
    return text if len(text) <= LAST_CHARS else f"{text[:LAST_CHARS]} […]"


# --- system transactions


def add(root: Root, spec: ScheduleSpec, now: float) -> KeptSchedule:
    """System transaction: add a schedule; return it. One of the same words is returned as it is.

    :param spec: with the name empty, one is made of the brief.
    :raises InvalidInput: if a part of it is not valid, the name is taken, or there are too many.
    """
    holder, given = root["lobby"].schedules, bool(spec.name)
    _check(spec)
    base = spec.name or _derived(spec.brief)
    spec = spec._replace(name=base)
    for number in range(2, 1000):
        if spec.name not in holder._slots:
            break
        known = holder._slots[spec.name]
        if _is_schedule(root, known) and _same(_described(spec.name, known).spec, spec):
            return _described(spec.name, known)
        if given:
            raise InvalidInput(f"the name {spec.name!r} is taken; choose another, or `batos schedule remove {spec.name}` first")
        spec = spec._replace(name=f"{base}-{number}")
    else:
        raise InvalidInput(f"there are too many schedules named {base!r}; give it a name")
    if len(names(root)) >= MOST_SCHEDULES:
        raise InvalidInput(f"there are {MOST_SCHEDULES} schedules, which is the most; `batos schedule remove NAME` removes one")
    prototype = root["lobby"].traits.schedule
    made = prototype.derive(number=int(prototype.number) + 1, settled=float(now), **spec._asdict())
    prototype._slots["number"] = made.number
    holder._slots[spec.name] = made
    return _described(spec.name, made)


def remove(root: Root, name: str) -> None:
    """System transaction: remove a schedule. Its missions stay.

    :raises InvalidInput: if there is none of that name.
    """
    _held(root, name)
    del root["lobby"].schedules._slots[name]


def pause(root: Root, name: str, why: str = "") -> KeptSchedule:
    """System transaction: pause a schedule; return it.

    :param why: the reason, where it stops of itself.
    :raises InvalidInput: if there is none of that name.
    """
    one = _held(root, name)
    if not one.paused:
        one._slots["paused"], one._slots["why"] = True, why
        if why:
            notices.note(root, Notice(SCHEDULE, name, time.time(), f"Stopped: schedule {name}", why), ORIGIN, one.persona)
    return _described(name, one)


def resume(root: Root, name: str, now: float) -> KeptSchedule:
    """System transaction: let a paused schedule go on; return it. Times that passed in the pause do not come back.

    :raises InvalidInput: if there is none of that name.
    """
    one = _held(root, name)
    if one.paused:
        runs = _described(name, one).runs
        one._slots["paused"], one._slots["why"], one._slots["settled"] = False, "", float(now)
        one._slots["forgiven"] = runs[-1].mission if runs else ""
    return _described(name, one)


def settle(root: Root, held: KeptSchedule, planned: float, mission: str = "") -> None:
    """System transaction, or part of one: note that the runs up to a time are decided.

    :param held: the schedule as it was when that was decided.
    :param mission: mission of the last of them; empty if none was made.
    :raises InvalidInput: if the schedule was paused, changed or removed meanwhile; then nothing is noted.
    """
    one = _held(root, held.spec.name)
    now = _described(held.spec.name, one)
    if now.paused or (now.number, now.spec.rule, now.spec.zone) != (held.number, held.spec.rule, held.spec.zone):
        raise ScheduleChanged(f"the schedule {held.spec.name!r} was changed meanwhile")
    one._slots["settled"] = planned
    if mission:
        _note_run(one, now, ScheduledRun(mission, planned))


def note_run(root: Root, held: KeptSchedule, run: ScheduledRun) -> None:
    """Part of a system transaction: note a run that its user asked for. What is planned stays.

    :raises InvalidInput: if the schedule was removed meanwhile.
    """
    one = _held(root, held.spec.name)
    _note_run(one, _described(held.spec.name, one), run)


class ScheduleChanged(InvalidInput):
    """The schedule is not as it was when its run was decided; it is looked at anew."""


def _note_run(one: UvmObject, held: KeptSchedule, run: ScheduledRun) -> None:
    if all(known.mission != run.mission for known in held.runs):
        one._slots["runs"] = json.dumps([*held.runs, run][-RUNS_KEPT:])


def _check(spec: ScheduleSpec) -> None:
    if spec.name and not _NAME.match(spec.name):
        raise InvalidInput(f"{spec.name!r} is not a valid name of a schedule; use up to 40 letters, digits, _ and -, a letter first")
    if not spec.brief.strip() or len(spec.brief) > BRIEF_CHARS:
        raise InvalidInput(f"the brief has {len(spec.brief)} characters; allowed are 1 to {BRIEF_CHARS}, not only blanks")
    if spec.missed not in MISSED:
        raise InvalidInput(f"{spec.missed!r} is not a way to treat missed runs; allowed are {', '.join(MISSED)}")
    if spec.overlap not in OVERLAPS:
        raise InvalidInput(f"{spec.overlap!r} is not a way to treat runs that overlap; allowed are {', '.join(OVERLAPS)}")
    if not 0 <= spec.stop_after <= RUNS_KEPT:
        raise InvalidInput(f"a schedule may stop after 1 to {RUNS_KEPT} failures in a row, not {spec.stop_after}")


def _derived(brief: str) -> str:
    words = _NOT_NAME.sub("-", brief[:200].lower()).strip("-")
    kept = words[:_DERIVED_CHARS]
    if len(words) > _DERIVED_CHARS and "-" in kept:
        kept = kept.rpartition("-")[0]
    return kept if kept[:1].isalpha() else f"run-{kept}".strip("-")


def _same(known: ScheduleSpec, wanted: ScheduleSpec) -> bool:
    """Return True if two schedules say the same. Words that count from now (`in 2 hours`) do if they were said within ten minutes."""
    if known._replace(rule="") != wanted._replace(rule=""):
        return False
    times = [float(one.rule.removeprefix(_ONE_TIME)) for one in (known, wanted) if one.rule.startswith(_ONE_TIME)]
    return len(times) < 2 or abs(times[0] - times[1]) <= _REPEATED_S


def _held(root: Root, name: str) -> UvmObject:
    found = root["lobby"].schedules._slots.get(name)
    if not _is_schedule(root, found):
        there = names(root)
        shown = ", ".join(there[:20]) or "none; `batos schedule add` makes one"
        raise InvalidInput(f"{name!r} is not a schedule{nearest(name, there)}; schedules are: {shown}")
    assert isinstance(found, UvmObject)
    return found


def _is_schedule(root: Root, found: Any) -> bool:
    return isinstance(found, UvmObject) and found._slots.get("parent*") is root["lobby"].traits.schedule


def _described(name: str, one: UvmObject) -> KeptSchedule:
    said = (one.words, one.rule, one.zone, one.brief, one.persona, one.missed, int(one.stop_after), str(getattr(one, "overlap", RUN)))
    runs = tuple(ScheduledRun(str(mission), float(planned)) for mission, planned in json.loads(one.runs))
    spec = ScheduleSpec(name, *said)
    return KeptSchedule(spec, int(one.number), float(one.settled), bool(one.paused), one.why, runs, one.forgiven)
