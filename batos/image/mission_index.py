"""Indexes of missions: the chain by number, failures, ended missions, and folded ones.

Each mission links to the one that was accepted before it, and milestones lead into the middle of this chain. A
mission whose record is damaged leads nowhere. The missions between it and the milestone before it are searched among all missions, which
takes a while and loses none.

Failed attempts are found by time, and by selector without reading the others. `Ended` indexes the missions that have
ended by their final state, so that a list of FAILED ones reads no others. `batos.image.ledger.settle` enters a
mission. In an image from before this index, ended missions are entered in batches, and lists follow the chain until
that is done.

A folded mission is one compact line in place of its record, its thought and its journal. The line is at most
`LINE_BYTES` long, the id included: the final state, the beginnings of brief and result, and the cost. Lines are found
by number within a state, and by id: an id that was accepted once stays known for ever.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import heapq
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from BTrees.LOBTree import LOBTree
from BTrees.OLBTree import OLBTree
from BTrees.OOBTree import OOBTree
from persistent import Persistent

from batos.errors import ImageDamaged
from batos.image.journal import ModelCost
from batos.objects import Root, UvmObject

MILESTONE = 256
"""Distance of the missions that are indexed by number; from each, the chain leads to the ones before it."""
_LAST = 2**62  # a number that no mission has


def newest_first(root: Root) -> Iterator[UvmObject]:
    """Yield all missions that can be read, the last accepted first."""
    return _back(root, root["ledger"].newest.mission, _LAST)


def numbered(root: Root, after: int, count: int) -> list[UvmObject]:
    """Return up to `count` missions from the one after number `after` on, oldest first; damaged ones are left out."""
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


def of_numbers(root: Root, numbers: Iterable[int]) -> list[UvmObject]:
    """Return the missions of these numbers, which ascend. Those between two milestones take one walk: there may be
    thousands."""
    found: list[UvmObject] = []
    for _, lot in itertools.groupby(numbers, key=lambda number: -(-number // MILESTONE)):
        wanted = set(lot)
        first, last = min(wanted), max(wanted)
        found += [mission for mission in numbered(root, first - 1, last - first + 1) if mission.number in wanted]
    return found


def next_numbered(root: Root, after: int, count: int) -> list[UvmObject]:
    """Return the missions of the next stretch that has any, as `numbered` does: whole stretches may be folded."""
    found = numbered(root, after, count)
    if not found and (ended := root["ledger"].ended) is not None:
        last = max((tree.maxKey() for tree in (ended.complete, ended.failed) if tree), default=0)
        while not found and (after := after + count) < last:
            found = numbered(root, after, count)
    return found


def missions_between(root: Root, after: int, upto: int) -> tuple[list[UvmObject], UvmObject | None]:
    """Return the missions after one number, up to another, oldest first; and the one that links to the last of them,
    if there is one."""
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


def leave_out_missions(behind: UvmObject | None, gone: Collection[int], first: int) -> None:
    """Make the links of the chain skip missions. Part of a system transaction.

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


def _back(root: Root, mission: UvmObject | None, below: int) -> Iterator[UvmObject]:
    """Yield a mission, whose number is below `below`, and all before it."""
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


def _milestone(root: Root, below: int) -> int:
    """Return the number of the last milestone below `below`; 0 if there is none yet."""
    try:
        return int(root["ledger"].milestones.maxKey(below - 1))
    except (ValueError, AttributeError):
        return 0


def _between(root: Root, after: int, below: int) -> list[UvmObject]:
    """Return the missions with a number between those two, the last accepted first."""
    found = []
    for mission in root["ledger"].missions.values():
        with contextlib.suppress(ImageDamaged):
            if after < mission.number < below:
                found.append(mission)
            else:
                mission._p_deactivate()
    return sorted(found, key=lambda one: -one.number)


def index_failure(by_selector: OOBTree, key: str, record: UvmObject) -> None:
    """Index a failure by its selectors: of the message, and of the refused method."""
    for selector in _selectors(record):
        by_selector[f"{selector} {key}"] = record


def drop_failure(ledger: Any, key: str) -> None:
    """Drop a failure. Part of a system transaction."""
    record = ledger.failures.pop(key, None)
    if record is not None:
        with contextlib.suppress(ImageDamaged):  # what of it was found by selector stays, and leads to damage
            for selector in _selectors(record):
                ledger.failures_by_selector.pop(f"{selector} {key}", None)


