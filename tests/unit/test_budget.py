"""What the loop may spend: counted from what is durable anyway, over restarts, and by the hour where nothing else has it."""

from __future__ import annotations

import asyncio
import errno
import time
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import changes, schema
from batos.autotelic.budget import DAY_S, HOUR_S, Budget, DaySpending
from batos.autotelic.trigger_missions import TriggerMonitor
from batos.image import journal, ledger
from batos.image.living_image import LivingImage
from tests.support.autonomy import EVIDENCE, Proposal, opened
from tests.support.missions import WAIT_S, FakeInference, mind, submit

PLENTY = DaySpending(1e9, 1440, 1e9, 100)
ON = {"autotelic": "on", "heartbeat_first_s": 3600, "senses_s": 3600}


def paid(tokens: int = 10, seconds: float = 30.0) -> journal.InferenceRecord:
    return journal.InferenceRecord(b"k" * 16, 0, "an answer", "m", "d", tokens - 3, 3, 0.0, seconds * 1000, "stop", time.time())


async def mission(image: LivingImage, id: str, *, tokens: int = 10, seconds: float = 30.0, origin: str = "system") -> None:
    """A mission with one inference, which goes on."""
    await image.system(ledger.accept, id, "brief", {"origin": origin}, False, mission=id)
    await image.system(journal.add, id, paid(tokens, seconds), mission=id)


class World:
    """A budget with a clock that stands, unless it sleeps."""

    def __init__(self, image: LivingImage, limits: DaySpending = PLENTY) -> None:
        self.at, self.slept = time.time(), [0.0]
        self.budget = Budget(image, limits, now=lambda: self.at, sleep=lambda seconds: self.sleep(seconds))

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


async def test_missions_of_the_system_count_and_no_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image)
        assert await world.budget.spent() == DaySpending(0, 0, 0, 0)
        await mission(image, "self_audit-1", tokens=10, seconds=30)
        await mission(image, "m1", tokens=500, seconds=60, origin="client")
        spent = await world.budget.spent()
        assert (spent.tokens, spent.minutes) == (10, 0.5)
        await image.system(journal.add, "self_audit-1", paid(7, 15)._replace(occurrence=1), mission="self_audit-1")
        assert (await world.budget.spent())[:2] == (17, 0.75), "it goes on"
        await mission(image, "self_audit-2")
        assert (await world.budget.spent()).tokens == 27
        assert (await World(image).budget.spent())[:2] == (27, 1.25), "a later daemon counts the same"


async def test_what_was_written_in_its_name_counts_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image)
        await image.system(ledger.accept, "m1", "brief", {}, False, mission="m1")
        await image.system(journal.add, "m1", paid(), mission="m1")
        assert (await world.budget.spent()).bytes == 0
        await mission(image, "self_audit-1")
        first = (await world.budget.spent()).bytes
        assert first > 200
        assert (await world.budget.spent()).bytes == first
        assert (await World(image).budget.spent()).bytes == first
        async with image.unit() as unit:
            unit.root["lobby"].autotelic.comment = "x" * 1000
            unit.note("change:1", changes.NOTE)
        assert first + 1000 < (await world.budget.spent()).bytes < first + 5000
        both = await asyncio.gather(world.budget.spent(), World(image).budget.spent())
        assert both[0] == both[1], "two that look at the same time count it once"


async def test_rehearsals_have_rows_by_the_hour_that_a_later_daemon_finds(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image)
        for _ in range(3):
            world.budget.paid(paid(100, 6))
        world.at += HOUR_S
        world.budget.paid(paid(50, 6))
        await image.system(lambda root: None)
        assert (await world.budget.spent())[:2] == (350, 0.4)
        rows = image.read(lambda root: root["lobby"].autotelic.budget.rows)
        assert [row[1:3] for row in rows] == [(300, 18.0), (50, 6.0)]
        later = World(image)
        later.at = world.at
        assert (await later.budget.spent())[:2] == (350, 0.4)
        later.at += DAY_S
        assert (await later.budget.spent()).tokens == 50
        later.at += HOUR_S
        assert (await later.budget.spent()).tokens == 0
        later.budget.paid(paid(1, 1))
        await image.system(lambda root: None)
        assert len(image.read(lambda root: root["lobby"].autotelic.budget.rows)) == 1, "old rows go"


async def test_changes_count_and_stop_changes_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, PLENTY._replace(changes=1))
        assert await world.budget.why_no_change() == ""
        await image.system(changes.propose, Proposal(), EVIDENCE, "")
        await image.system(changes.refuse, 1, "", {})
        assert await world.budget.why_no_change() == ""
        await image.system(changes.propose, Proposal(content=2), EVIDENCE, "")
        await image.system(changes.promote, 2, {})
        world.at = time.time()
        assert "1 of 1 changes (autonomy.changes)" in await world.budget.why_no_change()
        assert await world.budget.why_not() == ""
        world.at += DAY_S + 1
        assert await world.budget.why_no_change() == ""


