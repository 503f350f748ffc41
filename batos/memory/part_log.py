"""Log of immutable parts in the image: each addition is a part of its own and touches no other. The log of vectors is one.

Two units of work that add at the same time do not conflict, because the tree of parts merges their entries. Dropped entries are only
recorded, also without touching a part. `tidy` merges small parts and `purge` removes dropped entries for good: upkeep, in system
transactions.

The newest parts are in a record of their own (`Tail`): an addition writes that record and not a tree's leaf with all the others. The leaf
would be written whole and check every value of every entry for persistence. `Tail` packs keys and sizes and checks only the parts. Two
concurrent additions are merged by key, and so are an addition and a merge of parts.

The log of vectors holds half-precision rows in blocks of 1, 32 and 1,024 rows, one log for each embedder. Half precision loses nothing
that a search would notice (measured: the same recall to three digits), and takes half the bytes.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from BTrees.LLBTree import LLBTree
from BTrees.LOBTree import LOBTree
from persistent import Persistent
from ZODB.POSException import ConflictError

from batos.memory.segments import Array, pack_sorted, unpack_sorted

Packed = tuple[bytes, tuple[Any, ...]]
"""Keys and sizes as bytes, and the parts."""
_ENTRY = struct.Struct("<qI")


class Tail(Persistent):
    """A mapping of few entries: key -> (rows, part), in the order of their keys."""

    __module__ = "batos.memory"

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, Any]] = {}
        """Key -> (rows, part), in the order of keys."""
        self._numbers = b""
        """Keys and sizes, as they are stored."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: int) -> bool:
        return key in self._held

    def newest(self) -> int:
        """Return the greatest key."""
        newest: int = next(reversed(self._held))
        return newest

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._held))

    def __getitem__(self, key: int) -> tuple[int, Any]:
        return self._held[key]

    def __setitem__(self, key: int, entry: tuple[int, Any]) -> None:
        late = bool(self._held) and key <= self.newest()
        self._held[key] = entry
        if late:  # rare: a key is the time of its arrival
            self._held = dict(sorted(self._held.items()))
            self._numbers, _ = _packed(self._held)
        else:
            self._numbers += _ENTRY.pack(key, entry[0])
        self._p_changed = True

    def __delitem__(self, key: int) -> None:
        del self._held[key]
        self._numbers, _ = _packed(self._held)
        self._p_changed = True

    def __getstate__(self) -> Packed:
        return self._numbers, tuple([part for _, part in self._held.values()])

    def __setstate__(self, state: Packed) -> None:
        self._held, self._numbers = _unpacked(state), state[0]

    def _p_resolveConflict(self, old: Packed, saved: Packed, new: Packed) -> Packed:
        """Merge two changes: entries added by either stay, entries removed by either go.

        :raises ConflictError: if both removed the same entries, or added under one key: two merges of parts.
        """
        was, there, ours = _unpacked(old), _unpacked(saved), _unpacked(new)
        if was.keys() - there.keys() & was.keys() - ours.keys() or (there.keys() & ours.keys()) - was.keys():
            raise ConflictError("two merged the same parts of a log")
        both = there | ours
        return _packed({key: both[key] for key in sorted(both) if key not in was or (key in there and key in ours)})


def _packed(held: dict[int, tuple[int, Any]]) -> Packed:
    return b"".join([_ENTRY.pack(key, rows) for key, (rows, _) in held.items()]), tuple([part for _, part in held.values()])


def _unpacked(state: Packed) -> dict[int, tuple[int, Any]]:
    numbers, parts = state
    return {key: (rows, part) for (key, rows), part in zip(_ENTRY.iter_unpack(numbers), parts, strict=True)}


class Drops(NamedTuple):
    """Dropped ids in one view of a log."""

    ids: Array
    """Dropped ids, ascending."""
    ages: Array
    """Age for each id: rows of the id in parts of this age or older do not count."""
    newest: int
    """Age of the newest part at the time of the view: later parts have no drops, whatever `ages` says."""


