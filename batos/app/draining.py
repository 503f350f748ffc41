"""Drain: the end of a daemon that leaves its work to the image's other kernels, or to its next start, with nothing cut off.

take up nothing, hand the lead over ─ missions under way end, for so long ─ stop: what is left is given back, and does not count as tried

Missions are accepted until the end: they are on disk then and have no owner, so another kernel takes them up.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from batos.cluster.membership import Membership
from batos.concurrency import Background
from batos.errors import BatosError, BatosSignal
from batos.missions.scheduler import Scheduler

log = structlog.get_logger("batos")


class Drain:
    """Drain of one daemon. All methods are called on the loop's thread."""

    def __init__(self, membership: Membership, scheduler: Scheduler, stop: Callable[[], object], grace_s: float) -> None:
        """
        :param stop: asks the daemon to stop.
        :param grace_s: seconds for missions under way, where the caller names none.
        """
        self._membership, self._scheduler, self._stop, self._grace_s = membership, scheduler, stop, grace_s
        self._tasks = Background()
        self._is_begun = False

    def begin(self, grace_s: float | None = None) -> int:
        """Begin to drain; the daemon stops by itself then. Return the number of missions under way. Once begun, it is not begun again."""
        if not self._is_begun:
            self._is_begun = True
            self._tasks.start(self._run(self._grace_s if grace_s is None else grace_s), "drain")
        return len(self._scheduler.running())

    async def leave(self) -> None:
        """Take up no missions any more, and hand the lead over: the first step of every stop."""
        try:
            await self._membership.drain()
        except (BatosError, BatosSignal, OSError) as e:  # the server is away, say: the others find out by themselves
            log.warning("lead_not_handed_over", error=str(e))

    async def _run(self, grace_s: float) -> None:
        log.info("draining", missions=len(self._scheduler.running()), grace_s=grace_s)
        try:
            await self.leave()
            await self._scheduler.finish(grace_s)
        finally:
            self._scheduler.hurry()  # they have had their time
            self._stop()

    async def stop(self) -> None:
        """End the waiting."""
        await self._tasks.stop()
