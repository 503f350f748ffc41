"""The heartbeat: self_audit missions at intervals, when nobody else needs the system.

A busy system defers itself: a beat that falls due while missions are under way waits for the first quiet moment. One
audit is never enqueued while another one is pending.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from batos.errors import BatosError

log = structlog.get_logger("batos.autotelic")

BRIEF = (
    "self_audit: {time} UTC. Measured since the start of the daemon {uptime_s:.0f} s ago: {complete} missions complete, "
    "{failed} failed, {conflicts} conflicts. The image holds {objects} objects in {bytes} bytes; {accepted} missions were "
    "ever accepted, and cost {inferences} inferences, {prompt_tokens} tokens read and {answer_tokens} written, {model_s:.0f} s of "
    "model time. Of its records {checked} were checked for damage since then, {damaged} are damaged. "
    "Name the one thing in these figures that most deserves attention, and say why."
)


class Heartbeat:
    """Enqueues self_audit missions.

    `await run()` until cancelled.
    """

    def __init__(
        self,
        *,
        interval_s: float,
        first_s: float,
        submit: Callable[[str, str], Awaitable[Any]],
        measure: Callable[[], Awaitable[dict[str, Any]]],
        quiet: Callable[[], Awaitable[None]],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        """
        :param submit: accepts a system mission from an id and a brief.
        :param measure: the facts that `BRIEF` names.
        :param quiet: returns when no mission is under way or waits.
        """
        self._interval, self._first = interval_s, first_s
        self._submit, self._measure, self._quiet = submit, measure, quiet
        self._sleep, self._now = sleep, now
        self.beats = 0

    async def run(self) -> None:
        """Beat until cancelled."""
        await self._sleep(self._first)
        while True:
            await self._quiet()
            await self._beat()
            await self._sleep(self._interval)

    async def _beat(self) -> None:
        now = self._now()
        try:
            brief = BRIEF.format(time=now.strftime("%Y-%m-%d %H:%M:%S"), **await self._measure())
            await self._submit(f"self_audit-{now.strftime('%Y%m%dT%H%M%S.%f')}", brief)
            self.beats += 1
        except BatosError as e:  # a full queue, damage in what is measured: the next beat will do
            log.warning("beat_skipped", code=e.code, error=e.message)
