"""The way of a mission: order, limits, retries, cancellation, deadlines, restarts, conflicts."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatReply, ChatRequest
from batos.errors import Busy, ImageDamaged, ImageError, ImageFailed, InferenceFailed, MissionIdTaken
from batos.image import journal, ledger
from batos.image.mission_record import MissionRecord
from batos.mind import answer_schema, psm
from batos.mind.attempt import Attempt, current
from batos.objects import Primitive, UvmObject
from tests.support.missions import WAIT_S, FakeInference, Listened, answer, mind, submit

STATES = ["IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE"]
A_CYCLE = 5  # inferences of ROBIN's: plan, three facets, answer
ROBIN = "I feel stuck"


def plain_facts(kernel: Kernel) -> dict[str, int]:
    """The facts but for missions that are held back."""
    facts = kernel.scheduler.facts()
    assert [facts.pop(name) for name in ("paused", "needs_input", "following")] == [0, 0, 0]
    assert len(facts.pop("under_way")) == facts["running"]
    return facts


def record(kernel: Kernel, id: str) -> MissionRecord:
    found: MissionRecord = kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, id)))
    return found


def pending(kernel: Kernel) -> list[str]:
    return list(kernel.image.read(lambda root: list(ledger.ledger_of(root).pending)))


def failures(kernel: Kernel, id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kernel.image.read(ledger.failures_of, id)
    return found


def unreachable(request: ChatRequest) -> InferenceFailed:
    return InferenceFailed("nobody there", cause="unreachable")


def refused(request: ChatRequest) -> InferenceFailed:
    return InferenceFailed("no", cause="refused")


tried: Counter[str] = Counter()
"""How often thoughts about a brief were begun by `count_and_decompose`."""


@Primitive.register("test.count_and_decompose")
async def count_and_decompose(cycle: UvmObject) -> str:
    """DECOMPOSING, for tests: a thought that writes the persona, as every other one does."""
    tried[str(cycle.brief)] += 1
    cycle.persona.thoughts = cycle.persona._slots.get("thoughts", 0) + 1
    return str(await psm.decompose(cycle))


@Primitive.register("test.break_down")
async def break_down(cycle: UvmObject) -> str:
    """A behaviour with a fault in it, for tests."""
    raise ZeroDivisionError("a fault in a behaviour")


@Primitive.register("test.jump_ahead")
async def jump_ahead(cycle: UvmObject) -> str:
    """A behaviour that answers a state which is no successor, for tests."""
    return "COMPLETE"


async def behave(kernel: Kernel, state: str, behaviour: Callable[..., Any]) -> None:
    """Change the behaviour of a state in the image."""

    def change(root: Any) -> None:
        root["lobby"].psm._slots[state].behaviour = Primitive.of(behaviour)

    await kernel.image.system(change)


@Primitive.register("test.time_out")
async def time_out(cycle: UvmObject) -> str:
    """A behaviour that waits in vain for something of its own, for tests."""
    raise TimeoutError("no answer from the oracle")


# --- one mission


async def test_a_mission_passes_through_the_states_in_order_and_is_durable(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        heard = await submit(kernel, "m1", ROBIN)
        end = await heard.end()
        assert heard.states == STATES
        assert end["state"] == "COMPLETE"
        assert end["result"]["text"] == "Take one small step and look where it led."
        assert end["result"]["persona"] == "ROBIN"
        assert end["result"]["usage"]["inferences"] == A_CYCLE == len(inference.asked)
        assert heard.events[0]["why"] == "speaks of feelings, names an emotion, speaks of oneself"
        spoken = {event["facet"] for event in heard.events if event["type"] == "token"}
        assert spoken == {"sage_facet_", "still_point_facet_", "plain_facet_", None}, "each facet and the answer, but not the plan"
    async with mind(tmp_path, inference) as kernel:
        kept = record(kernel, "m1")
        assert kept.state == "COMPLETE"
        assert kept.result["text"] == end["result"]["text"]
        assert pending(kernel) == []
    assert len(inference.asked) == A_CYCLE


async def test_nobody_listens_and_nothing_is_streamed(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await kernel.scheduler.submit("m1", ROBIN, {})
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        assert record(kernel, "m1").state == "COMPLETE"


async def test_what_a_cycle_leaves_behind(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await (await submit(kernel, "m1", ROBIN)).end()

        def look(root: Any) -> tuple[list[str], str, str]:
            cycle = ledger.mission_of(root, "m1").thought
            return sorted(cycle._slots), cycle._slots["state*"].name, cycle.plan_source

        slots, state, source = kernel.image.read(look)
        assert "_tmp_synthesis_" not in slots
        assert "facets" not in slots
        assert (state, source) == ("COMPLETE", "model")


# --- order and limits


def raised(request: ChatRequest) -> Any:
    return RuntimeError("a fault of its own")


@pytest.mark.parametrize("how", ["complete", "failed", "raised", "cancelled"])
async def test_an_ended_mission_is_freed_at_once_and_waits_for_no_collector(tmp_path: Path, how: str) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        if how in ("failed", "raised"):
            inference.fail_when = refused if how == "failed" else raised
        if how == "cancelled":
            inference.hold()
        await submit(kernel, "m")
        if how == "cancelled":
            await inference.came(1)
            await kernel.scheduler.cancel("m")
        gc.disable()
        try:
            await kernel.scheduler.quiet()
            await kernel.image.barrier()
            assert record(kernel, "m").state == ("COMPLETE" if how == "complete" else "FAILED")
            assert [one for one in gc.get_objects() if type(one) is Attempt and one.services.image is kernel.image] == []
        finally:
            gc.enable()


async def test_user_missions_go_before_the_systems_and_by_priority(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1) as kernel:
        order: list[str] = []
        kernel.events.listen("result", lambda event: order.append(event["id"]))
        heard = [
            await submit(kernel, "first"),
            await submit(kernel, "system", origin="system", priority=100),
            await submit(kernel, "low", priority=-5),
            await submit(kernel, "plain-1"),
            await submit(kernel, "plain-2"),
            await submit(kernel, "high", priority=5),
        ]
        assert [kernel.scheduler.live(id).get("place") for id in ("high", "plain-1", "plain-2", "low", "system")] == [1, 2, 3, 4, 5]
        inference.release()
        for one in heard:
            await one.end()
    assert order == ["first", "high", "plain-1", "plain-2", "low", "system"]


async def test_no_more_missions_at_a_time_than_the_limit(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=3) as kernel:
        heard = [await submit(kernel, f"m{i}", f"brief {i}") for i in range(8)]
        await inference.came(3)
        assert plain_facts(kernel) == {"running": 3, "queued": 5, "COMPLETE": 0, "FAILED": 0}
        most = 0

        def look(event: dict[str, Any]) -> None:
            nonlocal most
            most = max(most, kernel.scheduler.facts()["running"])

        kernel.events.listen("state", look)
        inference.release()
        for one in heard:
            assert (await one.end())["state"] == "COMPLETE"
        assert most <= 3
        assert plain_facts(kernel) == {"running": 0, "queued": 0, "COMPLETE": 8, "FAILED": 0}


async def test_many_submitted_at_once_keep_to_the_limit_too(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=2) as kernel:
        heard = await asyncio.gather(*(submit(kernel, f"m{i}", f"brief {i}") for i in range(10)))
        assert kernel.scheduler.facts()["running"] == 2
        inference.release()
        for one in heard:
            assert (await one.end())["state"] == "COMPLETE"


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_full_queue_is_busy_and_accepts_nothing(tmp_path: Path, at_once: bool) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1, queue_limit=2) as kernel:
        works = [kernel.scheduler.submit(f"m{i}", "b", {}) for i in range(5)]
        if at_once:
            ends = await asyncio.gather(*works, return_exceptions=True)
        else:
            ends = [(await asyncio.gather(work, return_exceptions=True))[0] for work in works]
        assert [isinstance(end, Busy) for end in ends] == [False, False, False, True, True]  # one runs, two wait
        assert kernel.image.read(ledger.counts)["accepted"] == 3
        assert kernel.scheduler.facts()["queued"] == 2
        # what was accepted before is known, whatever the queue
        for id in ("m0", "m1", "m2"):
            new, found = await kernel.scheduler.submit(id, "b", {})
            assert (new, found.id) == (False, id)
        inference.release()
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        new, _ = await kernel.scheduler.submit("m4", "b", {})
        assert new


async def test_the_same_id_is_one_mission(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference) as kernel:
        ends = await asyncio.gather(*(kernel.scheduler.submit("m1", ROBIN, {}) for _ in range(10)))
        assert [new for new, _ in ends].count(True) == 1
        with pytest.raises(MissionIdTaken, match="another mission"):
            await kernel.scheduler.submit("m1", "another brief", {})
        assert plain_facts(kernel) == {"running": 1, "queued": 0, "COMPLETE": 0, "FAILED": 0}
        heard = Listened(kernel, "m1")
        inference.release()
        await heard.end()
        new, found = await kernel.scheduler.submit("m1", ROBIN, {})
        assert (new, found.state) == (False, "COMPLETE")
    assert len(inference.asked) == A_CYCLE


async def test_quiet_returns_though_the_last_submission_was_none(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await (await submit(kernel, "m1")).end()
        again = asyncio.create_task(kernel.scheduler.submit("m1", "Plan the day", {}))
        taken = asyncio.create_task(kernel.scheduler.submit("m1", "another", {}))
        quiet = asyncio.create_task(kernel.scheduler.quiet())
        await asyncio.wait([again, taken])
        assert isinstance(taken.exception(), MissionIdTaken)
        async with asyncio.timeout(WAIT_S):
            await quiet


# --- failures


async def test_a_failure_that_may_pass_is_tried_again(tmp_path: Path) -> None:
    inference = FakeInference()
    left = [1, 1]
    inference.fail_when = lambda request: unreachable(request) if left and left.pop() else None
    async with mind(tmp_path, inference, mission_attempts=3) as kernel:
        heard = await submit(kernel, "m1", ROBIN)
        assert (await heard.end())["state"] == "COMPLETE"
        assert record(kernel, "m1").attempts == 3
        found = failures(kernel, "m1")
        assert [(f["attempt"], f["final"], f["error"]["context"]["cause"]) for f in found] == [
            (1, False, "unreachable"),
            (2, False, "unreachable"),
        ]


async def test_a_failure_that_stays_ends_after_the_limit(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = unreachable
    async with mind(tmp_path, inference, mission_attempts=2) as kernel:
        heard = await submit(kernel, "m1", ROBIN)
        end = await heard.end()
        assert end["state"] == "FAILED"
        assert end["error"]["code"] == "inference_failed"
        assert end["error"]["context"]["cause"] == "unreachable"
        assert len(inference.asked) == 2
        assert [f["final"] for f in failures(kernel, "m1")] == [False, True]
        assert pending(kernel) == []
        assert heard.states == ["IDLE", "DECOMPOSING", "FAILED"] * 2, "FAILED is said once an attempt"
        assert kernel.scheduler.facts()["FAILED"] == 1


async def test_a_failure_that_cannot_pass_is_not_tried_again(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = refused
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", ROBIN)).end()
        assert end["error"]["context"]["cause"] == "refused"
        assert len(inference.asked) == 1


async def test_the_pause_before_each_further_attempt_doubles(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = unreachable
    times: list[float] = []
    now = asyncio.get_running_loop().time
    async with mind(tmp_path, inference, mission_attempts=3, retry_backoff_s=0.1) as kernel:
        kernel.events.listen("state", lambda event: times.append(now()) if event["state"] == "DECOMPOSING" else None)
        await (await submit(kernel, "m1")).end()
    assert times[1] - times[0] >= 0.1
    assert times[2] - times[1] >= 0.2


def failing_once(inference: FakeInference, words: str) -> None:
    left = [1]

    def fail(request: ChatRequest) -> InferenceFailed | None:
        return unreachable(request) if words in request.user and left and left.pop() else None

    inference.fail_when = fail


async def test_a_mission_that_waits_for_its_next_attempt_holds_no_place(tmp_path: Path) -> None:
    inference = FakeInference()
    failing_once(inference, "the first")
    async with mind(tmp_path, inference, concurrent_missions=1, retry_backoff_s=0.3) as kernel:
        ended: list[str] = []
        kernel.events.listen("result", lambda event: ended.append(event["id"]))
        inference.hold()
        first = await submit(kernel, "m1", "the first")
        second = await submit(kernel, "m2", "the second")  # it waits when the first one fails
        inference.release()
        assert (await second.end())["state"] == (await first.end())["state"] == "COMPLETE"
        assert ended == ["m2", "m1"]


async def test_who_has_waited_for_an_attempt_goes_before_the_queue_and_not_beside_it(tmp_path: Path) -> None:
    inference = FakeInference()
    failing_once(inference, "the first")
    async with mind(tmp_path, inference, concurrent_missions=1, retry_backoff_s=0.05) as kernel:
        ended: list[str] = []
        kernel.events.listen("result", lambda event: ended.append(event["id"]))
        first = await submit(kernel, "m1", "the first")
        async with asyncio.timeout(WAIT_S):
            while not kernel.scheduler.resting:
                await asyncio.sleep(0)
        inference.hold()
        second = await submit(kernel, "m2", "the second")
        third = await submit(kernel, "m3", "the third")
        async with asyncio.timeout(WAIT_S):
            while not kernel.scheduler.resting.wanting:
                await asyncio.sleep(0.005)
        assert len(inference.asked) == 2, "one place: the first waits for the end of the second"
        inference.release()
        for heard in (first, second, third):
            assert (await heard.end())["state"] == "COMPLETE"
        assert ended == ["m2", "m1", "m3"]


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
async def test_a_mission_that_waits_for_its_next_attempt_can_end(tmp_path: Path, how: str) -> None:
    inference = FakeInference()
    failing_once(inference, "the first")
    async with mind(tmp_path, inference, concurrent_missions=1, retry_backoff_s=60) as kernel:
        heard = await submit(kernel, "m1", "the first", **({"deadline_s": 2} if how == "deadline" else {}))
        async with asyncio.timeout(WAIT_S):
            while not kernel.scheduler.resting:
                await asyncio.sleep(0)
        if how == "cancelled":
            assert await kernel.scheduler.cancel("m1")
        assert (await heard.end())["error"]["code"] == how
        assert not kernel.scheduler.resting
        assert (await (await submit(kernel, "m2", ROBIN)).end())["state"] == "COMPLETE"


async def test_a_mission_that_waits_for_its_next_attempt_at_the_stop_goes_on_at_the_next_start(tmp_path: Path) -> None:
    inference = FakeInference()
    failing_once(inference, "the first")
    async with mind(tmp_path, inference, retry_backoff_s=60, shutdown_s=0.1) as kernel:
        await submit(kernel, "m1", "the first")
        async with asyncio.timeout(WAIT_S):
            while not kernel.scheduler.resting:
                await asyncio.sleep(0)
    async with mind(tmp_path, inference) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        assert record(kernel, "m1").state == "COMPLETE"


async def test_a_plan_that_is_none_is_asked_for_again_then_done_without(tmp_path: Path) -> None:
    for name, answers, source, asked in (
        ("fenced", ["```json\n{plan}\n```"], "model", 1),
        ("second", ["no", "{plan}"], "model", 2),
        ("never", ["no", "no", '{"sage_facet_": "why?"}'], "fallback", 3),
    ):
        inference = FakeInference()
        plain, left = inference.say, list(answers)

        def say(request: ChatRequest, plain: Any = plain, left: list[str] = left) -> str:
            if "Ways of thinking" not in request.user:
                return str(plain(request))
            return left.pop(0).replace("{plan}", json.dumps(dict.fromkeys(("sage_facet_", "still_point_facet_", "plain_facet_"), "why?")))

        inference.say = say
        async with mind(tmp_path / name, inference) as kernel:
            end = await (await submit(kernel, "m1", ROBIN)).end()
            assert (end["state"], end["result"]["plan"]) == ("COMPLETE", source)
            plans = inference.asked_about("Ways of thinking")
            assert len(plans) == asked
            assert [request.schema is None for request in plans] == [False, False, True][:asked]
            assert len(inference.asked_about("Work on this part of it: why?")) == (1 if source == "fallback" else 3)


async def test_one_silent_facet_does_not_fail_the_mission(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: refused(request) if "sage_facet_" in request.user and request.schema is None else None
    async with mind(tmp_path, inference) as kernel:
        assert (await (await submit(kernel, "m1", ROBIN)).end())["state"] == "COMPLETE"


async def test_all_facets_silent_fail_it_with_their_cause(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: refused(request) if request.schema is None else None
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", ROBIN)).end()
        assert end["error"]["context"]["cause"] == "refused"
        assert failures(kernel, "m1")[0]["context"]["persona"] == "ROBIN"


@pytest.mark.parametrize("depth", ["direct", "facets"])
async def test_an_answer_that_is_none_is_revised_once_then_refused_or_replaced(tmp_path: Path, depth: str) -> None:
    inference = FakeInference()
    plain = inference.say
    inference.say = lambda request: " " if "Notes to use" in request.user or request.user.startswith(ROBIN) else plain(request)
    async with mind(tmp_path, inference, critic="off") as kernel:
        end = await (await submit(kernel, "m1", ROBIN, depth=depth)).end()
        if depth == "direct":
            assert end["error"]["code"] == "quality_refused"
        else:
            assert "refused twice, the last time because it is empty" in end["result"]["unsure"], "what one facet said is kept"
        asked = inference.asked_about("Notes to use") if depth == "facets" else inference.asked
        assert len(asked) == 2
        assert len(inference.asked_about("was refused because it is empty")) == 1
        assert asked[1].system == asked[0].system.partition(" You work in the spirit of")[0] != asked[0].system, "plainer"
        assert dict(asked[1].options)["temperature"] == 0.2, "and colder"


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [(break_down, "internal", "ZeroDivisionError: a fault in a behaviour"), (jump_ahead, "failed", "not one of its successors")],
)
async def test_a_faulty_behaviour_fails_its_mission_and_nothing_else(
    tmp_path: Path, behaviour: Callable[..., Any], code: str, words: str
) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await behave(kernel, "DECOMPOSING", behaviour)
        heard = await submit(kernel, "m1", ROBIN)
        end = await heard.end()
        assert (end["state"], end["error"]["code"]) == ("FAILED", code)
        assert words in end["error"]["message"]
        await behave(kernel, "DECOMPOSING", psm.decompose)
        assert (await (await submit(kernel, "m2", ROBIN)).end())["state"] == "COMPLETE"


async def test_a_failed_cycle_leaves_no_trace_in_the_image(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await behave(kernel, "DECOMPOSING", count_and_decompose)
        inference.fail_when = lambda request: refused(request) if "Notes to use" in request.user else None
        await (await submit(kernel, "m1", ROBIN)).end()
        assert kernel.image.read(lambda root: "thoughts" in root["lobby"].robin._slots) is False
        inference.fail_when = lambda request: None
        await (await submit(kernel, "m2", ROBIN)).end()
        assert kernel.image.read(lambda root: root["lobby"].robin.thoughts) == 1


# --- deadlines


async def test_a_deadline_ends_a_mission(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", deadline_s=2)).end()
        assert end["error"]["code"] == "deadline"
        assert len(inference.asked) == 1
        inference.release()
        assert (await (await submit(kernel, "m2")).end())["state"] == "COMPLETE"


async def test_a_deadline_counts_the_time_in_the_queue(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1, mission_deadline_s=2) as kernel:
        first = await submit(kernel, "first", "held brief")
        late = await submit(kernel, "late", "late brief", deadline_s=0.05)
        assert (await first.end())["error"]["code"] == "deadline"
        assert (await late.end())["error"]["code"] == "deadline"
        assert inference.asked_about("late brief") == []


# --- cancellation


async def test_cancel_while_queued(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1) as kernel:
        first, second = await submit(kernel, "first"), await submit(kernel, "second", "second brief")
        assert await kernel.scheduler.cancel("second")
        assert (await second.end())["error"]["code"] == "cancelled"
        assert record(kernel, "second").attempts == 0
        inference.release()
        assert (await first.end())["state"] == "COMPLETE"
        assert inference.asked_about("second brief") == []
        assert not await kernel.scheduler.cancel("first"), "it has ended"
        assert record(kernel, "first").state == "COMPLETE"


async def test_cancel_while_running(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference) as kernel:
        heard = await submit(kernel, "m1")
        await inference.came(1)
        assert await kernel.scheduler.cancel("m1")
        end = await heard.end()
        assert (end["state"], end["error"]["code"]) == ("FAILED", "cancelled")
        assert record(kernel, "m1").error["code"] == "cancelled"
        assert plain_facts(kernel) == {"running": 0, "queued": 0, "COMPLETE": 0, "FAILED": 1}
        assert pending(kernel) == []


async def test_cancel_before_the_first_step(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference) as kernel:
        heard = await submit(kernel, "m1")  # its task is made, and had no turn yet
        assert await kernel.scheduler.cancel("m1")
        assert (await heard.end())["error"]["code"] == "cancelled"
        assert record(kernel, "m1").state == "FAILED"


async def test_cancelled_by_two_at_once(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference) as kernel:
        heard = await submit(kernel, "m1")
        await inference.came(1)
        await asyncio.gather(*(kernel.scheduler.cancel("m1") for _ in range(3)))
        await heard.end()
        assert [event["type"] for event in heard.events].count("result") == 1
        assert kernel.scheduler.facts()["FAILED"] == 1
        assert len(failures(kernel, "m1")) == 1


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_cancel_at_any_step_ends_it_once(tmp_path: Path, steps: int) -> None:
    """Also while its commit is under way: whichever comes first, what is told is what is on disk."""
    async with mind(tmp_path, FakeInference()) as kernel:
        heard = await submit(kernel, "m1", ROBIN)
        for _ in range(steps):
            await asyncio.sleep(0)  # one turn of the loop
        await kernel.scheduler.cancel("m1")
        end = await heard.end()
        kept = record(kernel, "m1")
        assert kept.state == end["state"]
        assert end["state"] == "COMPLETE" or end["error"]["code"] == "cancelled"
        assert [event["type"] for event in heard.events].count("result") == 1
        assert sum(kernel.scheduler.facts()[state] for state in ledger.FINAL) == 1


async def test_cancel_while_its_commit_is_under_way(tmp_path: Path) -> None:
    """The commit had begun, so the mission is COMPLETE, and is told so."""
    async with mind(tmp_path, FakeInference()) as kernel:
        cancelled: list[asyncio.Task[bool]] = []
        commit = kernel.image.committer.commit

        async def commit_and_cancel(tm: Any) -> None:
            cancelled.append(asyncio.create_task(kernel.scheduler.cancel("m1")))
            await commit(tm)

        kernel.image.committer.commit = commit_and_cancel  # type: ignore[method-assign]  # the one way to be exact
        heard = await submit(kernel, "m1", ROBIN)
        end = await heard.end()
        await cancelled[0]
        assert end["state"] == record(kernel, "m1").state == "COMPLETE"
        assert kernel.scheduler.facts()["COMPLETE"] == 1


async def test_cancel_while_its_failure_is_recorded(tmp_path: Path) -> None:
    """It is FAILED already: that is what is told, and not that it is complete."""
    inference = FakeInference()
    inference.fail_when = refused
    async with mind(tmp_path, inference) as kernel:
        cancelled: list[asyncio.Task[bool]] = []
        system = kernel.image.committer.system

        async def record_and_cancel(function: Any, *args: Any, mission: str = "") -> Any:
            if function is ledger.fail and not cancelled:
                cancelled.append(asyncio.create_task(kernel.scheduler.cancel("m1")))
            return await system(function, *args, mission=mission)

        kernel.image.committer.system = record_and_cancel  # type: ignore[method-assign]
        heard = await submit(kernel, "m1", ROBIN)
        end = await heard.end()
        await cancelled[0]
        assert end["state"] == record(kernel, "m1").state == "FAILED"
        assert end["error"]["code"] == record(kernel, "m1").error["code"]
        assert plain_facts(kernel) == {"running": 0, "queued": 0, "COMPLETE": 0, "FAILED": 1}


# --- the end of the daemon


async def test_stop_leaves_missions_for_the_next_start_and_gives_the_attempt_back(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    for stops in range(3):  # more than attempts
        async with mind(tmp_path, inference, concurrent_missions=2, mission_attempts=1, shutdown_s=0.05) as kernel:
            for i in range(4):
                await kernel.scheduler.submit(f"m{i}", f"brief {i}", {})
            await inference.came(2 * (stops + 1))
    inference.release()
    async with mind(tmp_path, inference, mission_attempts=1) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        kept = [record(kernel, f"m{i}") for i in range(4)]
        assert [(one.state, one.attempts) for one in kept] == [("COMPLETE", 1)] * 4


async def test_what_may_end_in_time_ends_before_the_stop(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, shutdown_s=WAIT_S) as kernel:
        heard = await submit(kernel, "m1", ROBIN)
        await inference.came(1)
        stopping = asyncio.create_task(kernel.scheduler.stop(WAIT_S))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="stopping"):
            await kernel.scheduler.submit("late", "too late", {})
        inference.release()
        await stopping
        assert (await heard.end())["state"] == "COMPLETE"


async def test_accepted_while_the_daemon_begins_to_stop(tmp_path: Path) -> None:
    """It was promised a place and does not get it: the attempt that was counted for it is given back."""
    inference = FakeInference()
    async with mind(tmp_path, inference, mission_attempts=1) as kernel:
        submitting = asyncio.create_task(kernel.scheduler.submit("m1", ROBIN, {}))
        await asyncio.sleep(0)
        await kernel.scheduler.stop(1)
        new, _ = await submitting
        assert new
        assert record(kernel, "m1").attempts == 0
    async with mind(tmp_path, inference, mission_attempts=1) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        assert record(kernel, "m1").state == "COMPLETE"


async def test_what_was_paid_before_a_stop_is_not_asked_for_again(tmp_path: Path) -> None:
    inference = FakeInference()
    plain = inference.say

    def say(request: ChatRequest) -> str:
        if request.schema is not None:
            inference.hold()  # the facets wait
        return plain(request)

    inference.say = say
    async with mind(tmp_path, inference, shutdown_s=0.05) as kernel:
        await kernel.scheduler.submit("m1", ROBIN, {})
        await inference.came(4)
        assert len(_journal(kernel, "m1")) == 1, "the plan"
    inference.release()
    async with mind(tmp_path, inference) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        usage = record(kernel, "m1").result["usage"]
        assert (usage["inferences"], usage["replayed"]) == (A_CYCLE, 1)
    assert len([request for request in inference.asked if request.schema is not None]) == 1
    assert len(inference.asked) == 4 + A_CYCLE - 1, "the three facets that were cut off, and what came after the plan"


def _journal(kernel: Kernel, id: str) -> list[Any]:
    return list(kernel.image.read(journal.load, id))


async def test_a_mission_that_kills_the_daemon_is_given_up(tmp_path: Path) -> None:
    """Each start counts an attempt and is then cut off, as by kill -9: a copy of the file goes on."""
    inference = FakeInference()
    inference.hold()
    folder = tmp_path / "0"
    async with mind(folder, inference, mission_attempts=2, shutdown_s=0.05) as kernel:
        await kernel.scheduler.submit("poison", ROBIN, {})
        await inference.came(1)
        _copy(folder, tmp_path / "1")
    async with mind(tmp_path / "1", inference, mission_attempts=2, shutdown_s=0.05) as kernel:
        await inference.came(2)
        assert record(kernel, "poison").attempts == 2
        _copy(tmp_path / "1", tmp_path / "2")
    async with mind(tmp_path / "2", inference, mission_attempts=2) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        kept = record(kernel, "poison")
        assert (kept.state, kept.error["code"]) == ("FAILED", "attempts_exhausted")
    assert len(inference.asked) == 2


async def test_a_mission_that_comes_further_each_time_is_not_given_up(tmp_path: Path) -> None:
    """Killed again and again, as a user's machine may be: each attempt pays for one more inference than the one before."""
    inference = OneMore()
    for life in range(A_CYCLE):
        async with mind(tmp_path / str(life), inference, mission_attempts=2, shutdown_s=0.05) as kernel:
            if not life:
                await kernel.scheduler.submit("m1", ROBIN, {})
            inference.more.release()
            async with asyncio.timeout(WAIT_S):
                while len(_journal(kernel, "m1")) <= life and record(kernel, "m1").state == "ACCEPTED":
                    await kernel.image.system(lambda root: None)  # until the next round of the committer
            _copy(tmp_path / str(life), tmp_path / str(life + 1))
    async with mind(tmp_path / str(A_CYCLE), inference, mission_attempts=2) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        kept = record(kernel, "m1")
        assert (kept.state, kept.result["usage"]["inferences"]) == ("COMPLETE", A_CYCLE)
    assert inference.answered == A_CYCLE, "nothing is paid twice"


