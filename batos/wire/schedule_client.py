"""Part of the client for schedules."""

from __future__ import annotations

import uuid
from typing import Any, Literal, TypedDict, Unpack

from batos.wire.hook_client import Hooking


class ScheduleTerms(TypedDict, total=False):
    """Terms of a schedule; each may be left out."""

    zone: str | None
    """time zone of the words, such as `Europe/Berlin`; default: that of the daemon's machine"""
    name: str | None
    """name of the schedule; default: one is made of the brief"""
    persona: str | None
    missed: Literal["once", "skip", "all"] | None
    """treatment of times that passed while no daemon ran: one run for all of them (default), none, or one for each"""
    stop_after: int | None
    """failures in a row after which the schedule stops"""
    overlap: Literal["run", "skip"] | None
    """treatment of a time that comes while the last run has not ended: a run all the same (default), or none"""


class Scheduling(Hooking):
    """Part of `batos.wire.client.Client` for schedules."""

    async def schedules(self, name: str | None = None) -> dict[str, Any]:
        """Return the schedules by name, each with its next time and its last run; with a name, all of that one."""
        return await self._ask("schedules", name=name)

    async def schedule_add(self, when: str, brief: str, **terms: Unpack[ScheduleTerms]) -> dict[str, Any]:
        """Add a schedule; return it with its next five times. One that says the same is returned as it is.

        :param when: words (`every weekday at 8:00`, `every 15 minutes`, `tomorrow at 8`) or a cron expression (`0 8 * * 1-5`).
        :param brief: brief of each mission; `{last}` stands for the last result, `{date}` for the day.
        :param terms: zone, name, persona, missed, stop_after, overlap (`ScheduleTerms`).
        :raises InvalidInput: if the words are not understood, or a term is not valid.
        """
        told: dict[str, Any] = {name: value for name, value in terms.items() if value is not None}
        return await self._ask("schedule_add", when=when, brief=brief, **told)

    async def schedule_pause(self, name: str) -> dict[str, Any]:
        """Let a schedule rest until `schedule_resume`, also across restarts. Return it."""
        return await self._ask("schedule_pause", name=name)

    async def schedule_resume(self, name: str) -> dict[str, Any]:
        """Let a schedule go on that was paused, or that stopped after failures. Return it."""
        return await self._ask("schedule_resume", name=name)

    async def schedule_remove(self, name: str) -> dict[str, Any]:
        """Remove a schedule; return those that are left. Its missions stay."""
        return await self._ask("schedule_remove", name=name)

    async def schedule_run(self, name: str, *, id: str | None = None) -> dict[str, Any]:
        """Make a mission of a schedule now; what is planned stays. The reply holds its `id`.

        :param id: the mission's id; default: a new one. The same id means the same run.
        """
        mission = f"schedule-{name}-now-{uuid.uuid4().hex}" if id is None else id
        return await self._ask("schedule_run", name=name, id=mission)
