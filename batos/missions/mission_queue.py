"""Queue of the missions that wait for a place.

Missions of users go before the system's own, higher priorities before lower ones, then in the order of acceptance. A
mission whose model is loaded may overtake earlier ones of its rank whose models are not, within the bound of
`batos.bridge.admission.Fairness`. Under a load that does not end, one of the system's own missions is let through
each `patience_s`.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from batos.bridge.admission import Fairness, Load, Ticket
from batos.config import MIB
from batos.config.limits import Limits, limit
from batos.image.mission_record import MissionRecord


@dataclass(frozen=True, slots=True)
class AttemptLimits(Limits):
    """Limits of attempts at missions."""

    backoff_s: float = limit(1.0, ge=0, le=600)
    """Pause before the second attempt; doubled for each further one."""
    disk_retry_s: float = limit(5.0, ge=0.05, le=86_400)
    """Pause after which a mission that a full disk holds up is tried again."""
    conflict_retries: int = limit(8, ge=1, le=100)
    """Replays of a cycle whose commit met a conflict."""
    background_wait_s: float = limit(30.0, ge=0, le=86_400)
    """Longest time for which heartbeat, triggers, curator and their missions wait for those of users."""
    source_bytes: int = limit(8192, ge=0, le=MIB)
    """Bytes of a refused method's source that the failure ledger keeps."""


@dataclass(frozen=True)
class Grouping:
    """Knowledge that the queue needs to group missions by the weights that Ollama has to load for them.

    `persona_of` returns the persona that a mission probably has, None if that is not known yet. `model_of`
    returns a persona's model, `load_of` what is loaded for a model, None if that is not known. `conflict` returns
    True if two loads evict each other from one memory; `memories` counts the memories. `began` receives the persona
    of each mission that begins.
    """

    fairness: Fairness
    persona_of: Callable[[MissionRecord], str | None]
    model_of: Callable[[str], str]
    load_of: Callable[[str], Load | None]
    conflict: Callable[[Load, Load], bool]
    began: Callable[[str], None] = lambda persona: None
    memories: Callable[[], int] = lambda: 1


class QueuedMission:
    """Mission that waits, or begins. Entries are sorted by the order of their tickets."""

    __slots__ = ("model", "order", "persona", "record", "ticket")

    def __init__(self, record: MissionRecord, ticket: Ticket, persona: str | None = None, model: str | None = None) -> None:
        self.record, self.ticket, self.persona, self.model = record, ticket, persona, model
        self.order = ticket.order

    def __lt__(self, other: QueuedMission) -> bool:
        return self.order < other.order


