"""Trees that grow at their end, by numbers that ascend."""

from __future__ import annotations

from BTrees.LOBTree import LOBTree


class GrowingTree(LOBTree):
    """Number -> value. Small leaves: an addition writes the last one whole, and most of what that costs is what its entries refer to."""

    __module__ = "batos.memory"
    max_leaf_size, max_internal_size = 20, 64
