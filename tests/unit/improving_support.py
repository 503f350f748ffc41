"""A mind with its loop at hand: triggers that fire when a test says so, proposals that go on a step at a time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import changes, trigger_missions
from batos.autotelic.improver import Improver
from batos.autotelic.trigger_missions import Alarms
from batos.bridge.inference import ChatRequest
from tests.unit import mind_support
from tests.unit.mind_support import FakeInference, answer, submit, written

AT_HAND = {
    "autotelic": "on", "remember": "off", "heartbeat_first_s": 6e5, "senses_s": 86400, "rehearsal_least": 2, "audit_missions": 3,
    "leash_s": 1e6, "evidence_passages": 0,
}  # fmt: skip
"""Settings: nothing happens unasked."""
BRIEFS = (
    "I feel stuck and I don't know why I am so unmotivated",
    "My best friend moved away and I miss her",
    "I am afraid that they will notice that I feel like a fraud",
    "I feel guilty for resting when I am tired",
)
"""All of them ROBIN's."""


@contextlib.asynccontextmanager
async def improving(folder: Path, inference: FakeInference, **more: Any) -> AsyncIterator[Kernel]:
    """A kernel whose improver waits for the test."""

    async def waits(self: Improver) -> None:
        await asyncio.Event().wait()

    async def never(self: Alarms) -> None:
        """Triggers fire when the test says so."""

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Improver, "run", waits)
        patched.setattr(Alarms, "look", never)
        async with mind_support.mind(folder, inference, **{**AT_HAND, **more}) as kernel:
            yield kernel


def proposing(inference: FakeInference, **proposal: str) -> None:
    """Let the model propose this, whoever asks, and say what it said before to everything else."""
    before = inference.say

    def say(request: ChatRequest) -> str:
        if request.schema is not None and {"kind", "target"} <= request.schema["properties"].keys():
            return json.dumps({"kind": "", "target": "", "content": "", "why": "it may help", **proposal})
        return before(request)

    inference.say = say


async def thought(kernel: Kernel, *briefs: str, prefix: str = "m", **options: Any) -> None:
    """Missions of a user's, one after the other."""
    for n, brief in enumerate(briefs, 1):
        end = await (await submit(kernel, f"{prefix}{n}", brief, **options)).end()
        assert end["state"] == "COMPLETE", end
    assert kernel.loop.senses is not None
    await kernel.loop.tick()
    await written(kernel)


async def fire(kernel: Kernel, trigger: str, key: str = "", words: str = "it was measured.") -> dict[str, Any]:
    """A trigger fires; the result of the mission that it becomes."""
    row = await kernel.image.system(trigger_missions._fire, trigger, key, words, time.time())
    end = await (await submit(kernel, row[2], f"self_improvement {trigger}: {words}", origin="system")).end()
    assert end["state"] == "COMPLETE", end
    return dict(end["result"])


async def overlooked(kernel: Kernel, inference: FakeInference, trigger: str, key: str = "", words: str = "it was measured.") -> str:
    """A trigger fired, and nothing came of its mission, which was cancelled; that mission's id."""
    row = await kernel.image.system(trigger_missions._fire, trigger, key, words, time.time())
    inference.hold()
    heard = await submit(kernel, row[2], f"self_improvement {trigger}: {words}", origin="system")
    await kernel.scheduler.cancel(row[2])
    await heard.end()
    inference.release()
    return str(row[2])


async def stepped(kernel: Kernel, most: int = 8) -> list[dict[str, Any]]:
    """All changes, the newest first, once nothing is left to be done."""
    improver = kernel.improving.improver
    assert improver is not None
    for _ in range(most):
        if not await improver.step():
            break
    return listed(kernel)


def listed(kernel: Kernel) -> list[dict[str, Any]]:
    return kernel.image.read(changes.listed)  # type: ignore[no-any-return]


def varied(about: Callable[[ChatRequest], bool], words: int = 12) -> Callable[[ChatRequest], str]:
    """Answers that say something else each time, where a request is about something; the usual ones where it is not."""

    def say(request: ChatRequest) -> str:
        if request.schema is not None or not about(request):
            return answer(request)
        return f"It is {' '.join(_words(request.user, words))}."

    return say


def _words(text: str, count: int) -> list[str]:
    """Words that only this text gets."""
    return ["".join(chr(97 + byte % 26) for byte in hashlib.sha256(f"{n} {text}".encode()).digest()[:8]) for n in range(count)]
