"""Putting the entries of nearly empty leaves together changes nothing but the number of leaves."""

from __future__ import annotations

import random
from typing import Any

from BTrees.OOBTree import OOBTree
from hypothesis import given
from hypothesis import strategies as st

from batos.memory.records import GrowingTree, reinsert, sparse_keys


def leaves(tree: Any) -> list[int]:
    found, leaf = [], tree._firstbucket
    while leaf is not None:
        found.append(len(leaf))
        leaf = leaf._next
    return found


@given(st.integers(0, 400), st.floats(0, 1), st.integers(0, 2**16), st.booleans())
def test_the_entries_stay_and_the_leaves_go(size: int, left: float, seed: int, by_text: bool) -> None:
    chance = random.Random(seed)
    tree: Any = OOBTree() if by_text else GrowingTree()
    for number in range(size):
        tree[f"{number:06}" if by_text else number] = number
    for key in list(tree):
        if chance.random() > left:
            del tree[key]
    before, last = dict(tree), leaves(tree)[-1:]
    for _ in range(3):  # a leaf whose parent is another than that of the one before it takes along what follows it
        reinsert(tree, [*sparse_keys(tree), "nowhere" if by_text else 10**6])
    assert dict(tree) == before
    assert list(tree) == sorted(before)
    tree._check()
    assert leaves(tree)[-1:] == last
    if len(leaves(tree)) > 20:
        assert len(before) / len(leaves(tree)) > 0.3 * tree.max_leaf_size
