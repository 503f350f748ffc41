"""A log of immutable parts in the image: what is added is a part of its own, and touches no other.

Two units of work that add at the same time do not conflict (the tree of parts merges their entries). What is dropped is only noted, also
without touching a part. Small parts become larger ones, and what was dropped goes for good, when somebody calls `tidy` or `purge`: upkeep,
in system transactions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from BTrees.LLBTree import LLBTree
from BTrees.LOBTree import LOBTree
from persistent import Persistent

from batos.memory.segments import Array


class PartLog(Persistent):
    """Base of the logs. A part is persistent and has `len`, and `held()`: the ids of its rows."""

    FAN: ClassVar[int]
    """So many parts of about one size become one; the next size is as many times larger."""
    MOST: ClassVar[int]
    """Rows of the largest part: what a merge holds up the image for is bounded by it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Hold nothing any more."""
        self._parts = LOBTree()
        """Key -> (rows, part). Keys ascend in time."""
        self._gone = LLBTree()
        """Id -> key: in this part and all before it, the id's rows count no more."""

    def drop(self, ids: Iterable[int]) -> None:
        """What is held of these ids is held no more; it can be added again. Ids that are not held do not matter."""
        if self._parts:
            last = self._parts.maxKey()
            self._gone.update({int(id): last for id in ids})

    def tidy(self) -> bool:
        """Merge parts of one size if there are too many of them; whether there were (then there may be more to do)."""
        levels: dict[int, list[int]] = {}
        for key, (size, _) in self._parts.items():
            if size * 2 <= self.MOST:
                levels.setdefault(_level(size, self.FAN), []).append(key)
        for level in sorted(levels):
            if len(levels[level]) >= self.FAN:
                self._merge(self._fitting(levels[level]))
                return True
        return False

    def purge(self) -> int:
        """Take out what was dropped, so that nothing of it is left once the image is packed; how many rows that were."""
        lost = 0
        for key in list(self._parts):
            mask = self._mask(key)
            if mask is not None:
                lost += int(mask.sum())
                self._merge([key])
        self._gone.clear()
        return lost

    def dropped(self) -> int:
        """How many ids are noted as dropped since the last `purge`."""
        return len(self._gone)

    def parts(self) -> int:
        """How many parts there are."""
        return len(self._parts)

    # --- for the logs themselves

    def _merged(self, parts: Sequence[Any], masks: Sequence[Array | None]) -> Any:
        """A part of the rows of these, without those under their masks."""
        raise NotImplementedError

    def _add(self, part: Any) -> None:
        self._parts[self._next_key()] = (len(part), part)

    def _each(self) -> Iterator[tuple[Any, Array | None]]:
        """Each part, with the mask of its rows that were dropped, or None. Its memory is let go afterwards."""
        for key, (_, part) in self._parts.items():
            yield part, self._mask(key)
            part._p_deactivate()

    # --- inside

    def _merge(self, keys: Sequence[int]) -> None:
        parts = [self._parts[key][1] for key in keys]
        made = self._merged(parts, [self._mask(key) for key in keys])
        for key in keys:
            del self._parts[key]
        if len(made):
            self._parts[keys[-1]] = (len(made), made)  # the newest key: what was dropped after it is dropped still

    def _mask(self, key: int) -> Array | None:
        if not self._gone:
            return None
        held = self._parts[key][1].held()
        dropped = np.fromiter((id for id, last in self._gone.items() if last >= key), np.int64)
        mask = np.isin(held, dropped)
        return mask if mask.any() else None

    def _fitting(self, keys: Sequence[int]) -> list[int]:
        """The oldest of these parts, as many as go into the largest part."""
        found: list[int] = []
        rows = 0
        for key in keys:
            rows += self._parts[key][0]
            if rows > self.MOST:
                break
            found.append(key)
        return found

    def _next_key(self) -> int:
        """Later than all before, here and in transactions that are not committed yet; no counter that all would write."""
        global _last
        with _lock:
            _last = max(time.time_ns(), _last + 1, self._parts.maxKey() + 1 if self._parts else 0)
            return _last


_lock = threading.Lock()
_last = 0


def _level(size: int, fan: int) -> int:
    level = 0
    while size >= fan:
        size //= fan
        level += 1
    return level
