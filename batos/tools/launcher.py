"""The first program of a tool's process: it ties the process to the daemon and becomes the program that was asked for. Run by path.

    python -I -S launcher.py PARENT_PID PROGRAM [ARGUMENT …]

Linux kills the process when the daemon dies, however that dies, and gives it no rights that its starter does not have. What the program
starts in turn is the watch's part (`batos.tools.mcp_transport`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
NOT_STARTED = 127


def main(parent: int, argv: list[str]) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        return  # the daemon died before prctl took effect
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - it becomes the program
    except OSError as e:
        print(f"{argv[0]} cannot be started: {e.strerror}", file=sys.stderr)
        sys.exit(NOT_STARTED)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
