"""What crosses between host and worker in its short forms: answers, sends, changes; and the room in which chains wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from batos.errors import SandboxLimit
from batos.sandbox import Sandbox
from batos.sandbox.worker_calls import WorkerTurns
from batos.sandbox.workers import FairSemaphore
from tests.support.sandbox import Sends, call, obj, settings, slots

VALUES: list[Any] = [
    None, 0, -1, 1.5, True, "", "text", b"x", 2**63, -(2**70),
    [], [True, 1, []], [False, ["ValueError", "no"], []], [1, []], [[]],
    (), (True, 1, []), (1, 2**70), {}, {"a": [1]}, set(), {1, 2},
]  # fmt: skip


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(settings()) as made:
        yield made


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_an_answer_is_what_it_was_whatever_it_looks_like(sandbox: Sandbox, value: Any) -> None:
    target = obj(
        "def back(self, x):\n    return x\n",
        "def to_itself(self, x):\n    return self.back(x)\n",
        "def to_another(self, x):\n    return self.peer.back(x)\n",
        "def with_news(self, x):\n    self.n = self.n + 1\n    return self.back(x)\n",
        "def with_loans(self, x):\n    len(self.xs)\n    return self.back(x)\n",
        "def by_name(self, x):\n    return self.back(x=x)\n",
        n=0,
        xs=[1],
        peer=obj("def back(self, x):\n    return x\n"),
    )
    for selector in ("back", "to_itself", "to_another", "with_news", "with_loans", "by_name"):
        got = await call(Sends(sandbox), target, selector, value)
        assert (type(got), got) == (type(value), value), selector
        got = await call(Sends(sandbox), target, selector, x=value)
        assert (type(got), got) == (type(value), value), selector
    assert target.n == 2


async def test_objects_cross_as_themselves(sandbox: Sandbox) -> None:
    peer = obj()
    target = obj(
        "def back(self, x):\n    return x\n",
        "def me(self):\n    return self.back(self)\n",
        "def both(self):\n    return [self.back(self.peer), self.peer.me.back(self)]\n",
        peer=peer,
    )
    peer._slots["me"] = target
    assert await call(Sends(sandbox), target, "me") is target
    assert await call(Sends(sandbox), target, "both") == [peer, target]


async def test_an_error_in_answer_to_a_short_send_is_the_method_s_to_catch(sandbox: Sandbox) -> None:
    target = obj(
        "def bad(self):\n    raise ValueError('no')\n",
        "def m(self):\n    try:\n        self.bad()\n    except ValueError as e:\n        return str(e)\n",
    )
    assert await call(Sends(sandbox), target, "m") == "no"


async def test_what_a_receiver_and_another_object_got_is_written_where_it_belongs(sandbox: Sandbox) -> None:
    peer = obj(n=1)
    target = obj("def m(self):\n    self.n = 2\n    self.peer.n = 3\n    self.me.k = 4\n    self.text = 'x'\n", n=0, peer=peer)
    target._slots["me"] = target
    sends = Sends(sandbox)
    sends.activity.grant(peer)
    assert await call(sends, target, "m") is None
    assert (target.n, peer.n, target.k, target.text) == (2, 3, 4, "x")


@pytest.mark.parametrize("value", ["1", "'x'", "[1]"])
async def test_a_slot_s_name_counts_as_text_that_passes(value: str) -> None:
    target = obj(f"def m(self):\n    setattr(self, 'x' * 3000, {value})\n")
    async with Sandbox(settings(sandbox_text_bytes=2000)) as small:
        with pytest.raises(SandboxLimit):
            await call(Sends(small), target, "m")
    assert slots(target) == {}


async def test_who_waits_for_room_gets_it_in_turn() -> None:
    room, entered = FairSemaphore(1), []

    async def guest(number: int) -> None:
        await room.enter()
        entered.append(number)

    await room.enter()
    guests = [asyncio.ensure_future(guest(number)) for number in range(4)]
    await asyncio.sleep(0)
    guests[1].cancel()
    for expected in ([0], [0, 2], [0, 2, 3]):
        room.leave()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert entered == expected
    room.leave()
    await asyncio.wait_for(room.enter(), 90)


async def test_who_is_cancelled_when_let_in_gives_the_place_on() -> None:
    room = FairSemaphore(1)
    await room.enter()
    first, second = asyncio.ensure_future(room.enter()), asyncio.ensure_future(room.enter())
    await asyncio.sleep(0)
    room.leave()  # the first is let in, and has not noticed yet
    first.cancel()
    await asyncio.wait_for(second, 90)
    with pytest.raises(asyncio.CancelledError):
        await first
    room.leave()
    await asyncio.wait_for(room.enter(), 90)


async def test_what_is_due_afterwards_comes_when_the_loop_has_had_its_turn_and_once() -> None:
    turns, done = WorkerTurns(), []
    turns.afterwards(lambda: done.append(1))
    assert turns.may_stand_by()
    turns.afterwards(lambda: done.append(2))
    assert done == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == [1, 2]
    turns.afterwards(lambda: done.append(3))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == [1, 2, 3]
    turns.close()
