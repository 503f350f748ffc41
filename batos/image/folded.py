"""What is left of a mission that was folded: one compact line in place of its record, its thought and its journal.

A line is at most `LINE_BYTES` long, the mission's id counted in: how it ended, the beginnings of brief and result, what it cost.
Lines are found by number, of one state each, and by id: an id that was accepted once stays known for ever.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from BTrees.LOBTree import LOBTree
from BTrees.OLBTree import OLBTree
from persistent import Persistent

from batos.image.journal import Spent

COMPLETE, FAILED = "COMPLETE", "FAILED"
FINAL = (COMPLETE, FAILED)
"""The states in which missions have ended."""
LINE_BYTES = 200
"""Longest line, the id counted in."""
_TEXTS_LEAST = 24  # bytes of brief and result together that also a line with a long id has room for
_CUT = "…"


class Line(NamedTuple):
    """What is left of a mission, as plain values."""

    number: int
    id: str
    state: str
    origin: str
    accepted: int
    """Seconds since the epoch; so the day is known."""
    seconds: int
    """From then to its end."""
    cost: tuple[int, int, int, int]
    """Inferences, tokens read and written, seconds of model time."""
    mark: str
    """What tells its brief and message from any other: see `mark_of`."""
    brief: str
    """Its beginning."""
    came: str
    """The beginning of the result's text; of one that FAILED the error's code, a blank, and the beginning of its message."""
    undone: bool = False

    def spent(self) -> Spent:
        """What it cost, of whichever models."""
        inferences, read, written, seconds = self.cost
        return Spent("", inferences, read, written, seconds * 1000.0)

    def packed(self) -> bytes:
        """The line as it is kept. Brief and result get the room that the facts leave, each at least a half of it where it needs that."""
        who = (self.number, self.id, self.state[0], self.origin[:16])
        facts = [*who, self.accepted, self.seconds, *self.cost, self.mark, int(self.undone)]
        room = max(_TEXTS_LEAST, LINE_BYTES - len(_encoded([*facts, "", ""])))
        brief, came = _size(self.brief), _size(self.came)
        share = max(room // 2, room - came)
        short = _shortened(self.brief, share) if brief > share else self.brief
        return _encoded([*facts, short, _shortened(self.came, room - _size(short))])


def unpacked(data: bytes, state: str) -> Line:
    """The line that was kept so.

    :param state: of the tree that it is in.
    """
    number, id, _, origin, accepted, seconds, *cost, mark, undone, brief, came = json.loads(data)
    return Line(number, id, state, origin, accepted, seconds, (cost[0], cost[1], cost[2], cost[3]), mark, brief, came, bool(undone))


def mark_of(brief: str, message: str | None, pictures: Sequence[str] = ()) -> str:
    """Eleven letters that tell this brief and message, with pictures of these digests, from others."""
    said = json.dumps([brief, message or None, *pictures]).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(said).digest()[:8]).rstrip(b"=").decode("ascii")


class LineTree(LOBTree):
    """Number -> line. They come nearly in order."""

    __module__ = "batos.image"
    max_leaf_size, max_internal_size = 32, 64


class NumberTree(OLBTree):
    """Id -> number. Small leaves: ids come in no order, and each that comes rewrites one."""

    __module__ = "batos.image"
    max_leaf_size, max_internal_size = 24, 64


class Folded(Persistent):
    """All lines of an image."""

    __module__ = "batos.image"

    def __init__(self) -> None:
        self.complete, self.failed = LineTree(), LineTree()
        self.numbers = NumberTree()
        self.count = 0

    def keep(self, line: Line) -> None:
        """System transaction's part: take in a line."""
        self._lines(line.state)[line.number] = line.packed()
        self.count += line.id not in self.numbers
        self.numbers[line.id] = line.number

    def get(self, id: str) -> Line | None:
        """The line of the mission of that id, if it was folded."""
        number = self.numbers.get(id)
        if number is None:
            return None
        state = COMPLETE if number in self.complete else FAILED
        return unpacked(self._lines(state)[number], state)

    def newest_first(self, state: str | None = None) -> Iterator[Line]:
        """The lines, all or those of a final state, the last accepted first."""
        if state is not None:
            return (line for _, line in self._descending(state))
        return (line for _, line in merged(*map(self._descending, FINAL)))

    def _descending(self, state: str) -> Iterator[tuple[int, Line]]:
        return ((number, unpacked(data, state)) for number, data in descending(self._lines(state)))

    def __len__(self) -> int:
        return self.count  # the size of a tree takes a walk through it

    def _lines(self, state: str) -> LineTree:
        return self.failed if state == FAILED else self.complete


def descending(tree: Any) -> Iterator[tuple[int, Any]]:
    """The items of a tree by numbers, the greatest first; trees do not go backwards."""
    bound = None
    while True:
        try:
            number = tree.maxKey() if bound is None else tree.maxKey(bound)
        except ValueError:  # none before it
            return
        yield number, tree[number]
        bound = number - 1


def merged(*rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rows that begin with a number, each lot in descending order of them, as one."""
    return heapq.merge(*rows, key=lambda row: -row[0])


def _encoded(values: list[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _size(text: str) -> int:
    return len(_encoded([text])) - 4


def _shortened(text: str, size: int) -> str:
    """The beginning of a text that takes so many bytes in a line."""
    if _size(text) <= size:
        return text
    kept = text[:size]
    while kept and _size(kept + _CUT) > size:
        kept = kept[: min(len(kept) - 1, len(kept) - (_size(kept + _CUT) - size) // 6)]
    return kept + _CUT if kept else ""
