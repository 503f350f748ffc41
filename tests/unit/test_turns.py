"""Turns at the models: who waits, who goes first, and who takes the turn away. The clock is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Set

import pytest

from batos.bridge.admission import AdmissionGate, Fairness, Load, Ticket, session
from batos.bridge.modelfile import parse_modelfile

A, B, C = (Load("base", (name,)) for name in "abc")
OTHER = Load("other")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Room:
    """A gate, and missions in it that do as they are told."""

    def __init__(self, count: int = 64, seconds: float = 60, fits: int = 9) -> None:
        self.clock = Clock()

        def within(loads: Set[Load]) -> bool:
            return len(loads) <= fits

        self.gate = AdmissionGate(Fairness(count, seconds, self.clock), within)
        self.log: list[str] = []


class Mission:
    """A mission that chats when told to, in a task of its own as the scheduler's missions are."""

    def __init__(self, room: Room, number: int, rank: tuple[bool, int] = (False, 0)) -> None:
        self.room, self.number = room, number
        self.ticket = Ticket(rank, number)
        self.orders: asyncio.Queue[tuple[Load, asyncio.Event] | None] = asyncio.Queue()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        with session(self.ticket):
            while (order := await self.orders.get()) is not None:
                load, end = order
                async with self.room.gate.turn(load):
                    self.room.log.append(f"{self.number}{(load.adapters or (load.weights,))[0]}")
                    await end.wait()

    async def chat(self, load: Load) -> asyncio.Event:
        """Ask for an inference; it ends when the event is set."""
        end = asyncio.Event()
        self.orders.put_nowait((load, end))
        await settled()
        return end

    async def quick(self, load: Load) -> None:
        (await self.chat(load)).set()
        await settled()

    async def end(self) -> None:
        self.orders.put_nowait(None)
        await self.task
        await settled()


async def settled() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_a_mission_keeps_its_turn_between_its_inferences() -> None:
    room = Room()
    first, second = Mission(room, 1), Mission(room, 2)
    await first.quick(A)
    await second.quick(B)
    await first.quick(A)
    assert room.log == ["1a", "1a"]
    assert room.gate.waiting == 1
    await first.end()
    assert room.log == ["1a", "1a", "2b"]
    await second.end()
    assert (room.gate.idle, room.gate.in_use) == (True, set())


async def test_later_missions_on_what_is_loaded_go_first() -> None:
    room = Room()
    missions = [Mission(room, n) for n in range(4)]
    await missions[0].quick(A)
    await missions[1].quick(B)
    await missions[2].quick(A)
    await missions[0].end()
    await missions[3].quick(B)
    assert room.log == ["0a", "2a"]
    await missions[2].end()
    assert room.log == ["0a", "2a", "1b", "3b"]
    for mission in (missions[1], missions[3]):
        await mission.end()


async def test_a_later_block_does_not_go_first() -> None:
    room = Room(count=2)
    missions = [Mission(room, n) for n in range(3)]
    await missions[0].quick(A)
    await missions[1].quick(B)
    await missions[2].quick(A)
    assert room.log == ["0a"]
    await missions[0].end()
    await missions[1].end()
    assert room.log == ["0a", "1b", "2a"]
    await missions[2].end()


async def test_nobody_is_overtaken_for_longer_than_the_bound() -> None:
    room = Room(seconds=60)
    missions = [Mission(room, n) for n in range(4)]
    await missions[0].quick(A)
    await missions[1].quick(B)
    await missions[2].quick(A)  # overtakes mission 1: its time begins
    held = await missions[0].chat(A)
    room.clock.now = 59.0
    await missions[3].quick(A)
    assert room.log == ["0a", "2a", "0a", "3a"]
    room.clock.now = 60.0
    late = Mission(room, 4)
    await late.quick(A)
    assert room.log[-1] == "3a"
    # and by now it has waited so long that it takes the turn from those that hold it, when what is under way has ended
    assert room.gate.waiting == 2
    held.set()
    await settled()
    assert room.log[-1] == "1b"
    await missions[1].end()
    assert room.log[-1] == "4a"
    for mission in (missions[0], missions[2], missions[3], late):
        await mission.end()


async def test_who_waits_at_one_memory_holds_nothing_at_another() -> None:
    """Two missions that have what the other waits for, each at another Ollama, would wait for ever."""
    fairness = Fairness(64, 3600)
    here, there = AdmissionGate(fairness, lambda loads: True), AdmissionGate(fairness, lambda loads: True)
    met = asyncio.Barrier(2)

    async def mission(number: int, own: AdmissionGate, other: AdmissionGate, load: Load) -> None:
        with session(Ticket((False, 0), number)):
            async with own.turn(load):
                await met.wait()
            async with other.turn(load):
                pass

    async with asyncio.timeout(90):
        await asyncio.gather(mission(1, here, there, A), mission(2, there, here, B))
    assert (here.in_use, there.in_use) == (set(), set())


async def test_who_has_waited_too_long_takes_the_turn_from_a_mission_that_only_holds_it() -> None:
    room = Room(seconds=60)
    long, other = Mission(room, 1), Mission(room, 2)
    await long.quick(A)
    await other.quick(B)
    assert room.log == ["1a"]
    room.clock.now = 60.0
    room.gate.look_again()
    await settled()
    assert room.log == ["1a", "2b"]
    await long.quick(A)  # now it waits
    assert room.log == ["1a", "2b"]
    room.clock.now = 120.0
    room.gate.look_again()
    await settled()
    assert room.log == ["1a", "2b", "1a"]
    await long.end()
    await other.end()


