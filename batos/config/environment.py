"""The environment beyond the settings: the service manager that started this process, and the folders and socket of its user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FOLDER = ".local/share/batos"
_SOCKET = "wire.sock"
_SOCKET_BYTES = 107  # unix(7): 108 with the final zero byte


class Supervision(NamedTuple):
    """The wishes of a service manager for a process that it started; empty without a service manager."""

    socket: str = ""
    """Socket for notifications (`NOTIFY_SOCKET`). Empty if the daemon has no service manager."""
    watchdog_s: float = 0.0
    """Seconds of silence after which the service manager ends the process; 0 means never."""
    journal: bool = False
    """True if standard error goes to the systemd journal."""


def supervision(environ: dict[str, str] | None = None, *, pid: int | None = None, stream: int = 2) -> Supervision:
    """Read the wishes of the service manager from the environment; see sd_notify(3), sd_watchdog_enabled(3), systemd.exec(5).

    :param pid: id of the process that the manager means; by default this process.
    :param stream: descriptor of standard error.
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
    """Return the folder in which a user's programs keep their settings (`XDG_CONFIG_HOME`)."""
    given = (dict(os.environ) if environ is None else environ).get("XDG_CONFIG_HOME", "")
    return Path(given) if given.startswith("/") else Path.home() / ".config"


def local_endpoint(environ: dict[str, str] | None = None) -> str:
    """Return the local socket at which a user's daemon listens by default, and where the user's clients look for it.

    It is `~/.local/share/batos/wire.sock`, wherever the data folder is: a client knows its user and not the data folder. If the home
    folder belongs to another user, does not exist, or has too long a path for a socket, the socket is in `/tmp/batos-UID`. A system unit
    has it in the folder that systemd makes for the unit (`RUNTIME_DIRECTORY`, systemd.exec(5)).

    :returns: an endpoint, `ipc://PATH`.
    """
    given, user = dict(os.environ) if environ is None else environ, os.getuid()
    if (made := given.get("RUNTIME_DIRECTORY", "").partition(":")[0]).startswith("/"):
        return f"ipc://{made}/{_SOCKET}"
    for folder in _own_folders(given):
        if len(os.fsencode(folder / _SOCKET)) <= _SOCKET_BYTES:
            return f"ipc://{folder / _SOCKET}"
    return f"ipc:///tmp/batos-{user}/{_SOCKET}"


def client_folder(environ: dict[str, str] | None = None) -> Path | None:
    """Return the folder for the files of a user's clients; None if the home folder belongs to another user or does not exist."""
    return next(_own_folders(dict(os.environ) if environ is None else environ), None)


def _own_folders(given: dict[str, str]) -> Iterator[Path]:
    """Yield the folder of BAT OS in each home folder of this user."""
    user = os.getuid()
    for home in (given.get("HOME", ""), _home_on_record(user)):
        if home.startswith("/") and _belongs(home, user):
            yield Path(home, _FOLDER)


def _home_on_record(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:  # the user of a container has no entry
        return ""


def _belongs(folder: str, user: int) -> bool:
    try:
        return os.stat(folder).st_uid == user
    except OSError:
        return False


def _is(journal: str, stream: int) -> bool:
    try:
        seen = os.fstat(stream)
    except OSError:  # the stream is closed
        return False
    return journal == f"{seen.st_dev}:{seen.st_ino}"