class LogEntry(NamedTuple):
    """A part of a log, with its key. A part never changes, and a key never names another part."""

    key: int
    part: Any
    mask: Array | None
    """True for the rows that do not count; None: all count."""

    def ids(self) -> Array:
        """Return int64: the ids of the rows that count."""
        held: Array = self.part.held()
        return held if self.mask is None else held[~self.mask]


class PartLog(Persistent):
    """Base of the logs. A part is persistent and has `len`, and `held()`: the ids of its rows."""

    FAN: ClassVar[int]
    """Number of parts of about one size that are merged into one; the next size is larger by this factor."""
    MOST: ClassVar[int]
    """Greatest number of rows of a part. It bounds the time for which a merge blocks the image."""
    _tail: Tail | None = None  # None in an image of an earlier version, until `complete`
    purges = 0
    """Number of purges that ended: each took records of drops away."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all entries."""
        self._parts = LOBTree({_FIRST: (0, None)})
        """Key -> (rows, part). A key is the age of the part's newest rows, which ascends in time; its last bits count the rewrites."""
        self._gone = LLBTree({_FIRST: _FIRST})
        """Id -> age: in parts of this age or older, rows of the id do not count. More than `EVER`: no rows of the id count until it is
        added again.
        """
        self._tail = Tail()

    def complete(self) -> None:
        """Make what an earlier BAT OS did not have."""
        if self._tail is None:
            self._tail = Tail()

    def drop(self, ids: Iterable[int]) -> None:
        """Drop the entries of these ids; they can be added again. Unknown ids are ignored."""
        # The mark covers parts of any age: a concurrent merge may move the rows into a part that is newer than all that this transaction
        # sees.
        mark = EVER + (self._newest() >> _TURNS)
        self._gone.update(dict.fromkeys(map(int, ids), mark))

    def tidy(self) -> bool:
        """Merge parts of one size if there are too many of them. Return True if there were; then more may be due."""
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
        """Remove dropped rows for good; the next pack removes their bytes. Return the number of rows."""
        held = self._rows()
        self.purge_some(self.drops(), _FIRST)
        return held - self._rows()

    def purge_some(self, drops: Drops, after: int, rows: int | None = None) -> int | None:
        """Remove a part of the dropped entries: this bounds the cost for other transactions.

        :param drops: first result of `drops`. Later drops wait for the next purge.
        :param after: `BEGIN` at first, then the last return value.
        :param rows: return after this many rows in rewritten parts; None: never.
        :returns: position to continue at; None when all entries are removed and no longer recorded as dropped.
        """
        written = 0
        for key, size, part in self._entries():
            if key <= after or _mask(key, part, drops) is None:
                part._p_deactivate()  # the cache counts objects, and a part is as large as a thousand others
                continue
            self._merge([key])
            written += size
            if rows is not None and written >= rows:
                return key
        for id, age in zip(drops.ids.tolist(), drops.ages.tolist(), strict=True):
            if id != _FIRST and self._gone.get(id) == age:  # not if the id was dropped again
                del self._gone[id]
        if len(drops.ids) > 1:
            self.purges += 1
        return None

    def dropped(self) -> int:
        """Return the number of ids dropped since the last `purge`."""
        return len(self._gone) - 1

    def parts(self) -> int:
        """Return the number of parts."""
        return len(self._parts) - 1 + len(self._tail or ())

    # --- for the logs themselves

    def _merged(self, parts: Sequence[Any], masks: Sequence[Array | None]) -> Any:
        """Return a part of the rows of these, without those under their masks."""
        raise NotImplementedError

    def _add(self, part: Any) -> None:
        self.complete()
        tail, key = self._tail, self._next_key()
        self._come_again(part.held().tolist(), key)
        if tail is None or _level(len(part), self.FAN):  # such parts are rare and stay for long
            self._parts[key] = (len(part), part)
            return
        if len(tail) >= TAIL:  # no clean-up ran for long
            for old in list(tail)[: TAIL // 2]:
                self._parts[old] = tail[old]
                del tail[old]
        tail[key] = (len(part), part)

    def _come_again(self, ids: Sequence[int], key: int) -> None:
        """Record that these dropped ids were added again: from now on only their older rows are dropped."""
        for id in {*self._gone.keys(min(ids), max(ids))}.intersection(ids):
            self._gone[id] = (key >> _TURNS) - 1

    def _each(self) -> Iterator[tuple[Any, Array | None]]:
        """Yield each part, with the mask of its dropped rows, or None. Its memory is released afterwards."""
        drops = self.drops()
        for key, _, part in self._entries():
            yield part, _mask(key, part, drops)
            part._p_deactivate()

    def _state(self) -> Any:
        """Return a value that changes as soon as anything is added, dropped or merged."""
        return list(self._parts), list(self._tail or ()), list(self._gone.items())

    def keys(self) -> list[int]:
        """Return the keys of all parts, the oldest first."""
        return [key for key, _, _ in self._entries()]

    def marks(self) -> dict[int, int]:
        """Return the drops that are recorded: id -> age. Rows of the id do not count in parts of this age or older. An age above `EVER`
        covers all parts, until the id is added again.
        """
        marks = dict(self._gone.items())
        marks.pop(_FIRST, None)
        return marks

    def entry(self, key: int, drops: Drops) -> LogEntry:
        """Return the part of a key, loaded; deactivate it after use.

        :param drops: what `drops` returned in this transaction.
        """
        part = self._home(key)[key][1]
        part._p_activate()
        return LogEntry(key, part, _mask(key, part, drops))

    def serials(self) -> tuple[bytes, ...]:
        """Return the serials of the log's records, without those of its parts: they differ as soon as anything is added, dropped or
        merged. The log is one that a connection has loaded.
        """
        tail = self._tail
        if tail is not None:
            tail._p_activate()
        return (tail._p_serial if tail is not None else b"", *_leaf_serials(self._parts), *_leaf_serials(self._gone))

    def sizes(self) -> list[int]:
        """Return the number of rows of each part, the oldest part first."""
        return [size for _, size, _ in self._entries()]

    # --- inside

    def _entries(self) -> list[tuple[int, int, Any]]:
        """Return (key, rows, part) of each part, the oldest first."""
        entries = [(key, *self._home(key)[key]) for key in (*self._parts, *(self._tail or ()))]
        return sorted((entry for entry in entries if entry[2] is not None), key=lambda entry: entry[0])

    def _home(self, key: int) -> Any:
        """Return the mapping that holds the entry of a key."""
        return self._tail if key in (self._tail or ()) else self._parts

    def _newest(self) -> int:
        """Return the greatest key."""
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
            # The age stays, so that a concurrent drop holds. The key is new: a changed entry conflicts with concurrent additions, a new
            # entry does not.
            newest = keys[-1]
            self._parts[newest >> _TURNS << _TURNS | (newest + 1) % (1 << _TURNS)] = (len(made), made)

    def drops(self) -> Drops:
        """Return the dropped ids, for `purge_some`."""
        size = len(self._gone)
        ids, ages = (np.fromiter(column, np.int64, size) for column in (self._gone.keys(), self._gone.values()))
        return Drops(ids, ages, self._newest() >> _TURNS)

    def _rows(self) -> int:
        return sum(self.sizes())

    def _fitting(self, keys: Sequence[int]) -> list[int]:
        """Return the oldest of these parts, as many as go into the largest part."""
        found: list[int] = []
        rows = 0
        for key in keys:
            rows += self._home(key)[key][0]
            if rows > self.MOST:
                break
            found.append(key)
        return found

    def _next_key(self) -> int:
        """Return a key above all earlier ones, here and in uncommitted transactions, without a shared counter that would cause
        conflicts.
        """
        global _last
        with _lock:
            last: int = self._newest() >> _TURNS
            _last = max(time.time_ns() // 1000, _last + 1, last + 1)
            return _last << _TURNS


_FIRST = BEGIN = -(2**63)
"""Key of a permanent entry: a tree that was empty, or whose first entry is deleted, conflicts with concurrent additions."""
TAIL = 64
"""Greatest number of the newest small parts, which share one record."""
EVER = 1 << 60
"""A number above every age."""
_TURNS = 10
"""Bits of a key that change when a part is rewritten. The other bits are microseconds: 64 bits last for 280 years."""
_lock = threading.Lock()
_last = 0


def _leaf_serials(tree: Any) -> Iterator[bytes]:
    tree._p_activate()
    yield tree._p_serial
    leaf = tree._firstbucket
    while leaf is not None:
        leaf._p_activate()
        yield leaf._p_serial
        leaf = leaf._next


def _mask(key: int, part: Any, drops: Drops) -> Array | None:
    """Return a mask of the dropped rows of a part; None if there are none."""
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


class Block(Persistent):
    """Rows of vectors with the ids of their chunks. Never changed."""

    __module__ = "batos.memory"

    def __init__(self, ids: Array, rows: Array) -> None:
        self.size = len(ids)
        self.ids = pack_sorted(ids)
        self.rows = rows.astype("<f2").tobytes()

    def __len__(self) -> int:
        return int(self.size)

    def held(self) -> Array:
        """Return int64: the id of each row."""
        return unpack_sorted(self.ids)

    def load(self) -> Array:
        """Return float16[n, d]: the rows, for reading."""
        return np.frombuffer(self.rows, "<f2").reshape(self.size, -1)


class VectorLog(PartLog):
    """The vectors that one embedder made of chunks.

    :param identity: identity of the embedder: kind, model and digest. Vectors of another embedder are not comparable with these.
    :param dimensions: numbers of a vector.
    :param place: place of the embedder's weights, if the identity does not give it (`batos.memory.embedders.Identity`).
    """

    __module__ = "batos.memory"
    FAN, MOST = 32, 1024
    place = ""

    def __init__(self, identity: str, dimensions: int, place: str = "") -> None:
        super().__init__()
        self.identity, self.dimensions = identity, dimensions
        if place:
            self.place = place

    def add(self, ids: Sequence[int] | Array, vectors: Array) -> None:
        """Keep the vectors of chunks that have none here yet (else `drop` them first), as a block.

        :param vectors: [n, d], unit rows.
        :raises ValueError: for vectors of another shape.
        """
        if vectors.shape != (len(ids), self.dimensions):
            raise ValueError(f"{len(ids)} vectors of {self.dimensions} numbers were expected, not an array of shape {vectors.shape}")
        for begin in range(0, len(ids), self.MOST):
            end = begin + self.MOST
            self._add(Block(np.asarray(ids[begin:end], np.int64), vectors[begin:end]))

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """Yield (ids, float16 rows) of all live rows, block by block."""
        for block, mask in self._each():
            ids, rows = block.held(), block.load()
            yield (ids, rows) if mask is None else (ids[~mask], rows[~mask])

    def ids(self) -> set[int]:
        """Return the chunks that have a vector here."""
        return {id for ids, _ in self.blocks() for id in ids.tolist()}

    def _merged(self, parts: Sequence[Any], masks: Sequence[Array | None]) -> Block:
        kept = [np.ones(len(part), bool) if mask is None else ~mask for part, mask in zip(parts, masks, strict=True)]
        ids = [part.held()[keep] for part, keep in zip(parts, kept, strict=True)]
        rows = [part.load()[keep] for part, keep in zip(parts, kept, strict=True)]
        return Block(np.concatenate(ids), np.concatenate(rows))
