"""Missions that rest, that ask, and that follow others: held back, and gone on with, also over restarts."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.console.api_client import Heard
from batos.errors import InvalidInput, UnknownMission
from batos.image import ledger
from batos.image.mission_record import MissionRecord
from batos.mind import plans
from batos.objects import Primitive, UvmObject
from batos.wire.schemas import OPS
from tests.support.missions import WAIT_S, FakeInference, Listened, answer, mind, submit

QUESTION = "How many guests?"


def record(kernel: Kernel, id: str = "m1") -> MissionRecord:
    return kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, id)))  # type: ignore[no-any-return]


async def heard(listened: Listened, kind: str) -> dict[str, Any]:
    """The first event of a kind, when it comes."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = next((event for event in listened.events if event["type"] == kind), None)
            if found is not None:
                return found
            await asyncio.sleep(0.002)


def asking(inference: FakeInference) -> None:
    """A model that has a question in its plan."""

    def say(request: ChatRequest) -> str:
        plan = json.loads(answer(request)) if request.schema else None
        if plan and plans.QUESTION in plan:
            return json.dumps(plan | {plans.QUESTION: QUESTION})
        return answer(request)

    inference.say = say


# --- pause and resume


async def test_a_running_mission_rests_and_goes_on_and_pays_nothing_twice(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        listened = await submit(kernel, "m1", "I feel stuck")
        await inference.came(1)
        while not kernel.image.read(lambda root: len(ledger.mission_of(root, "m1").journal.entries)):
            await asyncio.sleep(0)
        inference.hold()
        await inference.came(2)
        await kernel.scheduler.pause("m1")
        assert kernel.scheduler.state("m1") == "PAUSED"
        assert kernel.scheduler.live("m1") == {"running": False}
        assert (record(kernel).paused, record(kernel).attempts) == (True, 0)
        assert kernel.scheduler.facts()["paused"] == 1
        await kernel.scheduler.pause("m1")
        inference.release()
        await asyncio.wait_for(kernel.scheduler.quiet(), WAIT_S)
        answered = inference.answered
        await kernel.scheduler.resume("m1")
        end = await listened.end()
        assert end["state"] == "COMPLETE"
        assert end["result"]["usage"]["replayed"] >= 1
        assert inference.answered == answered + end["result"]["usage"]["inferences"] - end["result"]["usage"]["replayed"]
        assert "PAUSED" in listened.states
        assert record(kernel).attempts == 1


async def test_a_queued_mission_rests_and_lets_others_by(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, concurrent_missions=1) as kernel:
        first, second, third = [await submit(kernel, f"m{n}", f"brief {n}") for n in (1, 2, 3)]
        await kernel.scheduler.pause("m2")
        assert kernel.scheduler.live("m3")["place"] == 1
        inference.release()
        await first.end()
        await third.end()
        assert kernel.scheduler.state("m2") == "PAUSED"
        await kernel.scheduler.resume("m2")
        assert (await second.end())["state"] == "COMPLETE"


async def test_a_paused_mission_rests_over_a_restart(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference) as kernel:
        await submit(kernel, "m1", "I feel stuck")
        await inference.came(1)
        await kernel.scheduler.pause("m1")
    inference.release()
    async with mind(tmp_path, inference) as kernel:
        assert kernel.scheduler.state("m1") == "PAUSED"
        await asyncio.wait_for(kernel.scheduler.quiet(), WAIT_S)
        listened = Listened(kernel, "m1")
        await kernel.scheduler.resume("m1")
        assert (await listened.end())["state"] == "COMPLETE"


async def test_pausing_at_any_step_loses_nothing(tmp_path: Path) -> None:
    """At every turn of the loop from the acceptance to the end: it rests, or it had ended; resumed, it completes, once."""
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        step, rested = 0, 0
        while True:
            id = f"m{step}"
            listened = await submit(kernel, id, "I feel stuck")
            for _ in range(step):
                await asyncio.sleep(0)
            await kernel.scheduler.pause(id)
            state = kernel.scheduler.state(id) or record(kernel, id).state
            assert state in ("PAUSED", "COMPLETE"), state
            await kernel.scheduler.resume(id)
            assert (await listened.end())["state"] == "COMPLETE"
            assert [event["type"] for event in listened.events].count("result") == 1
            assert record(kernel, id).attempts == 1
            rested += state == "PAUSED"
            if state == "COMPLETE":
                break
            step += 1
        assert rested > 5
        assert kernel.scheduler.outcomes["FAILED"] == 0


async def test_a_paused_mission_can_be_taken_back_and_has_its_deadline(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference) as kernel:
        taken, late = await submit(kernel, "m1", "one"), await submit(kernel, "m2", "two", deadline_s=2)
        for id in ("m1", "m2"):
            await kernel.scheduler.pause(id)
        assert await kernel.scheduler.cancel("m1")
        assert (await taken.end())["error"]["code"] == "cancelled"
        assert (await late.end())["error"]["code"] == "deadline"
        inference.release()


@pytest.mark.parametrize("turns", range(6))
async def test_a_mission_that_is_cancelled_while_its_pause_takes_effect_is_ended(
    tmp_path: Path, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference) as kernel:
        listened = await submit(kernel, "m1", "I feel stuck")
        await inference.came(1)
        system, paused = kernel.image.system, asyncio.Event()

        async def noted(function: Any, *args: Any, **more: Any) -> Any:
            result = await system(function, *args, **more)
            if function is ledger.set_paused:
                paused.set()  # the attempt is interrupted in the next turns
            return result

        monkeypatch.setattr(kernel.image, "system", noted)
        pausing = asyncio.ensure_future(kernel.scheduler.pause("m1"))
        await paused.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert await kernel.scheduler.cancel("m1")
        await pausing
        assert (await listened.end())["error"]["code"] == "cancelled"
        assert (kernel.scheduler.state("m1"), kernel.scheduler.facts()["paused"], kernel.scheduler.running()) == (None, 0, [])
        inference.release()


async def test_pausing_what_has_ended_or_never_was(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        await kernel.scheduler.pause("m1")
        assert record(kernel).paused is False
        await kernel.scheduler.resume("m1")
        for verb in (kernel.scheduler.pause, kernel.scheduler.resume):
            with pytest.raises(UnknownMission):
                await verb("nobody")


async def test_what_is_steered_and_had_ended_says_so(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        desk = kernel.transport.dispatcher

        async def steered(op: str, id: str) -> tuple[str, bool]:
            heard = Heard(8)
            await desk.handle(OPS[op](op=op, id=id), heard)
            reply = await heard.next() or {}
            return str(reply["state"]), reply.get("already", False)

        await (await submit(kernel, "ended", "I feel stuck")).end()
        inference.hold()
        await submit(kernel, "going", "I feel stuck")
        assert [await steered(op, "ended") for op in ("cancel", "pause", "resume")] == [("COMPLETE", True)] * 3
        assert await steered("pause", "going") == ("PAUSED", False)
        assert (await steered("resume", "going"))[1] is False
        assert await steered("cancel", "going") == ("FAILED", False)
        assert await steered("cancel", "going") == ("FAILED", True)
        inference.release()


# --- questions


async def test_a_mission_asks_waits_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    inference = FakeInference()
    asking(inference)
    async with mind(tmp_path, inference) as kernel:
        listened = await submit(kernel, "m1", "Plan a party", may_ask=True)
        event = await heard(listened, "needs_input")
        assert (event["question"], event["number"], event["state"]) == (QUESTION, 1, "NEEDS_INPUT")
        assert kernel.scheduler.live("m1") == {"running": False, "question": {"number": 1, "question": QUESTION}}
        assert kernel.scheduler.facts()["needs_input"] == 1
        await kernel.scheduler.answer("m1", "twelve")
        end = await listened.end()
        assert end["state"] == "COMPLETE"
        assert end["result"]["usage"]["replayed"] == 1  # the plan
        for request in inference.asked[1:]:
            assert f"The user was asked: {QUESTION}\nThe user said: twelve" in request.user
        assert record(kernel).attempts == 1
        assert kernel.image.read(lambda root: ledger.mission_of(root, "m1").thought.asked) == (QUESTION, "twelve")


async def test_a_question_waits_over_a_restart(tmp_path: Path) -> None:
    inference = FakeInference()
    asking(inference)
    async with mind(tmp_path, inference) as kernel:
        await heard(await submit(kernel, "m1", "Plan a party", may_ask=True), "needs_input")
    paid = len(inference.asked)
    async with mind(tmp_path, inference) as kernel:
        assert kernel.scheduler.state("m1") == "NEEDS_INPUT"
        listened = Listened(kernel, "m1")
        await kernel.scheduler.answer("m1", "twelve", 1)
        end = await listened.end()
        assert end["result"]["usage"]["replayed"] == 1
        assert len(inference.asked) == paid + end["result"]["usage"]["inferences"] - 1


async def test_without_leave_nobody_is_asked(tmp_path: Path) -> None:
    inference = FakeInference()
    asking(inference)
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", "Plan a party")).end()
        assert end["state"] == "COMPLETE"
        assert record(kernel).questions == []


async def test_the_wrong_answers(tmp_path: Path) -> None:
    inference = FakeInference()
    asking(inference)
    async with mind(tmp_path, inference, question_chars=300) as kernel:
        answering = kernel.scheduler.answer
        with pytest.raises(UnknownMission):
            await answering("m1", "twelve")
        listened = await submit(kernel, "m1", "Plan a party", may_ask=True)
        await heard(listened, "needs_input")
        with pytest.raises(InvalidInput, match="no question 2"):
            await answering("m1", "twelve", 2)
        with pytest.raises(InvalidInput, match="at most"):
            await answering("m1", "x" * 301)
        await answering("m1", "twelve")
        await answering("m1", "twelve", 1)
        with pytest.raises(InvalidInput, match="already, with 'twelve'"):
            await answering("m1", "thirteen", 1)
        with pytest.raises(InvalidInput, match="no open question"):
            await answering("m1", "thirteen")
        await listened.end()
        await answering("m1", "twelve", 1)


async def test_a_paused_mission_that_asks_needs_both(tmp_path: Path) -> None:
    inference = FakeInference()
    asking(inference)
    async with mind(tmp_path, inference) as kernel:
        listened = await submit(kernel, "m1", "Plan a party", may_ask=True)
        await heard(listened, "needs_input")
        await kernel.scheduler.pause("m1")
        assert kernel.scheduler.state("m1") == "PAUSED"
        await kernel.scheduler.answer("m1", "twelve")
        assert kernel.scheduler.state("m1") == "PAUSED"
        await kernel.scheduler.resume("m1")
        assert (await listened.end())["state"] == "COMPLETE"


async def test_a_message_asks_twice_with_the_same_words(tmp_path: Path) -> None:
    async def quiz(persona: UvmObject) -> list[str]:
        from batos.mind.psm import ask_user_

        return [await ask_user_(persona, "Well?"), await ask_user_(persona, "Well?")]

    Primitive.register("test.quiz")(quiz)
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.image.system(lambda root: setattr(root["lobby"].robin, "quiz", Primitive.of(quiz)))
        message = json.dumps({"target": "robin", "selector": "quiz", "args": [], "kwargs": {}})
        listened = await submit(kernel, "m1", "send", message=message)
        for number, text in ((1, "first"), (2, "second")):
            async with asyncio.timeout(WAIT_S):
                while (kernel.scheduler.live("m1").get("question") or {}).get("number") != number:
                    await asyncio.sleep(0.002)
            await kernel.scheduler.answer("m1", text)
        assert (await listened.end())["result"]["value"] == ["first", "second"]


async def test_a_question_has_words(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        message = {"target": "robin", "selector": "ask_user_", "args": [" "], "kwargs": {}}
        assert (await (await submit(kernel, "m1", "send", message=json.dumps(message))).end())["error"]["code"] == "invalid"
        message["args"] = [7]
        assert (await (await submit(kernel, "m2", "send", message=json.dumps(message))).end())["error"]["code"] == "invalid"


# --- following


async def test_a_follow_up_begins_when_the_one_before_has_ended(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference) as kernel:
        first = await submit(kernel, "m1", "I feel stuck")
        second = await submit(kernel, "m2", "And then?", context="m1")
        third = await submit(kernel, "m3", "And after that?", context="m2")
        assert kernel.scheduler.live("m2") == {"running": False, "waits_for": "m1"}
        assert kernel.scheduler.facts()["following"] == 2
        inference.release()
        for listened in (first, second, third):
            assert (await listened.end())["state"] == "COMPLETE"
        assert "Answer: Take one small step" in inference.asked[-1].user


async def test_a_follow_up_waits_over_a_restart_and_goes_on_after_a_failure(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, shutdown_s=0.05) as kernel:
        await submit(kernel, "m1", "I feel stuck")
        await submit(kernel, "m2", "And then?", context="m1")
    async with mind(tmp_path, inference) as kernel:
        second = Listened(kernel, "m2")
        assert kernel.scheduler.live("m2")["waits_for"] == "m1"
        await kernel.scheduler.cancel("m1")
        inference.release()
        assert (await second.end())["state"] == "COMPLETE"
        assert any("Answer: (none)" in request.user for request in inference.asked)


async def test_a_deadline_that_passes_while_it_is_held_back(tmp_path: Path) -> None:
    inference = FakeInference()
    asking(inference)
    async with mind(tmp_path, inference) as kernel:
        begun = time.monotonic()
        listened = await submit(kernel, "m1", "Plan a party", may_ask=True, deadline_s=2)
        await heard(listened, "needs_input")
        assert (await listened.end())["error"]["code"] == "deadline"
        assert time.monotonic() - begun < WAIT_S


@pytest.mark.parametrize("how", ["pause", "cancel"])
async def test_a_mission_that_is_held_while_its_question_is_recorded(tmp_path: Path, how: str) -> None:
    inference = FakeInference()
    asking(inference)
    async with mind(tmp_path, inference) as kernel:
        system, reached, go = kernel.image.committer.system, asyncio.Event(), asyncio.Event()

        async def slow(function: Any, *args: Any, mission: str = "") -> Any:
            work = asyncio.ensure_future(system(function, *args, mission=mission))
            if function is ledger.ask_question:  # it is under way; whoever waits for it may be cancelled
                reached.set()
                await go.wait()
            return await work

        kernel.image.committer.system = slow  # type: ignore[method-assign]
        listened = await submit(kernel, "m1", "Plan a party", may_ask=True)
        await asyncio.wait_for(reached.wait(), WAIT_S)
        if how == "cancel":
            assert await kernel.scheduler.cancel("m1")
            assert (await listened.end())["error"]["code"] == "cancelled"
            return
        await kernel.scheduler.pause("m1")
        assert kernel.scheduler.state("m1") == "PAUSED"
        assert record(kernel).attempts == 0
        await kernel.scheduler.resume("m1")
        assert kernel.scheduler.state("m1") == "NEEDS_INPUT"
        await kernel.scheduler.answer("m1", "twelve")
        assert (await listened.end())["state"] == "COMPLETE"


async def test_a_mission_that_is_paused_while_its_question_waits_for_room_on_the_disk(tmp_path: Path) -> None:
    """The question was not recorded, so neither was it that the attempt does not count."""
    inference = FakeInference()
    asking(inference)
    async with mind(tmp_path, inference, mission_attempts=1, disk_retry_s=600) as kernel:
        system, refused = kernel.image.committer.system, asyncio.Event()

        async def full(function: Any, *args: Any, mission: str = "") -> Any:
            if function is ledger.ask_question and not refused.is_set():
                refused.set()
                raise OSError(28, "No space left on device")
            return await system(function, *args, mission=mission)

        kernel.image.committer.system = full  # type: ignore[method-assign]
        listened = await submit(kernel, "m1", "Plan a party", may_ask=True)
        await asyncio.wait_for(refused.wait(), WAIT_S)
        await kernel.scheduler.pause("m1")
        assert (kernel.scheduler.state("m1"), record(kernel).attempts) == ("PAUSED", 0)
        await kernel.scheduler.resume("m1")
        await heard(listened, "needs_input")
        await kernel.scheduler.answer("m1", "twelve")
        assert (await listened.end())["state"] == "COMPLETE"
