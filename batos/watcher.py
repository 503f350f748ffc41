"""The watcher process beside a daemon: ends it if its loop stalls and its own watchdog (`batos.supervision`) cannot run.

    python -I -S watcher.py PID SECONDS SIGNAL

It receives the beats of the loop on its standard input, one byte each, and ends with the daemon. It is run by path and needs no other
module of BAT OS. It counts looks, not seconds: a machine that was suspended, or a daemon that was stopped (SIGSTOP), has not stalled.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable

LOOKS = 10  # looks within the limit
LOOK_S = 1.0  # longest time between two looks, in seconds
DUMP_S = 5.0  # seconds for writing the stacks to standard error, before SIGKILL


class StallDetector:
    """Says whether what beats has stood too long. A look that comes late counts as one that came in time."""

    def __init__(self, limit_s: float, now: Callable[[], float] = time.monotonic) -> None:
        """
        :param limit_s: seconds without a beat that are too long.
        """
        self.look_s = min(LOOK_S, limit_s / LOOKS)
        """Seconds between two looks."""
        self.stood_s = 0.0
        self._limit_s, self._now = limit_s, now
        self._looked, self._beats = now(), 0

    def too_long(self, beats: int) -> bool:
        """Look; whether it has stood too long.

        :param beats: how many there were so far.
        """
        now = self._now()
        passed, self._looked = now - self._looked, now
        self.stood_s = 0.0 if beats != self._beats else self.stood_s + min(passed, self.look_s)
        self._beats = beats
        return self.stood_s >= self._limit_s


def main(pid: int, limit_s: float, number: int) -> None:
    """Hear the beats of a process. Return when it has ended, or was ended: by the signal `number`, or by SIGKILL where that does not do."""
    standing, beats = StallDetector(limit_s), 0
    while True:
        heard = _heard(standing.look_s)
        if heard is None:
            return
        beats += heard + _is_stopped(pid)
        if standing.too_long(beats):
            break
    if os.getppid() == pid:
        os.kill(pid, number)
        if not _ends_within(DUMP_S) and os.getppid() == pid:
            os.kill(pid, signal.SIGKILL)


def _heard(wait_s: float) -> int | None:
    """Return the number of beats within some seconds; None at the end of the input."""
    count, end = 0, time.monotonic() + wait_s
    while (left := end - time.monotonic()) > 0:
        if select.select([0], [], [], left)[0]:
            came = os.read(0, 4096)
            if not came:
                return None
            count += len(came)
    return count


def _ends_within(wait_s: float) -> bool:
    return _heard(wait_s) is None


def _is_stopped(pid: int) -> bool:
    """Return True if a process was stopped, by a signal or a debugger."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "tT"
    except OSError:
        return False


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
