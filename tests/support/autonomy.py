"""A mind with its loop at hand: triggers that fire when a test says so, proposals that go on a step at a time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import changes, entropy_records, schema, trigger_missions
from batos.autotelic.entropy_records import Assessment
from batos.autotelic.improver import Improver
from batos.autotelic.rollback_monitor import EffectLimits
from batos.autotelic.trigger_missions import TriggerMonitor
from batos.bridge.inference import ChatRequest
from batos.image import ledger
from batos.image.living_image import LivingImage
from tests.support import missions
from tests.support.missions import WAIT_S, FakeInference, answer, submit, written

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

    async def never(self: TriggerMonitor) -> None:
        """Triggers fire when the test says so."""

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Improver, "run", waits)
        patched.setattr(TriggerMonitor, "check", never)
        async with missions.mind(folder, inference, **{**AT_HAND, **more}) as kernel:
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
    row = await kernel.image.system(trigger_missions.fire, trigger, key, words, time.time())
    end = await (await submit(kernel, row[2], f"self_improvement {trigger}: {words}", origin="system")).end()
    assert end["state"] == "COMPLETE", end
    return dict(end["result"])


async def overlooked(kernel: Kernel, inference: FakeInference, trigger: str, key: str = "", words: str = "it was measured.") -> str:
    """A trigger fired, and nothing came of its mission, which was cancelled; that mission's id."""
    row = await kernel.image.system(trigger_missions.fire, trigger, key, words, time.time())
    inference.hold()
    heard = await submit(kernel, row[2], f"self_improvement {trigger}: {words}", origin="system")
    await kernel.scheduler.cancel(row[2])
    await heard.end()
    inference.release()
    return str(row[2])


def improver_of(kernel: Kernel) -> Improver:
    """A kernel's improver, which is there where the loop is on."""
    improver = kernel.improving.improver
    assert improver is not None
    return improver


async def stepped(kernel: Kernel, most: int = 8) -> list[dict[str, Any]]:
    """All changes, the newest first, once nothing is left to be done."""
    improver = improver_of(kernel)
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


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[LivingImage]:
    image = await LivingImage.open(f"file://{folder / 'image.fs'}", steps=(schema.install,))
    try:
        yield image
    finally:
        await image.close()


EVIDENCE = {"words": "one facet spoke 9 of 10 times", "share": 0.9}


class Proposal(NamedTuple):
    kind: str = "facet"
    target: str = "robin"
    content: Any = "Think of what would surprise."
    why: str = "so that not always the same one speaks"


LIMITS = EffectLimits(missions=8, failures=0.15, slower=1.5, fall=0.08)


async def ended(
    image: LivingImage, id: str, *, state: str = "COMPLETE", ms: float = 4000, cem: float | None = None, **options: str
) -> None:
    await image.system(ledger.accept, id, "brief", options, False, mission=id)
    if state == "COMPLETE":
        await image.system(
            lambda root: ledger.complete(ledger.mission_of(root, id), {"text": "x", "usage": {"model_ms": ms}}, None), mission=id
        )
    elif state != "ACCEPTED":
        await image.system(ledger.fail, id, {"code": state, "message": "x"}, {}, True)
    if cem is not None:
        number = image.read(lambda root: ledger.mission_of(root, id).number)
        await image.system(entropy_records.keep_assessments, [Assessment(number, cem, 0.5, 0.5, 0.5, 0.5, "words")], {}, 100)


ON: dict[str, Any] = {"autotelic": "on", "heartbeat_first_s": 3600.0, "cem_window": 4, "cem_baseline": 4}


async def assessed(kernel: Kernel, id: str) -> dict[str, Any]:
    """What was said of a mission, when it is there."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = kernel.image.read(lambda root: kernel.loop.assessed(root, ledger.mission_of(root, id).number))
            if found is not None:
                return found  # type: ignore[no-any-return]
            await asyncio.sleep(0.002)


async def done(kernel: Kernel, id: str, brief: str, **options: Any) -> None:
    assert (await (await submit(kernel, id, brief, **options)).end())["state"] == "COMPLETE"


async def recorded(kernel: Kernel, kind: str, target: str, content: Any) -> int:
    """A proposal as if a mission had made it."""
    proposal, evidence = Proposal(kind, target, content, "why"), {"trigger": "t", "key": "", "words": "w"}
    mission = kernel.image.read(lambda root: next(ledger.newest_first(root)).id)
    return await kernel.image.system(lambda root: changes.propose(root, proposal, evidence, mission))  # type: ignore[no-any-return]
