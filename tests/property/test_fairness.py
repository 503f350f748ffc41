"""Grouping by model: the bound on overtaking, ranks, order within a model, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Set
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batos.bridge.admission import AdmissionGate, Fairness, Load, Ticket, session
from batos.image.mission_record import MissionRecord
from batos.missions.mission_queue import Grouping, MissionQueue

ADAPTERS = [Load("base", (name,)) for name in "abcd"]
APART = Load("other")


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def conflict(a: Load, b: Load) -> bool:
    return a.evicts(b)


def queue_of(fairness: Fairness, memories: int = 1) -> MissionQueue:
    loads = dict(zip("abcdo", [*ADAPTERS, APART], strict=True))
    grouping = Grouping(
        fairness,
        persona_of=lambda record: record.persona,
        model_of=lambda persona: persona,
        load_of=loads.get,
        conflict=conflict,
        memories=lambda: memories,
    )
    return MissionQueue(grouping)


def test_as_many_that_throw_each_other_out_as_there_are_memories() -> None:
    """With two Ollamas two experts on one base are served in turns; a third one waits for the block's end."""
    for memories, order in ((1, "aaabbbccc"), (2, "abababccc")):
        queue = queue_of(Fairness(64, 60), memories)
        for number, persona in enumerate("abcabcabc"):
            queue.push(record(number, persona))
        served = "".join(queue.pop().record.persona for _ in range(9))
        assert served == order


def record(number: int, persona: str | None, priority: int = 0, origin: str = "client") -> MissionRecord:
    return MissionRecord(id=f"m{number}", brief="b", accepted=1.0, number=number, persona=persona, priority=priority, origin=origin)


MISSION = st.tuples(st.sampled_from(["a", "b", "c", "d", "o", "unknown", None]), st.integers(0, 1), st.sampled_from(["client", "system"]))
STEP = st.one_of(MISSION, st.just("pop"), st.floats(0, 40).map(lambda s: ("wait", s)))


def rank(mission: MissionRecord) -> tuple[bool, int]:
    return mission.origin == "system", -mission.priority


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=120), st.sampled_from([1, 2, 3, 8, 64]), st.sampled_from([0.0, 10.0, 60.0]))
def test_the_bound_on_overtaking(steps: list[Any], count: int, seconds: float) -> None:
    clock = Clock()
    queue = queue_of(Fairness(count, seconds, clock))
    waiting: dict[int, MissionRecord] = {}
    overtaken: dict[int, tuple[int, float]] = {}  # by how many, and since when
    number = 0
    for step in [*steps, *(["pop"] * len(steps))]:
        if step == "pop" and waiting:
            gone = queue.pop().record
            del waiting[gone.number]
            assert all(rank(gone) <= rank(other) for other in waiting.values())
            passed = [m for m in waiting.values() if rank(m) == rank(gone) and m.number < gone.number]
            assert not any(m.persona == gone.persona for m in passed)
            for m in passed:
                times, since = overtaken.get(m.number, (0, clock()))
                overtaken[m.number] = times + 1, since
                assert times + 1 < count
                assert clock() - since < seconds
        elif isinstance(step, tuple) and step[0] == "wait":
            clock.now += step[1]
        elif step != "pop":
            number += 1
            waiting[number] = record(number, *step)
            queue.push(waiting[number])
    assert not waiting
    assert len(queue) == 0


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=63))
def test_a_block_is_served_model_by_model(personas: list[str]) -> None:
    queue = queue_of(Fairness(64, 60, Clock()))
    for number, persona in enumerate(personas):
        queue.push(record(number, persona))
    served = [queue.pop().record.persona for _ in personas]
    assert sum(a != b for a, b in itertools.pairwise(served)) + 1 == len(set(personas))


@given(st.lists(st.sampled_from("abcd"), min_size=200, max_size=400))
@settings(max_examples=20, deadline=None)
def test_a_long_queue_is_still_grouped(personas: list[str]) -> None:
    """Where all have waited for longer than the bound: a bound on each one's own count would end in first come first served."""
    clock = Clock()
    queue = queue_of(Fairness(64, 60, clock))
    for number, persona in enumerate(personas):
        queue.push(record(number, persona))
    served = []
    for _ in personas:
        clock.now += 1.0
        served.append(queue.pop().record.persona)
    switches = sum(a != b for a, b in itertools.pairwise(served))
    assert switches <= 4 * (len(personas) // 32 + 1)


# --- the gate


def fits(loads: Set[Load]) -> bool:
    return len(loads) <= 3


class Watched:
    """A gate with missions that use it, and what was seen of them."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.clock = Clock()
        self.gate = AdmissionGate(Fairness(64, seconds, self.clock), fits)
        self.chance = random.Random(seed)
        self.flying: list[Load] = []
        self.began: list[tuple[int, Load]] = []

    async def mission(self, ticket: Ticket, chats: list[list[Load]]) -> None:
        """Chats one after the other; each is one or several at once."""
        with session(ticket):
            for at_once in chats:
                await asyncio.gather(*(self.chat(ticket, load) for load in at_once))
                await self.dawdle()

    async def chat(self, ticket: Ticket, load: Load) -> None:
        async with self.gate.turn(load):
            self.began.append((ticket.number, load))
            self.flying.append(load)
            assert not any(load.evicts(other) for other in self.flying)
            assert fits(set(self.flying))
            assert load in self.gate.in_use
            try:
                await self.dawdle()
            finally:
                self.flying.remove(load)

    async def dawdle(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        self.clock.now += self.chance.random()


LOADS = st.sampled_from([*ADAPTERS, APART, Load("third"), Load("fourth")])
CHATS = st.lists(st.lists(LOADS, min_size=1, max_size=3), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.lists(CHATS, min_size=1, max_size=12), st.integers(0, 1000), st.sampled_from([0.0, 3.0, 1000.0]), st.data())
def test_all_get_their_turn_and_nothing_in_use_is_thrown_out(missions: list[Any], seed: int, seconds: float, data: st.DataObject) -> None:
    cancelled = data.draw(st.sets(st.integers(0, len(missions) - 1), max_size=3))

    async def run() -> None:
        watched = Watched(seed, seconds)
        tasks = [asyncio.create_task(watched.mission(Ticket((False, 0), i), chats)) for i, chats in enumerate(missions)]
        for i in sorted(cancelled):
            await watched.dawdle()
            tasks[i].cancel()
        async with asyncio.timeout(90):
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(e is None or isinstance(e, asyncio.CancelledError) for e in ended), ended
        assert watched.gate.idle
        assert not watched.gate.in_use
        assert not watched.gate.waiting

    asyncio.run(run())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(ADAPTERS), min_size=2, max_size=20), st.integers(0, 1000))
def test_missions_at_once_are_served_model_by_model(loads: list[Load], seed: int) -> None:
    """However many inferences each has: what is loaded stays until those that use it have ended."""

    async def run() -> None:
        watched = Watched(seed, 1e9)
        await asyncio.gather(*(watched.mission(Ticket((False, 0), i), [[load]] * 3) for i, load in enumerate(loads)))
        switches = sum(a[1] != b[1] for a, b in zip(watched.began, watched.began[1:], strict=False))
        assert switches + 1 == len(set(loads))

    asyncio.run(run())
