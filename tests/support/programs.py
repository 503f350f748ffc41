"""Programs in the place of real ones, and what processes use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path


def command(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def cpu_ticks(pids: Iterable[int]) -> int:
    """What processes have used of the processor, in clock ticks; of those that are there still."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it ended since it was found
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total
