"""An alarm over an image, killed at a named point: `python -m tests.support.schedule_child FOLDER NOW HOURS POINT PASS`.

The clock begins at NOW and goes as fast as the alarm sleeps. At the PASSth time at POINT the process kills itself. Prints the times that
missions were planned for.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from batos.image import ledger
from batos.image.committer import Committer
from batos.schedules import book
from batos.schedules.alarm import Alarm
from tests.support.schedules import Book, HandClock, opened

POINTS = {
    "before the run": (Alarm, "_run", False), "before acceptance": (Book, "submit", False), "in the acceptance": (ledger, "accept", False),
    "before the note": (book, "settle", False), "after the note": (book, "settle", True), "after the acceptance": (ledger, "accept", True),
    "when it is durable": (Book, "submit", True), "after the run": (Alarm, "_run", True), "before the plan": (Alarm, "_plan", False),
    "before a commit": (Committer, "_group", False), "before it is durable": (Committer, "_sync", False),
}  # fmt: skip
_left = 0


def die() -> None:
    global _left
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, passes: int) -> None:
    global _left
    owner, name, after = POINTS[point]
    _left, original = passes, getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not after:
            die()
        result = original(*args, **kwargs)
        if asyncio.iscoroutine(result):
            return _awaited(result, after)
        if after:
            die()
        return result

    setattr(owner, name, call)


async def _awaited(work: Any, after: bool) -> Any:
    result = await work
    if after:
        die()
    return result


async def main(folder: str, now: str, hours: str, point: str, passes: str) -> None:
    async with opened(Path(folder)) as held:
        if point:
            arm(point, int(passes))
        async with held.alarm(HandClock(float(now), float(now) + float(hours) * 3600)):
            pass
        print(json.dumps(held.planned()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
