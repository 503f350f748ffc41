"""A daemon whose loop stands, at the first attempt at a mission that is told to, or at once: `python stalled_child.py HOW run ...`, the
rest as for `python -m batos`. `python stalled_child.py --supervised HOW run ...` is the same under a supervisor.

Nothing in batos/ knows of this.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from batos import logs
from batos.cli import main
from batos.cli.daemon import run_supervised
from batos.missions.execution import Attempts
from batos.missions.scheduler import Scheduler

BRIEF = "Stand still, mission"


def stand_busy() -> None:
    """In Python: other threads have their turns."""
    while True:
        pass


def stand_asleep() -> None:
    """In a system call, without the interpreter's lock."""
    time.sleep(10_000)


def stand_in_c() -> None:
    """In C code that keeps the interpreter's lock, for longer than anybody lives."""
    re.match(r"(a+)+$", "a" * 64 + "!")


def stand_for_another() -> None:
    """The loop is free, but another thread keeps the interpreter's lock in C code."""
    threading.Thread(target=stand_in_c, daemon=True).start()


HOW: dict[str, Callable[[], None]] = {
    "busy": stand_busy,
    "asleep": stand_asleep,
    "in C": stand_in_c,
    "another thread in C": stand_for_another,
    "never": lambda: None,
}


def install(stand: Callable[[], None]) -> None:
    original = Attempts.run

    async def run(self: Attempts, attempt: Any) -> Any:
        if attempt.mission.brief.startswith(BRIEF) and attempt.mission.attempts == 1:
            stand()
        return await original(self, attempt)

    Attempts.run = run  # type: ignore[method-assign]


def install_at_once() -> None:
    """Let the loop stand in the turn after missions were let in."""
    original = Scheduler.begin

    def begin(self: Scheduler) -> None:
        original(self)
        asyncio.get_running_loop().call_soon(stand_busy)

    Scheduler.begin = begin  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1] == "--supervised":
        logs.configure("info", "json")
        sys.exit(run_supervised([sys.executable, __file__, *sys.argv[2:]]))
    if sys.argv[1] == "at once":
        install_at_once()
    else:
        install(HOW[sys.argv[1]])
    sys.exit(main(sys.argv[2:]))
