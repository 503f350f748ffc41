"""When each generated method was last of use: what the senses noted of runs, kept for longer than their ring."""

from __future__ import annotations

from typing import Any, NamedTuple

from batos.autotelic import home
from batos.autotelic.ring import Bucket
from batos.errors import BatosError
from batos.image import history
from batos.objects import Method

TABLES = ("written", "runs", "runs_failed", "runs_unfit")
"""Of the senses: those that speak of methods."""
KEPT = 1024  # methods; of more, those go that were not used for longest


class Use(NamedTuple):
    """Of one method, by the oid of its holder and its selector. Stored as a plain tuple."""

    method: str
    written: float
    """When it was first heard of, in seconds since the epoch."""
    last: float
    """When it last ran, or was written."""
    runs: int


def note(root: Any, bucket: Bucket) -> None:
    """System transaction: add what a bucket of the senses says of methods."""
    uses, tallies, at = home.part(root, "usage").methods, bucket["tallies"], bucket["ended"]
    for table in TABLES:
        for key, (times, *_) in tallies.get(table, {}).items():
            if " " not in key:  # the sum of those that had no row of their own
                continue
            before = Use(key, *uses.get(key, (at, at, 0)))
            uses[key] = (before.written, max(before.last, at), before.runs + (times if table != "written" else 0))
    for key in sorted(uses, key=lambda key: uses[key][1])[: max(0, len(uses) - KEPT)]:
        del uses[key]


def concerns(bucket: Bucket) -> bool:
    """Whether a bucket says anything of methods."""
    return not bucket["tallies"].keys().isdisjoint(TABLES)


def present(root: Any) -> list[Use]:
    """The methods that were noted and that the image still has."""
    return [Use(key, *row) for key, row in home.part(root, "usage").methods.items() if _is_there(root, key)]


def last_of(root: Any, key: str) -> float | None:
    """When a method was last of use; None where nothing was noted of it."""
    found = home.part(root, "usage").methods.get(key)
    return None if found is None else float(found[1])


def _is_there(root: Any, key: str) -> bool:
    oid, _, selector = key.partition(" ")
    try:
        return isinstance(history.resolve(root, oid)._slots.get(selector), Method)
    except BatosError:  # it is gone, or damaged
        return False
