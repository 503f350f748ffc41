"""The newest parts of a log, in a record of their own: an addition writes that one, and not the leaf of a tree with all the others.

A tree's leaf is written whole, and asks of every entry's every value whether it is persistent. Here keys and sizes are packed, and
only the parts are asked about. Two units that add at the same time are put together by key, and so is one that adds and a merge.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from persistent import Persistent
from ZODB.POSException import ConflictError

Packed = tuple[bytes, tuple[Any, ...]]
"""Keys and sizes, and the parts."""
_ENTRY = struct.Struct("<qI")


class Tail(Persistent):
    """A mapping of few entries: key -> (rows, part), in the order of their keys."""

    __module__ = "batos.memory"

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, Any]] = {}
        """In the order of keys."""
        self._numbers = b""
        """Keys and sizes as they are stored."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: int) -> bool:
        return key in self._held

    def newest(self) -> int:
        """The greatest key."""
        newest: int = next(reversed(self._held))
        return newest

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._held))

    def __getitem__(self, key: int) -> tuple[int, Any]:
        return self._held[key]

    def __setitem__(self, key: int, entry: tuple[int, Any]) -> None:
        late = bool(self._held) and key <= self.newest()
        self._held[key] = entry
        if late:  # hardly ever: a key is of the time when it came
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
        """What was added by either is there, what was taken out by either is not.

        :raises ConflictError: where both took out the same, or added under one key: two merges.
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
