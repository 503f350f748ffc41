"""Triggers: each measurement fires at its limit, recovers below it and not between, and becomes one mission, whatever comes between."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import schema, telemetry, triggers
from batos.autotelic.telemetry import MethodUse, Tallies
from batos.autotelic.trigger_missions import Spans, TriggerMonitor
from batos.autotelic.triggers import Entropy, Measurement, Seen, TriggerLimits
from batos.errors import Busy, InferenceFailed
from batos.image import ledger
from batos.image.living_image import LivingImage
from tests.support.autonomy import opened
from tests.support.methods import ADD, give, sent, writing
from tests.support.missions import FakeInference, mind, submit, written

LIMITS = TriggerLimits(failures=3, slower=2.0, growth=1.5, refusals=0.5, unused_days=14, personas=100, still=0.01, syntheses=0)
NOW = 1_795_262_400.0
NO_ENTROPY = Entropy(False, 0.0, None, None)
MIB = 1024 * 1024


def tallies(**tables: dict[str, tuple[int, float]]) -> Tallies:
    """Tables of how often and how much each time."""
    found = Tallies(64)
    for table, rows in tables.items():
        for key, (times, amount) in rows.items():
            for _ in range(times):
                found.note(table, key, amount)
    return found


def seen(**more: Any) -> Seen:
    nothing = Tallies(64)
    facts: dict[str, Any] = {
        "now": NOW, "recent": nothing, "before": nothing, "window": nothing, "whole": nothing, "bytes_then": 0, "bytes_now": 0,
        "entropy": NO_ENTROPY, "personas": (), "methods": (),
    }  # fmt: skip
    return Seen(**{**facts, **more})


def found(trigger: str, **more: Any) -> list[Measurement]:
    return [one for one in triggers.measured(seen(**more), LIMITS) if one.trigger == trigger]


Make = Callable[[float], dict[str, Any]]


def states(ratio: float) -> dict[str, Any]:
    return {"recent": tallies(states={"DELEGATING": (8, 2.0 * ratio)}), "before": tallies(states={"DELEGATING": (32, 2.0)})}


def tokens(ratio: float) -> dict[str, Any]:
    def side(missions: int, cost: float) -> Tallies:
        return tallies(
            missions={"client COMPLETE": (missions, 1.0)}, prompt_tokens={"m": (missions, cost)}, answer_tokens={"m": (missions, cost)}
        )

    return {"recent": side(8, 100 * ratio), "before": side(32, 100)}


def calls(ratio: float) -> dict[str, Any]:
    """Calls of a tool that take longer, while their answers stay as small as they are."""
    recent = tallies(tools={"shop.list": (8, 2.0 * ratio)}, tool_bytes={"shop.list": (8, 1 << 15)})
    return {"recent": recent, "before": tallies(tools={"shop.list": (32, 2.0)}, tool_bytes={"shop.list": (32, 1 << 15)})}


def verdicts(refused: float) -> dict[str, Any]:
    return {"window": tallies(verdicts={"refused": (int(refused), 1), "accepted": (20 - int(refused), 1)})}


def runs(failed: float) -> dict[str, Any]:
    return {"window": tallies(runs={"oid:1 a_": (8 - int(failed), 1)}, runs_failed={"oid:1 a_": (int(failed), 1)})}


CASES: list[tuple[str, Make, float, float, float, str]] = [
    ("failure_repeats", lambda n: {"window": tallies(failures={"inference_failed refused": (int(n), 1)})}, 3, 2, 1, "3 missions FAILED"),
    ("guardian_refuses", verdicts, 10, 9, 5, "refused 10 of 20"),
    ("method_fails", runs, 4, 3, 2, "oid:1.a_ failed in 4 of 8"),
    ("entropy_falls", lambda n: {"entropy": Entropy(bool(n), 0.6, 0.4, None)}, 1, 1, 0, "usual was 0.60, now it is 0.40"),
    ("entropy_still", lambda n: {"entropy": Entropy(False, 0.6, 0.6, n)}, 0.01, 0.015, 0.02, "differ by 0.010"),
    ("state_slow", states, 2.0, 1.8, 1.5, "DELEGATING takes 4.0 s on average of 8 times; before, it took 2.0 s"),
    ("tool_costly", calls, 2.0, 1.8, 1.5, "the tool shop.list takes 4.0 s on average of 8 calls; before, it took 2.0 s"),
    ("missions_costly", tokens, 2.0, 1.8, 1.5, "400 tokens on average of 8; before, it took 200"),
    ("image_grows", lambda n: {"bytes_then": 100 * MIB, "bytes_now": n * 100 * MIB}, 1.5, 1.4, 1.25, "grown from"),
    (
        "method_unused",
        lambda n: {"methods": [MethodUse("oid:1 a_", 0, NOW - n * 86400, 3)]},
        14,
        10,
        7,
        "not run for 14 days; it ran 3",
    ),
    (
        "persona_unchosen",
        lambda n: {"personas": ["babs"], "whole": tallies(personas={"robin": (int(n), 1)})},
        100,
        99,
        50,
        "BABS was not chosen",
    ),
]


@pytest.mark.parametrize(("trigger", "make", "fires", "between", "recovered", "words"), CASES, ids=[case[0] for case in CASES])
def test_each_fires_at_its_limit_and_recovers_well_below_it(
    trigger: str, make: Make, fires: float, between: float, recovered: float, words: str
) -> None:
    (one,) = found(trigger, **make(fires))
    assert one.fires
    assert not one.recovered
    assert words in one.words
    if trigger != "entropy_falls":  # it has its hysteresis in the watch
        (one,) = found(trigger, **make(between))
        assert not one.fires
        assert not one.recovered
    (one,) = found(trigger, **make(recovered))
    assert one.recovered
    assert not one.fires


def test_every_trigger_is_tried_above() -> None:
    everything: dict[str, Any] = {}
    window, whole = Tallies(64), Tallies(64)
    for _, make, fires, *_ in CASES:
        for name, value in make(fires).items():
            if name in ("window", "whole"):
                (window if name == "window" else whole).merge(value.plain())
            elif name != "recent" and name != "before":
                everything[name] = value
    recent, before = Tallies(64), Tallies(64)
    for make in (states, calls, tokens):
        recent.merge(make(2.0)["recent"].plain())
        before.merge(make(2.0)["before"].plain())
    everything |= {"window": window, "whole": whole, "recent": recent, "before": before, "entropy": Entropy(True, 0.6, 0.4, 0.001)}
    measured = [one.trigger for one in triggers.measured(seen(**everything), LIMITS) if one.fires]
    assert sorted(set(measured)) == sorted(case[0] for case in CASES)


def test_a_tool_costs_more_also_by_what_it_answers() -> None:
    recent = tallies(tools={"shop.list": (8, 0.1)}, tool_bytes={"shop.list": (8, 60_000)})
    before = tallies(tools={"shop.list": (32, 0.1)}, tool_bytes={"shop.list": (32, 20_000)})
    (one,) = found("tool_costly", recent=recent, before=before)
    assert (one.key, one.fires) == ("shop.list", True)
    assert one.words == "the tool shop.list answers 60000 bytes on average of 8 calls; before, it answered 20000."
    small = tallies(tools={"shop.list": (8, 0.1)}, tool_bytes={"shop.list": (8, 6_000)})
    assert found("tool_costly", recent=small, before=tallies(tools={"shop.list": (32, 0.01)}, tool_bytes={"shop.list": (32, 100)})) == []
    assert found("tool_costly", recent=tallies(tools={"other": (8, 9.0)}), before=tallies(tools={"other": (32, 1.0)})) == []


def test_what_is_too_little_to_say_anything() -> None:
    assert found("guardian_refuses", window=tallies(verdicts={"refused": (7, 1)})) == []
    assert found("method_fails", window=tallies(runs_failed={"oid:1 a_": (3, 1)})) == []
    assert found("state_slow", recent=tallies(states={"IDLE": (50, 0.5)}), before=tallies(states={"IDLE": (50, 0.01)})) == []
    assert found("state_slow", recent=tallies(states={"IDLE": (7, 9.0)}), before=tallies(states={"IDLE": (50, 1.0)})) == []
    assert found("image_grows", bytes_then=1 * MIB, bytes_now=10 * MIB) == []
    assert found("failure_repeats", window=tallies(failures={"cancelled": (9, 1), "other": (9, 1)})) == []
    assert list(triggers.measured(seen(), LIMITS)) == []


# --- what becomes of them


class World:
    """TriggerMonitor on a real image, with buckets and a clock of the test's own."""

    def __init__(self, image: LivingImage) -> None:
        self.image, self.now, self.busy = image, NOW, False
        self.failures: dict[str, int] = {}
        self.briefs: dict[str, str] = {}
        self.alarms = TriggerMonitor(
            image, LIMITS, Spans(3600, 86400, 64), submit=self.submit, since=self.since, entropy=lambda: NO_ENTROPY, now=lambda: self.now
        )

    async def submit(self, id: str, brief: str) -> None:
        if self.busy:
            raise Busy("full")
        new, _ = await self.image.system(ledger.accept, id, brief, {"origin": "system"}, False)
        assert new, "enqueued twice"
        self.briefs[id] = brief

    async def since(self, at: float) -> list[telemetry.Bucket]:
        rows = {key: [times, times, 1] for key, times in self.failures.items()}
        return [{"begun": self.now - 60, "ended": self.now, "tallies": {"failures": rows}, "levels": {}}]

    async def end(self, id: str) -> None:
        await self.image.system(ledger.fail, id, {"code": "internal", "message": "x"}, {}, True)

    async def look(self) -> str | None:
        fired = await self.alarms.check()
        return None if fired is None else fired.key


