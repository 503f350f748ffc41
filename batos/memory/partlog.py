"""A log of immutable parts in the image: what is added is a part of its own, and touches no other.

Two units of work that add at the same time do not conflict (the tree of parts merges their entries). What is dropped is only noted, also
without touching a part. Small parts become larger ones, and what was dropped goes for good, when somebody calls `tidy` or `purge`: upkeep,
in system transactions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from BTrees.LLBTree import LLBTree
from BTrees.LOBTree import LOBTree
from persistent import Persistent

from batos.memory.segments import Array
from batos.memory.tail import Tail


class Drops(NamedTuple):
    """What is noted as dropped, in one view of a log."""

    ids: Array
    """Ascending."""
    ages: Array
    """In parts of this age or older, the rows of each count no more."""
    newest: int
    """Age of the newest part then: what came later was not dropped, whatever `ages` says."""


class PartLog(Persistent):
    """Base of the logs. A part is persistent and has `len`, and `held()`: the ids of its rows."""

    FAN: ClassVar[int]
    """So many parts of about one size become one; the next size is as many times larger."""
    MOST: ClassVar[int]
    """Rows of the largest part: what a merge holds up the image for is bounded by it."""
    _tail: Tail | None = None  # an image of an earlier version has none until `complete`

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Hold nothing any more."""
        self._parts = LOBTree({_FIRST: (0, None)})
        """Key -> (rows, part). A key is the age of the part's newest rows, which ascends in time, and in its last bits the turn."""
        self._gone = LLBTree({_FIRST: _FIRST})
        """Id -> age: in parts of this age or older, the id's rows count no more; more than `_EVER`: in none, until it is added again."""
        self._tail = Tail()

    def complete(self) -> None:
        """Make what an earlier BAT OS did not have."""
        if self._tail is None:
            self._tail = Tail()

    def drop(self, ids: Iterable[int]) -> None:
        """What is held of these ids is held no more; it can be added again. Ids that are not held do not matter."""
        # in parts of any age: a merge beside this transaction may put their rows into one that is newer than all that it sees
        mark = _EVER + (self._newest() >> _TURNS)
        self._gone.update(dict.fromkeys(map(int, ids), mark))

    def tidy(self) -> bool:
        """Merge parts of one size if there are too many of them; whether there were (then there may be more to do)."""
        levels: dict[int, list[int]] = {}
        for key, size, _ in self._entries():
            if size * 2 <= self.MOST:
                levels.setdefault(_level(size, self.FAN), []).append(key)
        for level in sorted(levels):
            if len(levels[level]) >= self.FAN:
                self._merge(self._fitting(levels[level]))
                return True
        return False

    def purge(self) -> int:
        """Take out what was dropped, so that nothing of it is left once the image is packed; how many rows that were."""
        held = self._rows()
        self.purge_some(self.drops(), _FIRST)
        return held - self._rows()

    def purge_some(self, drops: Drops, after: int, rows: int | None = None) -> int | None:
        """Take a part of that out: what a transaction costs others is bounded by it.

        :param drops: what `drops` said at first. What is dropped meanwhile waits for the next purge.
        :param after: `BEGIN` at first, then what was answered.
        :param rows: after so many rows in parts that were written anew it answers; None: never.
        :returns: where to go on; None when all of it is out and no longer noted.
        """
        written = 0
        for key, size, part in self._entries():
            if key <= after or _mask(key, part, drops) is None:
                part._p_deactivate()  # a cache counts objects, and a part is as large as a thousand others
                continue
            self._merge([key])
            written += size
            if rows is not None and written >= rows:
                return key
        for id, age in zip(drops.ids.tolist(), drops.ages.tolist(), strict=True):
            if id != _FIRST and self._gone.get(id) == age:  # not one that was dropped again
                del self._gone[id]
        return None

    def dropped(self) -> int:
        """How many ids are noted as dropped since the last `purge`."""
        return len(self._gone) - 1

    def parts(self) -> int:
        """How many parts there are."""
        return len(self._parts) - 1 + len(self._tail or ())

    # --- for the logs themselves

    def _merged(self, parts: Sequence[Any], masks: Sequence[Array | None]) -> Any:
        """A part of the rows of these, without those under their masks."""
        raise NotImplementedError

    def _add(self, part: Any) -> None:
        self.complete()
        tail, key = self._tail, self._next_key()
        self._come_again(part.held().tolist(), key)
        if tail is None or _level(len(part), self.FAN):  # few of those come, and none of them goes soon
            self._parts[key] = (len(part), part)
            return
        if len(tail) >= _TAIL:  # nobody tidied for long
            for old in list(tail)[: _TAIL // 2]:
                self._parts[old] = tail[old]
                del tail[old]
        tail[key] = (len(part), part)

    def _come_again(self, ids: Sequence[int], key: int) -> None:
        """Of those that were dropped, only older rows count no more from now on."""
        for id in {*self._gone.keys(min(ids), max(ids))}.intersection(ids):
            self._gone[id] = (key >> _TURNS) - 1

    def _each(self) -> Iterator[tuple[Any, Array | None]]:
        """Each part, with the mask of its rows that were dropped, or None. Its memory is let go afterwards."""
        drops = self.drops()
        for key, _, part in self._entries():
            yield part, _mask(key, part, drops)
            part._p_deactivate()

    def _state(self) -> Any:
        """What is another as soon as anything was added, dropped or merged."""
        return list(self._parts), list(self._tail or ()), list(self._gone.items())

    # --- inside

    def _entries(self) -> list[tuple[int, int, Any]]:
        """(key, rows, part), oldest first."""
        entries = [(key, *self._home(key)[key]) for key in (*self._parts, *(self._tail or ()))]
        return sorted((entry for entry in entries if entry[2] is not None), key=lambda entry: entry[0])

    def _home(self, key: int) -> Any:
        """Where the entry of a key is."""
        return self._tail if key in (self._tail or ()) else self._parts

    def _newest(self) -> int:
        """The greatest key."""
        return max(self._parts.maxKey(), self._tail.newest() if self._tail else _FIRST)  # type: ignore[no-any-return]

    def _merge(self, keys: Sequence[int]) -> None:
        parts = [self._home(key)[key][1] for key in keys]
        drops = self.drops()
        made = self._merged(parts, [_mask(key, part, drops) for key, part in zip(keys, parts, strict=True)])
        for part in parts:
            part._p_deactivate()
        for key in keys:
            del self._home(key)[key]
        if len(made):
            # Of the same age, so that a drop that is committed meanwhile holds. Not under the same key: a changed entry
            # conflicts with entries that are added meanwhile, a new one does not.
            newest = keys[-1]
            self._parts[newest >> _TURNS << _TURNS | (newest + 1) % (1 << _TURNS)] = (len(made), made)

    def drops(self) -> Drops:
        """What is noted as dropped, for `purge_some`."""
        size = len(self._gone)
        ids, ages = (np.fromiter(column, np.int64, size) for column in (self._gone.keys(), self._gone.values()))
        return Drops(ids, ages, self._newest() >> _TURNS)

    def _rows(self) -> int:
        return sum(size for _, size, _ in self._entries())

    def _fitting(self, keys: Sequence[int]) -> list[int]:
        """The oldest of these parts, as many as go into the largest part."""
        found: list[int] = []
        rows = 0
        for key in keys:
            rows += self._home(key)[key][0]
            if rows > self.MOST:
                break
            found.append(key)
        return found

    def _next_key(self) -> int:
        """Later than all before, here and in transactions that are not committed yet; no counter that all would write."""
        global _last
        with _lock:
            last: int = self._newest() >> _TURNS
            _last = max(time.time_ns() // 1000, _last + 1, last + 1)
            return _last << _TURNS


_FIRST = BEGIN = -(2**63)
"""The key of an entry that stays: a tree whose first entry is deleted, or that was empty, conflicts with whatever is added meanwhile."""
_TAIL = 64
"""Small parts, the newest, that are in a record of their own."""
_EVER = 1 << 60
"""Above every age."""
_TURNS = 10
"""Bits of a key that change when a part is written anew. The others are microseconds: that fits 64 bits for 280 years."""
_lock = threading.Lock()
_last = 0


def _mask(key: int, part: Any, drops: Drops) -> Array | None:
    """Which rows of a part were dropped; None for none."""
    ids, ages, newest = drops
    if len(ids) == 1:
        return None
    held = part.held()
    at = np.minimum(np.searchsorted(ids, held), len(ids) - 1)
    mask: Array = (ids[at] == held) & (np.minimum(ages[at], newest) >= key >> _TURNS)
    return mask if mask.any() else None


def _level(size: int, fan: int) -> int:
    level = 0
    while size >= fan:
        size //= fan
        level += 1
    return level
