"""What it costs the daemon to try a change of itself out.

fork: a mirror of an image of so many objects, from asking for it to the first read and commit in it, in milliseconds; and how long the
daemon's own commits take meanwhile, beside how long they take without.
rehearsal: a change tried on recorded missions, with an inference that answers at once: what is left is what the rehearsal itself costs,
and the longest time for which it held the loop.

    python bench/autotelic.py --only fork,rehearsal --json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from batos import logs
from batos.app.kernel import Kernel
from batos.autotelic import changes
from batos.autotelic.changes import Proposal
from batos.autotelic.improver import Improver
from batos.config import Settings
from batos.image.living_image import mirror
from batos.objects import UvmObject

MIRRORS = 20
COMMITS = 300
BATCH = 2000
ALLOWED_MS = 1000.0
BRIEF = "I feel stuck, part {n}: why is that?"


@contextlib.asynccontextmanager
async def daemon(folder: Path, **more: Any) -> AsyncIterator[Kernel]:
    kernel = await Kernel.start(Settings(data=folder, log_level="error", **more), inference=Instant(), listen=False)
    try:
        yield kernel
    finally:
        await kernel.stop()


async def fork(folder: Path, objects: int) -> dict[str, Any]:
    """What a mirror costs."""
    async with daemon(folder, autotelic="off") as kernel:
        image = kernel.image
        for begin in range(0, objects, BATCH):
            await image.system(_grow, begin, min(BATCH, objects - begin))
        times, commits = [], await _commits(kernel, COMMITS)
        tried = asyncio.create_task(_mirrors(kernel, times))
        meanwhile = await _commits(kernel, COMMITS)
        await tried
        return {
            "objects": len(image.db.storage),
            "bytes": image.db.getSize(),
            "mirror_ms": percentiles(times),
            "commit_ms": percentiles(commits),
            "commit_ms_meanwhile": percentiles(meanwhile),
            "allowed_mirror_ms": ALLOWED_MS,
        }


async def _mirrors(kernel: Kernel, times: list[float]) -> None:
    for n in range(MIRRORS):
        begun = time.perf_counter()
        async with mirror(kernel.image, cache_size=2000) as made:
            async with made.unit() as unit:
                unit.root["lobby"].robin.tried = n
            assert made.read(lambda root: root["lobby"].robin.tried) == n
            times.append((time.perf_counter() - begun) * 1e3)
        await asyncio.sleep(0)


async def _commits(kernel: Kernel, count: int) -> list[float]:
    times = []
    for n in range(count):
        begun = time.perf_counter()
        await kernel.image.system(_touch, n)
        times.append((time.perf_counter() - begun) * 1e3)
    return times


def _grow(root: Any, begin: int, count: int) -> None:
    held = root["lobby"]._slots.get("grown")
    previous = held if held is not None else root["lobby"].genesis
    for n in range(begin, begin + count):
        previous = UvmObject(number=n, before=previous, text=f"an object of a size that is usual, number {n} " * 4)
    root["lobby"].grown = previous


def _touch(root: Any, n: int) -> None:
    root["lobby"].grown.number = n


async def rehearsal(folder: Path, missions: int) -> dict[str, Any]:
    """What a rehearsal costs besides the inferences that it pays for."""
    quiet = {"heartbeat_first_s": 1e5, "senses_s": 80000, "evidence_passages": 0, "remember": "off", "rehearsal_inferences": 100_000}
    Improver.run = _waits  # type: ignore[method-assign]  # a step when it is asked for, not when a mission ends
    async with daemon(folder, rehearsal_missions=missions, rehearsal_tokens=10**9, **quiet) as kernel:
        for n in range(missions):
            await kernel.scheduler.submit(f"m{n}", BRIEF.format(n=n), {})
        await kernel.scheduler.quiet()
        improver = kernel.improving.improver
        assert improver is not None
        found = {}
        for name, proposal in _PROPOSALS.items():
            await kernel.image.system(changes.propose, proposal, {"words": "for the bench"}, "m0")
            lags: list[float] = []
            watching = asyncio.create_task(_lag(lags))
            begun = time.perf_counter()
            await improver.step()
            took = (time.perf_counter() - begun) * 1e3
            watching.cancel()
            (change, *_) = kernel.image.read(changes.listed)
            told = change["comparison"]
            assert told["missions"] == missions, told
            await kernel.image.system(changes.refuse, change["number"], "for the bench", told)
            found[name] = {
                "missions": missions,
                "paid_inferences": told["paid"]["inferences"],
                "ms": round(took, 1),
                "ms_a_mission_and_side": round(took / missions / 2, 2),
                "longest_hold_of_the_loop_ms": round(max(lags), 1),
            }
        return found


async def _waits(self: Improver) -> None:
    await asyncio.Event().wait()


_PROPOSALS = {
    "from_the_journal": Proposal("facet", "brick.gardener_facet_", "Look at it as a gardener looks at a bed in spring.", "w"),
    "asked_anew": Proposal("meta_prompt", "psm.SYNTHESIZING", "Answer this: $brief\n\nNotes: $voices", "w"),
}
"""One that changes nothing for these missions, and one that changes what all of them ask."""


async def _lag(lags: list[float]) -> None:
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(0.001)
        lags.append((time.perf_counter() - begun - 0.001) * 1e3)


def percentiles(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {"p50": round(statistics.median(times), 2), "p99": round(times[int(len(times) * 0.99)], 2), "max": round(times[-1], 2)}


class Instant:
    """An inference that answers at once, and has no embedder."""

    async def chat(self, request: Any, **more: Any) -> Any:
        from batos.bridge.inference import ChatReply

        text = json.dumps(dict.fromkeys(request.schema["properties"], "what of it")) if request.schema else "Take one small step."
        return ChatReply(text, request.model, "d" * 64, 7, 5, 0.5, 2.0)

    async def embed(self, model: str, texts: Any, **more: Any) -> Any:
        from batos.errors import InferenceFailed

        raise InferenceFailed("there is no embedder here", cause="model_missing", model=model)

    async def continues(self, model: str) -> bool:
        return False

    async def digest(self, model: str) -> str:
        return "d" * 64


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="fork,rehearsal", help="parts, parted by commas: fork, rehearsal")
    parser.add_argument("--objects", type=int, default=50_000, help="objects of the image that is mirrored")
    parser.add_argument("--missions", type=int, default=8, help="recorded missions")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    logs.configure("error", "json")
    figures: dict[str, Any] = {}
    for part in given.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            figures[part] = await (fork(Path(folder), given.objects) if part == "fork" else rehearsal(Path(folder), given.missions))
    if given.json:
        print(json.dumps(figures))
    else:
        for part, found in figures.items():
            print(part, json.dumps(found, indent=2))


if __name__ == "__main__":
    asyncio.run(main())
