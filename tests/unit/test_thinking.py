"""Inferences from the journal, occurrence numbers, and what happens under the gate."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from batos import scope
from batos.app.kernel import Kernel
from batos.bridge.inference import ChatReply, ChatRequest
from batos.errors import BudgetSpent, InferenceFailed
from batos.image import journal, ledger
from batos.mind.attempt import Attempt, current
from batos.mind.inference import InferenceAsker, NeedInference
from tests.support.missions import DIGEST, FakeInference, Listened, mind, submit


async def mission(kernel: Kernel, id: str = "m1") -> Attempt:
    """The host's side of a mission that is in the ledger, for a test to think with in the scheduler's place."""
    from batos.image import ledger

    _, record = await kernel.image.system(ledger.accept, id, "a brief", {}, False)
    return kernel.scheduler.attempt(record)


def numbered(inference: FakeInference) -> None:
    """Every answer is another."""
    inference.say = lambda request: f"answer {inference.answered + 1}"


async def test_an_inference_is_durable_before_it_is_used(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        attempt = await mission(kernel)
        reply = await attempt.chat("robin", "system", "user", temperature=0.5)
        (entry,) = kernel.image.read(journal.load, "m1")
        assert (entry.text, entry.occurrence, entry.model) == (reply.text, 0, "robin:embedded")
        assert (entry.prompt_tokens, entry.answer_tokens, entry.digest) == (7, reply.answer_tokens, DIGEST[:16])
        (request,) = inference.asked
        options = dict(request.options)
        assert options["temperature"] == 0.5
        assert {"num_ctx", "num_predict", "seed"} <= set(options)


async def test_settings_go_with_every_inference(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, num_ctx=512, num_predict=9, num_thread=2) as kernel:
        await (await mission(kernel)).chat("robin", "system", "user")
    assert dict(inference.asked[0].options).items() >= {"num_ctx": 512, "num_predict": 9, "num_thread": 2}.items()


async def test_the_same_words_twice_are_two_inferences_and_replay_as_two(tmp_path: Path) -> None:
    inference = FakeInference()
    numbered(inference)
    async with mind(tmp_path, inference) as kernel:
        attempt = await mission(kernel)
        first = [(await attempt.chat("robin", "s", "the same")).text for _ in range(3)]
        assert first == ["answer 1", "answer 2", "answer 3"]
        attempt.restart(gated=False)
        assert [(await attempt.chat("robin", "s", "the same")).text for _ in range(3)] == first
        assert len(inference.asked) == 3
        assert (attempt.tally.replayed, attempt.paid) == (3, 3)
        other = kernel.scheduler.attempt(attempt.mission)
        other.recall()
        assert [(await other.chat("robin", "s", "the same")).text for _ in range(4)] == [*first, "answer 4"]


async def test_what_is_asked_beside_a_trial_counts(tmp_path: Path) -> None:
    """A trial's end takes back what the trial asked, and not what another facet asked meanwhile."""
    inference = FakeInference()
    numbered(inference)
    async with mind(tmp_path, inference) as kernel:
        attempt, tried, beside = await mission(kernel), asyncio.Event(), asyncio.Event()

        async def trial() -> None:
            with attempt.trial():
                await attempt.chat("robin", "s", "in a trial")
                attempt.number("")
                tried.set()
                await beside.wait()

        trying = asyncio.create_task(trial())
        await tried.wait()
        texts = [(await attempt.chat("robin", "s", "the same")).text]
        beside.set()
        await trying
        texts.append((await attempt.chat("robin", "s", "the same")).text)
        assert texts == ["answer 2", "answer 3"]
        assert attempt.usage()["inferences"] == 2
        assert attempt.number("") == "1"
        assert (await attempt.chat("robin", "s", "in a trial")).text == "answer 1"


async def test_what_an_inference_cost_and_what_was_thought_is_kept(tmp_path: Path) -> None:
    """The thought in part, and never as answer; from the journal it comes as it was."""
    inference = FakeInference()
    chat = inference.chat

    async def thoughtful(request: ChatRequest, **more: Any) -> ChatReply:
        reply = await chat(request, **more)
        return dataclasses.replace(reply, thinking="I wonder. " * 9, prompt_eval_ms=3.25, eval_ms=7.0)

    inference.chat = thoughtful  # type: ignore[method-assign]
    async with mind(tmp_path, inference, thinking_chars=12, think="on", stop=("END",)) as kernel:
        attempt = await mission(kernel)
        reply = await attempt.chat("robin", "s", "u")
        (entry,) = kernel.image.read(journal.load, "m1")
        assert (entry.prompt_eval_ms, entry.eval_ms, entry.load_ms) == (3.2, 7.0, 0.5)
        assert entry.thinking == reply.thinking == "I wonder. I "
        options = dict(inference.asked[0].options)
        assert entry.seed == options["seed"]
        assert (options["think"], options["stop"]) == (True, ("END",))
        assert inference.asked[0].digest == DIGEST
        again = kernel.scheduler.attempt(attempt.mission)
        again.recall()
        assert await again.chat("robin", "s", "u") == reply
        assert len(inference.asked) == 1


