"""Where a chat is: the newest turn of the last conversation with a daemon, noted beside the history, so that `--last` finds it again.

The note is written before the daemon is asked. So a turn is not lost when the chat is killed between the two: it has its id, and given
again it is the same mission.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAMED = 16  # characters of a digest that tell daemons apart


class Bookmark:
    """The note about one daemon."""

    def __init__(self, folder: Path | None, endpoint: str) -> None:
        """
        :param folder: where it is kept; None: nowhere, it ends with the chat.
        """
        name = hashlib.sha256(endpoint.encode("utf-8", "surrogateescape")).hexdigest()[:_NAMED]
        self._path = None if folder is None else folder / f"chat_last_{name}.json"

    def read(self) -> dict[str, str] | None:
        """The fields of the turn; None if there is none, or nothing that can be read."""
        if self._path is None:
            return None
        try:
            noted = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        fit = isinstance(noted, dict) and "id" in noted and all(isinstance(value, str) for value in noted.values())
        return noted if fit else None

    def keep(self, turn: Mapping[str, Any]) -> None:
        """Note a turn in the place of the one before; without fields, none.

        Where that cannot be, on a full disk say, the chat goes on, and `--last` will find the one before.
        """
        if self._path is None:
            return
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
                json.dump(turn, file)
            fresh.replace(self._path)
