"""Supervision: end the daemon if its loop stalls, so that its supervisor restarts it; and report to the service manager.

A thread notices the stall, writes the stacks of all threads to the log, and exits with `EXIT_STALLED`. Code in C that keeps the
interpreter's lock (a regular expression that backtracks for hours) lets no thread run, and no signal handler of Python's. So a small
process beside the daemon (`batos.watcher`) receives each beat of the loop, too. If none comes it sends a signal whose handler is set in C.
`faulthandler` writes the stacks to standard error, then `_exit` is called with the signal's number. That is why the exit code is the number
of a real-time signal.

Reports to the service manager use systemd's protocol, a datagram of `NAME=value` lines (sd_notify(3)). Without `NOTIFY_SOCKET` nothing
is sent, and a manager that does not listen does no harm.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from batos.config import Supervision
from batos.config.limits import Limits, limit
from batos.errors import EXIT_STALLED
from batos.watcher import StallDetector

log = structlog.get_logger("batos")


@dataclass(frozen=True, slots=True)
class StallLimits(Limits):
    """Limits of a stalled event loop."""

    stall_s: float = limit(30.0, ge=1, le=86_400)
    """Seconds without a turn of the event loop after which the daemon ends with exit code 62, to be restarted."""


class Supervisor:
    """One method a message. Any thread."""

    def __init__(self, supervision: Supervision) -> None:
        self.watchdog_s = supervision.watchdog_s
        self._heard = True  # False after a message that could not be sent
        self._address = "\0" + supervision.socket[1:] if supervision.socket.startswith("@") else supervision.socket

    def ready(self, status: str) -> None:
        """Report that the daemon accepts missions."""
        self._tell("READY=1", f"STATUS={_line(status)}")

    def starting_for(self, seconds: float) -> None:
        """Ask for more time to start."""
        self._tell(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def alive(self, status: str) -> None:
        """Reset the service manager's watchdog; `status` is what `systemctl status` shows."""
        self._tell("WATCHDOG=1", f"STATUS={_line(status)}")

    def reloading(self) -> None:
        """Report that the daemon reads its settings again. `ready` ends this state."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Report that the end has begun."""
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one:
                one.setblocking(False)  # a service manager that does not read must not block the loop
                one.sendto("\n".join(lines).encode(), self._address)
            self._heard = True
        except OSError as e:
            if self._heard:  # log a failure once, not at each beat
                log.warning("service_manager_not_told", lines=lines, error=str(e))
            self._heard = False


def _line(text: str) -> str:
    return " ".join(text.split())


HEAD_START_S = 3.0  # seconds by which the thread acts before the process beside it: the thread reports more
TELL_S = 2.0  # seconds for the log to take the report: the stalled code may hold the log's lock
LEAVE_S = 5.0  # seconds for the process beside it to end


class Watchdog:
    """Watches one loop."""

    def __init__(self, limit_s: float, end: Callable[[int], object] = os._exit) -> None:
        """
        :param limit_s: seconds for which the loop may stall.
        :param end: ends the process with an exit code.
        """
        self._limit_s, self._end = limit_s, end
        self._standing = StallDetector(limit_s)
        self.beats, self._stopped = 0, threading.Event()
        self.timer: TimerHandle | None = None
        self.beside: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def over(self, loop: AbstractEventLoop) -> Iterator[None]:
        """Watch as long as the block lasts. To be entered and left on the loop's thread."""
        if sys.platform == "linux":  # other systems have no real-time signals: there the thread watches alone
            _exit_on_signal()
            self.beside = _beside(self._limit_s + HEAD_START_S)
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        self._beat(loop)
        try:
            yield
        finally:
            self._stopped.set()
            if self.timer is not None:
                self.timer.cancel()
            thread.join()
            self._leave()

    def _leave(self) -> None:
        """Have the process beside this one end: its standard input does."""
        if self.beside is not None:
            try:
                self.beside.communicate(timeout=LEAVE_S)
            except subprocess.TimeoutExpired:
                self.beside.kill()
                self.beside.wait()

    def _beat(self, loop: AbstractEventLoop) -> None:
        self.beats += 1
        if self.beside is not None and self.beside.stdin is not None:
            with contextlib.suppress(OSError):  # the process is gone or does not read: the thread goes on watching
                self.beside.stdin.write(b".")
        self.timer = loop.call_later(self._standing.look_s, self._beat, loop)

    def _watch(self) -> None:
        while not self._stopped.wait(self._standing.look_s):
            if self._standing.too_long(self.beats):
                teller = threading.Thread(target=_tell, args=(self._standing.stood_s, stacks()), daemon=True)
                teller.start()
                teller.join(TELL_S)
                self._end(EXIT_STALLED)
                return


def _tell(stood_s: float, found: str) -> None:
    hint = "the process ends now; its missions go on when it is started again. Please report the stacks"
    log.critical("loop_stalled", stood_s=round(stood_s, 1), stacks=found, hint=hint)


def stacks() -> str:
    """Return the stacks of all threads but the one that asks, each below its name."""
    names, own = {thread.ident: thread.name for thread in threading.enumerate()}, threading.get_ident()
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != own}
    return "\n".join(f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames.items())


def _exit_on_signal() -> None:
    """Let the signal `EXIT_STALLED` write the stacks to standard error and end the process, whatever the interpreter is at."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.signal(EXIT_STALLED, ctypes.cast(libc._exit, ctypes.c_void_p))
    with contextlib.suppress(OSError, ValueError, AttributeError):  # without a standard error the process ends silently
        faulthandler.register(EXIT_STALLED, sys.stderr.fileno(), all_threads=True, chain=True)


def _beside(limit_s: float) -> subprocess.Popen[bytes] | None:
    """Return the process beside this one; None if none can be started. In a session of its own: Ctrl-C at a terminal is not for it."""
    words = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watcher.py")), str(os.getpid()), str(limit_s), str(EXIT_STALLED)]
    try:
        made = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, bufsize=0)
    except OSError as e:
        log.warning("watcher_not_started", error=str(e), hint="a loop that blocks in C code would not be noticed")
        return None
    assert made.stdin is not None
    os.set_blocking(made.stdin.fileno(), False)  # a process that does not read must not block the loop
    return made