class OneMore(FakeInference):
    """Answers as many chats as `more` was released for, and keeps the others waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.more = asyncio.Semaphore(0)

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        await self.more.acquire()
        return await super().chat(request, deadline_s=deadline_s, on_text=on_text)


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    shutil.copy(source / "live_image.fs", target)


# --- conflicts


async def test_fifty_thoughts_about_one_object_all_count(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, concurrent_missions=50) as kernel:
        await behave(kernel, "DECOMPOSING", count_and_decompose)
        tried.clear()
        heard = await asyncio.gather(*(submit(kernel, f"m{i}", f"I feel number {i} of them") for i in range(50)))
        ends = [await one.end() for one in heard]
        assert {end["state"] for end in ends} == {"COMPLETE"}
        assert kernel.image.read(lambda root: root["lobby"].robin.thoughts) == 50, "no thought was lost, none counted twice"
        assert 25 <= kernel.image.committer.stats["conflicts"] <= 50, "they did meet, and each was replayed once at most"
        assert len(tried) == 50
        assert max(tried.values()) <= 2, "attempts of one mission to commit its cycle"
    asked = Counter((request.user, request.options) for request in inference.asked)
    assert max(asked.values()) == 1, "no inference was paid for twice"
    assert len(inference.asked) == 50 * A_CYCLE


async def test_an_answer_is_held_against_its_schema_once_and_not_again_under_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inference, gated = FakeInference(), list[bool]()
    inference.say = lambda request: '{"a": ["step"]}' if "JSON schema" in request.user else answer(request)
    read = answer_schema.read

    async def noted(text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
        gated.append(current().gated)
        return await read(text, schema)

    monkeypatch.setattr(answer_schema, "read", noted)
    async with mind(tmp_path, inference, depth="direct", flavour="full") as kernel:
        await behave(kernel, "DECOMPOSING", count_and_decompose)
        inference.hold()
        schema = json.dumps({"type": "object", "properties": {"a": {"items": {"pattern": "^[a-z]+$"}}}})
        heard = [await submit(kernel, id, ROBIN, schema=schema) for id in ("m1", "m2")]
        await inference.came(2)
        inference.release()
        ends = [await one.end() for one in heard]
        thoughts = kernel.image.read(lambda root: root["lobby"].robin.thoughts)
    assert ([end["result"]["value"] for end in ends], thoughts) == ([{"a": ["step"]}] * 2, 2)
    assert gated == [False, False]


async def test_conflicts_without_end_fail_the_mission(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), conflict_retries=2, mission_attempts=1) as kernel:
        await behave(kernel, "DECOMPOSING", count_and_decompose)
        commit, met = kernel.image.committer.commit, 0

        async def outrun(tm: Any) -> None:
            """Another transaction is always faster."""
            nonlocal met
            met += 1
            await kernel.image.system(lambda root: setattr(root["lobby"].robin, "thoughts", met))
            await commit(tm)

        kernel.image.committer.commit = outrun  # type: ignore[method-assign]
        end = await (await submit(kernel, "m1", ROBIN)).end()
        assert (end["state"], end["error"]["code"]) == ("FAILED", "conflict")
        assert met == 3
        assert "the limit is 2" in end["error"]["message"]


async def test_a_facet_that_failed_is_not_what_fails_a_replay(tmp_path: Path) -> None:
    """The cycle did without it; after a conflict it does so again."""
    inference = FakeInference()
    inference.fail_when = lambda request: refused(request) if "sage_facet_" in request.user and request.schema is None else None
    async with mind(tmp_path, inference) as kernel:
        await behave(kernel, "DECOMPOSING", count_and_decompose)
        commit, met = kernel.image.committer.commit, 0

        async def outrun_once(tm: Any) -> None:
            nonlocal met
            met += 1
            if met == 1:
                await kernel.image.system(lambda root: setattr(root["lobby"].robin, "thoughts", 10))
            await commit(tm)

        kernel.image.committer.commit = outrun_once  # type: ignore[method-assign]
        end = await (await submit(kernel, "m1", ROBIN)).end()
        assert end["state"] == "COMPLETE", end.get("error")
        assert kernel.image.read(lambda root: root["lobby"].robin.thoughts) == 11


# --- what else may be wrong


async def test_a_persona_that_the_codex_no_longer_has_fails_the_mission(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        end = await (await submit(kernel, "m1", persona="gone")).end()
        assert end["error"]["code"] == "unknown_persona"


async def test_a_refused_submission_gives_up_the_place_that_it_had_reserved(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, concurrent_missions=1) as kernel:
        await (await submit(kernel, "m1")).end()
        heard = Listened(kernel, "m2")
        # in one group commit: the one that is refused has the place, the other one queues behind it
        ends = await asyncio.gather(
            kernel.scheduler.submit("m1", "another brief", {}), kernel.scheduler.submit("m2", ROBIN, {}), return_exceptions=True
        )
        assert isinstance(ends[0], MissionIdTaken)
        assert (await heard.end())["state"] == "COMPLETE"


async def test_what_a_daemon_finds_at_its_start_runs_once(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, shutdown_s=0.05) as kernel:
        await kernel.scheduler.submit("old", "old brief", {})
        await inference.came(1)
    async with mind(tmp_path, inference) as kernel:
        heard = Listened(kernel, "old")
        inference.release()
        assert (await heard.end())["state"] == "COMPLETE"
        assert plain_facts(kernel) == {"running": 0, "queued": 0, "COMPLETE": 1, "FAILED": 0}


class FullDisk:
    """Has no room for these functions, until `room` is set; or another failure."""

    def __init__(self, kernel: Kernel, *functions: Any, number: int = errno.ENOSPC) -> None:
        self.functions, self.refused, self.room, self.number = functions, asyncio.Event(), False, number
        self._system = kernel.image.committer.system
        kernel.image.committer.system = self._full  # type: ignore[method-assign]

    async def _full(self, function: Any, *args: Any, mission: str = "") -> Any:
        if function in self.functions and not self.room:
            self.refused.set()
            raise OSError(self.number, os.strerror(self.number))
        return await self._system(function, *args, mission=mission)


async def test_a_failure_for_which_the_disk_has_no_room_is_recorded_once_there_is(tmp_path: Path) -> None:
    """Whoever watches hears of it then, and not only after the next start; the others are not touched."""
    inference = FakeInference()
    inference.fail_when = refused
    async with mind(tmp_path, inference, concurrent_missions=1, disk_retry_s=0.05) as kernel:
        disk = FullDisk(kernel, ledger.fail)
        heard = await submit(kernel, "m1")
        async with asyncio.timeout(WAIT_S):
            await disk.refused.wait()
        assert record(kernel, "m1").state == "ACCEPTED"
        with pytest.raises(ImageError, match=r"mission 'm1' cannot be recorded now: its disk was full; .* within 0\.05 s"):
            await kernel.scheduler.cancel("m1")  # another commit went well meanwhile
        inference.fail_when = lambda request: None
        disk.room = True
        assert (await heard.end())["error"]["code"] == "inference_failed"
        assert record(kernel, "m1").state == "FAILED"
        assert (await (await submit(kernel, "m2")).end())["state"] == "COMPLETE"
        assert not kernel.is_stop_requested, "nobody asked for the daemon's end"


@pytest.mark.parametrize("where", ["running", "queued", "paused"])
async def test_a_cancellation_for_which_the_disk_has_no_room_is_told_and_made_good(tmp_path: Path, where: str) -> None:
    """Who asks hears why, and so does who asks again; once there is room it is FAILED."""
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1, disk_retry_s=0.05) as kernel:
        running, waiting = await submit(kernel, "m1"), await submit(kernel, "m2")
        await inference.came(1)
        if where == "paused":
            await kernel.scheduler.pause("m2")
        id, heard = ("m1", running) if where == "running" else ("m2", waiting)
        disk = FullDisk(kernel, ledger.fail)
        for _ in range(2):
            with pytest.raises(ImageError, match=r"its disk was full; .* cancelled as soon as there is room") as told:
                await kernel.scheduler.cancel(id)
            assert told.value.to_wire()["context"] == {"cause": "disk_full"}
        assert record(kernel, id).state == "ACCEPTED"
        disk.room = True
        assert (await heard.end())["error"]["code"] == "cancelled"
        assert record(kernel, id).error["code"] == "cancelled"
        inference.release()


async def test_a_mission_that_cannot_begin_for_a_full_disk_can_be_cancelled(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1, disk_retry_s=0.05) as kernel:
        first, second = await submit(kernel, "m1"), await submit(kernel, "m2", "the second brief")
        await inference.came(1)
        disk = FullDisk(kernel, ledger.begin_attempt)
        assert await kernel.scheduler.cancel("m1")
        assert (await first.end())["error"]["code"] == "cancelled"
        async with asyncio.timeout(WAIT_S):
            await disk.refused.wait()
        with pytest.raises(ImageError, match="mission 'm2' cannot be recorded"):
            await kernel.scheduler.cancel("m2")
        disk.room = True
        assert (await second.end())["error"]["code"] == "cancelled"


async def test_a_cancellation_that_waits_for_room_does_not_keep_the_daemon_from_ending(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1, shutdown_s=0.01, disk_retry_s=600) as kernel:
        await submit(kernel, "m1")
        await submit(kernel, "m2")
        await inference.came(1)
        FullDisk(kernel, ledger.fail)
        for id in ("m1", "m2"):
            with pytest.raises(ImageError):
                await kernel.scheduler.cancel(id)
    inference.release()
    async with mind(tmp_path, inference) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        assert [record(kernel, id).state for id in ("m1", "m2")] == ["COMPLETE"] * 2


async def test_a_mission_is_cancelled_also_when_who_asked_is_gone(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1) as kernel:
        await submit(kernel, "m1")
        heard = await submit(kernel, "m2")
        asking = asyncio.create_task(kernel.scheduler.cancel("m2"))
        while kernel.scheduler.live("m2").get("place") is not None:
            await asyncio.sleep(0)  # one turn of the loop: it is taken out of the queue, and nothing is recorded yet
        asking.cancel()
        assert (await heard.end())["error"]["code"] == "cancelled"
        inference.release()


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
async def test_a_disk_that_is_broken_and_not_full_is_the_end(tmp_path: Path, number: int) -> None:
    """What is not for want of room is not waited for; the mission goes on at the next start."""
    inference = FakeInference()
    inference.fail_when = refused
    async with mind(tmp_path, inference) as kernel:
        FullDisk(kernel, ledger.fail, number=number)
        await submit(kernel, "m1")
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ImageFailed, match=f"mission 'm1' cannot be recorded.*{os.strerror(number)}"):
                await kernel.ended()
        assert record(kernel, "m1").state == "ACCEPTED"
    inference.fail_when = lambda request: None
    async with mind(tmp_path, inference) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        assert record(kernel, "m1").state == "COMPLETE"


async def test_a_mission_whose_attempt_a_full_disk_keeps_from_being_counted_begins_when_there_is_room(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1, disk_retry_s=0.05) as kernel:
        first, second = await submit(kernel, "m1"), await submit(kernel, "m2")
        disk = FullDisk(kernel, ledger.begin_attempt)
        inference.release()
        assert (await first.end())["state"] == "COMPLETE"
        async with asyncio.timeout(WAIT_S):
            await disk.refused.wait()
        disk.room = True
        assert (await second.end())["state"] == "COMPLETE"
        assert record(kernel, "m2").attempts == 1


async def test_a_full_disk_does_not_keep_the_daemon_from_ending(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = refused
    async with mind(tmp_path, inference, shutdown_s=0.1) as kernel:
        disk = FullDisk(kernel, ledger.fail, ledger.uncount_attempt)
        await submit(kernel, "m1")
        async with asyncio.timeout(WAIT_S):
            await disk.refused.wait()
    inference.fail_when = lambda request: None
    async with mind(tmp_path, inference) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        assert record(kernel, "m1").state == "COMPLETE"


async def test_a_mission_that_is_paused_when_the_disk_becomes_full_is_held_and_can_be_resumed(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, disk_retry_s=0.05) as kernel:
        heard = await submit(kernel, "m1")
        await inference.came(1)
        disk = FullDisk(kernel, ledger.uncount_attempt)
        pausing = asyncio.create_task(kernel.scheduler.pause("m1"))
        async with asyncio.timeout(WAIT_S):
            await disk.refused.wait()
            disk.room = True
            await pausing
        assert kernel.scheduler.state("m1") == "PAUSED"
        inference.release()
        await kernel.scheduler.resume("m1")
        assert (await heard.end())["state"] == "COMPLETE"


@pytest.mark.parametrize("resting", [True, False])
async def test_an_interruption_takes_back_no_attempt_but_its_own(tmp_path: Path, resting: bool) -> None:
    """One that failed counts, also where the next one had not begun: it rests, or the disk has no room for its count."""
    inference = FakeInference()
    inference.fail_when = unreachable
    async with mind(tmp_path, inference, retry_backoff_s=600 if resting else 0, disk_retry_s=600) as kernel:
        system, failed = kernel.image.committer.system, asyncio.Event()

        async def full(function: Any, *args: Any, mission: str = "") -> Any:
            if function is ledger.begin_attempt:
                raise OSError(28, "No space left on device")
            done = await system(function, *args, mission=mission)
            if function is ledger.fail:
                failed.set()
            return done

        kernel.image.committer.system = full  # type: ignore[method-assign]
        await submit(kernel, "m1")
        async with asyncio.timeout(WAIT_S):
            await failed.wait()
            await kernel.scheduler.pause("m1")
        assert (kernel.scheduler.state("m1"), record(kernel, "m1").attempts) == ("PAUSED", 1)


async def test_a_commit_for_which_the_disk_has_no_room_fails_the_mission_by_name(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        disk = FullDisk(kernel, journal.add)
        end = await (await submit(kernel, "m1")).end()
        assert disk.refused.is_set()
        assert end["error"]["code"] == "image"
        assert end["error"]["context"] == {"cause": "disk_full"}
        assert "make room" in end["error"]["message"]


async def test_a_mission_that_follows_a_damaged_one_keeps_no_daemon_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, shutdown_s=0.01) as kernel:
        await submit(kernel, "m1", ROBIN)
        await submit(kernel, "m2", ROBIN, context="m1")
    inference.release()

    def damaged(root: Any, id: str) -> bool:
        raise ImageDamaged(f"the record of {id!r} is damaged")

    monkeypatch.setattr(ledger, "is_final", damaged)
    async with mind(tmp_path, inference) as kernel:
        async with asyncio.timeout(WAIT_S):
            await kernel.scheduler.quiet()
        assert record(kernel, "m2").state == "COMPLETE"


async def test_a_time_out_inside_a_thought_is_not_the_deadline(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await behave(kernel, "DECOMPOSING", time_out)
        end = await (await submit(kernel, "m1", deadline_s=60)).end()
        assert end["error"]["code"] == "internal"
        assert "TimeoutError" in end["error"]["message"]


async def test_a_deadline_passes_while_the_mission_waits(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1, shutdown_s=0.1) as kernel:
        await submit(kernel, "first")
        await inference.came(1)
        late = await submit(kernel, "late", deadline_s=0.05)
        end = await late.end()  # the first one still runs
        assert end["error"]["code"] == "deadline"
        assert kernel.scheduler.live("first")["running"]
        record = kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "late")))
        assert (record.state, record.attempts) == ("FAILED", 0)


async def test_a_deadline_keeps_nothing_of_a_mission_that_waits_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference, loop, timers = FakeInference(), asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1) as kernel:
        later = loop.call_later

        def noted(delay: float, callback: Any, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            timer = later(delay, callback, *args, **kwargs)
            timers.extend([timer] if getattr(callback, "__self__", None) is kernel.scheduler else [])
            return timer

        monkeypatch.setattr(loop, "call_later", noted)
        await submit(kernel, "first")
        await inference.came(1)
        heard = await submit(kernel, "m", deadline_s=3600)
        for _ in range(3):
            await kernel.scheduler.pause("m")
            await kernel.scheduler.resume("m")
        assert [timer.cancelled() for timer in timers].count(False) == 1  # it waits
        inference.release()
        assert (await heard.end())["result"]["text"]
        cancelled = await submit(kernel, "c", deadline_s=3600)
        await kernel.scheduler.cancel("c")
        await cancelled.end()
        assert all(timer.cancelled() for timer in timers)


async def test_a_mission_that_is_tried_again_is_never_told_to_have_failed(tmp_path: Path) -> None:
    inference = FakeInference()
    failures = [InferenceFailed("away", cause="unreachable")]
    inference.fail_when = lambda request: failures.pop() if failures else None
    async with mind(tmp_path, inference, retry_backoff_s=0.2) as kernel:
        heard = await submit(kernel, "m")
        told = set()
        kernel.events.watch("m", lambda event: told.add(kernel.scheduler.state("m")) if event["type"] == "state" else None)
        while not kernel.image.read(lambda root: len(root["ledger"].failures)):
            await kernel.image.system(lambda root: None)
        told.add(kernel.scheduler.state("m"))
        assert (await heard.end())["result"]["text"]
        assert not {"FAILED", "COMPLETE"} & told


async def test_a_second_signal_cuts_the_grace_short(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, shutdown_s=600) as kernel:
        await submit(kernel, "m")
        await inference.came(1)
        stopping = asyncio.create_task(kernel.scheduler.stop(600))
        await asyncio.sleep(0)
        assert not stopping.done()
        kernel.scheduler.hurry()
        async with asyncio.timeout(WAIT_S):
            await stopping
        assert kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "m"))).state == "ACCEPTED"
