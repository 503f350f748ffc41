"""Work that one kernel alone does: the system's own loops, schedules, folders, notices, and the upkeep of memory and image.

A daemon that has its image to itself does it from its start to its end. Of several kernels on one image the leader does it, and later the
next leader. So the work may begin and end several times in the life of a daemon. Each stage of the start hands its part of the work in here
(`LeadWork.add`). What the work commits as the leader is fenced (`batos.image.fence`).

A part that begins here is made anew each time, or may run again: what it knows is in the image.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from batos import scope
from batos.bus import EventBus
from batos.concurrency import Lifetime
from batos.errors import BatosError, LeadLost
from batos.image import fence, kernels
from batos.image.living_image import LivingImage
from batos.objects import Root

log = structlog.get_logger("batos")
Begin = Callable[[Lifetime, EventBus], Awaitable[None]]
"""Begins a part of the work, which ends with the lifetime. Subscriptions to the bus end with it, too."""

AGAIN_S = 1.0
"""Seconds after which a part that could not begin is begun again."""


class LeadWork:
    """The work, and its beginnings and ends. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage, bus: EventBus) -> None:
        self._image, self._bus = image, bus
        self._parts: list[Begin] = []
        self._looks: list[Callable[[Root], object]] = []
        self.is_led = False
        """True while this kernel does the work as the leader of several."""
        self.is_alone = not image.read(kernels.me)
        """True if this daemon has the image to itself."""

    async def add(self, life: Lifetime, begin: Begin, look: Callable[[Root], object] | None = None) -> None:
        """Add a part of the work. A daemon that has the image to itself begins the part now, for that lifetime. Each of several kernels
        begins the part whenever the kernel gains the lead (`led`), after the parts that were added before.

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
        for look in self._looks if self.is_led else ():
            look(root)

    @contextlib.asynccontextmanager
    async def led(self) -> AsyncIterator[None]:
        """Do the work as long as the block lasts. The block may be entered again, once it has been left, and left in another task.

        The block does not wait for the work to begin: the server of the image may be away. Nothing is done where the lead is lost already.
        """
        bus = self._bus.branch()
        beginning, life = Lifetime(_failed), contextlib.AsyncExitStack()
        beginning.background(self._begin(life, bus), "lead")
        try:
            yield
        finally:
            self.is_led = False
            await beginning.aclose()
            bus.close()
            await life.aclose()

    async def _begin(self, life: contextlib.AsyncExitStack, bus: EventBus) -> None:
        while True:
            try:
                lead = self._image.read(fence.fence_of)
                break
            except BatosError as e:
                log.warning("lead_work_delayed", error=str(e), again_s=AGAIN_S)
                await asyncio.sleep(AGAIN_S)
        with scope.enter(lead=lead):
            for begin in self._parts:
                while not await self._has_begun(begin, life, bus):
                    pass  # it has waited
        self.is_led = True

    async def _has_begun(self, begin: Begin, life: contextlib.AsyncExitStack, bus: EventBus) -> bool:
        """Begin a part; where it cannot be now, wait, and return False: it is to be tried again."""
        part = Lifetime(_failed)
        try:
            await begin(part, bus)
        except BaseException as e:
            await _end(part, scope.current().lead)
            if not isinstance(e, Exception):  # a lead that is lost, or the end of the daemon
                raise
            log.warning("lead_work_delayed", error=str(e) or repr(e), again_s=AGAIN_S)
            await asyncio.sleep(AGAIN_S)
            return False
        life.push_async_callback(_end, part, scope.current().lead)
        return True


async def _end(part: Lifetime, lead: fence.Fence | None) -> None:
    with scope.enter(lead=lead):
        try:
            await part.aclose()
        except (LeadLost, Exception) as e:  # the others end all the same
            log.warning("lead_work_not_ended_in_order", error=str(e))


def _failed(part: str, failure: BaseException) -> None:
    if isinstance(failure, LeadLost):
        log.info("lead_lost", part=part, why=str(failure))
    else:
        log.error("background_failed", part=part, error=repr(failure))
