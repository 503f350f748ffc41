"""Cost of notices: missions that end without a channel, with one that tells nothing of them, and with one that tells each; how late a
notice comes, and in how many messages many come. The world that is told is a server in this process; no model is asked.

    python bench/notices.py [--missions 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from batos.notices.courier import NoticeLimits
from tests.support.notices import PostOffice, World, opened, world

AT_ONCE = 64


async def ended(office: PostOffice, count: int, name: str) -> float:
    """Accept and end some missions; return the milliseconds that one took."""

    async def one(number: int) -> None:
        await office.accept(f"{name}-{number}")
        await office.end(f"{name}-{number}", None)

    begun = time.perf_counter()
    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(one(number) for number in range(first, min(count, first + AT_ONCE))))
    return (time.perf_counter() - begun) * 1000 / count


async def late(office: PostOffice, there: World, count: int) -> list[float]:
    """Return how late single notices came, in milliseconds."""
    found = []
    for number in range(count):
        await office.accept(f"late-{number}")
        heard, begun = len(there.heard), time.perf_counter()
        await office.end(f"late-{number}")
        await office.until(lambda: len(there.heard) > heard, 0.001)  # noqa: B023  awaited at once
        found.append((time.perf_counter() - begun) * 1000)
        await office.until(lambda: not any(one.is_open for one in office.messages()))
    return found


async def main(missions: int) -> None:
    figures: dict[str, object] = {"missions": missions}
    with world() as there, tempfile.TemporaryDirectory() as folder:
        async with opened(Path(folder)) as office:
            await ended(office, missions // 4, "warm")
            figures["ms_without"] = round(await ended(office, missions, "without"), 3)
            await office.add("other", "hook", there.url, on=("change",))
            figures["ms_with_another_fact"] = round(await ended(office, missions, "another"), 3)
            await office.add("desk", "hook", there.url, on=("end", "failure"))
            async with office.courier(NoticeLimits(gather_s=0.0, most=1000)):
                figures["late_ms_p50"] = round(statistics.median(await late(office, there, 50)), 1)
            before = len(there.heard)
            async with office.courier(NoticeLimits(window_s=2.0)):
                figures["ms_told"] = round(await ended(office, missions, "told"), 3)
                await office.until(lambda: not office.waiting())
            figures["messages_for_all"] = len(there.heard) - before
    print(json.dumps(figures))


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--missions", type=int, default=2000)
    asyncio.run(main(parser.parse_args().missions))
