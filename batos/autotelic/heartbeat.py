"""The heartbeat: self_audit missions at intervals, when nobody else needs the system.

The schedule is in the image: a restart goes on with it, and what fell due while the daemon was away is made up for once.
A busy system defers itself: a beat that falls due while missions are under way waits for the first quiet moment. One
audit is never enqueued while another one has not ended, not even one that rests.
"""

from __future__ import annotations

import asyncio
import datetime
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from batos.autotelic import home
from batos.errors import BatosError
from batos.image.living import LivingImage

log = structlog.get_logger("batos.autotelic")

BRIEF = (
    "self_audit: {time} UTC. Measured since the start of the daemon {uptime_s:.0f} s ago: {complete} missions complete, "
    "{failed} failed, {conflicts} conflicts. The image holds {objects} objects in {bytes} bytes; {accepted} missions were "
    "ever accepted, and cost {inferences} inferences, {prompt_tokens} tokens read and {answer_tokens} written, {model_s:.0f} s of "
    "model time. Of its records {checked} were checked for damage since then, {damaged} are damaged. {sensed} "
    "Name the one thing in these figures that most deserves attention, and say why."
)


class Heartbeat:
    """Enqueues self_audit missions.

    `await run()` until cancelled.
    """

    def __init__(
        self,
        image: LivingImage,
        *,
        interval_s: float,
        jitter: float,
        first_s: float,
        submit: Callable[[str, str], Awaitable[Any]],
        measure: Callable[[], Awaitable[dict[str, Any]]],
        quiet: Callable[[], Awaitable[None]],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """
        :param jitter: the share of the interval by which a beat may come earlier or later.
        :param first_s: time from `run` to the first beat, where one is due by then.
        :param submit: accepts a system mission from an id and a brief.
        :param measure: the facts that `BRIEF` names.
        :param quiet: returns when no mission is under way or waits.
        :param now: seconds since the epoch.
        :param chance: a number from 0 to 1, by chance.
        """
        self._image, self._interval, self._jitter, self._first = image, interval_s, jitter, first_s
        self._submit, self._measure, self._quiet = submit, measure, quiet
        self._sleep, self._now, self._chance = sleep, now, chance

    async def run(self) -> None:
        """Beat until cancelled."""
        await self._sleep(self._first)
        while True:
            try:
                while (left := (due := await self._due()) - self._now()) > 0:  # asked again: the clock may be set back meanwhile
                    await self._sleep(left)
                await self._quiet()
                await self._beat(due)
            except (BatosError, OSError) as e:  # a full queue, a full disk, damage in what is measured: the same beat, later
                log.warning("beat_skipped", error=str(e))
                await self._sleep(self._interval)

    def facts(self) -> dict[str, Any]:
        """What `info` says of it: when the next beat is due (seconds since the epoch), and which mission was the last."""
        return self._image.read(_facts)  # type: ignore[no-any-return]

    async def _due(self) -> float:
        """When the next beat is due, as the image has it; now for the first one ever, and where the clock was set back."""
        due, now = self._image.read(lambda root: home.part(root, "heartbeat").due), self._now()
        if due is not None and due <= now + self._interval * (1 + self._jitter):
            return float(due)
        await self._image.system(plan, now)
        return now

    async def _beat(self, due: float) -> None:
        """Enqueue the audit that was due, and plan the next one.

        Its id follows from the time it was due: killed between the two, the next start finds it accepted, and only plans.
        """
        id = f"self_audit-{_moment(due).strftime('%Y%m%dT%H%M%S.%f')}"
        last = self.facts()["last"]
        if last and self._image.read(home.is_pending, last):
            log.info("beat_left_out", why=f"mission {last!r} has not ended")
            id = ""
        elif not self._image.read(home.is_there, id):
            moment = _moment(self._now()).strftime("%Y-%m-%d %H:%M:%S")
            await self._submit(id, BRIEF.format(time=moment, **await self._measure()))
        pause = self._interval * (1 + self._jitter * (2 * self._chance() - 1))
        await self._image.system(plan, self._now() + pause, id)


def plan(root: Any, due: float, beaten: str = "") -> None:
    """System transaction: the next beat is due then; `beaten` is the mission of the last one, if one was enqueued."""
    heartbeat = home.part(root, "heartbeat")
    heartbeat.due = due
    if beaten:
        heartbeat.last = beaten
        heartbeat.beats += 1


def _facts(root: Any) -> dict[str, Any]:
    heartbeat = home.part(root, "heartbeat")
    return {"due": heartbeat.due, "last": heartbeat.last or None, "beats": heartbeat.beats}


def _moment(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, datetime.UTC)
