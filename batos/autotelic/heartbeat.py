"""The heartbeat: self_audit missions at intervals, when the system is idle, and only if there is news.

At each beat the system is measured, and damage is looked for. Without news since the last audit (`news_since`) none is enqueued, and the
pause doubles, up to a day; news cuts it short.

The schedule is in the image. A restart goes on with it, and what fell due while the daemon was away is made up for once. A busy system
defers itself: a beat that falls due while missions are under way waits for the first quiet moment. One audit is never enqueued while
another one has not ended, not even one that rests.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from batos.autotelic import changes, schema
from batos.config.limits import Limits, limit
from batos.errors import BatosError
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.objects import Root

_LOOKED_AT = 256  # greatest number of missions that are looked at


@dataclass(frozen=True, slots=True)
class HeartbeatLimits(Limits):
    """Limits of the heartbeat."""

    jitter: float = limit(0.1, ge=0, le=0.5)
    """Share of the interval by which a heartbeat may come earlier or later, at random."""
    first_s: float = limit(30.0, ge=0.05, le=7 * 86400)
    """Seconds from the start of the daemon to a self-audit that is due."""


class AuditSeen(NamedTuple):
    """Facts that an audit has seen. Stored as a plain tuple."""

    number: int
    """Number of the newest mission."""
    fired: int
    """Number of triggers that have fired."""
    decided: float
    """Time of the last decision on a change, in seconds since the epoch."""
    damaged: int
    """Number of damaged records found since the start of the daemon."""


def audit_seen(root: Root, damaged: int) -> AuditSeen:
    """Return what an audit would see now."""
    newest = ledger.ledger_of(root).newest.mission
    decided = max((float(one.decided or 0) for one in changes.newest_first(root)), default=0.0)
    return AuditSeen(0 if newest is None else int(newest.number), int(schema.part_of(root, "triggers").ever), decided, damaged)


def news_since(root: Root, last: AuditSeen | None, damaged: int) -> str:
    """Return the news since the last audit, in words; empty without any.

    :param last: state at the last audit; None: there was none.
    :param damaged: number of records found damaged since the start of the daemon.
    """
    if last is None:
        return "it is the first one."
    now, found = audit_seen(root, damaged), []
    missions = itertools.takewhile(lambda one: one.number > last.number, itertools.islice(ledger.newest_first(root), _LOOKED_AT))
    if count := sum(one.origin != "system" for one in missions):
        found.append(f"missions of users: {count}{' or more' if count == _LOOKED_AT else ''}")
    if schema.part_of(root, "triggers").fired:
        if now.fired > last.fired:
            found.append(f"triggers that fired: {now.fired - last.fired}")
        if now.decided > last.decided:
            found.append("a change about a trigger in force was decided")
    if damaged > last.damaged:
        found.append(f"records found damaged: {damaged - last.damaged}")
    return f"{'; '.join(found)}." if found else ""


log = structlog.get_logger("batos.autotelic")

BRIEF = (
    "self_audit: {time} UTC. Measured since the start of the daemon {uptime_s:.0f} s ago: {complete} missions complete, "
    "{failed} failed, {conflicts} conflicts. The image holds {objects} objects in {bytes} bytes; {accepted} missions were "
    "ever accepted, and cost {inferences} inferences, {prompt_tokens} tokens read and {answer_tokens} written, {model_s:.0f} s of "
    "model time. Of its records {checked} were checked for damage since then, {damaged} are damaged. {sensed} New: {new} "
    "Name the one thing in these figures that most deserves attention, and say why."
)


LONGEST_S = 86400.0  # longest pause in a quiet system


@dataclass(frozen=True)
class Rhythm:
    """Times of the heartbeat."""

    interval_s: float
    """Seconds between two beats."""
    jitter: float
    """Share of the interval by which a beat may come earlier or later."""
    first_s: float
    """Seconds from `run` to the first beat, if one is due by then."""


@dataclass(frozen=True)
class HeartbeatClock:
    """Clock and chance of the heartbeat; a test has its own."""

    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    now: Callable[[], float] = time.time
    """Returns the seconds since the epoch."""
    chance: Callable[[], float] = random.random
    """Returns a random number from 0 to 1."""


class Heartbeat:
    """Enqueues self_audit missions: `await run()` until cancelled."""

    def __init__(
        self,
        image: LivingImage,
        rhythm: Rhythm,
        *,
        submit: Callable[[str, str], Awaitable[Any]],
        measure: Callable[[], Awaitable[dict[str, Any]]],
        quiet: Callable[[], Awaitable[None]],
        clock: HeartbeatClock | None = None,
    ) -> None:
        """
        :param submit: accepts a system mission from an id and a brief.
        :param measure: returns the facts that `BRIEF` names.
        :param quiet: returns when no mission is under way or waits.
        """
        clock = clock or HeartbeatClock()
        self._image, self._interval, self._jitter, self._first = image, rhythm.interval_s, rhythm.jitter, rhythm.first_s
        self._submit, self._measure, self._quiet = submit, measure, quiet
        self._sleep, self._now, self._chance = clock.sleep, clock.now, clock.chance

    async def run(self) -> None:
        """Beat until cancelled."""
        await self._sleep(self._first)
        while True:
            try:
                while (left := (due := await self._due()) - self._now()) > 0:  # repeated: the clock may be set back meanwhile
                    await self._sleep(min(left, self._interval * (1 + self._jitter)))
                await self._quiet()
                await self._beat(due)
            except (BatosError, OSError) as e:  # a full queue, a full disk, or damage in the measured data: try the same beat later
                log.warning("beat_skipped", error=str(e))
                await self._sleep(self._interval)

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info`: the time of the next beat (seconds since the epoch), the mission of the last, and their number. Also
        return the number of beats in a row that brought nothing new."""
        return self._image.read(_facts)

    async def _due(self) -> float:
        """Return the time of the next beat, as the image has it. The first beat ever is due now. So is one where the clock was set back, or
        where there is news in a pause that is longer than usual."""
        due, quiet, fresh = self._image.read(_standing)
        now = self._now()
        if due is not None and not (quiet and fresh) and due <= now + self._pause(quiet) * (1 + self._jitter):
            return float(due)
        await self._image.system(plan, now)
        return now

    def _pause(self, quiet: int) -> float:
        """Return the seconds between beats, after a number of beats without news."""
        doubled: float = self._interval * 2 ** min(quiet, 32)
        return max(self._interval, min(doubled, LONGEST_S))

    async def _beat(self, due: float) -> None:
        """Measure, enqueue the audit that was due if there is news, and plan the next one.

        Its id follows from the time it was due: killed between the two, the next start finds it accepted, and only plans.
        """
        id, facts = f"self_audit-{_moment(due).strftime('%Y%m%dT%H%M%S.%f')}", await self._measure()
        last, quiet, new, seen = self._image.read(_look, facts["damaged"])
        if last and self._image.read(schema.is_pending_mission, last):
            log.info("beat_left_out", why=f"mission {last!r} has not ended")
            id = ""
        elif new:
            quiet = 0
            if not self._image.read(schema.is_known_mission, id):
                moment = _moment(self._now()).strftime("%Y-%m-%d %H:%M:%S")
                await self._submit(id, BRIEF.format(time=moment, new=new, **facts))
        else:
            id, quiet = "", quiet + 1
            log.debug("nothing_new", beats=quiet)
        pause = self._pause(quiet) * (1 + self._jitter * (2 * self._chance() - 1))
        await self._image.system(plan, self._now() + pause, id, quiet, seen)


