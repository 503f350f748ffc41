"""Cost of schedules: `python bench/schedules.py [--count 10000] [--seconds 60]`. Prints JSON.

At rest: processor time of an alarm with so many schedules of which none is due. Lateness: each schedule runs once within the seconds, at
times that are spread over them; then so many of them at one time. No model is asked: a run ends with the accepted mission.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batos.bus import EventBus
from batos.image import LivingImage, ledger
from batos.schedules import book
from batos.schedules.alarm import Alarm

TOGETHER = 1000


@contextlib.contextmanager
def measured(found: dict[str, Any], name: str) -> Iterator[None]:
    """Note the share of one processor that the block used."""
    wall, cpu = time.monotonic(), time.process_time()
    yield
    found[name] = round(100 * (time.process_time() - cpu) / (time.monotonic() - wall), 3)


async def main(count: int, seconds: float) -> dict[str, Any]:
    """Return the figures."""
    chance, found = random.Random(1), dict[str, Any](schedules=count)
    with tempfile.TemporaryDirectory() as folder:
        image = await LivingImage.open(f"file://{Path(folder) / 'live_image.fs'}", steps=(book.install,))
        late: list[float] = []

        async def submit(id: str, brief: str, options: dict[str, Any], first: Any = None) -> tuple[bool, Any]:
            accepted = await image.system(ledger.accept, id, brief, options, False, first)
            planned = image.read(book.load, id.rsplit("-", 2)[0].removeprefix(book.PREFIX)).settled
            late.append(time.time() - planned)
            return accepted

        def add(root: Any, rule: Any) -> None:
            for n in range(count):
                root["lobby"].schedules._slots.pop(f"s{n}", None)
                made = rule(n)
                spec = {"words": made, "rule": made, "brief": "What is new?", "zone": "Europe/Berlin"}
                one = root["lobby"].traits.schedule.derive(number=n + 1, settled=time.time(), **spec)
                root["lobby"].schedules._slots[f"s{n}"] = one

        async def work(name: str, rule: Any, rest_s: float, runs: int) -> None:
            await image.system(add, rule)
            alarm = Alarm(image, submit, EventBus())
            begun = time.monotonic()
            task = asyncio.create_task(alarm.run())
            while not alarm._heap or (len(alarm.planned) < count and not runs):  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)
            if not runs:
                found["load_s"] = round(time.monotonic() - begun, 2)
                await asyncio.sleep(2)
                with measured(found, "cpu_percent_at_rest"):
                    await asyncio.sleep(rest_s)
            while len(late) < runs:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.2)
            task.cancel()
            if runs:
                ordered = sorted(late)
                found[name] = {
                    "p50_s": round(ordered[runs // 2], 3),
                    "p99_s": round(ordered[int(runs * 0.99)], 3),
                    "worst_s": round(ordered[-1], 3),
                }
                late.clear()

        await work("rest", lambda n: "cron 0 8 1 1 *", seconds, 0)
        begin = time.time() + 10
        await work("late_spread", lambda n: f"at {int(begin + chance.random() * seconds)}", seconds, count)
        begin = time.time() + 10
        await work(
            f"late_{TOGETHER}_at_once", lambda n: f"at {int(begin)}" if n < TOGETHER else "cron 0 8 1 1 *", seconds, min(count, TOGETHER)
        )
        await image.close()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    told = parser.parse_args()
    print(json.dumps(asyncio.run(main(told.count, told.seconds)), indent=1))
