"""A daemon that nobody asks anything: what it costs. Time passes by itself (`tests.support.passing_time`)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batos.app.inference import ModelRuntime
from batos.app.kernel import Kernel
from batos.autotelic import trigger_missions
from batos.autotelic.budget import Budget
from batos.autotelic.heartbeat import Heartbeat
from batos.autotelic.rollback_monitor import Leash
from batos.autotelic.telemetry import Senses
from batos.autotelic.trigger_missions import TriggerMonitor
from batos.bridge.capabilities import Capabilities
from batos.errors import InferenceFailed
from batos.image import ledger
from batos.image.mission_record import MissionRecord
from tests.support import passing_time
from tests.support.missions import FakeInference, submit
from tests.support.missions import settings as quick

DAY_S = 86400.0
CLOCKED = (Heartbeat, TriggerMonitor, Budget, Senses, Leash)
AT_MOST = 2  # inferences of a day in which nobody is there


def settings(folder: Path) -> Any:
    """As it is delivered, but for what needs an Ollama, and for looks into watched folders, of which there is none."""
    return quick(folder, autotelic="on", console="off", watch_s=DAY_S)


def own_missions(kernel: Kernel) -> list[MissionRecord]:
    return kernel.image.read(lambda root: [ledger.describe(one) for one in ledger.newest_first(root) if one.origin == "system"])  # type: ignore[no-any-return]


def inference_with_embedder() -> FakeInference:
    inference = FakeInference()
    inference.embedder = lambda text: [float(len(text) % 7), 1.0, 2.0]
    return inference


def test_a_day_alone_costs_next_to_no_inference(tmp_path: Path) -> None:
    inference = inference_with_embedder()

    async def alone() -> None:
        kernel = await Kernel.start(settings(tmp_path), inference=inference, listen=False)
        try:
            await asyncio.sleep(3600)
            embedded = len(inference.embedded)
            await asyncio.sleep(DAY_S)
            assert len(inference.asked) <= AT_MOST
            assert len(inference.embedded) == embedded, "an embedder takes memory as well"
            (first,) = own_missions(kernel)
            assert first.result["by_rule"] is True
        finally:
            await kernel.stop()

    passing_time.run(alone, *CLOCKED)


def test_a_day_after_a_mission_and_with_a_trigger_that_stands(tmp_path: Path) -> None:
    """What a user's mission leaves to be done is done once; what stands is looked at until nothing follows from it."""
    inference = inference_with_embedder()

    async def alone() -> None:
        kernel = await Kernel.start(settings(tmp_path), inference=inference, listen=False)
        try:
            await (await submit(kernel, "m1", "I feel stuck")).end()
            await kernel.image.system(trigger_missions.fire, "state_slow", "DELEGATING", "it is slow.", 1.0)
            await asyncio.sleep(DAY_S / 2)
            asked = len(inference.asked)
            await asyncio.sleep(DAY_S / 2)
            assert len(inference.asked) == asked
            assert len(own_missions(kernel)) < 12, "ten minutes apart there would be 144"
        finally:
            await kernel.stop()

    passing_time.run(alone, *CLOCKED)


@pytest.mark.parametrize(
    ("can", "probed", "why"),
    [
        (None, None, "it is not known how large m is"),
        (Capabilities(parameters=135_000_000), None, "m has 135 million parameters, and 1000 million are the least that judge"),
        (Capabilities(parameters=8_000_000_000), Capabilities(parameters=8_000_000_000, format=False), "m does not keep to a form"),
        (Capabilities(parameters=8_000_000_000), Capabilities(parameters=8_000_000_000), ""),
        (Capabilities(parameters=8_000_000_000), InferenceFailed("it is away", cause="unreachable"), "it is away"),
    ],
)
async def test_which_model_is_fit_to_judge(can: Capabilities | None, probed: Any, why: str) -> None:
    """Its size is claimed; whether it keeps to a form is probed, and only of one that is large enough."""

    class Place:
        async def digest(self, model: str) -> str:
            return "d"

        async def probe(self, model: str, wanted: tuple[str, ...]) -> Capabilities | None:
            assert wanted == ("format",)
            if isinstance(probed, Exception):
                raise probed
            assert probed is not None, "it is not probed"
            return probed  # type: ignore[no-any-return]

    profile = SimpleNamespace(model_of=lambda name: name)
    substrate: Any = SimpleNamespace(places=[Place()], profile=profile, capabilities=lambda name: can)
    assert await ModelRuntime.why_unfit(substrate, "m") == why
    substrate.places = []
    assert await ModelRuntime.why_unfit(substrate, "m") == "", "something else infers than an Ollama"