def failed_mission_id(key: str) -> str:
    """Return the id of the failed mission in a failure's key."""
    return key.partition(" ")[2]


def _selectors(record: UvmObject) -> set[str]:
    context = json.loads(record.context)
    return {context.get("selector"), context.get("method", {}).get("selector")} - {None}


def failure_row(record: UvmObject) -> dict[str, Any]:
    """Return a failure as plain values."""
    return {
        "at": record.at,
        "mission": record.mission.id,
        "attempt": record.attempt,
        "final": record.final,
        "error": json.loads(record.error),
        "context": json.loads(record.context),
    }


def newest_failures(tree: OOBTree, first: str, bound: str | None) -> Iterator[tuple[str, UvmObject]]:
    """Yield the failures with keys from `first` to `bound` (None: to the end), the last first."""
    while True:
        try:
            key = tree.maxKey(bound) if bound is not None else tree.maxKey()
        except ValueError:  # none before it
            return
        if key < first:
            return
        yield key, tree[key]
        bound = key[:-1] + chr(ord(key[-1]) - 1) + "\U0010ffff"  # the greatest text before the key: trees do not go backwards


COMPLETE, FAILED = "COMPLETE", "FAILED"
FINAL = (COMPLETE, FAILED)
"""States of missions that have ended."""
LINE_BYTES = 200
"""Longest line, with its id."""
_TEXTS_LEAST = 24  # bytes of brief and result together that also a line with a long id has room for
_CUT = "…"


class Line(NamedTuple):
    """Folded mission, as plain values."""

    number: int
    id: str
    state: str
    origin: str
    accepted: int
    """Time of the acceptance, in whole seconds since the epoch."""
    seconds: int
    """Seconds from the acceptance to the end."""
    cost: tuple[int, int, int, int]
    """Inferences, tokens read and written, seconds of model time."""
    mark: str
    """Digest of brief and message: see `mark_of`."""
    brief: str
    """Beginning of the brief."""
    came: str
    """Beginning of the result's text; of a FAILED mission, the error's code, a blank, and the beginning of its message."""
    undone: bool = False

    def spent(self) -> ModelCost:
        """Return the cost, summed over all models."""
        inferences, read, written, seconds = self.cost
        return ModelCost("", inferences, read, written, seconds * 1000.0)

    def packed(self) -> bytes:
        """Return the line as it is stored. Brief and result share the room that the facts leave; each gets at least a
        half of it if it needs that."""
        who = (self.number, self.id, self.state[0], self.origin[:16])
        facts = [*who, self.accepted, self.seconds, *self.cost, self.mark, int(self.undone)]
        room = max(_TEXTS_LEAST, LINE_BYTES - len(_encoded([*facts, "", ""])))
        brief, came = _size(self.brief), _size(self.came)
        share = max(room // 2, room - came)
        short = _shortened(self.brief, share) if brief > share else self.brief
        return _encoded([*facts, short, _shortened(self.came, room - _size(short))])


def unpack_line(data: bytes, state: str) -> Line:
    """Return the line from its stored form.

    :param state: final state, which the tree tells.
    """
    number, id, _, origin, accepted, seconds, *cost, mark, undone, brief, came = json.loads(data)
    return Line(number, id, state, origin, accepted, seconds, (cost[0], cost[1], cost[2], cost[3]), mark, brief, came, bool(undone))


def mark_of(brief: str, message: str | None, pictures: Sequence[str] = ()) -> str:
    """Return eleven letters that distinguish this brief and message, with pictures of these digests, from others."""
    said = json.dumps([brief, message or None, *pictures]).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(said).digest()[:8]).rstrip(b"=").decode("ascii")


class LineTree(LOBTree):
    """Number -> line. Numbers come nearly in order."""

    __module__ = "batos.image"
    max_leaf_size, max_internal_size = 32, 64


class NumberTree(OLBTree):
    """Id -> number. Small leaves: ids come in random order, and each rewrites one."""

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
        """Add a line. Part of a system transaction."""
        self._lines(line.state)[line.number] = line.packed()
        self.count += line.id not in self.numbers
        self.numbers[line.id] = line.number

    def get(self, id: str) -> Line | None:
        """Return the line of the mission of an id; None if it was not folded."""
        number = self.numbers.get(id)
        if number is None:
            return None
        state = COMPLETE if number in self.complete else FAILED
        return unpack_line(self._lines(state)[number], state)

    def newest_first(self, state: str | None = None) -> Iterator[Line]:
        """Yield the lines, all or those of a final state, the last accepted first."""
        if state is not None:
            return (line for _, line in self._descending(state))
        return (line for _, line in merge_descending(*map(self._descending, FINAL)))

    def _descending(self, state: str) -> Iterator[tuple[int, Line]]:
        return ((number, unpack_line(data, state)) for number, data in descending(self._lines(state)))

    def __len__(self) -> int:
        return self.count  # the size of a tree takes a walk through it

    def _lines(self, state: str) -> LineTree:
        return self.failed if state == FAILED else self.complete