async def test_concurrent_inferences_of_the_same_words_get_numbers_of_their_own(tmp_path: Path) -> None:
    inference = FakeInference()
    numbered(inference)
    async with mind(tmp_path, inference) as kernel:
        attempt = await mission(kernel)
        replies = await asyncio.gather(*(attempt.chat("robin", "s", "the same") for _ in range(5)))
        assert len({reply.text for reply in replies}) == 5
        assert sorted(entry.occurrence for entry in kernel.image.read(journal.load, "m1")) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("change", ["system", "user", "temperature", "schema", "digest"])
async def test_anything_that_decides_the_answer_makes_another_inference(tmp_path: Path, change: str) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        attempt = await mission(kernel)
        asked: dict[str, Any] = {"system": "s", "user": "u", "temperature": 0.1, "schema": None}
        await attempt.chat("robin", **asked)
        attempt.restart(gated=False)
        await attempt.chat("robin", **asked)
        assert len(inference.asked) == 1
        if change == "digest":
            inference.digests["robin:embedded"] = "e" * 64
        else:
            asked[change] = {"system": "S", "user": "U", "temperature": 0.2, "schema": {"type": "object", "properties": {}}}[change]
        attempt.restart(gated=False)
        await attempt.chat("robin", **asked)
        assert len(inference.asked) == 2


