"""Metrics: what is counted, where it may be read, and that reading never holds up the loop."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from batos.errors import EndpointError, InferenceFailed
from batos.kernel import Kernel
from tests.unit.mind_support import FakeInference, mind, submit


async def read(kernel: Kernel) -> dict[str, float]:
    """Every sample by its name and labels."""
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = await client.get(f"http://{kernel.metrics.address}/metrics")
    return {name: float(value) for name, value in re.findall(r"^(\w[^ ]*(?:\{[^}]*\})?) ([^ ]+)$", reply.text, re.MULTILINE)}


async def test_missions_states_inferences_and_the_image(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("no", cause="refused") if "what of sage_facet_" in request.user else None
    async with mind(tmp_path, inference, metrics="127.0.0.1:0") as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        inference.fail_when = lambda request: InferenceFailed("no", cause="refused")
        await (await submit(kernel, "m2", "I feel sad")).end()
        kernel.metrics.verdict(True)
        found = await read(kernel)
        assert found['batos_missions_total{outcome="COMPLETE",persona="ROBIN"}'] == 1
        assert found['batos_missions_total{outcome="FAILED",persona="ROBIN"}'] == 1
        assert found['batos_mission_failures_total{code="inference_failed"}'] == 1
        assert found['batos_inferences_total{model="robin:embedded",outcome="ok"}'] == 4
        assert found['batos_inferences_total{model="robin:embedded",outcome="refused"}'] == 2
        assert found['batos_tokens_total{kind="prompt",model="robin:embedded"}'] == 28
        assert found['batos_state_seconds_count{state="DELEGATING"}'] == 1
        assert found['batos_state_seconds_count{state="DECOMPOSING"}'] == 2
        assert found['batos_guardian_verdicts_total{verdict="accepted"}'] == 1
        assert (found["batos_units_total"], found["batos_aborts_total"]) == (1, 1)
        assert found["batos_image_objects"] > 20
        assert found['batos_missions_now{doing="running"}'] == 0


async def test_what_the_loop_knows(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), metrics="127.0.0.1:0", autotelic="on", heartbeat_first_s=3600) as kernel:
        assert (await read(kernel))["batos_triggers_total"] == 0
        await (await submit(kernel, "m1", "I feel stuck")).end()
        for hear in kernel._hearers("ran"):
            hear("oid:1", "a_", False)
        async with asyncio.timeout(30):
            while "batos_entropy_rolling" not in (found := await read(kernel)):
                await asyncio.sleep(0.01)
        assert found['batos_entropy{part="cem"}'] == found["batos_entropy_rolling"]
        assert 0 < found['batos_entropy{part="structure"}'] < 1
        assert found['batos_method_runs_total{outcome="failed"}'] == 1
        assert found["batos_triggers_quiet"] == 0


@pytest.mark.parametrize("autotelic", ["on", "off"])
async def test_questions_to_the_memory(tmp_path: Path, autotelic: str) -> None:
    async with mind(tmp_path, FakeInference(), metrics="127.0.0.1:0", autotelic=autotelic, heartbeat_first_s=3600) as kernel:
        await kernel.memory.recall("What do you know of tomatoes?")
        found = await read(kernel)
        assert found['batos_retrievals_total{found="no"}'] == 1
        kernel.memory._on_recalled(2)
        assert (await read(kernel))['batos_retrievals_total{found="yes"}'] == 1


async def test_reading_waits_for_nothing(tmp_path: Path) -> None:
    """While a mission hangs on its model, metrics are read; and none is kept of a mission that ended."""
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, metrics="127.0.0.1:0") as kernel:
        heard = await submit(kernel, "m1", "I feel stuck")
        await inference.came(1)
        assert (await read(kernel))['batos_missions_now{doing="running"}'] == 1
        inference.release()
        await heard.end()
        await asyncio.wait_for(kernel.scheduler.quiet(), 30)
        assert len(kernel.metrics.durations) == 0


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "192.0.2.1:9000", "nonsense", "127.0.0.1:port", "example.org:9000", ":9000", "127.0.0.1:65536"]
)
async def test_only_on_loopback(tmp_path: Path, address: str) -> None:
    with pytest.raises(EndpointError, match=r"127\.0\.0\.1:PORT"):
        async with mind(tmp_path, FakeInference(), metrics=address):
            pass


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    async with mind(tmp_path / "a", FakeInference(), metrics="127.0.0.1:0") as kernel:
        with pytest.raises(EndpointError, match="another port"):
            async with mind(tmp_path / "b", FakeInference(), metrics=kernel.metrics.address):
                pass


async def test_without_the_setting_they_are_counted_and_served_nowhere(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        kernel.metrics.verdict(True)
        assert not hasattr(kernel.metrics, "address")
        told = {metric["name"]: metric for metric in await asyncio.to_thread(kernel.metrics.told)}
    assert told["batos_guardian_verdicts"]["kind"] == "counter"
    [sample] = told["batos_guardian_verdicts"]["samples"]
    assert sample == {"name": "batos_guardian_verdicts_total", "labels": {"verdict": "accepted"}, "value": 1.0}
    assert told["batos_image_objects"]["samples"][0]["value"] > 0
