"""`batos run --supervise`: the daemon as a child, started again where a start mends what it ended of.

That is a storage that failed and a loop that stood. What else it ends with is passed on: 0 and signals were asked for, 2 and 4 would come
again. As the first process of a container it also takes away what the daemon's children leave behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence

import structlog

from batos.bridge import launcher
from batos.errors import EXIT_IMAGE_FAILED, EXIT_STALLED

log = structlog.get_logger("batos")

RESTARTED = {EXIT_IMAGE_FAILED: "its storage failed", EXIT_STALLED: "its loop stood"}
"""Exit codes after which the daemon is started again, and what they mean."""

RESTARTS, WITHIN_S = 5, 60.0
"""So many starts within so many seconds, and it is given up."""

PAUSE_S = 1.0
"""Before a start."""

_ENDING = {signal.SIGTERM, signal.SIGINT}
_PASSED_ON = {*_ENDING, signal.SIGHUP}
_HEARD = {*_PASSED_ON, signal.SIGCHLD}


def supervise(words: Sequence[str]) -> int:
    """Run a daemon until it ends for good; its exit code (128 and the number, where a signal ended it).

    SIGTERM, SIGINT and SIGHUP are passed on to it. It has a session of its own, so that a Ctrl-C reaches it once and not twice.

    :param words: its command line.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as a parent may have it, children could not be waited for
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    try:
        return _until_it_ends(words, before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _until_it_ends(words: Sequence[str], mask: set[signal.Signals | int]) -> int:
    starts: deque[float] = deque(maxlen=RESTARTS)
    while True:
        code, stopped = _once(words, mask)
        why = RESTARTED.get(code)
        if why is None or stopped:
            return code
        if len(starts) == RESTARTS and time.monotonic() - starts[0] < WITHIN_S:
            log.critical(
                "daemon_given_up", code=code, why=why, restarts=RESTARTS, within_s=WITHIN_S, hint="the log above says what it died of"
            )
            return code
        log.error("daemon_restarts", code=code, why=why, pause_s=PAUSE_S)
        if _asked_to_end_within(PAUSE_S):
            return 0
        starts.append(time.monotonic())


def _once(words: Sequence[str], mask: set[signal.Signals | int]) -> tuple[int, bool]:
    """Start the daemon and wait for its end: its exit code, and whether it was asked to end."""
    # Through the launcher, so that it ends with this process, however that ends.
    command = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), "--", *words]
    child = subprocess.Popen(command, start_new_session=True, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask))
    stopped = False
    while True:
        number = signal.sigwait(_HEARD)
        if number in _PASSED_ON:
            stopped = stopped or number in _ENDING
            child.send_signal(number)
        elif (status := _reaped(child.pid)) is not None:
            child.returncode = code = os.waitstatus_to_exitcode(status)
            return (code if code >= 0 else 128 - code), stopped


def _reaped(pid: int) -> int | None:
    """Wait for all children that have ended; the status of the one that counts, if it is among them."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        if ended == pid:
            found = status


def _asked_to_end_within(seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        heard = signal.sigtimedwait(_HEARD, left)
        if heard is not None and heard.si_signo in _ENDING:
            return True
    return False
