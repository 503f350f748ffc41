"""Launcher: start a program that must not outlive the process that starts it. It is run by path and needs no other module of BAT OS.

    python -I -S launcher.py PARENT_PID [--idle] [NAME=VALUE ...] -- PROGRAM [ARGUMENT ...]

Linux sends the program SIGTERM when its parent dies, however it dies (PR_SET_PDEATHSIG survives the exec). It is SIGTERM and not SIGKILL
so that `ollama serve` also stops its runners. With `--idle` the program gets processor time only when no other program wants it, and is
the first to be killed when memory runs out.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
IDLE = "--idle"


def main() -> None:
    parent, rest = int(sys.argv[1]), sys.argv[2:]
    cut = rest.index("--")
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(1)  # the parent died before the line above
    idle = rest[0] == IDLE
    if idle:
        os.nice(19)
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        if sys.platform == "linux":
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")
    for pair in rest[1 if idle else 0 : cut]:
        name, _, value = pair.partition("=")
        os.environ[name] = value
    program = rest[cut + 1 :]
    os.execv(program[0], program)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
