"""A process group that outlived its daemon: how it is remembered, recognised and ended.

The note on disk holds what a recycled pid cannot match: the start time of the process and the boot of the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from batos import private_files

TERM_S = 5.0  # time between SIGTERM and SIGKILL
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Note:
    """A child that leads its own process group and session: `started` in clock ticks since boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Note:
        """The note of a running process."""
        stat = _stat(pid)
        return cls(pid, stat.started if stat else 0, _boot())

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        private_files.write(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Note | None:
        """The note in a file; None where there is none, or it was cut short by a crash."""
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def members(self) -> list[int]:
        """The processes of the group that are still alive: a killed leader may leave its children behind.

        A pid is not given anew while a group of that number exists, so session, group and start time tell them apart
        from strangers.
        """
        if self.boot != _boot():
            return []
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := _stat(int(name))) is not None:
                alive = stat.state not in "ZX"
                if alive and stat.group == self.pid and stat.session == self.pid and stat.started >= self.started:
                    found.append(int(name))
        return found

    def end(self) -> int:
        """Stop the whole group: SIGTERM, then SIGKILL. Blocks for up to `TERM_S` and a bit. Answers how many there were."""
        count = len(self.members())
        for how, wait_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, TERM_S)):
            deadline = time.monotonic() + wait_s
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            while self.members() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            if not self.members():
                break
        return count


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    group: int
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything, spaces and brackets too
    return _Stat(fields[0], int(fields[2]), int(fields[3]), int(fields[19]))


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return ""


def claim(path: Path) -> IO[bytes] | None:
    """An exclusive lock on a file, held until the returned file is closed or the process dies; None if another has it."""
    private_files.make(path.parent)
    file = private_files.extend(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
