"""Work that one kernel alone does: the system's own loops, schedules, folders, notices, and the upkeep of memory and image.

A daemon that has its image to itself does it from its start to its end. Of several kernels on one image the leader does, and another one
after it: so the work may begin and end several times in the life of a daemon. Each stage of the start hands its part of the work in here
(`LeadWork.add`). What the work commits as the leader is fenced (`batos.image.fence`).

A part that begins here is made anew each time, or may run again: what it knows is in the image.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from batos import scope
from batos.bus import EventBus
from batos.concurrency import Lifetime
from batos.errors import LeadLost
from batos.image import fence, kernels
from batos.image.living_image import LivingImage
from batos.objects import Root

log = structlog.get_logger("batos")
Begin = Callable[[Lifetime, EventBus], Awaitable[None]]
"""Begins a part of the work, which ends with the lifetime. Subscriptions to the bus end with it, too."""


class LeadWork:
    """The work, and its beginnings and ends. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage, bus: EventBus) -> None:
        self._image, self._bus = image, bus
        self._parts: list[Begin] = []
        self._looks: list[Callable[[Root], object]] = []
        self._is_led = False
        self.is_alone = not image.read(kernels.me)
        """True if this daemon has the image to itself."""

    async def add(self, life: Lifetime, begin: Begin, look: Callable[[Root], object] | None = None) -> None:
        """Add a part of the work. A daemon that has the image to itself begins it now, for that lifetime; of several kernels each begins
        it whenever it gains the lead (`led`), after the parts that were added before.

        :param look: sees what other kernels committed, as long as the work is done.
        """
        if self.is_alone:
            await begin(life, self._bus)
        else:
            self._parts.append(begin)
            if look is not None:
                self._looks.append(look)

    def look(self, root: Root) -> None:
        """Let the parts see what other kernels committed, as long as the work is done."""
        for look in self._looks if self._is_led else ():
            look(root)

    @contextlib.asynccontextmanager
    async def led(self) -> AsyncIterator[None]:
        """Do the work as long as the block lasts. The block may be entered again, once it has been left, and left in another task.

        Nothing is done where the lead was lost before it began.
        """
        lead, bus = self._image.read(fence.fence_of), self._bus.branch()
        with scope.enter(lead=lead):
            life = Lifetime(_failed)
        life.callback(bus.close)
        try:
            with scope.enter(lead=lead), contextlib.suppress(LeadLost):
                for begin in self._parts:
                    await begin(life, bus)
                self._is_led = True
            yield
        finally:
            self._is_led = False
            with scope.enter(lead=lead):
                try:
                    await life.aclose()
                except (LeadLost, Exception) as e:  # else whoever enters this could not enter it again
                    log.warning("lead_work_not_ended_in_order", error=str(e))


def _failed(part: str, failure: BaseException) -> None:
    if isinstance(failure, LeadLost):
        log.info("lead_lost", part=part, why=str(failure))
    else:
        log.error("background_failed", part=part, error=repr(failure))
