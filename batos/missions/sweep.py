"""Sweep: which missions this kernel takes up of those that have no owner, or whose kernel is gone; and which it has lost.

It looks with the membership (`Membership.on_look`) at the pending missions, without end. So a mission that a kernel left behind is found by
the others, whatever became of that kernel. What it finds is queued; only the claim, which counts the attempt, makes it this kernel's.
Orphans go first. Of the missions without an owner a kernel takes no more than it has places for, each kernel another part of the line. The
system's own missions are taken up by the leader only.

Where a daemon has its image to itself nothing is swept.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from batos.cluster.membership import Membership
from batos.errors import ImageDamaged
from batos.image import kernels, ledger, ownership
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.missions.fitness import ELSEWHERE, HERE
from batos.objects import Root

log = structlog.get_logger("batos.mind")

LOOKED_AT = 200
"""Missions whose records one look reads at most, which may come from the server one by one; the others have their turn later."""
IN_TURN, FEW = 40, 1000
"""Missions that one look reads in turn where more than `FEW` are pending: their records are not all in the connection's cache."""
GONE_KEPT = 8
"""Records of kernels that are gone, the newest, that stay for who asks what became of them."""
PATIENCE_LOOKS = 5
"""Looks after which a mission without an owner is in the part of the line of every kernel."""


class Takes(Protocol):
    """Scheduler, as the sweep needs it."""

    def running(self) -> Iterable[str]:
        """Return the missions under way."""
        ...

    def waiting(self) -> Iterable[str]:
        """Return the missions that are queued or held back here."""
        ...

    def knows(self, id: str) -> bool:
        """Return True if a mission is under way here, waits, or is being accepted."""
        ...

    def room(self) -> int:
        """Return how many missions it may take up now without letting them wait."""
        ...

    def take_up(self, record: MissionRecord) -> None:
        """Queue a mission that a kernel left."""
        ...

    def look_again(self, record: MissionRecord) -> None:
        """Queue or hold back a waiting mission as its record says now."""
        ...

    def lose(self, id: str) -> None:
        """End the attempt at a mission that is another kernel's by now, or has ended; or let it wait no longer."""
        ...


@dataclass(slots=True)
class _Seen:
    """Mission as it was last looked at."""

    owner: str
    looks: int = 0
    """Looks since it is as it is."""


