"""Sender of one message through apprise. Run by path in a jail (`batos.notices.transports`); it ends with 0 once the message was taken.

    python -I apprise_sender.py FOLDER_OF_APPRISE

The URL and the message come as the variables BATOS_URL and BATOS_MESSAGE. What the library says of a failure is told without any part of
the URL that could be a secret.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
import os
import re
import sys

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


def main(folder: str) -> int:
    """Send the message; return the exit code."""
    if folder not in sys.path:
        sys.path.append(folder)
    apprise = importlib.import_module("apprise")  # the only place that does; the extra notify brings it

    url, message = os.environ["BATOS_URL"], json.loads(base64.b64decode(os.environ["BATOS_MESSAGE"]))
    said = SaidLines()
    logging.getLogger("apprise").addHandler(said)
    asset = apprise.AppriseAsset(app_id="BAT OS", app_desc="BAT OS", async_mode=False)
    sender = apprise.Apprise(asset=asset)
    if not sender.add(url):
        print("this is not a URL that apprise knows; see its list of services", file=sys.stderr)
        return 2
    if sender.notify(title=message["title"], body=message["text"]):
        return 0
    parts = sorted(set(_PART.findall(url)), key=len, reverse=True)
    for line in said.lines[:_TOLD]:
        for part in parts:
            line = line.replace(part, "[…]")
        print(line, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