async def test_what_was_spent_while_the_clock_was_ahead_does_not_hold_it_back_for_as_long(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, PLENTY._replace(tokens=20, changes=1))
        right = world.at
        world.at += 365 * DAY_S
        world.budget.paid(paid(tokens=30))
        await image.system(ledger.accept, "self_audit-1", "brief", {"origin": "system"}, False)
        await image.system(journal.add, "self_audit-1", paid(30), mission="self_audit-1")
        await image.system(changes.propose, Proposal(), EVIDENCE, "")
        await image.system(changes.promote, 1, {})

        def ahead(root: Any) -> None:
            ledger.mission_of(root, "self_audit-1").accepted = changes.record_of(root, 1).decided = world.at

        await image.system(ahead)
        assert (await world.budget.spent()).tokens == 60
        assert (await World(image).budget.spent()).tokens == 0, "as a later daemon finds it, whose clock is right"
        world.at = right + HOUR_S
        assert await world.budget.why_no_change() == ""
        world.budget.paid(paid(tokens=5))
        await image.system(lambda root: None)
        assert (await world.budget.spent()).tokens == 5


async def test_it_defers_until_there_is_room_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, PLENTY._replace(tokens=20))
        await world.budget.ready()
        assert world.slept == [0.0]
        await mission(image, "self_audit-1", tokens=15)
        await world.budget.ready()
        await mission(image, "self_audit-2", tokens=15)
        said: list[Any] = []
        original = world.sleep

        async def sleep(seconds: float) -> None:
            said.append(world.budget.facts()["deferred"])
            await original(seconds)

        world.sleep = sleep
        await world.budget.ready()
        assert said[0] == "in 24 hours the loop has spent 30 of 20 tokens (autonomy.tokens)"
        assert world.slept[1] > DAY_S - 60, "until the first of them is a day old, and no look before"
        assert len(world.slept) <= 3
        assert world.budget.facts()["deferred"] is None
        assert world.budget.facts()["spent"]["tokens"] == {"spent": 15, "limit": 20}


async def test_nothing_may_be_spent_where_the_limit_is_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        for name in DaySpending._fields:
            world = World(image, PLENTY._replace(**{name: 0}))
            if name not in ("pull_bytes", "training_minutes"):
                assert f"autonomy.{name}" in await world.budget.why_no_change()
            else:
                assert await world.budget.may_pull() == await world.budget.may_train() == 0


async def test_a_spent_budget_holds_the_heartbeat_back_but_no_user(tmp_path: Path) -> None:
    more = {**ON, "heartbeat_first_s": 0.05, "loop_tokens": 0}
    async with mind(tmp_path, FakeInference(), **more) as kernel, asyncio.timeout(WAIT_S):
        while kernel.info()["autotelic"]["budget"]["deferred"] is None:
            await asyncio.sleep(0.002)
        assert "autonomy.tokens" in kernel.info()["autotelic"]["budget"]["deferred"]
        assert (await (await submit(kernel, "m1")).end())["state"] == "COMPLETE"
        assert [one.id for one in kernel.image.read(lambda root: list(ledger.newest_first(root)))] == ["m1"]


async def test_a_disk_too_full_to_count_on_ends_no_look_at_the_triggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, looked = [OSError(errno.ENOSPC, "No space left on device")], asyncio.Event()
    spent = Budget.spent

    async def count(self: Budget) -> DaySpending:
        if full:
            raise full.pop()
        return await spent(self)

    async def look(self: TriggerMonitor) -> None:
        looked.set()

    monkeypatch.setattr(Budget, "spent", count)
    monkeypatch.setattr(TriggerMonitor, "check", look)
    async with mind(tmp_path, FakeInference(), **{**ON, "senses_s": 0.05}):
        await asyncio.wait_for(looked.wait(), WAIT_S)
    assert not full


async def test_what_was_pulled_counts_for_pulls_alone_and_a_later_daemon_finds_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image, PLENTY._replace(pull_bytes=1000))
        assert (world.budget.pull_limit, await world.budget.may_pull()) == (1000, 1000)
        await world.budget.pulled(700)
        assert await World(image, PLENTY._replace(pull_bytes=1000)).budget.may_pull() == 300
        await world.budget.pulled(700)
        assert await world.budget.may_pull() == 0
        assert (await world.budget.why_not(), await world.budget.why_no_change()) == ("", "")
        assert world.budget.facts()["spent"]["pull_bytes"] == {"spent": 1400, "limit": 1000}
        world.at += DAY_S + HOUR_S
        assert await world.budget.may_pull() == 1000


async def test_rows_of_an_image_from_before_pulls_are_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        world = World(image)
        hour = int(world.at // HOUR_S)

        def old(root: Any) -> None:
            schema.part_of(root, "budget").rows = ((hour, 5, 60.0, 7),)

        await image.system(old)
        world.budget.paid(paid(10, 30))
        await image.system(lambda root: None)
        spent = await world.budget.spent()
        assert (spent.tokens, spent.minutes, spent.pull_bytes) == (15, 1.5, 0)
