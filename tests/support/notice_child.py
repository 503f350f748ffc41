"""A courier over an image, killed at a named point: `python -m tests.support.notice_child FOLDER POINT MISSION…`.

Each mission that is not there yet is accepted and ended, then the courier sends what waits. Prints the states of the messages, the newest
first, and how many notices wait.
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

from batos.image import ledger, notices
from batos.notices.courier import Courier
from tests.support.notices import opened

POINTS = {
    "before the end is noted": (notices, "note_end", False), "in the transaction of the end": (notices, "note_end", True),
    "before the look": (Courier, "_turn", False), "before intent": (notices, "intend", False), "in the intent": (notices, "intend", True),
    "before delivery": (Courier, "_delivered", False), "after delivery": (Courier, "_delivered", True),
    "before the outcome": (notices, "end", False), "in the outcome": (notices, "end", True),
    "after the outcome": (Courier, "_outcome", True),
}  # fmt: skip
SURELY_UNTOLD = ("before the end is noted", "in the transaction of the end", "before the look", "before intent", "in the intent")
"""Points before anything can have left."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    owner, name, after = POINTS[point]
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not after:
            die()
        result = original(*args, **kwargs)
        if asyncio.iscoroutine(result):
            return _awaited(result)
        die()
        return result

    setattr(owner, name, call)


async def _awaited(work: Any) -> None:
    await work
    die()


async def main(folder: str, point: str, *missions: str) -> None:
    async with opened(Path(folder)) as office:
        await office.image.system(ledger.recover, 10)  # as a daemon does: what ended and was not settled is settled
        if point:
            arm(point)
        for id in missions:
            if not office.image.read(ledger.is_known, id):
                await office.accept(id)
                await office.end(id)
        async with office.courier() as courier:
            await office.until(lambda: office.messages() and not office.waiting() and not any(one.is_open for one in office.messages()))
            await office.until(lambda: not courier._sending)
        print(json.dumps({"states": [one.state for one in office.messages()], "waiting": office.waiting()}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