async def test_without_seconds_it_is_first_come_first_served() -> None:
    room = Room(seconds=0)
    missions = [Mission(room, n) for n in range(3)]
    running = await missions[0].chat(A)
    await missions[1].quick(B)
    await missions[2].quick(A)
    running.set()
    await settled()
    assert room.log == ["0a", "1b", "2a"]
    for mission in missions:
        await mission.end()


async def test_higher_ranks_wait_for_no_lower_one() -> None:
    room = Room()
    holder, system, user, urgent = (Mission(room, n, rank) for n, rank in enumerate([(False, 0), (True, 0), (False, 0), (False, -5)]))
    await holder.quick(A)
    await system.quick(B)
    await user.quick(C)
    await urgent.quick(Load("base", ("d",)))
    await holder.end()
    assert room.log == ["0a", "3d"]
    await urgent.end()
    await user.end()
    await system.end()
    assert room.log == ["0a", "3d", "2c", "1b"]


async def test_loads_that_fit_side_by_side_do_not_wait() -> None:
    room = Room(fits=2)
    first, second, third = (Mission(room, n) for n in range(3))
    await first.quick(A)
    await second.quick(OTHER)
    assert room.log == ["0a", "1other"]
    await third.quick(Load("third"))
    assert room.gate.waiting == 1
    await second.end()
    assert room.log[-1] == "2third"
    await first.end()
    await third.end()


async def test_a_mission_that_needs_another_model_lets_its_own_go() -> None:
    room = Room()
    first, second = Mission(room, 0), Mission(room, 1)
    await first.quick(A)
    await second.quick(B)
    await first.quick(B)  # what the other waits for: both can have it
    assert sorted(room.log) == ["0a", "0b", "1b"]
    await first.end()
    await second.end()


async def test_inferences_outside_any_mission_take_their_turn_too() -> None:
    room = Room()
    mission = Mission(room, 1)
    await mission.quick(A)

    async def outside() -> None:
        async with room.gate.turn(B):
            room.log.append("outside")

    task = asyncio.create_task(outside())
    await settled()
    assert room.log == ["1a"]
    await mission.end()
    await task
    assert room.log == ["1a", "outside"]
    assert room.gate.in_use == set()


@pytest.mark.parametrize("turn_came", [False, True])
async def test_cancelled_while_it_waits_or_when_its_turn_comes(turn_came: bool) -> None:
    room = Room()
    first, second, third = (Mission(room, n) for n in range(3))
    await first.quick(A)
    await second.chat(B)
    await third.quick(C)
    if turn_came:
        room.gate.leave(first.ticket)  # the turn is given in this moment; the second has not heard of it
    second.task.cancel()
    await asyncio.wait([second.task])
    await first.end()
    assert "1b" not in room.log
    assert room.log[-1] == "2c"
    await third.end()
    assert (room.gate.idle, room.gate.in_use) == (True, set())


async def test_an_inference_that_outlives_its_mission_holds_nothing() -> None:
    room = Room()
    ticket, end = Ticket((False, 0), 1), asyncio.Event()

    async def chat() -> None:
        async with room.gate.turn(A):
            await end.wait()

    with session(ticket):
        task = asyncio.create_task(chat())
        await settled()
    assert room.gate.in_use == {A}
    end.set()
    await task
    assert room.gate.in_use == set()


def test_blocks_are_as_long_as_what_is_served_in_the_time() -> None:
    clock = Clock()
    fairness = Fairness(100, 60, clock)
    assert fairness.block == 64
    for _ in range(50):
        fairness.began(waiting=True)
        clock.now += 5.0
    assert fairness.block == 8  # twelve in a minute
    fairness.began(waiting=False)
    clock.now += 1000.0  # nobody waited meanwhile: that says nothing of the pace
    fairness.began(waiting=True)
    assert fairness.block == 8
    assert (Fairness(1, 60).block, Fairness(64, 0).block, Fairness(63, 1e9).block) == (1, 1, 32)


def test_what_is_loaded_for_a_model() -> None:
    shown = parse_modelfile(
        "FROM /models/blobs/sha256-aa\nADAPTER /models/blobs/sha256-bb\nPARAMETER num_ctx 2048\nPARAMETER temperature 0.5\n"
    )
    load = Load.of(shown, {"seed": 1, "num_predict": 5})
    assert load == Load("sha256-aa", ("sha256-bb",), (("num_ctx", 2048),))
    assert Load.of(shown, {"num_ctx": 1024}).options == (("num_ctx", 1024),)
    plain = Load.of(parse_modelfile("FROM /elsewhere/sha256-aa\nSYSTEM You are kind.\nPARAMETER num_ctx 2048"), {})
    assert plain == Load.of(parse_modelfile("FROM C:\\models\\sha256-aa\nPARAMETER num_ctx 2048"), {})
    assert load.evicts(plain)
    assert not load.evicts(load)
    assert not load.evicts(Load("sha256-cc", ("sha256-bb",), (("num_ctx", 2048),)))
