"""Trees that grow at their end, by numbers that ascend; and how what was taken out of a tree leaves no room behind.

A leaf of a tree goes when its last entry does, and not before: where much leaves and a few entries stay here and there, there are as many
leaves as ever, and each is a record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from BTrees.LOBTree import LOBTree

_FULL = 0.75
"""Share of a leaf that neighbours are put together up to: an entry that comes between them shall not part them again."""


class GrowingTree(LOBTree):
    """Number -> value. Small leaves: an addition writes the last one whole, and most of what that costs is what its entries refer to."""

    __module__ = "batos.memory"
    max_leaf_size, max_internal_size = 20, 64


def scattered(tree: Any) -> list[Any]:
    """Keys in leaves whose entries would go into the leaf before them. Of the last leaf none: what is added goes there."""
    found: list[Any] = []
    room = 0.0
    leaf = tree._firstbucket
    while leaf is not None and leaf._next is not None:
        if (size := len(leaf)) <= room:
            found += leaf.keys()
            room -= size
        else:
            room = _FULL * tree.max_leaf_size - size
        leaf = leaf._next
    return found


def gather(tree: Any, keys: Iterable[Any]) -> None:
    """Take these out, as far as they are there, and put them in again: into the leaves before theirs, which are gone then."""
    held = {key: tree[key] for key in keys if key in tree}
    for key in held:
        del tree[key]
    tree.update(held)
