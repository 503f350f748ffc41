"""Admission of inferences: order, turns at the models, and waiting.

Two loads that evict each other (`Load`) must not alternate, because each switch loads the weights again. So missions on a loaded model may
pass earlier ones, within a bound (`Fairness`). A mission whose load would evict another's waits until the missions on that one have ended
(`AdmissionGate`). The queue of missions and the gate keep one bound together: a mission has one `Ticket` for both.

A load is not a model's name but what Ollama keeps in memory for it. That is the weights, the adapters on them, and the options of the
runner. Ollama keeps one runner for each file of weights. Models that differ only by their system message share it. Another adapter, or
another value of an option below, makes Ollama load the weights again (v0.17.4, server/sched.go: needsReload).
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from batos import scope
from batos.bridge.modelfile import Modelfile

RUNNER_OPTIONS = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread")


@dataclass(frozen=True, slots=True)
class Load:
    """Memory content for a model. `weights` and `adapters` are names of blobs, `options` pairs sorted by name."""

    weights: str
    adapters: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, shown: Modelfile, options: Mapping[str, Any]) -> Load:
        """Return the load of a model.

        :param shown: the Modelfile that Ollama shows of it, which names blobs.
        :param options: options of the request; they have priority over the model's own.
        """
        own = {name: value for name, value in {**shown.parameters, **options}.items() if name in RUNNER_OPTIONS}
        return cls(_blob(shown.from_), tuple(_blob(a) for a in shown.adapters), tuple(sorted(own.items())))

    def evicts(self, other: Load) -> bool:
        """Return True if loading this one evicts the other, however much memory there is."""
        return self.weights == other.weights and self != other


def _blob(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


Rank = tuple[bool, int]
PACE_WEIGHT = 0.2  # weight of the newest interval in the running mean


@dataclass(eq=False, slots=True)
class Ticket:
    """A mission's place in the order: first by `rank` (the system's own, minus the priority), then by `number`.

    `passed_at` is when a later one of its rank was first let before it, because that one's model was loaded.
    """

    rank: Rank
    number: int
    passed_at: float | None = None
    gates: frozenset[AdmissionGate] = frozenset()  # most tickets do not wait at a gate
    ended: bool = False

    @property
    def order(self) -> tuple[bool, int, int]:
        """Return the sort key of the ticket."""
        return (*self.rank, self.number)


class Fairness:
    """Bound on overtaking, in missions and in seconds.

    Missions are counted in blocks: numbers 0 to `count - 1`, and so on. Only a mission of the same block and rank, and a later number, may
    go before another. So no mission is overtaken by `count` missions or more. Once `seconds` have passed since a mission was first
    overtaken, none passes it any more. A bound on each mission's own count would say the same, but in a long queue all waiting missions
    reach it together. The rest is then first come, first served, just when grouping is needed most.

    For the same reason a block is no longer than what is served in `seconds`. Blocks are powers of two, so that a shorter one is a part
    of a longer one and the bound holds while their length changes.
    """

    def __init__(self, count: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """
        :param count: longest block; 1: first come first served. The power of two below it is taken.
        :param seconds: longest time for which a mission is overtaken; 0: first come first served.
        """
        self.seconds, self.clock = seconds, clock
        self._count = count
        self._pace: float | None = None
        self._began_at: float | None = None

    @property
    def block(self) -> int:
        """Return the current number of missions in a block."""
        if not self.seconds:
            return 1
        served = self._count if not self._pace else int(min(self._count, self.seconds / self._pace))
        return 1 << max(0, served.bit_length() - 1)

    def began(self, *, waiting: bool) -> None:
        """Record the start of a mission. The interval to the next start counts if other missions are `waiting` meanwhile."""
        now = self.clock()
        if self._began_at is not None:
            took = now - self._began_at
            self._pace = took if self._pace is None else (1 - PACE_WEIGHT) * self._pace + PACE_WEIGHT * took
        self._began_at = now if waiting else None

    def may_pass(self, later: Ticket, earlier: Ticket) -> bool:
        """Return True if the later ticket may go first when its model is loaded."""
        block = self.block
        if later.rank != earlier.rank or later.number // block != earlier.number // block:
            return False
        return earlier.passed_at is None or self.clock() - earlier.passed_at < self.seconds

    def passed(self, earlier: Ticket) -> None:
        """Record that a later ticket went before this one."""
        if earlier.passed_at is None:
            earlier.passed_at = self.clock()


@contextlib.contextmanager
def session(ticket: Ticket) -> Iterator[None]:
    """Mark the inferences in this block as one mission's: it keeps its turn between them."""
    ticket.ended = False
    try:
        with scope.enter(ticket=ticket):
            yield
    finally:
        ticket.ended = True
        for gate in ticket.gates:
            gate.leave(ticket)
        ticket.gates = frozenset()


