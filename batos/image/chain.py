"""The chain of missions: each leads to the one that was accepted before it, and milestones lead into the middle.

A mission whose record is damaged leads nowhere. Those between it and the milestone before it are looked for among all missions, which
takes a while and loses none.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from batos.errors import ImageDamaged
from batos.objects import UvmObject

MILESTONE = 256
"""Every so many missions, one is to be found by its number: from there the chain leads to the ones before it."""
_LAST = 2**62  # a number that no mission has


def newest_first(root: Any) -> Iterator[UvmObject]:
    """All missions that can be read, the last accepted first."""
    return _back(root, root["ledger"].newest.mission, _LAST)


def numbered(root: Any, after: int, count: int) -> list[UvmObject]:
    """The missions that were accepted after the one of number `after`, oldest first, up to `count` of them; none that is damaged."""
    ledger = root["ledger"]
    upto = after + count
    try:
        begin = ledger.milestones.minKey(upto)
        mission = ledger.milestones[begin]
    except ValueError:  # none so far
        begin, mission = _LAST, ledger.newest.mission
    found = []
    for one in _back(root, mission, begin + 1):
        if one.number <= after:
            break
        if one.number <= upto:
            found.append(one)
    return found[::-1]


def of_numbers(root: Any, numbers: Iterable[int]) -> list[UvmObject]:
    """The missions of these numbers, which ascend. Those between two milestones are found in one walk: there may be thousands."""
    found: list[UvmObject] = []
    for _, lot in itertools.groupby(numbers, key=lambda number: -(-number // MILESTONE)):
        wanted = set(lot)
        first, last = min(wanted), max(wanted)
        found += [mission for mission in numbered(root, first - 1, last - first + 1) if mission.number in wanted]
    return found


def next_numbered(root: Any, after: int, count: int) -> list[UvmObject]:
    """As `numbered`, of the next stretch in which there are any: whole stretches may be folded (`batos.image.folding`)."""
    found = numbered(root, after, count)
    if not found and (ended := root["ledger"].ended) is not None:
        last = max((tree.maxKey() for tree in (ended.complete, ended.failed) if tree), default=0)
        while not found and (after := after + count) < last:
            found = numbered(root, after, count)
    return found


def stretch(root: Any, after: int, upto: int) -> tuple[list[UvmObject], UvmObject | None]:
    """The missions after one number, up to another, oldest first; and the one whose link leads to the last of them, if there is one."""
    ledger = root["ledger"]
    try:
        begin = ledger.milestones.minKey(upto + 1)
        mission = ledger.milestones[begin]
    except ValueError:  # none so far
        begin, mission = _LAST, ledger.newest.mission
    found, behind = [], None
    for one in _back(root, mission, begin + 1):
        if one.number <= after:
            break
        if one.number > upto:
            behind = one
        else:
            found.append(one)
    return found[::-1], behind


def leave_out(behind: UvmObject | None, gone: Collection[int], first: int) -> None:
    """System transaction's part: let the links pass over missions.

    :param behind: the mission after the last of them.
    :param gone: their numbers, from `first` on.
    """
    one = behind
    with contextlib.suppress(ImageDamaged):  # what is before a mission that cannot be read is found without links
        while one is not None and one.number > first and (before := one.before) is not None:
            end = before
            while end is not None and end.number in gone:
                end = end.before
            if end is not before:
                one.before = end
            one = end


def _back(root: Any, mission: UvmObject | None, below: int) -> Iterator[UvmObject]:
    """A mission, whose number is below that one, and all before it."""
    while mission is not None:
        try:
            mission._p_activate()
        except ImageDamaged:  # the self-audit tells of it; what is packed away of the past is another matter
            milestone = _milestone(root, below - 1)
            yield from _between(root, milestone, below)
            mission, below = root["ledger"].milestones[milestone] if milestone else None, milestone + 1
        else:
            yield mission
            mission, below = mission.before, mission.number


def _milestone(root: Any, below: int) -> int:
    """The number of the last milestone below that one; 0 where there is none, or none was set yet."""
    try:
        return int(root["ledger"].milestones.maxKey(below - 1))
    except (ValueError, AttributeError):
        return 0


def _between(root: Any, after: int, below: int) -> list[UvmObject]:
    """The missions with a number between those two, the last accepted first."""
    found = []
    for mission in root["ledger"].missions.values():
        with contextlib.suppress(ImageDamaged):
            if after < mission.number < below:
                found.append(mission)
            else:
                mission._p_deactivate()
    return sorted(found, key=lambda one: -one.number)
