"""The heartbeat, with a clock and a sleep of the test's own."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from batos.autotelic.heartbeat import Heartbeat
from batos.errors import Busy

FACTS = {
    "uptime_s": 61.4, "complete": 3, "failed": 1, "conflicts": 2, "objects": 40, "bytes": 9000, "accepted": 5,
    "inferences": 25, "prompt_tokens": 6000, "answer_tokens": 2500, "model_s": 71.5,
    "checked": 40, "damaged": 0, "uri": "file:///x",
}  # fmt: skip
BEGIN = datetime.datetime(2026, 11, 21, 12, 0, 0, tzinfo=datetime.UTC)


class World:
    """Time that passes only when the heartbeat sleeps; it ends after `limit` sleeps."""

    def __init__(self, limit: int) -> None:
        self.now, self.limit = BEGIN, limit
        self.slept: list[float] = []
        self.submitted: list[tuple[str, str]] = []
        self.calm = asyncio.Event()
        self.calm.set()
        self.refuse: list[bool] = []
        self.heart = Heartbeat(
            interval_s=600, first_s=30, submit=self.submit, measure=self.measure, quiet=self.quiet, sleep=self.sleep,
            now=lambda: self.now,
        )  # fmt: skip

    async def submit(self, id: str, brief: str) -> None:
        if self.refuse and self.refuse.pop():
            raise Busy("full")
        self.submitted.append((id, brief))

    async def measure(self) -> dict[str, Any]:
        return FACTS

    async def quiet(self) -> None:
        await self.calm.wait()

    async def sleep(self, seconds: float) -> None:
        if len(self.slept) == self.limit:
            raise asyncio.CancelledError
        self.slept.append(seconds)
        self.now += datetime.timedelta(seconds=seconds)

    async def run(self) -> None:
        with pytest.raises(asyncio.CancelledError):
            await self.heart.run()


async def test_it_beats_first_after_its_first_pause_then_at_each_interval() -> None:
    world = World(limit=4)
    await world.run()
    assert world.slept == [30, 600, 600, 600]
    assert [id for id, _ in world.submitted] == [
        "self_audit-20261121T120030.000000",
        "self_audit-20261121T121030.000000",
        "self_audit-20261121T122030.000000",
        "self_audit-20261121T123030.000000",
    ]
    assert world.heart.beats == 4


async def test_the_brief_holds_what_was_measured() -> None:
    world = World(limit=1)
    await world.run()
    ((_, brief),) = world.submitted
    assert brief.startswith("self_audit: 2026-11-21 12:00:30 UTC.")
    for words in (
        "61 s ago",
        "3 missions complete",
        "1 failed",
        "2 conflicts",
        "40 objects in 9000 bytes",
        "5 missions were ever accepted",
    ):
        assert words in brief


async def test_it_waits_for_a_quiet_moment() -> None:
    world = World(limit=1)
    world.calm.clear()
    running = asyncio.create_task(world.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.slept == [30]
    assert world.submitted == []
    world.calm.set()
    await running
    assert len(world.submitted) == 1


async def test_a_refused_beat_is_skipped_and_the_next_one_comes() -> None:
    world = World(limit=2)
    world.refuse = [True]
    await world.run()
    assert [id for id, _ in world.submitted] == ["self_audit-20261121T121030.000000"]
    assert world.heart.beats == 1


async def test_a_fault_of_its_own_is_not_hidden() -> None:
    world = World(limit=1)

    async def nothing() -> dict[str, Any]:
        return {}

    world.heart._measure = nothing
    with pytest.raises(KeyError):
        await world.heart.run()