async def give_personas(image: LivingImage) -> None:
    await image.system(lambda root: setattr(root["lobby"], "personas", ()))


async def test_a_trigger_fires_once_until_it_has_recovered(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await give_personas(image)
        world = World(image)
        world.failures = {"busy": 3}
        assert await world.look() == "busy"
        ((id, brief),) = world.briefs.items()
        assert id == "self_improvement-1-failure_repeats"
        assert "3 missions FAILED in the same way: busy." in brief
        await world.end(id)
        world.failures = {"busy": 9}
        assert await world.look() is None
        world.failures = {"busy": 2}
        assert await world.look() is None
        world.failures = {"busy": 4}
        assert await world.look() is None, "it had not recovered"
        world.failures = {}
        assert await world.look() is None
        assert world.alarms.facts() == {"fired": [], "ever": 1}
        world.failures = {"busy": 3}
        assert await world.look() == "busy"
        assert len(world.briefs) == 2


async def test_never_two_at_once_and_the_next_when_the_first_has_ended(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await give_personas(image)
        world = World(image)
        world.failures = {"busy": 5, "deadline": 4}
        assert await world.look() == "busy"
        assert await world.look() is None
        world.failures = {"deadline": 4}  # the first has recovered, but its mission has not ended
        assert await world.look() is None
        await world.end("self_improvement-1-failure_repeats")
        assert await world.look() == "deadline"


async def test_what_fired_stays_quiet_over_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await give_personas(image)
        world = World(image)
        world.failures = {"busy": 3}
        assert await world.look() == "busy"
        await world.end("self_improvement-1-failure_repeats")
    async with opened(tmp_path) as image:
        again = World(image)
        again.failures = {"busy": 3}
        assert await again.look() is None
        assert again.alarms.facts()["fired"][0]["words"] == "3 missions FAILED in the same way: busy."


async def test_one_whose_mission_was_not_accepted_is_enqueued_later_and_once(tmp_path: Path) -> None:
    """A full queue, or a kill between the two commits: that it fired is durable, its mission is not."""
    async with opened(tmp_path) as image:
        await give_personas(image)
        world = World(image)
        world.failures, world.busy = {"busy": 3}, True
        with pytest.raises(Busy):
            await world.look()
    async with opened(tmp_path) as image:
        again = World(image)
        again.failures = {"busy": 3}
        assert await again.look() is None
        assert list(again.briefs) == ["self_improvement-1-failure_repeats"]
        assert await again.look() is None
        assert len(again.briefs) == 1


# --- in a daemon

ON: dict[str, Any] = {"autotelic": "on", "heartbeat_first_s": 3600.0}


async def looked(kernel: Kernel) -> list[str]:
    """The briefs of the missions that the loop has enqueued after an interval has ended."""
    assert kernel.loop.alarms is not None
    for task in asyncio.all_tasks():
        if task.get_name() == "triggers":  # it looks here and nowhere else, so that the test knows how often
            task.cancel()
    await kernel.loop.tick()
    await written(kernel)
    await kernel.loop.alarms.check()
    await kernel.scheduler.quiet()
    briefs = kernel.image.read(lambda root: [m.brief for m in ledger.newest_first(root) if m.origin == "system"])
    return briefs[::-1]  # type: ignore[no-any-return]


async def test_three_missions_that_fail_in_the_same_way(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("no", cause="refused") if "stuck" in request.user else None
    async with mind(tmp_path, inference, **ON, mission_attempts=1) as kernel:
        for n in range(3):
            assert await looked(kernel) == []
            assert (await (await submit(kernel, f"m{n}", "I feel stuck")).end())["state"] == "FAILED"
        (brief,) = await looked(kernel)
        assert brief.startswith(
            "self_improvement failure_repeats: measured, in the last 24 hours where it says nothing else: 3 missions FAILED"
        )
        assert "inference_failed refused" in brief
        told = kernel.info()["autotelic"]["triggers"]
        assert (told["ever"], told["fired"][0]["trigger"]) == (1, "failure_repeats")
        end = kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, told["fired"][0]["mission"])))
        assert (end.state, end.result["persona"]) == ("COMPLETE", "ALFRED")
        assert len(await looked(kernel)) == 1


