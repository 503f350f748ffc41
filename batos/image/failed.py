"""Failed attempts as the ledger keeps them: found by time, and by selector without a look at the others."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from BTrees.OOBTree import OOBTree

from batos.errors import ImageDamaged
from batos.objects import UvmObject


def index(by_selector: OOBTree, key: str, record: UvmObject) -> None:
    """Let a failure be found by its selectors: of the message, and of the method that was refused."""
    for selector in _selectors(record):
        by_selector[f"{selector} {key}"] = record


def drop(ledger: Any, key: str) -> None:
    """System transaction's part: let go of a failure."""
    record = ledger.failures.pop(key, None)
    if record is not None:
        with contextlib.suppress(ImageDamaged):  # what of it was found by selector stays, and leads to damage
            for selector in _selectors(record):
                ledger.failures_by_selector.pop(f"{selector} {key}", None)


def mission_in(key: str) -> str:
    """The id of the mission that failed, out of a failure's key."""
    return key.partition(" ")[2]


def _selectors(record: UvmObject) -> set[str]:
    context = json.loads(record.context)
    return {context.get("selector"), context.get("method", {}).get("selector")} - {None}


def row(record: UvmObject) -> dict[str, Any]:
    """A failure as plain values."""
    return {
        "at": record.at,
        "mission": record.mission.id,
        "attempt": record.attempt,
        "final": record.final,
        "error": json.loads(record.error),
        "context": json.loads(record.context),
    }


def newest_first(tree: OOBTree, first: str, bound: str | None) -> Iterator[tuple[str, UvmObject]]:
    """The failures under keys from `first` to `bound` (None: to the end), the last first."""
    while True:
        try:
            key = tree.maxKey(bound) if bound is not None else tree.maxKey()
        except ValueError:  # none before it
            return
        if key < first:
            return
        yield key, tree[key]
        bound = key[:-1] + chr(ord(key[-1]) - 1) + "\U0010ffff"  # the greatest text before the key: trees do not go backwards
