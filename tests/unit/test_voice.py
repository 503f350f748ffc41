"""Whose voice a mission speaks with: its persona's at its beginning, to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.errors import BatosError, InferenceFailed
from batos.image import model_registry
from batos.wire.admin_schemas import ExpertsRequest
from tests.support.missions import FakeInference, mind, submit

BRIEF = "Look up the moon"  # BABS's


async def built(kernel: Kernel, name: str, version: int = 1) -> str:
    model = f"babs:{name}-v{version}"
    facts = {"model": model, "persona": "babs", "expert": name, "version": version, "base": "b", "content": name, "folder": name}
    await kernel.image.system(model_registry.begin_experts, {"babs": "b"})
    await kernel.image.system(model_registry.intend_expert, facts)
    await kernel.image.system(model_registry.note_built, model, "d", "r", "adapter", "")
    return model


def models(inference: FakeInference) -> list[str]:
    return [request.model for request in inference.asked]


async def test_the_next_mission_speaks_with_the_expert(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "plain", BRIEF)).end()
        assert set(models(inference)) == {"babs:embedded"}
        inference.asked.clear()
        weaver = await built(kernel, "weaver")
        end = await (await submit(kernel, "expert", BRIEF)).end()
        assert set(models(inference)) == {weaver}
        assert end["result"]["usage"]["models"] == [weaver]
        inference.asked.clear()
        await (await submit(kernel, "other", "I feel stuck")).end()
        assert set(models(inference)) == {"robin:embedded"}
        inference.asked.clear()
        await kernel.image.system(model_registry.choose_voice, "babs", "plain")
        await (await submit(kernel, "back", BRIEF)).end()
        assert set(models(inference)) == {"babs:embedded"}


async def test_a_mission_under_way_ends_with_the_voice_it_began_with(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        inference.hold()
        heard = await submit(kernel, "m", BRIEF)
        await inference.came(1)
        await built(kernel, "weaver")
        inference.release()
        await heard.end()
        assert set(models(inference)) == {"babs:embedded"}


async def test_also_after_a_restart(tmp_path: Path) -> None:
    """Its journal says which voice that was; nothing is paid twice."""
    first = FakeInference()
    async with mind(tmp_path, first, shutdown_s=0.01) as kernel:
        weaver = await built(kernel, "weaver")

        def hold_facets(request: ChatRequest) -> BatosError | None:
            if request.schema is not None:
                first.hold()
            return None

        first.fail_when = hold_facets
        await submit(kernel, "m", BRIEF)
        await first.came(2)  # the plan is paid, a facet is under way
    second = FakeInference()
    async with mind(tmp_path, second, mission_attempts=5) as kernel:
        await built(kernel, "weaver", 2)
        record = await _ended(kernel, "m")
        assert record.state == "COMPLETE"
        assert record.result["usage"]["replayed"] >= 1
        again = await (await submit(kernel, "n", BRIEF)).end()
        assert again["result"]["usage"]["models"] == ["babs:weaver-v2"]
    paid = set(models(second))
    assert paid == {weaver, "babs:weaver-v2"}
    assert not any(request.schema for request in second.asked if request.model == weaver), "the plan was not paid for again"


async def test_a_voice_that_went_away_is_replaced_in_the_next_attempt(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        weaver = await built(kernel, "weaver")
        gone = InferenceFailed("gone", cause="model_missing", retryable=True)
        inference.fail_when = lambda request: gone if request.model == weaver and request.schema is None else None
        inference.hold()
        heard = await submit(kernel, "m", BRIEF)
        await inference.came(1)
        await kernel.image.system(model_registry.note_unusable, weaver, model_registry.MISSING, "gone")
        inference.release()
        end = await heard.end()
        assert end["state"] == "COMPLETE"
        assert models(inference)[-1] == "babs:embedded"


async def test_a_replay_speaks_with_the_voice_of_the_mission(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m", BRIEF)).end()
        await built(kernel, "weaver")
        replays = kernel.replays
        assert (await replays.replay("m"))["outcome"] == "same"


async def test_the_op_without_an_ollama_says_what_the_image_knows(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        weaver = await built(kernel, "weaver")
        reply = await kernel.transport.personas.experts(ExpertsRequest(op="experts", scan=True), Mock())
        assert [e["model"] for e in reply["experts"]] == [weaver]
        reply = await kernel.transport.personas.experts(ExpertsRequest(op="experts", persona="BABS", voice="plain"), Mock())
        assert reply["voices"]["babs"] == {"choice": "plain", "model": ""}


async def _ended(kernel: Kernel, id: str) -> dict[str, Any]:
    from batos.image import ledger

    await kernel.scheduler.quiet()
    return kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, id)))  # type: ignore[no-any-return]