@dataclass(eq=False, slots=True)
class _Waiting:
    ticket: Ticket
    load: Load
    since: float
    serial: int
    turn: asyncio.Future[None]
    starved: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the sort key: starved requests first, the longest wait leading; then the order of the missions."""
        return (0, self.serial) if self.starved else (1, *self.ticket.order, self.serial)


class AdmissionGate:
    """Gate that admits inferences so that loads in use are not evicted. On the loop's thread.

    An admitted mission holds its load until its session ends, or it needs another load that is not available at once. Others on the
    same load, and on loads that fit beside it, are admitted too. The rest waits, in order; a mission that has waited for the bound's
    seconds gets the next turn, even from its holders.
    """

    def __init__(self, fairness: Fairness, fits: Callable[[Set[Load]], bool], on_idle: Callable[[], None] = lambda: None) -> None:
        """
        :param fits: returns True if these loads fit in memory together.
        :param on_idle: called when an inference or a mission has ended and nothing is under way or waits.
        """
        self._fairness, self._fits, self._on_idle = fairness, fits, on_idle
        self._holds: dict[Ticket, set[Load]] = {}
        self._flying: Counter[Load] = Counter()
        self._waiting: list[_Waiting] = []
        self._serials = itertools.count()
        self._latest = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_use(self) -> set[Load]:
        """Return the loads that must stay in memory: inferences are under way on them, or missions hold them."""
        return set(self._flying).union(*self._holds.values())

    @property
    def idle(self) -> bool:
        """Return True if no inference is under way or waits."""
        return not (self._flying or self._waiting)

    def keeps_waiting(self, ticket: Ticket) -> bool:
        """Return True if an inference of the mission waits for its turn."""
        return any(entry.ticket is ticket for entry in self._waiting)

    @property
    def waiting(self) -> int:
        """Return the number of inferences that wait for their turn."""
        return len(self._waiting)

    def conflict(self, a: Load, b: Load) -> bool:
        """Return True if two loads cannot be in memory together."""
        return a != b and (a.evicts(b) or not self._fits({a, b}))

    @contextlib.asynccontextmanager
    async def turn(self, load: Load) -> AsyncIterator[None]:
        """Wait for the turn of an inference on this load; the block is the inference."""
        ticket: Ticket | None = scope.current().ticket
        mine = ticket if ticket is not None else Ticket((False, 0), self._latest)  # outside a mission: after the tickets that are there
        try:
            await self._enter(mine, load)
            try:
                yield
            finally:
                self._landed(load)
        finally:
            # A waiting mission holds no load: missions that wait for each other's loads would deadlock.
            if ticket is None or ticket.ended or any(gate.keeps_waiting(mine) for gate in mine.gates):
                self._holds.pop(mine, None)
            self.look_again()
            if self.idle:
                self._on_idle()

    def leave(self, ticket: Ticket) -> None:
        """Release everything that a mission holds, because its session ended or it waits."""
        if self._holds.pop(ticket, None) is not None:
            self.look_again()
            if self.idle:
                self._on_idle()

    async def _enter(self, ticket: Ticket, load: Load) -> None:
        self._latest = max(self._latest, ticket.number)
        ticket.gates |= {self}
        if load in self._holds.get(ticket, ()):
            self._flying[load] += 1
            return
        entry = _Waiting(ticket, load, self._fairness.clock(), next(self._serials), asyncio.get_running_loop().create_future())
        bisect.insort(self._waiting, entry, key=lambda waiting: waiting.key)
        self.look_again()
        if not entry.turn.done():
            for gate in ticket.gates:
                gate.leave(ticket)  # see `turn`
        try:
            await entry.turn
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif not entry.turn.cancelled():  # cancelled at the moment when its turn came
                self._landed(load)
            raise

    def _landed(self, load: Load) -> None:
        self._flying[load] -= 1
        if not self._flying[load]:
            del self._flying[load]

    def look_again(self) -> None:
        """Give turns to the entries that can have one now. The gate calls this itself after each change, and after too long a wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._note_starved()
        stay: list[_Waiting] = []
        stuck: set[Load] = set()  # a load that keeps an entry waiting keeps later entries on that load waiting, too
        for entry in self._waiting:
            if entry.turn.cancelled():
                continue
            if entry.load not in stuck and self._let_through(entry, stay):
                continue
            stay.append(entry)
            stuck.add(entry.load)
        self._waiting = stay
        patient = [entry.since for entry in stay if not entry.starved]
        if patient:
            due = min(patient) + self._fairness.seconds - self._fairness.clock()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due), self.look_again)

    def _note_starved(self) -> None:
        """Mark requests that waited too long: they take the turn from its holder. Inferences under way are not touched."""
        now = self._fairness.clock()
        for entry in self._waiting:
            if not entry.starved and now - entry.since >= self._fairness.seconds:
                entry.starved = True
        for entry in self._waiting:
            if entry.starved:
                for ticket, held in list(self._holds.items()):
                    if any(self.conflict(entry.load, load) for load in held):
                        del self._holds[ticket]
        self._waiting.sort(key=lambda entry: entry.key)

    def _let_through(self, entry: _Waiting, stay: list[_Waiting]) -> bool:
        """Give an entry its turn if its load fits beside the loads in use and those of earlier entries."""
        used = self.in_use
        loaded = entry.load in used
        if used and not loaded and (any(entry.load.evicts(other) for other in used) or not self._fits(used | {entry.load})):
            return False
        passed = [other for other in stay if self.conflict(entry.load, other.load)]
        if not all(loaded and not other.starved and self._fairness.may_pass(entry.ticket, other.ticket) for other in passed):
            return False
        for other in passed:
            if other.ticket is not entry.ticket:
                self._fairness.passed(other.ticket)
        self._flying[entry.load] += 1
        self._holds.setdefault(entry.ticket, set()).add(entry.load)
        entry.turn.set_result(None)
        return True
