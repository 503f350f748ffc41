"""Replay: a finished mission from its journal, without a model; what changed since is named."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.errors import InferenceFailed, InvalidInput, UnknownMission
from batos.image import journal, ledger
from batos.image.journal import changed_parts, content_of, parts_of
from batos.mind.attempt import Attempt
from batos.mind.attempt_services import REPLAYED
from batos.mind.inference import JournalPlace
from batos.missions.execution import Attempts
from batos.missions.replay import JournalOnlySource, replay_services
from tests.support import missions
from tests.support.missions import FakeInference, replayed, submit, written

mind = functools.partial(missions.mind, remember="off")  # what goes on in the image beside a replay must not be taken for its doing
ROBIN = "I feel stuck"
A_CYCLE = 5


async def think(kernel: Kernel, id: str = "m1", brief: str = ROBIN, **options: Any) -> dict[str, Any]:
    return await (await submit(kernel, id, brief, **options)).end()


async def test_a_mission_replays_the_same(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel)
        found = await replayed(kernel, inference)
        assert found == {
            "id": "m1", "state": "COMPLETE", "outcome": "same", "inferences": A_CYCLE, "journaled": A_CYCLE, "unused": 0,
        }  # fmt: skip


async def test_what_a_mission_was_asked_is_told_word_for_word(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel)
        found = await kernel.replays.replay("m1", prompts=True)
        assert found["outcome"] == "same"
        told = found["prompts"]
        assert [(one["model"], one["system"], one["user"]) for one in told] == [(r.model, r.system, r.user) for r in inference.asked]
        assert [one.get("schema") for one in told] == [request.schema for request in inference.asked]
        assert [one["state"] for one in told] == ["DECOMPOSING", "DELEGATING", "DELEGATING", "DELEGATING", "SYNTHESIZING"]
        assert all(one["said"] for one in told)
        assert "prompts" not in await kernel.replays.replay("m1")


async def test_prompts_are_told_as_far_as_they_are_known_and_have_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel)
        monkeypatch.setattr("batos.missions.replay.PROMPTS_BYTES", 10)
        found = await kernel.replays.replay("m1", prompts=True)
        assert (len(found["prompts"]), found["more"]) == (1, True)


async def test_a_message_replays_the_same(tmp_path: Path) -> None:
    inference = FakeInference()
    message = {"target": "robin", "selector": "synthesize_response_for_", "args": ["Say something"], "kwargs": {}}
    async with mind(tmp_path, inference) as kernel:
        await think(kernel, brief="send", message=json.dumps(message))
        found = await replayed(kernel, inference)
        assert (found["outcome"], found["inferences"]) == ("same", A_CYCLE)


async def test_a_changed_prompt_is_named(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel)

        def rewrite(root: Any) -> None:
            root["lobby"].psm.SYNTHESIZING.meta_prompt = "Now say it all: $voices"

        await kernel.image.system(rewrite)
        found = await replayed(kernel, inference)
        assert found["outcome"] == "different"
        assert (found["inferences"], found["unused"]) == (4, 1)
        assert found["difference"] == {
            "what": "inference", "state": "SYNTHESIZING", "facet": None, "model": "robin:embedded", "changed": ["prompt"],
        }  # fmt: skip


async def test_a_changed_facet_is_named(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel)

        def rewrite(root: Any) -> None:
            root["lobby"].psm.DELEGATING.meta_prompt = "Otherwise: $intent $query"

        await kernel.image.system(rewrite)
        found = await replayed(kernel, inference)
        assert found["outcome"] == "different"
        assert found["difference"]["state"] == "DELEGATING"
        assert found["difference"]["facet"].endswith("_facet_")
        assert found["difference"]["changed"] == ["prompt"]


async def test_a_changed_option_is_named(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel)
    async with mind(tmp_path, inference, num_predict=7) as kernel:
        found = await replayed(kernel, inference)
        assert (found["outcome"], found["difference"]["state"], found["difference"]["changed"]) == ("different", "DECOMPOSING", ["options"])


async def test_another_model_is_named_and_an_unknown_one_taken_for_the_same(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel)
        inference.digests["robin:embedded"] = "e" * 64
        found = await replayed(kernel, inference)
        assert (found["outcome"], found["difference"]["changed"]) == ("different", ["model"])

        async def away(model: str) -> str:
            raise InferenceFailed("nobody there", cause="unreachable")

        inference.digest = away  # type: ignore[method-assign]
        found = await replayed(kernel, inference)
        assert (found["outcome"], found["models_unknown"], found["inferences"]) == ("same", True, A_CYCLE)


async def test_another_answer_is_named(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel)

        def forge(root: Any) -> None:
            entry = ledger.mission_of(root, "m1").journal.entries[-1]
            entry.inference = entry.inference._replace(text="Something else entirely.")
            entry._p_changed = True

        await kernel.image.system(forge)
        found = await replayed(kernel, inference)
        assert found["outcome"] == "different"
        assert found["difference"] == {
            "what": "text", "state": "SYNTHESIZING",
            "expected": "Take one small step and look where it led.", "found": "Something else entirely.",
        }  # fmt: skip


async def test_a_facet_that_had_failed_fails_again(tmp_path: Path) -> None:
    inference = FakeInference()
    failed: list[ChatRequest] = []

    def first_facet(request: ChatRequest) -> InferenceFailed | None:
        if "Answer in at most five sentences" in request.user and (not failed or request in failed):
            failed.append(request)
            return InferenceFailed("no", cause="refused")
        return None

    inference.fail_when = first_facet
    async with mind(tmp_path, inference) as kernel:
        assert (await think(kernel))["state"] == "COMPLETE"
        found = await replayed(kernel, inference)
        assert (found["outcome"], found["journaled"]) == ("same", A_CYCLE - 1)


async def test_a_failed_mission_replays_as_far_as_its_journal_goes(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: (
        InferenceFailed("no", cause="refused") if "Write the answer to the request" in request.user else None
    )
    async with mind(tmp_path, inference) as kernel:
        assert (await think(kernel))["state"] == "FAILED"
        found = await replayed(kernel, inference)
        assert (found["state"], found["outcome"], found["inferences"]) == ("FAILED", "same", 4)

        def rewrite(root: Any) -> None:
            root["lobby"].psm.DELEGATING.meta_prompt = "Otherwise: $intent $query"

        await kernel.image.system(rewrite)
        found = await replayed(kernel, inference)
        assert (found["outcome"], found["difference"]["state"], found["unused"]) == ("different", "DELEGATING", 3)


async def test_a_cancelled_mission_replays_up_to_there(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        inference.hold()
        heard = await submit(kernel, "m1", ROBIN)
        await inference.came(1)
        with pytest.raises(InvalidInput, match="only what has ended"):
            await kernel.replays.replay("m1")
        await kernel.scheduler.cancel("m1")
        await heard.end()
        inference.release()
        found = await replayed(kernel, inference)
        assert (found["outcome"], found["inferences"], found["difference"]["state"]) == ("journal_ended", 0, "DECOMPOSING")


async def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        with pytest.raises(UnknownMission):
            await kernel.replays.replay("nobody")
        await think(kernel)
        await kernel.image.system(lambda root: journal.drop_texts(ledger.mission_of(root, "m1").journal) and None)
        with pytest.raises(InvalidInput, match=r"image\.journal_days"):
            await kernel.replays.replay("m1")


async def test_a_replay_is_heard_by_nobody(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        heard = await submit(kernel, "m1", ROBIN)
        await heard.end()
        events = len(heard.events)
        await asyncio.gather(*(kernel.replays.replay("m1") for _ in range(5)))
        assert len(heard.events) == events


def test_what_changed_between_two_requests() -> None:
    request: dict[str, Any] = {"digest": "d", "system": "s", "user": "u", "schema": None, "options": {"seed": 1}}
    same = parts_of(content_of(**request))
    assert len(same) == 20
    assert changed_parts(same, parts_of(content_of(**request))) == []
    for name, value in {"digest": "e", "system": "", "user": "\ud800", "schema": {}, "options": {"seed": 2}}.items():
        assert changed_parts(same, parts_of(content_of(**{**request, name: value}))) == [name]


async def test_costs_are_in_info_and_survive(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel)
        known = kernel.info()["costs"]
        assert (known["inferences"], known["prompt_tokens"], known["model_s"]) == (A_CYCLE, 7 * A_CYCLE, 0.01)
        assert list(known["by_model"]) == ["robin:embedded"]
    async with mind(tmp_path, inference) as kernel:
        await kernel.costs.ready()
        assert kernel.info()["costs"] == known


class Short(JournalOnlySource):
    """A source that has nothing in its journal, and a model that reads so many characters at a time."""

    reads = 1500

    def known(self, request: ChatRequest, place: JournalPlace, label: str) -> None:
        return None

    async def pay(self, request: ChatRequest, place: JournalPlace, label: str, heard: Any = None) -> journal.InferenceRecord:
        if len(request.user) > self.reads:
            raise InferenceFailed("too long", cause="too_long", model=request.model)
        text = missions.answer(request)
        return journal.InferenceRecord(
            place.key, place.occurrence, text, request.model, "", 7, 7, 0.0, 0.0, "stop", journal.now(), b"", label, 0.0, 0.0
        )


async def test_a_rehearsal_tells_less_too_where_all_does_not_fit(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await think(kernel, brief=f"I feel stuck. {'The day was long. ' * 200}")
        record = kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "m1")))
        attempt = Attempt(record, replay_services(kernel.attempt_services, inference), Short("m1", kernel.image), REPLAYED)
        attempt.recall()
        await written(kernel)
        tid = kernel.image.db.lastTransaction()
        result = await Attempts(kernel.image, conflict_retries=1).rehearse(attempt)
        await written(kernel)
        assert kernel.image.db.lastTransaction() == tid
    assert result["left_out"]["request"] > 1000


async def test_those_who_ask_the_same_at_once_get_what_they_had_whoever_asks_first(tmp_path: Path) -> None:
    inference, count = FakeInference(), itertools.count(1)

    def say(request: ChatRequest) -> str:
        return "Rest when you can." if "Notes to use" in request.user else f"{'Take a step. ' * next(count)}Look where it led."

    inference.say = say
    async with mind(tmp_path, inference) as kernel:
        end = await think(kernel, brief="What is the capital of France?", depth="council", flavour="off")
        parts = [request.user for request in inference.asked if "Notes to use" not in request.user]
        assert (len(parts), len(set(parts))) == (3, 1), end
        waiting: list[asyncio.Event] = []

        async def digest(model: str) -> str:
            waiting.append(turn := asyncio.Event())
            if len(waiting) == 3:
                waiting[-1].set()
            await turn.wait()
            if (place := waiting.index(turn)) > 0:
                waiting[place - 1].set()
            return missions.DIGEST

        inference.digest = digest  # type: ignore[method-assign]
        found = await replayed(kernel, inference)
    assert (found["outcome"], found["unused"]) == ("same", 0), found