async def test_it_looks_by_itself(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("no", cause="refused") if "stuck" in request.user else None
    async with mind(tmp_path, inference, **ON, mission_attempts=1, senses_s=0.05) as kernel:
        for n in range(3):
            await (await submit(kernel, f"m{n}", "I feel stuck")).end()
        await inference.came(4)  # three that were refused, and the first of the system's own
        assert "3 missions FAILED" in inference.asked[3].user


async def test_a_method_that_is_of_no_use_any_more(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with mind(tmp_path, inference, **ON, trigger_unused_days=2) as kernel:
        await give(kernel)
        assert (await sent(kernel, "m1", "thing", "add_", 2, 3))["state"] == "COMPLETE"
        assert await looked(kernel) == []
        (use,) = kernel.image.read(telemetry.used_methods)
        assert (use.method.endswith(" add_"), use.runs) == (True, 1)
        assert kernel.loop.alarms is not None
        kernel.loop.alarms.now = lambda: use.last + 3 * 86400
        (brief,) = await looked(kernel)
        assert "has not run for 3 days; it ran 1 times before" in brief
        await kernel.image.system(lambda root: root["lobby"].thing._slots.pop("add_"))
        await looked(kernel)
        assert kernel.info()["autotelic"]["triggers"] == {"fired": [], "ever": 1}, "what is gone is not unused"


async def test_uses_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "METHODS_KEPT", 5)
    async with opened(tmp_path) as image:
        for n in range(9):
            bucket = {"begun": n, "ended": float(n), "tallies": {"runs": {f"oid:{n} a_": [2, 2, 1], "other": [1, 1, 1]}}, "levels": {}}
            await image.system(telemetry.note_method_use, bucket)
        assert sorted(image.read(lambda root: list(schema.part_of(root, "usage").methods))) == [f"oid:{n} a_" for n in range(4, 9)]


async def test_a_persona_that_nobody_chooses(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, **ON, trigger_personas=3) as kernel:
        for n in range(3):
            assert (await (await submit(kernel, f"m{n}", "I feel stuck", persona="robin")).end())["state"] == "COMPLETE"
        (first,) = await looked(kernel)
        assert "BRICK was not chosen for any of the last 3 missions." in first
        second = (await looked(kernel))[1]
        assert "BABS was not chosen" in second
        assert (await (await submit(kernel, "m9", "Build a shelf", persona="brick")).end())["state"] == "COMPLETE"
        await looked(kernel)
        quiet = {one["key"] for one in kernel.info()["autotelic"]["triggers"]["fired"]}
        assert quiet == {"babs", "alfred"}
        assert json.dumps(kernel.info()["autotelic"])


def test_methods_since_their_expert_was_made_count_where_it_may_be_trained() -> None:
    may = dataclasses.replace(LIMITS, syntheses=24)
    for count, fires, recovered in ((23, False, False), (24, True, False), (12, False, True)):
        (one,) = (one for one in triggers.measured(seen(learned=count), may) if one.trigger == "expert_behind")
        assert (one.fires, one.recovered) == (fires, recovered)
    assert f"{count} methods were written, or could not be" in one.words
    assert found("expert_behind", learned=1000) == [], "nobody could train it"