async def test_two_missions_do_not_share_their_inferences(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        for id in ("m1", "m2"):
            await (await mission(kernel, id)).chat("robin", "s", "u")
        seeds = [dict(request.options)["seed"] for request in inference.asked]
        assert len(set(seeds)) == 2, "each mission has a seed of its own, the same at every replay"


async def test_under_the_gate_nothing_waits_for_a_model(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        attempt = await mission(kernel)
        await attempt.chat("robin", "s", "known")
        attempt.restart(gated=True)
        assert (await attempt.chat("robin", "s", "known")).text
        with pytest.raises(NeedInference) as caught:
            await attempt.chat("robin", "s", "new")
        assert len(inference.asked) == 1
        await attempt.settle(caught.value)
        attempt.restart(gated=True)
        assert (await attempt.chat("robin", "s", "new")).text
        assert (len(inference.asked), attempt.tally.replayed, attempt.paid) == (2, 1, 2)
        assert [entry.occurrence for entry in kernel.image.read(journal.load, "m1")] == [0, 0]


async def test_no_broad_except_swallows_the_need(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        attempt = await mission(kernel)
        attempt.restart(gated=True)

        async def careless() -> str:
            try:
                return (await attempt.chat("robin", "s", "new")).text
            except Exception:
                return "swallowed"

        with pytest.raises(NeedInference):
            await careless()


async def test_what_failed_outside_the_gate_fails_inside_it_and_is_asked_anew_by_the_next_attempt(tmp_path: Path) -> None:
    inference = FakeInference()

    def fail(request: ChatRequest) -> InferenceFailed:
        return InferenceFailed("no", cause="refused")

    inference.fail_when = fail
    async with mind(tmp_path, inference) as kernel:
        attempt = await mission(kernel)
        attempt.restart(gated=True)
        with pytest.raises(NeedInference) as caught:
            await attempt.chat("robin", "s", "u")
        await attempt.settle(caught.value)
        attempt.restart(gated=True)
        with pytest.raises(InferenceFailed):
            await attempt.chat("robin", "s", "u")
        assert len(inference.asked) == 1
        inference.fail_when = lambda request: None
        attempt.restart(gated=False)
        assert (await attempt.chat("robin", "s", "u")).text


async def test_a_failed_inference_leaves_nothing_in_the_journal(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("cut", cause="truncated")
    async with mind(tmp_path, inference) as kernel:
        attempt = await mission(kernel)
        with pytest.raises(InferenceFailed):
            await attempt.chat("robin", "s", "u")
        assert kernel.image.read(journal.load, "m1") == []
        assert attempt.usage()["inferences"] == 0


async def test_tokens_are_heard_with_their_facet_and_plans_are_silent(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = lambda request: "two words"
    async with mind(tmp_path, inference) as kernel:
        attempt, heard = await mission(kernel), Listened(kernel, "m1")
        await attempt.chat("robin", "s", "plan", part="plan", silent=True)
        assert heard.events == []
        await attempt.chat("robin", "s", "facet", part="sage_facet_")
        await attempt.chat("robin", "s", "answer", by=InferenceAsker("1.2", "SYNTHESIZING", "ROBIN"))
        assert [(e["type"], e["text"], e["facet"], e["cycle"], e["state"], e["model"]) for e in heard.events] == [
            ("token", "two words ", "sage_facet_", "", "IDLE", "robin:embedded"),
            ("token", "two words ", None, "1.2", "SYNTHESIZING", "robin:embedded"),
        ]
        assert [entry.label for entry in kernel.image.read(journal.load, "m1")] == [
            "- IDLE - plan", "- IDLE - sage_facet_", "1.2 SYNTHESIZING ROBIN -",
        ]  # fmt: skip


async def test_the_text_of_an_answer_that_breaks_off_is_told_too(tmp_path: Path) -> None:
    inference = FakeInference()

    async def broken(request: ChatRequest, *, deadline_s: float, on_text: Any = None) -> Any:
        on_text("half ")
        on_text("an answer")
        raise InferenceFailed("it broke", cause="truncated")

    async with mind(tmp_path, inference) as kernel:
        attempt, heard = await mission(kernel), Listened(kernel, "m1")
        inference.chat = broken  # type: ignore[method-assign]
        with pytest.raises(InferenceFailed):
            await attempt.chat("robin", "s", "u")
        assert [(event["text"], event["pieces"]) for event in heard.events] == [("half an answer", 2)]


async def test_a_mission_has_so_many_inferences_and_no_more(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, mission_inferences=2) as kernel:
        attempt = await mission(kernel)
        for _ in range(2):
            await attempt.chat("robin", "s", "u")
        with pytest.raises(BudgetSpent, match=r"missions\.inferences"):
            await attempt.chat("robin", "s", "u")
        attempt.restart(gated=False)
        assert (await attempt.chat("robin", "s", "u")).text
        assert len(inference.asked) == 2


async def test_usage_counts_what_the_answer_cost(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        attempt = await mission(kernel)
        await attempt.chat("robin", "s", "one")
        await attempt.chat("brick", "s", "two")
        usage = attempt.usage()
        assert (usage["inferences"], usage["prompt_tokens"], usage["model_ms"]) == (2, 14, 4.0)
        assert usage["models"] == ["brick:embedded", "robin:embedded"]


async def test_the_current_attempt_is_known_to_what_runs_inside(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        one, two = await mission(kernel, "m1"), await mission(kernel, "m2")

        async def think(attempt: Attempt) -> bool:
            with scope.begin(attempt):
                await asyncio.sleep(0)
                return current() is attempt

        assert all(await asyncio.gather(think(one), think(two)))
        with pytest.raises(LookupError):
            current()


@pytest.mark.parametrize("depth", ["direct", "facets"])
@pytest.mark.parametrize(
    ("kept", "reason", "said"), [(4000, "length", "all 512 tokens"), (0, "length", "all 512 tokens"), (4000, "cut", "in circles")]
)
async def test_a_thought_that_takes_all_tokens_is_said_to_have_done_so(
    tmp_path: Path, depth: str, kept: int, reason: str, said: str
) -> None:
    inference = FakeInference()
    chat = inference.chat

    async def spend(request: ChatRequest, **more: Any) -> ChatReply:
        reply = await chat(request, **more)
        if request.schema is not None:  # the plan
            return reply
        return dataclasses.replace(reply, text=" \n", thinking="I wonder.", answer_tokens=512, done_reason=reason)

    inference.chat = spend  # type: ignore[method-assign]
    async with mind(tmp_path, inference, thinking_chars=kept) as kernel:
        end = await (await submit(kernel, "m1", "I feel stuck", depth=depth)).end()
        assert (end["state"], end["error"]["code"]) == ("FAILED", "quality_refused")
        assert said in end["error"]["message"]
        assert "inference.answer_tokens" in end["error"]["message"]
        assert "persona" not in end["error"]["message"]
        assert kernel.image.read(lambda root: ledger.mission_of(root, "m1").attempts) == 1, "it is not tried again"
