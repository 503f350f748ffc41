"""Tell what has happened since the last audit: without news, none is due. Reads the image; asks nobody."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from batos.autotelic import changes, home
from batos.image import ledger

_LOOKED_AT = 256  # missions


class Seen(NamedTuple):
    """Hold what an audit has seen. Stored as a plain tuple."""

    number: int
    """Of the newest mission."""
    fired: int
    """Triggers that had ever fired."""
    decided: float
    """When the last change was decided."""
    damaged: int
    """Records found damaged, since the start of the daemon."""


def seen(root: Any, damaged: int) -> Seen:
    """Read how things stand now."""
    newest = ledger.ledger_of(root).newest.mission
    decided = max((float(one.decided or 0) for one in changes.newest_first(root)), default=0.0)
    return Seen(0 if newest is None else int(newest.number), int(home.part(root, "triggers").ever), decided, damaged)


def since(root: Any, last: Seen | None, damaged: int) -> str:
    """Tell what is new since the last audit, in words; empty where nothing is.

    :param last: what that one saw; None: there was none.
    :param damaged: records found damaged since the start of the daemon.
    """
    if last is None:
        return "it is the first one."
    now, found = seen(root, damaged), []
    missions = itertools.takewhile(lambda one: one.number > last.number, itertools.islice(ledger.newest_first(root), _LOOKED_AT))
    if count := sum(one.origin != "system" for one in missions):
        found.append(f"missions of users: {count}{' or more' if count == _LOOKED_AT else ''}")
    if home.part(root, "triggers").fired:
        if now.fired > last.fired:
            found.append(f"triggers that fired: {now.fired - last.fired}")
        if now.decided > last.decided:
            found.append("a change about one that stands was decided")
    if damaged > last.damaged:
        found.append(f"records found damaged: {damaged - last.damaged}")
    return f"{'; '.join(found)}." if found else ""
