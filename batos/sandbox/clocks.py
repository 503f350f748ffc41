"""Clock and randomness of methods: those of the mission, so that a replay is exact."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from batos.sandbox.activity import Activity

_BYTES = 65_536  # of randomness at a time


def told(activity: Activity, path: str, name: str, args: Sequence[Any]) -> Any:
    """What the interpreter is told when it asks for `name`.

    :param path: the run's place among the sends.
    :raises PermissionError: for anything else.
    """
    if "urandom" in name:
        size = args[0] if args and isinstance(args[0], int) else 0
        if not 0 < size <= _BYTES:
            raise PermissionError("not available in a method")
        return activity.derived("random", path, size)
    now = activity.now.astimezone(datetime.UTC)
    if name in ("date.today", "datetime.today"):
        return now.date() if name == "date.today" else now.replace(tzinfo=None)
    if name == "datetime.now":
        zone = args[0] if args and isinstance(args[0], datetime.tzinfo) else None
        return now.astimezone(zone) if zone is not None else now.replace(tzinfo=None)
    if name.startswith("time."):
        return now.timestamp()
    raise PermissionError("not available in a method")
