"""Answered turns: which mission answered which turn of which conversation, where several kernels answer at their doors.

A turn that comes again at another kernel finds its mission here. One daemon alone keeps the same in a file of its data folder
(`batos.doors.turn_log`). Functions of the root are short system transactions, or reads.
"""

from __future__ import annotations

from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from persistent import Persistent

from batos.objects import Root

_KEY = "turns"  # in the root
_OF_ONE = 64  # missions that are kept of one key
_AT_ONCE = 64  # turns that are dropped together, so that not each new one drops an old one
_MISSION, _AT = 0, 1

Turn = tuple[str, float]
"""A mission, and when it was noted, in seconds since the epoch."""


class TurnTree(OOBTree):
    """Turns by their key. Small leaves: keys come in random order, and each rewrites one."""

    __module__ = "batos.image"
    max_leaf_size, max_internal_size = 16, 64


class AnsweredTurns(Persistent):
    """All turns of an image that are kept."""

    __module__ = "batos.image"

    def __init__(self) -> None:
        self.by_key = TurnTree()
        """`KIND KEY` -> turns, the newest last."""
        self.by_time = TurnTree()
        """`TIME KIND KEY` -> mission."""
        self.count = Length()


def install(root: Root) -> None:
    """Make the place of the turns, where there is none. Part of a system transaction."""
    if _KEY not in root:
        root[_KEY] = AnsweredTurns()


def find(root: Root, kind: str, key: str, count: int) -> list[Turn]:
    """Return the newest turns of a key, the newest first."""
    held = root.get(_KEY)
    return [] if held is None else list(reversed(held.by_key.get(f"{kind} {key}", ())))[:count]


def add(root: Root, kind: str, key: str, turn: Turn, limit: int) -> None:
    """Note a turn; the same one again becomes the newest of its key.

    :param limit: turns that are kept; of more the oldest are dropped.
    """
    install(root)
    held, name = root[_KEY], f"{kind} {key}"
    known = held.by_key.get(name, ())
    rest = tuple(one for one in known if one[_MISSION] != turn[_MISSION])
    for one in known:
        if one not in rest:
            _forget(held, name, one)
    for one in rest[: max(0, len(rest) + 1 - _OF_ONE)]:
        _forget(held, name, one)
    held.by_key[name] = (*rest[-(_OF_ONE - 1) :], turn)
    held.by_time[_moment(name, turn)] = turn[_MISSION]
    held.count.change(1)
    if held.count() > limit + _AT_ONCE:
        _drop_oldest(held)


def _drop_oldest(held: AnsweredTurns) -> None:
    for moment, mission in list(held.by_time.items()[:_AT_ONCE]):
        name = moment.partition(" ")[2]
        left = tuple(one for one in held.by_key.get(name, ()) if one[_MISSION] != mission)
        if left:
            held.by_key[name] = left
        else:
            held.by_key.pop(name, None)
        del held.by_time[moment]
        held.count.change(-1)


def _forget(held: AnsweredTurns, name: str, turn: Turn) -> None:
    if held.by_time.pop(_moment(name, turn), None) is not None:
        held.count.change(-1)


def _moment(name: str, turn: Turn) -> str:
    return f"{turn[_AT]:017.6f} {name}"
