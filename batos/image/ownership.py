"""Ownership: which kernel thinks a mission through, as a slot of the mission's record.

The record is written by a *claim* (the counting of an attempt) and by the commit of a cycle. So the storage lets one of two kernels
through. No lease is asked in a commit. What else an attempt writes of its mission (journal, effects, failures) asks for the owner, and
depends on the record as it read it. So a claim at the same moment comes before it or after it.

Where one daemon has the image to itself (`kernels.me` is empty), all is its own, and nothing is read or written for it.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from batos.errors import BatosSignal
from batos.image import kernels
from batos.objects import Root


class Overtaken(BatosSignal):
    """Signal that a mission is another kernel's by now, or has ended there: this attempt ends, and writes nothing more."""

    def __init__(self, mission: str, owner: str, kernel: str) -> None:
        """
        :param owner: the kernel that has it; empty: no kernel.
        :param kernel: the one that thought that it was its own.
        """
        super().__init__(f"mission {mission!r} is {owner or 'nobody'}'s, not {kernel}'s")
        self.mission, self.owner = mission, owner


class LeaseLapsed(BatosSignal):
    """Signal that the others may take this kernel for gone by now. Nothing has left, and nothing may until it has given a sign of life."""


class Lease:
    """Time for which the others surely do not take this kernel for gone because of its silence. It is a part of the lease, from the
    beginning of its last sign of life that arrived. The clock goes on while the process or its machine stands still.

    A sign counts for `SAFE` of the lease. A kernel that goes on after a check must stand still for the rest before others can act for it.
    """

    SAFE = 0.5

    def __init__(self) -> None:
        self._until = math.inf
        self._renewal = asyncio.Event()

    @staticmethod
    def now() -> float:
        """Return the time of the lease's clock, in seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def renew(self, begun: float, lease_s: float) -> None:
        """Note a sign of life that arrived.

        :param begun: the time (`now`) before it was sent.
        """
        self._until = begun + lease_s * self.SAFE
        self._renewal.set()

    def check(self) -> None:
        """Go on only within that time. It may be called in any thread.

        :raises LeaseLapsed: after it.
        """
        if self.now() >= self._until:
            raise LeaseLapsed("this kernel has given no sign of life for a part of its lease")

    async def renewed(self) -> None:
        """Wait until it is within that time."""
        while self.now() >= self._until:
            self._renewal.clear()
            await self._renewal.wait()


def owner_of(mission: Any) -> str:
    """Return the name of the kernel that thinks a mission through; empty: no kernel."""
    return str(getattr(mission, "kernel", ""))


def free(root: Root, mission: Any) -> bool:
    """Return True if this kernel may take up a mission, or end it. It may where the mission has no owner, or is its own, or that of a
    kernel that is gone."""
    if not (me := kernels.me(root)):
        return True
    owner = owner_of(mission)
    return not kernels.is_gone(root, me) and (owner in ("", me) or kernels.is_gone(root, owner))


def claim(root: Root, mission: Any) -> bool:
    """Take up a mission; return True if it was that of a kernel that is gone. Part of a system transaction, which writes the mission.

    :raises Overtaken: if it is another's, or has ended.
    """
    if not (me := kernels.me(root)):
        return False
    if mission.finished is not None or not free(root, mission):
        raise Overtaken(mission.id, owner_of(mission), me)
    owner = owner_of(mission)
    if owner != me:
        mission.kernel = me
    return owner not in ("", me)


def own(root: Root, mission: Any) -> None:
    """Make sure that a mission is this kernel's, and that no other one has claimed it when this transaction is committed.

    :raises Overtaken: if it is not.
    """
    require_own(root, mission)
    if kernels.me(root):
        depend_on(mission)


def require_own(root: Root, mission: Any) -> None:
    """Make sure that a mission is this kernel's, in a transaction that writes its record.

    :raises Overtaken: if it is not.
    """
    if (me := kernels.me(root)) and (owner := owner_of(mission)) != me:
        raise Overtaken(mission.id, owner, me)


def is_own(root: Root, mission: Any) -> bool:
    """Return True if a mission is this kernel's."""
    me = kernels.me(root)
    return not me or owner_of(mission) == me


def require_free(root: Root, mission: Any) -> None:
    """Make sure that this kernel may end a mission: any kernel may end one without an owner.

    :raises Overtaken: if it is another's.
    """
    if not (me := kernels.me(root)):
        return
    if not free(root, mission):
        raise Overtaken(mission.id, owner_of(mission), me)
    depend_on(mission)


def give_back(root: Root, mission: Any) -> None:
    """Give up a mission of this kernel: it has no owner then. Part of a system transaction."""
    me = kernels.me(root)
    if me and owner_of(mission) == me:
        mission.kernel = ""


def still_own(root: Root, id: str) -> None:
    """Make sure, in a read, that a mission is this kernel's: before something leaves that costs, or acts.

    :raises Overtaken: if it is not.
    """
    if not (me := kernels.me(root)):
        return
    mission = root["ledger"].missions.get(id)
    if mission is not None and (mission.finished is not None or owner_of(mission) != me):
        raise Overtaken(id, owner_of(mission), me)


def depend_on(obj: Any) -> None:
    """Let the commit of this transaction meet a conflict if an object that it only reads was written since."""
    if obj._p_jar is not None:
        obj._p_activate()  # of a ghost, ZODB would not note it
        obj._p_jar.readCurrent(obj)
