"""The heartbeat on a real image, with a clock, a sleep and a chance of the test's own."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import changes, heartbeat, trigger_missions
from batos.autotelic.changes import Proposal
from batos.autotelic.heartbeat import Heartbeat, HeartbeatClock, Rhythm
from batos.errors import Busy
from batos.image import ledger
from batos.image.living_image import LivingImage
from tests.support.autonomy import opened
from tests.support.missions import WAIT_S, FakeInference, mind, submit

FACTS = {
    "uptime_s": 61.4, "complete": 3, "failed": 1, "conflicts": 2, "objects": 40, "bytes": 9000, "accepted": 5,
    "inferences": 25, "prompt_tokens": 6000, "answer_tokens": 2500, "model_s": 71.5,
    "checked": 40, "damaged": 0, "uri": "file:///x", "sensed": "Verdicts of the guardian: refused 2.",
}  # fmt: skip
BEGIN = 1_795_262_400.0  # 2026-11-21 12:00:00 UTC


class World:
    """Time that passes only when the heartbeat sleeps; it ends after `limit` sleeps. Missions end at once, unless `resting`. Meanwhile a
    user sends a mission, unless nobody is there (`alone`)."""

    def __init__(self, image: LivingImage, limit: int, *, now: float = BEGIN, chance: float = 0.5) -> None:
        self.image, self.now, self.limit = image, now, limit
        self.slept: list[float] = []
        self.submitted: list[tuple[str, str]] = []
        self.calm = asyncio.Event()
        self.calm.set()
        self.refuse: list[bool] = []
        self.resting = self.alone = False
        self.facts = FACTS
        self.after_submit: Callable[[], None] = lambda: None
        self.heart = Heartbeat(
            image, Rhythm(interval_s=600, jitter=0.1, first_s=30), submit=self.submit,
            measure=lambda: self.measure(), quiet=lambda: self.quiet(),
            clock=HeartbeatClock(sleep=lambda seconds: self.sleep(seconds), now=lambda: self.now, chance=lambda: chance),
        )  # fmt: skip

    async def submit(self, id: str, brief: str) -> None:
        if self.refuse and self.refuse.pop():
            raise Busy("full")
        new, _ = await self.image.system(ledger.accept, id, brief, {"origin": "system"}, False)
        assert new
        self.submitted.append((id, brief))
        self.after_submit()
        if not self.resting:
            await self.image.system(ledger.fail, id, {"code": "internal", "message": "x"}, {}, True)

    async def measure(self) -> dict[str, Any]:
        return self.facts

    async def quiet(self) -> None:
        await self.calm.wait()

    async def sleep(self, seconds: float) -> None:
        if len(self.slept) == self.limit:
            raise asyncio.CancelledError
        self.slept.append(seconds)
        self.now += seconds
        if not self.alone:
            await self.a_user_comes()

    async def a_user_comes(self) -> None:
        id = f"user-{self.now}-{len(self.slept)}"
        await self.image.system(ledger.accept, id, "b", {}, False)
        await self.image.system(ledger.fail, id, {"code": "internal", "message": "x"}, {}, True)

    async def run(self) -> None:
        with pytest.raises(asyncio.CancelledError):
            await self.heart.run()

    @property
    def ids(self) -> list[str]:
        return [id for id, _ in self.submitted]


async def test_it_beats_first_after_its_first_pause_then_at_each_interval(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, limit=4)
        await world.run()
        assert world.slept == [30, 600, 600, 600]
        assert world.ids == [
            "self_audit-20261121T120030.000000",
            "self_audit-20261121T121030.000000",
            "self_audit-20261121T122030.000000",
            "self_audit-20261121T123030.000000",
        ]
        assert world.heart.facts() == {"due": BEGIN + 30 + 4 * 600, "last": world.ids[-1], "beats": 4, "quiet": 0}


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 540), (0.25, 570), (1.0, 660)])
async def test_a_beat_comes_earlier_or_later_by_chance(tmp_path: Path, chance: float, pause: float) -> None:
    async with opened(tmp_path) as image:
        world = World(image, limit=3, chance=chance)
        await world.run()
        assert world.slept == pytest.approx([30, pause, pause])


async def test_a_restart_keeps_to_the_schedule(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await World(image, limit=1).run()
    async with opened(tmp_path) as image:
        world = World(image, limit=2, now=BEGIN + 200)
        await world.run()
        assert world.slept == [30, 400]
        assert world.ids == ["self_audit-20261121T121030.000000"]


async def test_what_fell_due_while_it_was_away_is_made_up_for_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await World(image, limit=1).run()
    async with opened(tmp_path) as image:
        world = World(image, limit=3, now=BEGIN + 30 * 86400)
        await world.run()
        assert world.slept == [30, 600, 600]
        assert len(world.ids) == 3
        assert world.ids[0] == "self_audit-20261121T121030.000000"


async def test_killed_between_the_acceptance_and_the_plan_it_does_not_beat_twice(tmp_path: Path) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    async with opened(tmp_path) as image:
        world = World(image, limit=1)
        world.after_submit = die
        with pytest.raises(KeyboardInterrupt):
            await world.heart.run()
        await image.system(ledger.fail, world.ids[0], {"code": "internal", "message": "x"}, {}, True)
    async with opened(tmp_path) as image:
        again = World(image, limit=2, now=BEGIN + 60)
        await again.run()
        assert again.ids == ["self_audit-20261121T121130.000000"]
        assert again.heart.facts()["beats"] == 2


async def test_a_clock_that_was_set_back_does_not_silence_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await World(image, limit=1).run()
        world = World(image, limit=2, now=BEGIN - 365 * 86400)
        await world.run()
        assert world.slept == [30, 600]
        assert len(world.ids) == 2


async def test_a_clock_that_is_set_back_while_it_sleeps_does_not_silence_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, limit=3)
        passed = world.sleep

        async def set_back(seconds: float) -> None:
            await passed(seconds)
            if len(world.slept) == 2:
                world.now -= 365 * 86400

        world.sleep = set_back
        await world.run()
        assert world.slept == [30, 600, 600]
        assert len(world.ids) == 3


async def test_never_two_at_once(tmp_path: Path) -> None:
    """An audit that rests holds no place, so the daemon is quiet; the next one waits for its end all the same."""
    async with opened(tmp_path) as image:
        world = World(image, limit=3)
        world.resting = True
        await world.run()
        assert len(world.ids) == 1
        await image.system(ledger.fail, world.ids[0], {"code": "internal", "message": "x"}, {}, True)
        later = World(image, limit=2, now=world.now)
        await later.run()
        assert len(later.ids) == 1


async def test_without_news_there_is_no_audit_and_the_pause_doubles_up_to_a_day(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, limit=1000)
        world.alone = True
        due: list[float] = []
        passed = world.sleep

        async def sleep(seconds: float) -> None:
            due.append(world.heart.facts()["due"])
            await passed(seconds)

        world.sleep = sleep
        await world.run()
        assert len(world.ids) == 1, "the first look"
        pauses = [after - before for before, after in itertools.pairwise(dict.fromkeys(due[1:]))]
        assert pauses[:9] == [1200 * 2**n for n in range(7)] + [86400, 86400]
        assert max(world.slept) <= 660, "news would be seen within the usual pause"


async def test_news_cuts_a_long_pause_short_and_the_next_one_is_as_usual(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, limit=40)
        world.alone = True
        await world.run()
        quiet = world.heart.facts()
        assert quiet["quiet"] >= 4
        assert quiet["due"] > world.now + 3600
    async with opened(tmp_path) as image:
        again = World(image, limit=2, now=world.now)
        again.alone = True
        await again.a_user_comes()
        await again.run()
        assert len(again.ids) == 1
        assert again.slept == [30, 600]
        assert "New: missions of users: 1." in again.submitted[0][1]


async def test_what_is_news(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        last = image.read(heartbeat.audit_seen, 0)
        assert image.read(heartbeat.news_since, None, 0) == "it is the first one."
        assert image.read(heartbeat.news_since, last, 0) == ""
        await image.system(ledger.accept, "own", "b", {"origin": "system"}, False)
        assert image.read(heartbeat.news_since, last, 0) == "", "what it does itself is no news"
        assert image.read(heartbeat.news_since, last, 2) == "records found damaged: 2."
        await image.system(trigger_missions.fire, "state_slow", "IDLE", "it is slow.", 1.0)
        assert image.read(heartbeat.news_since, last, 0) == "triggers that fired: 1."
        last = image.read(heartbeat.audit_seen, 0)
        assert image.read(heartbeat.news_since, last, 0) == "", "it stands, and that was seen"
        number = await image.system(changes.propose, Proposal("retire", "thing.add_", "", "w"), {"trigger": "state_slow"}, "own")
        await image.system(changes.refuse, number, "nothing gets better", {})
        assert image.read(heartbeat.news_since, last, 0) == "a change about a trigger in force was decided."
        await image.system(trigger_missions.let_fire_again, [("state_slow", "IDLE")])
        assert image.read(heartbeat.news_since, last, 0) == ""


async def test_the_brief_holds_what_was_measured(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, limit=1)
        await world.run()
        ((_, brief),) = world.submitted
        assert brief.startswith("self_audit: 2026-11-21 12:00:30 UTC.")
        told = (
            "61 s ago",
            "3 missions complete",
            "1 failed",
            "2 conflicts",
            "40 objects in 9000 bytes",
            "5 missions were ever accepted",
            "refused 2.",
        )
        assert [words for words in told if words not in brief] == []


async def test_it_waits_for_a_quiet_moment(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, limit=1)
        world.calm.clear()
        waits = asyncio.Event()

        async def quiet() -> None:
            waits.set()
            await world.calm.wait()

        world.quiet = quiet
        running = asyncio.create_task(world.run())
        await asyncio.wait_for(waits.wait(), WAIT_S)
        assert world.submitted == []
        world.calm.set()
        await asyncio.wait_for(running, WAIT_S)
        assert len(world.submitted) == 1


async def test_a_refused_beat_comes_later(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, limit=2)
        world.refuse = [True]
        await world.run()
        assert world.slept == [30, 600]
        assert world.ids == ["self_audit-20261121T120030.000000"]


async def test_a_fault_of_its_own_is_not_hidden(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, limit=1)

        async def nothing() -> dict[str, Any]:
            return {}

        world.measure = nothing
        with pytest.raises(KeyError):
            await world.heart.run()


async def test_in_a_daemon_and_over_its_restart(tmp_path: Path) -> None:
    """A daemon beats, says when it will again, and the next one keeps to that."""
    inference = FakeInference()
    quick = {"autotelic": "on", "heartbeat_first_s": 0.05, "heartbeat_s": 3600}
    async with mind(tmp_path, inference, **quick) as kernel:
        async with asyncio.timeout(WAIT_S):
            while not (told := kernel.info()["autotelic"]["heartbeat"])["beats"]:
                await asyncio.sleep(0.01)
        assert 3200 < told["due"] - time.time() < 4000
    async with mind(tmp_path, inference, **quick) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        assert kernel.info()["autotelic"]["heartbeat"] == told
    async with mind(tmp_path, inference, autotelic="off") as kernel:
        assert kernel.info()["autotelic"] == {"state": "off"}
