"""The one moment at which a kill makes an inference be paid for twice: from the answer's arrival until it is durable."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from batos.bridge.inference import ChatReply
from batos.image import journal
from tests.support.missions import FakeInference, mind, submit

INFERENCES_A_MISSION = 5


class Timed(FakeInference):
    """Notes when each answer arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: dict[Any, float] = {}  # by the task that asked

    async def chat(self, *args: Any, **kwargs: Any) -> ChatReply:
        reply = await super().chat(*args, **kwargs)
        self.arrived[asyncio.current_task()] = time.perf_counter()
        return reply


@pytest.mark.parametrize("missions", [1, 50])
async def test_how_long_an_answer_is_not_yet_durable(tmp_path: Path, capsys: pytest.CaptureFixture[str], missions: int) -> None:
    inference, windows = Timed(), []
    async with mind(tmp_path, inference, concurrent_missions=50) as kernel:
        system = kernel.image.committer.system

        async def timed(function: Any, *args: Any, mission: str = "") -> Any:
            begun = inference.arrived.get(asyncio.current_task(), 0.0)
            result = await system(function, *args, mission=mission)
            if function is journal.add:
                windows.append((time.perf_counter() - begun) * 1e6)
            return result

        kernel.image.committer.system = timed  # type: ignore[method-assign]
        for turn in range(50 // missions):
            heard = await asyncio.gather(*(submit(kernel, f"m{turn}-{i}", f"I feel stuck, {turn} {i}") for i in range(missions)))
            for one in heard:
                assert (await one.end())["state"] == "COMPLETE"
    assert len(windows) == 50 * INFERENCES_A_MISSION, "every answer is journaled, each by itself"
    windows.sort()
    with capsys.disabled():
        middle, late = windows[len(windows) // 2], windows[len(windows) * 99 // 100]
        print(f" answer to journal, {missions} at once: median {middle:.0f} µs, p99 {late:.0f} µs ", end="")
