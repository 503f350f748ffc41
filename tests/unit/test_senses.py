"""The senses: what is noted of missions that really run, how it is kept, and that it stays small."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from batos.app.kernel import Kernel
from batos.autotelic import schema, telemetry
from batos.autotelic.audit import SelfAuditLimits
from batos.autotelic.telemetry import TABLES, Levels, Senses, Tallies, tallies_in_words
from batos.bus import EventBus, MemoryQueried, MissionEnded
from batos.errors import InferenceFailed
from batos.image import ledger
from tests.support.autonomy import opened
from tests.support.methods import ADD, give, sent, writing
from tests.support.missions import FakeInference, audited, mind, submit, written

ON = {"autotelic": "on", "heartbeat_first_s": 3600.0}


async def kept(kernel: Kernel) -> list[telemetry.Bucket]:
    await written(kernel)
    return kernel.image.read(telemetry.read_buckets)  # type: ignore[no-any-return]


def sums(buckets: list[telemetry.Bucket]) -> Tallies:
    return telemetry.summed_buckets(buckets, 100)


async def test_what_happened_is_in_the_image_and_over_a_restart(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("no", cause="refused") if "what of sage_facet_" in request.user else None
    async with mind(tmp_path, inference, **ON) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        inference.fail_when = lambda request: InferenceFailed("no", cause="refused")
        await (await submit(kernel, "m2", "I feel sad")).end()
        await (await submit(kernel, "m3", "self_audit", origin="system")).end()
        assert kernel.loop.senses is not None
        bucket = await kernel.loop.senses.flush()
        assert bucket is not None
    async with mind(tmp_path, inference, **ON) as kernel:
        (again,) = await kept(kernel)
        assert again == json.loads(json.dumps(bucket))
        found = sums([again])
        assert found.of("missions", "client COMPLETE").times == 1
        assert found.of("missions", "client FAILED").times == 1
        assert found.of("missions", "system FAILED").times == 1
        assert found.of("personas", "robin").times == 1
        assert found.sum("facets").times >= 2
        assert found.of("failures", "inference_failed refused").times == 2
        assert found.of("states", "DECOMPOSING").times == 3
        assert found.of("states", "SYNTHESIZING").times == 1
        assert found.of("inferences", "robin:embedded").times == inference.answered
        assert found.of("prompt_tokens", "robin:embedded").total == 7 * inference.answered
        assert (found.of("transactions", "units").times, found.of("transactions", "aborts").times) == (1, 2)
        assert again["levels"]["image_bytes"] > 1000
        assert 0 < again["ended"] - again["begun"] < 60


async def test_verdicts_runs_and_retrievals(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def add_(self, number, number2):\n    import os\n    return 1\n", ADD.replace("+", "//"))
    async with mind(tmp_path, inference, **ON) as kernel:
        await give(kernel)
        assert (await sent(kernel, "m1", "thing", "add_", 2, 3))["state"] == "COMPLETE"
        assert (await sent(kernel, "m2", "thing", "add_", 2, 0))["state"] == "FAILED"
        for wrong in ([2, "x"], [2], [2, None]):
            assert (await sent(kernel, f"w{wrong}", "thing", "add_", *wrong))["state"] == "FAILED"
        kernel.bus.publish(MemoryQueried(3))
        kernel.bus.publish(MemoryQueried(0))
        assert kernel.loop.senses is not None
        found = sums([await kernel.loop.senses.flush() or {}])
        assert found.of("verdicts", "refused").times == 1
        assert found.of("verdicts", "accepted").times >= 1
        ((method, ran),) = found.rows("runs")
        assert method.endswith(" add_")
        assert (ran.times, found.of("runs_failed", method).times) == (1, 1)
        assert found.of("runs_unfit", method).times == 3, "what it does not take is no fault of its own"
        assert [key for key, _ in found.rows("failures")] == ["method_failed thing add_"]
        assert (found.of("retrievals", "found").total, found.of("retrievals", "nothing").times) == (3, 1)
        assert list(found.rows("personas")) == [], "a message is no persona's choice"


async def test_a_quiet_interval_leaves_nothing(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), **ON) as kernel:
        assert kernel.loop.senses is not None
        assert await kernel.loop.senses.flush() is None
        assert await kept(kernel) == []


async def test_a_daemon_that_stops_keeps_the_interval_under_way(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), **ON) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        assert kernel.loop.senses is not None
        under_way = await kernel.loop.senses.since(0)
        assert sums(under_way).of("states", "IDLE").times == 1
    async with mind(tmp_path, FakeInference(), autotelic="off") as kernel:
        assert sums(await kept(kernel)).of("missions", "client COMPLETE").times == 1
        assert not kernel.loop.senses, "nobody counts"


async def test_intervals_come_by_themselves(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), **ON, senses_s=0.05) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        while not kernel.image.read(telemetry.read_buckets):
            await written(kernel)
            await (await submit(kernel, f"m{kernel.scheduler.outcomes['COMPLETE'] + 1}", "I feel sad")).end()


async def test_the_ring_keeps_its_length_also_where_that_changes(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        for length, first, count, expected in ((4, 0, 10, [6, 7, 8, 9]), (3, 10, 2, [10, 11]), (6, 12, 6, list(range(12, 18)))):
            for n in range(first, first + count):
                bucket = {"begun": n, "ended": n + 1, "tallies": {}, "levels": {}}
                await image.system(telemetry.write_bucket, bucket, length)
            assert [bucket["begun"] for bucket in image.read(telemetry.read_buckets)][-len(expected) :] == expected
            assert len(image.read(lambda root: list(schema.part_of(root, "senses").ring))) <= length
        assert [bucket["begun"] for bucket in image.read(telemetry.read_buckets, 16.5)] == [16, 17]


async def test_one_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    """A mission that cannot be read costs its own row only."""
    async with opened(tmp_path) as image:
        bus = EventBus()
        senses = Senses(image, bus, length=4, keys=4, levels=lambda: Levels({}, {}))
        await image.system(ledger.accept, "m1", "x", {}, False)
        await image.system(ledger.fail, "m1", {"code": "internal", "message": "x"}, {}, True)
        for id in ("m1", "gone"):
            bus.publish(MissionEnded(id, "FAILED", None, "internal"))
        bucket = await senses.flush()
        assert bucket is not None
        assert bucket["tallies"]["failures"] == {"internal": [1, 1.0, 1.0]}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text(max_size=3), st.floats(0, 1000)), max_size=80), st.integers(1, 5))
def test_tallies_are_bounded_lose_no_count_and_add_up(notes: list[tuple[str, str, float]], keys: int) -> None:
    whole, one, other = Tallies(keys), Tallies(keys), Tallies(keys)
    for n, (table, key, amount) in enumerate(notes):
        whole.note(table, key, amount)
        (one if n % 2 else other).note(table, key, amount)
    one.merge(other.plain())
    for table in "ab":
        assert len(list(whole.rows(table))) <= keys + 1
        assert whole.sum(table).times == one.sum(table).times == sum(name == table for name, _, _ in notes)
        assert abs(whole.sum(table).total - one.sum(table).total) < 0.01 * (len(notes) + 1)
        assert all(row.most <= whole.sum(table).most for _, row in whole.rows(table))


def test_words_for_an_audit() -> None:
    tallies = Tallies(24)
    for seconds in (1.0, 3.0):
        tallies.note("states", "DELEGATING", seconds)
    tallies.note("states", "IDLE", 0.0)
    tallies.note("prompt_tokens", "robin", 120)
    tallies.add("verdicts", "refused", 4)
    assert tallies_in_words(tallies, 1) == (
        "Seconds in a state of thought, by state: DELEGATING 2 times, 2.0 s each, 3.0 s at most; and others. "
        "Tokens read, by model: robin 120. Verdicts of the guardian: refused 4."
    )
    assert tallies_in_words(Tallies(24), 6) == ""


def test_an_audit_is_told_what_tools_cost_the_dearest_first() -> None:
    tallies = Tallies(24)
    for tool, seconds, size in (("shop.ping", 0.1, 10), ("shop.ping", 0.1, 10), ("shop.list", 4.0, 5000)):
        tallies.note("tools", tool, seconds)
        tallies.note("tool_bytes", tool, size)
    tallies.note("tools_failed", "shop.order", 1.5)
    assert tallies_in_words(tallies, 3) == (
        "Seconds of calls of tools, by tool: shop.list 1 times, 4.0 s each, 4.0 s at most; and others. "
        "Bytes of their answers, by tool: shop.list 5000; and others. "
        "Seconds of failed ones, by tool: shop.order 1 times, 1.5 s each, 1.5 s at most."
    )


async def test_an_audit_is_told_what_the_senses_noted(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, autotelic="on", heartbeat_first_s=3, heartbeat_s=3600) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        found = await audited(kernel)
        assert found.origin == "system"
        assert "Seconds in a state of thought, by state: " in found.brief
        assert "Missions of users that a persona completed: robin 1." in found.brief


def test_what_an_audit_is_told_of_a_busy_day_fits_a_small_model() -> None:
    """The embedded models read 2,048 tokens, of which the brief of an audit takes its part in each prompt."""
    tallies = Tallies(64)
    for table in TABLES:
        for n in range(40):
            tallies.note(table, f"oid:1f{n:02} sage_facet_", 12.3)
    assert len(tallies_in_words(tallies, SelfAuditLimits().keys)) < 2700