def plan(root: Root, due: float, beaten: str = "", quiet: int = 0, seen: AuditSeen | None = None) -> None:
    """System transaction: set the time of the next beat.

    :param beaten: the mission of the last one, if one was enqueued; `seen` is what that one saw.
    :param quiet: beats in a row that brought nothing new.
    """
    heartbeat = schema.part_of(root, "heartbeat")
    heartbeat.due, heartbeat.quiet = due, quiet
    if beaten:
        heartbeat.last, heartbeat.seen = beaten, None if seen is None else tuple(seen)
        heartbeat.beats += 1


def _seen(root: Root) -> AuditSeen | None:
    held = schema.part_of(root, "heartbeat").seen
    return None if held is None else AuditSeen(*held)


def _standing(root: Root) -> tuple[float | None, int, bool]:
    """Return the time of the next beat, the number without news, and whether there is news by now; damage is for the beat to find."""
    heartbeat = schema.part_of(root, "heartbeat")
    return heartbeat.due, heartbeat.quiet, bool(heartbeat.quiet and news_since(root, _seen(root), 0))


def _look(root: Root, damaged: int) -> tuple[str, int, str, AuditSeen]:
    """Return the last audit, the number of beats without news, the news by now, and what an audit would see that is enqueued now."""
    heartbeat = schema.part_of(root, "heartbeat")
    return heartbeat.last, heartbeat.quiet, news_since(root, _seen(root), damaged), audit_seen(root, damaged)


def _facts(root: Root) -> dict[str, Any]:
    heartbeat = schema.part_of(root, "heartbeat")
    return {"due": heartbeat.due, "last": heartbeat.last or None, "beats": heartbeat.beats, "quiet": heartbeat.quiet}


def _moment(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, datetime.UTC)
