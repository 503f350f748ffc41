"""The process above a tool's server: it starts the server, waits, and ends all that came of it. Run by path.

    python -I -S launcher.py PARENT_PID WATCH_DESCRIPTOR PROGRAM [ARGUMENT …]

It leads the process group of the server, which gets only rights that its starter has. When the daemon's end of WATCH_DESCRIPTOR is
closed, since the daemon died or gave up, it kills everything below it; also when the server ends. On Linux that includes what left the
process group or whose parent is gone: the kernel hands such processes to it. It ends as the server did.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
NOT_STARTED = 127
_KILL_S = 5.0  # greatest number of seconds for killing what forks meanwhile
_STEP_S = 0.005


def main(parent: int, watch: int, argv: list[str]) -> None:
    os.set_inheritable(watch, False)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the server
    ended, note = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(note, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if os.getppid() != parent:
        return  # the daemon is gone already
    above = os.getpid()
    server = os.fork()
    if server == 0:
        _become(argv, above)
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)  # else the server's end would not be seen in them
    status = None
    while status is None:
        ready, _, _ = select.select([watch, ended], [], [])
        if watch in ready:
            break
        with contextlib.suppress(BlockingIOError):
            os.read(ended, 4096)
        status = _reaped(server)
    _end_all()
    _end_as(status)


def _become(argv: list[str], above: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != above:
        os._exit(NOT_STARTED)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - it becomes the program
    except OSError as e:
        print(f"{argv[0]} cannot be started: {e.strerror}", file=sys.stderr, flush=True)
    os._exit(NOT_STARTED)


def _reaped(server: int) -> int | None:
    """Reap what has ended; return the server's status if it has."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            status = found[1] if found[0] == server else status
    return status


def _end_all() -> None:
    """Kill all children until there is none: children of those that die become children of this process."""
    if sys.platform != "linux":
        os.killpg(0, signal.SIGKILL)
    end = time.monotonic() + _KILL_S
    while time.monotonic() < end:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_STEP_S)
    os.killpg(0, signal.SIGKILL)


def _children() -> list[int]:
    found, own = [], str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[1] == own:
                    found.append(int(name))
    return found


def _end_as(status: int | None) -> None:
    """End as the server did; by SIGKILL where it was killed here."""
    if status is not None and os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    number = signal.SIGKILL if status is None else os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
