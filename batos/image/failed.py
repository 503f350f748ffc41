"""Failed attempts as the ledger keeps them: found by time, and by selector without a look at the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from BTrees.OOBTree import OOBTree

from batos.objects import UvmObject


def index(by_selector: OOBTree, key: str, record: UvmObject) -> None:
    """Let a failure be found by its selectors: of the message, and of the method that was refused."""
    context = json.loads(record.context)
    for selector in {context.get("selector"), context.get("method", {}).get("selector")} - {None}:
        by_selector[f"{selector} {key}"] = record


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