class MissionQueue:
    """Priority queue of missions. Without a grouping it is first come, first served within a rank."""

    def __init__(
        self, grouping: Grouping | None = None, *, patience_s: float = math.inf, now: Callable[[], float] = time.monotonic
    ) -> None:
        """
        :param patience_s: seconds that the system's own missions wait for those of users.
        :param now: monotonic clock, in seconds.
        """
        self._grouping, self._patience, self._now = grouping, patience_s, now
        self._ids: set[str] = set()
        self._own: dict[str, float] = {}  # since when the system's own wait
        self._let_through = -math.inf
        self._heap: list[QueuedMission] = []
        self._front: list[QueuedMission] = []  # the block that the first of all is in, sorted
        self._loaded: list[Load] = []  # what the missions begun last have loaded

    def __len__(self) -> int:
        return len(self._heap) + len(self._front)

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def ids(self) -> list[str]:
        """Return the ids of the missions that wait."""
        return list(self._ids)

    def entry(self, record: MissionRecord) -> QueuedMission:
        """Return a mission with its place in the order, without queueing it."""
        ticket = Ticket((record.origin == "system", -record.priority), record.number)
        if self._grouping is None:
            return QueuedMission(record, ticket)
        persona = self._grouping.persona_of(record)
        return QueuedMission(record, ticket, persona, None if persona is None else self._grouping.model_of(persona))

    def push(self, record: MissionRecord) -> None:
        """Queue a mission."""
        if record.origin == "system":
            self._own[record.id] = self._now()
        self._ids.add(record.id)
        heapq.heappush(self._heap, self.entry(record))

    def pop(self) -> QueuedMission:
        """Remove and return the mission that goes next."""
        if (entry := self._patient()) is None:
            self._fill_front()
            entry = self._front.pop(self._choice())
        self._own.pop(entry.record.id, None)
        self._ids.discard(entry.record.id)
        self.began(entry)
        return entry

    def _patient(self) -> QueuedMission | None:
        """Remove and return a mission of the system's own that has waited long enough; None if it is not time for
        one."""
        now = self._now()
        id = next((id for id, since in self._own.items() if now - since >= self._patience), None)
        if id is None or now - self._let_through < self._patience:
            return None
        self._let_through = now
        return self._taken(id)

    def began(self, entry: QueuedMission) -> None:
        """Note that a mission begins, after it waited or at once."""
        if self._grouping is None:
            return
        self._grouping.fairness.began(waiting=bool(self))
        if entry.persona is not None and entry.record.origin != "system":  # nothing is loaded ahead for what no user asked for
            self._grouping.began(entry.persona)
        load = self._load(entry)
        if load is not None and load not in self._loaded:
            gone = self._thrown_out(self._grouping, load)
            self._loaded = [other for other in self._loaded if other not in gone] + [load]

    def remove(self, id: str) -> MissionRecord | None:
        """Remove a mission and return its record; None if it does not wait."""
        self._own.pop(id, None)
        self._ids.discard(id)
        entry = self._taken(id)
        return None if entry is None else entry.record

    def _taken(self, id: str) -> QueuedMission | None:
        for part in (self._front, self._heap):
            for i, entry in enumerate(part):
                if entry.record.id == id:
                    del part[i]
                    heapq.heapify(self._heap)
                    return entry
        return None

    def place(self, id: str) -> int | None:
        """Return a mission's place in the order, from 1; None if it does not wait."""
        entries = [*self._front, *self._heap]
        own = next((entry for entry in entries if entry.record.id == id), None)
        return None if own is None else 1 + sum(entry < own for entry in entries)

    def models(self, limit: int) -> list[str]:
        """Return the models that the next `limit` missions need, in order, each once."""
        nearest = itertools.chain(self._front, heapq.nsmallest(limit, self._heap))
        return list(dict.fromkeys(entry.model for entry in itertools.islice(nearest, limit) if entry.model))

    def _fill_front(self) -> None:
        if self._front and self._heap and self._heap[0] < self._front[-1]:  # a mission came that goes before these
            for entry in self._front:
                heapq.heappush(self._heap, entry)
            self._front = []
        block = self._grouping.fairness.block if self._grouping is not None else 1
        while self._heap and (not self._front or _together(self._front[0], self._heap[0], block)):
            self._front.append(heapq.heappop(self._heap))

    def _choice(self) -> int:
        """Return the index in the front of the mission that goes next.

        It is the first whose model is loaded, if it may overtake those before it; else the first. Where there are
        several memories, a load that evicts nothing counts as loaded, so that no memory is idle.
        """
        grouping = self._grouping
        if grouping is None:
            return 0
        fairness = grouping.fairness
        for i, entry in enumerate(self._front):
            load = self._load(entry)
            if load is None or load in self._loaded or (grouping.memories() > 1 and not self._thrown_out(grouping, load)):
                for earlier in self._front[:i]:
                    fairness.passed(earlier.ticket)
                return i
            later = self._front[i + 1 : i + 2]
            if later and not fairness.may_pass(later[0].ticket, entry.ticket):
                break
        return 0

    def _thrown_out(self, grouping: Grouping, load: Load) -> list[Load]:
        """Return the loads that another load evicts: the oldest of those that it conflicts with."""
        rivals = [other for other in self._loaded if grouping.conflict(load, other)]
        return rivals[: max(0, len(rivals) + 1 - grouping.memories())]

    def _load(self, entry: QueuedMission) -> Load | None:
        """Return the load that a mission needs; None if it is not known."""
        if entry.model is None or self._grouping is None:
            return None
        return self._grouping.load_of(entry.model) or Load(entry.model)


def _together(first: QueuedMission, other: QueuedMission, block: int) -> bool:
    return first.ticket.rank == other.ticket.rank and first.ticket.number // block == other.ticket.number // block
