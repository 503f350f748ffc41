"""What the web console costs: the time of its pages, and how long each of them makes the daemon's loop wait.

A whole kernel in this process, with an instant inference and missions that were thought through; a browser's client beside it, on the
same loop. Prints one JSON line: medians, and the longest wait of the loop, in milliseconds.

    python bench/console.py --missions 200 --dir /dev/shm
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from kernel import BRIEF, Instant

PAGES = ("/", "/mission?id=m7", "/object?target=robin", "/search?q=stuck", "/models", "/changes")
_TICK_S = 0.001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missions", type=int, default=200)
    parser.add_argument("--times", type=int, default=20, help="how often each page is asked for")
    parser.add_argument("--dir", default=tempfile.gettempdir())
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    try:
        print(json.dumps(asyncio.run(pages(folder, args.missions, args.times))))
    finally:
        shutil.rmtree(folder)


async def pages(folder: pathlib.Path, missions: int, times: int) -> dict[str, Any]:
    """Each page of a console with so many missions behind it."""
    import httpx

    from batos import logs
    from batos.app.kernel import Kernel
    from batos.config import load

    logs.configure("error", "json")
    flags = {"data": folder, "autotelic": "off", "listen": [f"ipc://{folder / 's'}"], "console": "on", "console_listen": "127.0.0.1:0"}
    kernel = await Kernel.start(load(flags, environ={}), inference=Instant())
    try:
        for number in range(missions):
            await kernel.scheduler.submit(f"m{number}", f"{BRIEF} {number}", {})
        await kernel.scheduler.quiet()
        assert kernel.console is not None
        async with httpx.AsyncClient(base_url=kernel.console.address, timeout=60) as client:
            await client.get(kernel.console.link)
            return {"missions": missions, **{page: await measured(lambda page=page: client.get(page), times) for page in PAGES}}
    finally:
        await kernel.stop()


async def measured(ask: Callable[[], Awaitable[Any]], times: int) -> dict[str, float]:
    """The median of asking, the first time left out, and the longest wait of whoever else is on the loop."""
    await ask()
    waits: list[float] = []

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            waits.append(time.perf_counter() - began - _TICK_S)

    ticking, taken = asyncio.create_task(tick()), []
    for _ in range(times):
        began = time.perf_counter()
        answer = await ask()
        taken.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
    ticking.cancel()
    return {"median_ms": round(statistics.median(taken) * 1e3, 1), "longest_wait_ms": round(max(waits) * 1e3, 1)}


if __name__ == "__main__":
    main()