def descending(tree: Any) -> Iterator[tuple[int, Any]]:
    """Yield the items of a tree by numbers, the greatest first; BTrees do not iterate backwards."""
    bound = None
    while True:
        try:
            number = tree.maxKey() if bound is None else tree.maxKey(bound)
        except ValueError:  # none before it
            return
        yield number, tree[number]
        bound = number - 1


def merge_descending(*rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Merge rows that begin with a number, each lot in descending order."""
    return heapq.merge(*rows, key=lambda row: -row[0])


def _encoded(values: list[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _size(text: str) -> int:
    return len(_encoded([text])) - 4


def _shortened(text: str, size: int) -> str:
    """Return the longest beginning of a text that takes `size` bytes in a line."""
    if _size(text) <= size:
        return text
    kept = text[:size]
    while kept and _size(kept + _CUT) > size:
        kept = kept[: min(len(kept) - 1, len(kept) - (_size(kept + _CUT) - size) // 6)]
    return kept + _CUT if kept else ""


class EndedTree(LOBTree):
    """Number -> mission that has ended. Small nodes: the last leaf is rewritten whenever a mission ends."""

    __module__ = "batos.image"
    max_leaf_size, max_internal_size = 8, 16


class Ended(Persistent):
    """Missions that have ended and are kept whole, by final state: see `settle` and `index_ended`."""

    __module__ = "batos.image"

    def __init__(self, missing: int = 0) -> None:
        """
        :param missing: highest number of the missions that are not indexed yet, in an image that had no such index.
        """
        self.complete, self.failed = EndedTree(), EndedTree()
        self.missing, self.done = missing, 0
        """Missions up to number `missing` are older than the index; those up to `done` are in it."""

    def by(self, state: str) -> EndedTree:
        """Return the missions of a final state."""
        return self.failed if state == FAILED else self.complete

    @property
    def is_whole(self) -> bool:
        """Return True if all missions that have ended are in the index."""
        return bool(self.done >= self.missing)


def index_ended(root: Root, stretch: list[str], done: int) -> None:
    """Index missions that had ended before the index existed. A system transaction.

    :param done: number up to which all missions are indexed then.
    """
    ledger = root["ledger"]
    for id in stretch:
        with contextlib.suppress(ImageDamaged):  # the self-audit tells of it
            if (mission := ledger.missions.get(id)) is not None and mission.state in FINAL:
                ledger.ended.by(mission.state)[mission.number] = mission
    ledger.ended.done = max(ledger.ended.done, done)


def unindexed_missions(root: Root) -> tuple[list[str], int] | None:
    """Return the next ids for `index_ended`, with its `done`; None once all are in the index."""
    ended = root["ledger"].ended
    if ended.is_whole:
        return None
    upto = min(ended.missing, ended.done + MILESTONE)
    return [mission.id for mission in numbered(root, ended.done, upto - ended.done) if mission.state in FINAL], upto


def listed(root: Root, state: str | None = None) -> Iterator[UvmObject | Line]:
    """Yield missions as they are kept, whole or as lines, the last accepted first: all, or those in a final state."""
    ledger = root["ledger"]
    whole: Iterator[tuple[int, Any]]
    if state is None:
        whole = ((mission.number, mission) for mission in newest_first(root))
    elif ledger.ended is None or not ledger.ended.is_whole:
        whole = ((mission.number, mission) for mission in newest_first(root) if mission.state == state)
    else:
        whole = merge_descending(_readable(descending(ledger.ended.by(state))), _just_ended(ledger, state))
    if ledger.folded is None:
        return (mission for _, mission in whole)
    return (row[1] for row in merge_descending(whole, ((line.number, line) for line in ledger.folded.newest_first(state))))


def _just_ended(ledger: Any, state: str) -> Iterator[tuple[int, UvmObject]]:
    """Return the ended missions that are not settled yet."""
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
