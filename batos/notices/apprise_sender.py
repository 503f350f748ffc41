"""Sender of one message through apprise. Run by path in a jail (`batos.notices.transports`):

    python -I apprise_sender.py FOLDER_OF_APPRISE

It ends with 0 once the message was taken; with 75 (EX_TEMPFAIL) if surely nothing of it left; else with 1.

The URL and the message come as the variables BATOS_URL and BATOS_MESSAGE. The program repeats what the library says of a failure, without
any part of the URL that could be a secret.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
import os
import re
import socket
import sys
from typing import Any

UNSENT = 75
_PART = re.compile(r"[^/:@?&=#,;\s]{5,}")
_TOLD = 5


class SaidLines(logging.Handler):
    """Warnings of the library."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self.lines.append(record.getMessage())


class NetworkReach:
    """Attempts of this process to reach a machine, and those after which something can have left."""

    tried = 0
    opened = 0

    @property
    def nothing_left(self) -> bool:
        """Return True if a machine was sought, and none was found or answered. A service that uses no socket of Python's is not seen."""
        return self.tried > 0 and not self.opened


reach = NetworkReach()
_look_up = socket.getaddrinfo


class SeenSocket(socket.socket):
    """Socket whose connections are counted."""

    def connect(self, address: Any) -> None:
        """Connect, and count it; a connection that goes on meanwhile counts as made."""
        reach.tried += 1
        try:
            super().connect(address)
        except (BlockingIOError, InterruptedError):
            reach.opened += 1
            raise
        reach.opened += 1

    def connect_ex(self, address: Any) -> int:
        """Connect, and count it as made: it may go on meanwhile."""
        reach.opened += 1
        return super().connect_ex(address)

    def sendto(self, *args: Any) -> int:
        """Send without a connection, and count it."""
        reach.opened += 1
        return super().sendto(*args)


def _sought(*args: Any, **kwargs: Any) -> Any:
    reach.tried += 1
    return _look_up(*args, **kwargs)


def main(folder: str) -> int:
    """Send the message; return the exit code."""
    if folder not in sys.path:
        sys.path.append(folder)
    socket.socket, socket.getaddrinfo = SeenSocket, _sought  # type: ignore[misc]  # before the library and its HTTP client take them
    apprise = importlib.import_module("apprise")  # the only place that does; the extra notify brings it

    url, message = os.environ["BATOS_URL"], json.loads(base64.b64decode(os.environ["BATOS_MESSAGE"]))
    said = SaidLines()
    logging.getLogger("apprise").addHandler(said)
    asset = apprise.AppriseAsset(app_id="BAT OS", app_desc="BAT OS", async_mode=False)
    sender = apprise.Apprise(asset=asset)
    if not sender.add(url):
        print("this is not a URL that apprise knows; see its list of services", file=sys.stderr)
        return UNSENT
    if sender.notify(title=message["title"], body=message["text"]):
        return 0
    parts = sorted(set(_PART.findall(url)), key=len, reverse=True)
    for line in said.lines[:_TOLD]:
        for part in parts:
            line = line.replace(part, "[…]")
        print(line, file=sys.stderr)
    return UNSENT if reach.nothing_left else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