class MissionSweep:
    """Search of one kernel for missions to take up."""

    def __init__(self, image: LivingImage, membership: Membership, scheduler: Takes, *, concurrent: Callable[[], int]) -> None:
        """
        :param concurrent: returns the number of missions that this kernel has under way at most.
        """
        self._image, self._membership, self._scheduler, self._concurrent = image, membership, scheduler, concurrent
        self.may_claim: Callable[[MissionRecord], bool] = lambda record: True
        """Returns True if this kernel can think a mission: its models are there."""
        self.recheck: Callable[[], Awaitable[None]] = _nothing
        """Looks anew whether this kernel is fit: an inference has failed here."""
        self.nearness: Callable[[MissionRecord], int] = lambda record: HERE
        """Returns where a mission's model is in memory: one of `batos.missions.fitness`."""
        self.hindrance: Callable[[MissionRecord], str] = lambda record: ""
        """Returns why no kernel takes up a mission, in words."""
        self.patience_s = math.inf
        """Seconds for which a mission may be passed by those whose models are loaded."""
        self._seen: dict[str, _Seen] = {}
        self._turn: Iterator[str] = iter(())

    def may_take(self, record: MissionRecord) -> bool:
        """Return True if this kernel may take up a mission. It may where it can think the mission, or end it since its time is over or its
        user cancelled it."""
        return self.may_claim(record) or _is_to_end(record)

    def begins(self, record: MissionRecord) -> bool:
        """Return True if a mission that was sent to this kernel begins here: no other one has its model loaded already."""
        return self.may_claim(record) and self.nearness(record) != ELSEWHERE

    def why_waits(self, id: str) -> str:
        """Return why no kernel takes up a mission that waits, in words; "" if one may, or has it."""
        record = self._image.read(_free_record, id)
        return "" if record is None else self.hindrance(record)

    async def is_unfit(self, record: MissionRecord) -> bool:
        """Return True if this kernel cannot think a mission any more, since an inference of it failed, and another one may."""
        await self.recheck()
        return not self.may_claim(record)

    def look(self, root: Root) -> None:
        """Take up what is to be taken up, and let go what is lost."""
        pending = list(root["ledger"].pending)
        there = set(pending)
        for id in [id for id in self._seen if id not in there]:
            del self._seen[id]
        for id in [id for id in self._scheduler.running() if id not in there]:
            self._scheduler.lose(id) if self._is_lost(root, id) else None
        for id in [id for id in self._scheduler.waiting() if id not in there]:
            self._scheduler.lose(id)
        orphans: list[MissionRecord] = []
        others: list[MissionRecord] = []
        for id in self._chosen(root, pending):
            try:
                self._examine(root, id, orphans, others)
            except (ImageDamaged, KeyError) as e:
                log.debug("mission_not_swept", mission=id, error=repr(e))
        self._take(orphans, others)
        self._prune(root)

    def _chosen(self, root: Root, pending: list[str]) -> Iterator[str]:
        """Yield the missions that this look reads. They are those under way here, the new ones and those whose kernel is gone, the least
        looked at first. Some of all missions follow in turn."""
        left = LOOKED_AT
        yielded: set[str] = set()
        gone = {owner: bool(owner) and kernels.is_gone(root, owner) for owner in {one.owner for one in self._seen.values()}}
        first = [id for id in pending if id not in self._seen or gone[self._seen[id].owner]]
        if len(first) > (most := LOOKED_AT - IN_TURN):  # orphans that no model here can think must not keep others from their turn
            first = heapq.nsmallest(most, first, key=lambda id: self._seen[id].looks if id in self._seen else 0)
        for id in itertools.chain(self._scheduler.running(), first):
            if id not in yielded:
                yielded.add(id)
                yield id
                left -= 1
            if left <= 0:
                return
        for _ in range(min(left, len(pending), IN_TURN if len(pending) > FEW else left)):
            id = next(self._turn, "")
            if not id:
                self._turn = iter(pending)
                id = next(self._turn, "")
            if id and id not in yielded:
                yielded.add(id)
                yield id

    def _examine(self, root: Root, id: str, orphans: list[MissionRecord], others: list[MissionRecord]) -> None:
        mission = root["ledger"].missions.get(id)
        if mission is None:  # its acceptance is not in this view, or it was folded
            return
        owner, me = ownership.owner_of(mission), self._membership.name
        seen = self._seen.setdefault(id, _Seen(owner))
        if seen.owner != owner:
            self._seen[id] = seen = _Seen(owner)
        seen.looks += 1
        knows, free = self._scheduler.knows(id), ownership.free(root, mission)
        if mission.state in ledger.FINAL:
            if knows and owner != me:
                self._scheduler.lose(id)
            elif not knows and self._has_lasted(seen):  # its kernel did not come to it
                self._image.later(ledger.settle, id)
                seen.looks = 0
            return
        if not free:
            if knows:
                self._scheduler.lose(id)
            return
        record = ledger.describe(mission)
        if record.origin == "system" and not self._membership.leads:
            if knows and owner != me:
                self._scheduler.lose(id)
            return
        if knows:
            if owner != me:
                self._scheduler.look_again(record)
            return
        if not owner:
            others.append(record)
        elif owner != me or self._has_lasted(seen):
            orphans.append(record)

    def _has_lasted(self, seen: _Seen) -> bool:
        return seen.looks * self._membership.look_s > self._membership.lease_s

    def _is_lost(self, root: Root, id: str) -> bool:
        """Return True if a mission under way is not pending any more, since it ended elsewhere."""
        mission = root["ledger"].missions.get(id)
        return mission is not None and mission.state in ledger.FINAL and ownership.owner_of(mission) != self._membership.name

    def _take(self, orphans: list[MissionRecord], others: list[MissionRecord]) -> None:
        for record in orphans:
            if record.kernel == self._membership.name and (self._membership.draining or not self.may_take(record)):
                self._image.later(ledger.uncount_attempt, record.id, record.attempts)  # no other kernel may take it up before
        if self._membership.draining:
            return
        orphans = sorted(filter(self.may_take, orphans), key=_order)[: self._concurrent()]
        others = self._in_order([record for record in others if self.may_take(record)])
        late = [record for record in others if self._seen[record.id].looks > PATIENCE_LOOKS or _is_to_end(record)]
        places = max(0, self._scheduler.room() - len(orphans))
        chosen = {record.id: record for record in [*late[:places], *self._part(others, places)][:places]}
        chosen |= {record.id: record for record in late if _is_to_end(record)}  # it is ended, and takes no place
        for record in [*orphans, *chosen.values()]:
            log.info("mission_taken_up", mission=record.id, was=record.kernel or None)
            self._scheduler.take_up(replace(record, resumed=True))

    def _in_order(self, others: list[MissionRecord]) -> list[MissionRecord]:
        """Return missions in the order in which this kernel takes them up. Of one rank come first those that were passed for long, then
        those whose model is loaded here. One whose model only another kernel has loaded is left to that one for some looks."""
        near = {record.id: self.nearness(record) for record in others}
        looks = {record.id: self._seen[record.id].looks for record in others}
        ripe = [record for record in others if near[record.id] != ELSEWHERE or looks[record.id] > PATIENCE_LOOKS]

        def order(record: MissionRecord) -> tuple[Any, ...]:
            passed = looks[record.id] * self._membership.look_s > self.patience_s
            return record.origin == "system", -record.priority, not passed, 0 if passed else near[record.id], record.number

        return sorted(ripe, key=order)

    def _part(self, others: list[MissionRecord], places: int) -> list[MissionRecord]:
        """Return this kernel's part of the line, so that not all claim the same ones."""
        names = sorted([self._membership.name, *(one.name for one in self._membership.others())], key=kernels.epoch_of)
        at = places * names.index(self._membership.name)
        return others[at : at + places] or others[:places]

    def _prune(self, root: Root) -> None:
        """Let the leader remove the records of the gone, once no pending mission names them."""
        if not self._membership.leads:
            return
        gone = [one.name for one in kernels.listed(root) if one.gone][:-GONE_KEPT]
        named = {one.owner for one in self._seen.values()}
        if (found := tuple(name for name in gone if name not in named)) and len(self._seen) == len(root["ledger"].pending):
            self._image.later(kernels.prune, found)


def _free_record(root: Root, id: str) -> MissionRecord | None:
    mission = root["ledger"].missions.get(id)
    return None if mission is None or mission.state in ledger.FINAL or not ownership.free(root, mission) else ledger.describe(mission)


async def _nothing() -> None:
    pass


def _order(record: MissionRecord) -> tuple[Any, ...]:
    return record.origin == "system", -record.priority, record.number


def _is_to_end(record: MissionRecord) -> bool:
    return record.cancelled or (record.deadline_s is not None and record.accepted + record.deadline_s <= time.time())
