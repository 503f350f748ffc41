"""What else the environment says: whether a service manager started this process, and where a user's settings live."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Supervision(NamedTuple):
    """What a service manager told a process that it started; empty where none did."""

    socket: str = ""
    """Where it wants to be told (`NOTIFY_SOCKET`)."""
    watchdog_s: float = 0.0
    """Silence after which it ends the process; 0: never."""
    journal: bool = False
    """Whether standard error is the journal."""


def supervision(environ: dict[str, str] | None = None, *, pid: int | None = None, stream: int = 2) -> Supervision:
    """What the environment says of the service manager; sd_notify(3), sd_watchdog_enabled(3), systemd.exec(5).

    :param pid: of the process that was meant; this one if left out.
    :param stream: the descriptor of standard error.
    """
    given = dict(os.environ) if environ is None else environ
    socket = given.get("NOTIFY_SOCKET", "")
    meant = given.get("WATCHDOG_PID", "") in ("", str(os.getpid() if pid is None else pid))
    usec = given.get("WATCHDOG_USEC", "")
    return Supervision(
        socket=socket if socket.startswith(("/", "@")) else "",
        watchdog_s=int(usec) / 1e6 if meant and usec.isdecimal() else 0.0,
        journal=_is(given.get("JOURNAL_STREAM", ""), stream),
    )


def user_folder(environ: dict[str, str] | None = None) -> Path:
    """Where a user's programs keep their settings (`XDG_CONFIG_HOME`)."""
    given = (dict(os.environ) if environ is None else environ).get("XDG_CONFIG_HOME", "")
    return Path(given) if given.startswith("/") else Path.home() / ".config"


def _is(journal: str, stream: int) -> bool:
    try:
        seen = os.fstat(stream)
    except OSError:  # it is closed
        return False
    return journal == f"{seen.st_dev}:{seen.st_ino}"
