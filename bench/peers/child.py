"""What the contenders' programs share: so many missions at once, and a word when all are done."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence


async def serve(missions: Sequence[str], at_once: int, run: Callable[[str], Awaitable[object]]) -> None:
    """Run the missions, and print what it took: one line of JSON."""
    todo = iter(missions)

    async def worker() -> None:
        for mission in todo:
            await run(mission)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    done(len(missions), wall, cpu)


def done(count: int, wall: float, cpu: float) -> None:
    """Say that all are done."""
    print(json.dumps({"done": count, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}), flush=True)
