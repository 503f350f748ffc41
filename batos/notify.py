"""The service manager that started this process, told how it stands: systemd's protocol, a datagram of `NAME=value` lines.

Source: sd_notify(3). Nothing is told where nobody asked (`NOTIFY_SOCKET` is not set), and a manager that does not listen hurts nobody.
"""

from __future__ import annotations

import socket
import time

import structlog

from batos.config import Supervision

log = structlog.get_logger("batos")


class Supervisor:
    """One method a message. Any thread."""

    def __init__(self, supervision: Supervision) -> None:
        self.watchdog_s = supervision.watchdog_s
        self._heard = True  # what was told last
        self._address = "\0" + supervision.socket[1:] if supervision.socket.startswith("@") else supervision.socket

    def ready(self, status: str) -> None:
        """Missions are let in."""
        self._tell("READY=1", f"STATUS={_line(status)}")

    def starting_for(self, seconds: float) -> None:
        """The start goes on: so much more time is asked for."""
        self._tell(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def alive(self, status: str) -> None:
        """The watchdog need not bite; `status` is what `systemctl status` shows."""
        self._tell("WATCHDOG=1", f"STATUS={_line(status)}")

    def reloading(self) -> None:
        """Settings are read anew; `ready` ends it."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """The end has begun."""
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one:
                one.setblocking(False)  # a manager that does not read must not hold up the loop
                one.sendto("\n".join(lines).encode(), self._address)
            self._heard = True
        except OSError as e:
            if self._heard:  # once, and not at each beat
                log.warning("service_manager_not_told", lines=lines, error=str(e))
            self._heard = False


def _line(text: str) -> str:
    return " ".join(text.split())
