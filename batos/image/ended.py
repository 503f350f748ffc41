"""The missions that have ended, by how they did: who looks for those that FAILED reads no others.

Whoever settles a mission enters it (`batos.image.ledger.settle`). In an image from before there was this index, those that had ended are
entered some at a time, and lists go through the chain of missions until that is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from BTrees.LOBTree import LOBTree
from persistent import Persistent

from batos.errors import ImageDamaged
from batos.image.chain import MILESTONE, newest_first, numbered
from batos.image.folded import FAILED, FINAL, Line, descending, merged
from batos.objects import UvmObject


class EndedTree(LOBTree):
    """Number -> mission that has ended. Small leaves: the last one is rewritten whenever a mission ends."""

    __module__ = "batos.image"
    max_leaf_size, max_internal_size = 32, 64


class Ended(Persistent):
    """The missions that have ended and are kept whole, by how: see `settle`, `index_some`."""

    __module__ = "batos.image"

    def __init__(self, missing: int = 0) -> None:
        """
        :param missing: number up to which there are missions already, of an image that had no such index.
        """
        self.complete, self.failed = EndedTree(), EndedTree()
        self.missing, self.done = missing, 0
        """Missions up to `missing` came before there was an index; of these it has those up to `done`."""

    def by(self, state: str) -> EndedTree:
        """Those of a final state."""
        return self.failed if state == FAILED else self.complete

    @property
    def is_whole(self) -> bool:
        """Whether all missions that have ended are in it."""
        return bool(self.done >= self.missing)


def index_some(root: Any, stretch: list[str], done: int) -> None:
    """System transaction: put missions that had ended before there was an index into it.

    :param done: number up to which all are in it then.
    """
    ledger = root["ledger"]
    for id in stretch:
        with contextlib.suppress(ImageDamaged):  # the self-audit tells of it
            if (mission := ledger.missions.get(id)) is not None and mission.state in FINAL:
                ledger.ended.by(mission.state)[mission.number] = mission
    ledger.ended.done = max(ledger.ended.done, done)


def unindexed(root: Any) -> tuple[list[str], int] | None:
    """The next missions for `index_some`, with its `done`; None once all are in the index."""
    ended = root["ledger"].ended
    if ended.is_whole:
        return None
    upto = min(ended.missing, ended.done + MILESTONE)
    return [mission.id for mission in numbered(root, ended.done, upto - ended.done) if mission.state in FINAL], upto


def listed(root: Any, state: str | None = None) -> Iterator[UvmObject | Line]:
    """Missions as they are kept, whole or as lines, the last accepted first: all, or those that are on record in a final state."""
    ledger = root["ledger"]
    whole: Iterator[tuple[int, Any]]
    if state is None:
        whole = ((mission.number, mission) for mission in newest_first(root))
    elif ledger.ended is None or not ledger.ended.is_whole:
        whole = ((mission.number, mission) for mission in newest_first(root) if mission.state == state)
    else:
        whole = merged(_readable(descending(ledger.ended.by(state))), _just_ended(ledger, state))
    if ledger.folded is None:
        return (mission for _, mission in whole)
    return (row[1] for row in merged(whole, ((line.number, line) for line in ledger.folded.newest_first(state))))


def _just_ended(ledger: Any, state: str) -> Iterator[tuple[int, UvmObject]]:
    """Those that are not settled yet."""
    found = []
    for id in ledger.pending:
        with contextlib.suppress(ImageDamaged):
            if (mission := ledger.missions[id]).state == state and mission.number not in ledger.ended.by(state):
                found.append((mission.number, mission))
    return iter(sorted(found, key=lambda one: -one[0]))


def _readable(rows: Iterator[tuple[int, UvmObject]]) -> Iterator[tuple[int, UvmObject]]:
    for number, mission in rows:
        try:
            mission._p_activate()
        except ImageDamaged:  # as in the chain
            continue
        yield number, mission
