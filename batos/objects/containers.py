"""Containers whose changes in place are seen, and the check of what may be stored at all.

A plain list or dict in a slot is not tracked: a change in place is lost at the next load. So plain containers become
persistent ones when they are stored. And since unpickling runs `__reduce__`, nothing is stored but plain values,
these containers, BTrees, blobs and the classes of the object model.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import itertools
import uuid
from collections.abc import Iterable, Iterator, MutableSet
from typing import Any

from persistent import Persistent
from persistent.list import PersistentList
from persistent.mapping import PersistentMapping

from batos.objects.kinds import Intent, Primitive

PLAIN = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes,
        datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone,
        decimal.Decimal, uuid.UUID, Intent, Primitive,
    }
)  # fmt: skip
_DEPTH = 64  # nesting of containers in one slot


def storable(value: Any, where: str, memo: dict[int, Any], depth: int = 0) -> Any:
    """`value` in the form in which it is stored: plain containers replaced by persistent ones, at every depth.

    :param where: the slot, for the message.
    :param memo: what was replaced so far, by `id`: a container held twice stays one, and may hold itself.
    :raises TypeError: for a value that may not be stored.
    """
    kind = type(value)
    if kind in PLAIN or isinstance(value, Persistent):
        return value
    if id(value) in memo:
        return memo[id(value)]
    if depth > _DEPTH:
        raise TypeError(f"{where}: containers nested deeper than {_DEPTH}")
    if kind is tuple:
        items = [storable(item, where, memo, depth + 1) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else tuple(items)
    if kind is frozenset or kind is set:
        for item in value:
            storable(item, where, memo, depth + 1)
        if kind is frozenset:
            return value
        memo[id(value)] = SlotSet(value)
        return memo[id(value)]
    if kind is list:
        new = memo[id(value)] = SlotList()
        new.data = [storable(item, where, memo, depth + 1) for item in value]
        return new
    if kind is dict:
        new = memo[id(value)] = SlotDict()
        for key, item in value.items():
            new.data[storable(key, where, memo, depth + 1)] = storable(item, where, memo, depth + 1)
        return new
    raise TypeError(
        f"{where}: a {kind.__module__}.{kind.__qualname__} may not be stored; "
        "use plain values, containers of them, UvmObjects, or keep the source text as a Method"
    )


def copied(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of plain values and of slot containers; other persistent objects are shared.

    :param memo: as of `copy.deepcopy`: a container held twice stays one, and may hold itself.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if kind is SlotList or kind is list:
        new = memo[id(value)] = kind()
        new.extend(copied(item, memo) for item in value)
        return new
    if kind is SlotDict or kind is dict:
        new = memo[id(value)] = kind()
        new.update((key, copied(item, memo)) for key, item in value.items())
        return new
    if kind is SlotSet or kind is set:
        new = memo[id(value)] = kind(value)
        return new
    if kind is tuple or kind is frozenset:
        return kind(copied(item, memo) for item in value)
    if isinstance(value, Persistent):
        return value
    return copy.deepcopy(value, memo)


class _Checked:
    """State check shared by the containers: what was put in since the last store is converted when it is stored."""

    def __getstate__(self) -> Any:
        self._convert()
        return super().__getstate__()

    def _convert(self) -> None:
        raise AssertionError("each container has its own")


class SlotList(_Checked, PersistentList):
    """A list in a slot. For histories and anything else that grows, keep one object per entry instead."""

    __module__ = "batos.objects"

    def _convert(self) -> None:
        memo: dict[int, Any] = {}
        self.data[:] = [storable(item, "an item of a list", memo) for item in self.data]


class SlotDict(_Checked, PersistentMapping):
    """A dict in a slot."""

    __module__ = "batos.objects"

    def _convert(self) -> None:
        memo: dict[int, Any] = {}
        for key, value in self.data.items():
            storable(key, "a key of a dict", memo)
            self.data[key] = storable(value, f"item {key!r} of a dict", memo)


class SlotSet(_Checked, Persistent, MutableSet[Any]):
    """A set in a slot."""

    __module__ = "batos.objects"

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.data = set(items)

    def _convert(self) -> None:
        for item in self.data:
            storable(item, "an item of a set", {})

    def __contains__(self, item: object) -> bool:
        return item in self.data

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def add(self, value: Any) -> None:
        if value not in self.data:
            self.data.add(value)
            self._p_changed = True

    def discard(self, value: Any) -> None:
        if value in self.data:
            self.data.discard(value)
            self._p_changed = True

    # what a plain set has beyond the abstract one: code written for the one must go on working with the other

    def update(self, *others: Iterable[Any]) -> None:
        for item in itertools.chain(*others):
            self.add(item)

    def difference_update(self, *others: Iterable[Any]) -> None:
        for item in itertools.chain(*others):
            self.discard(item)

    def intersection_update(self, *others: Iterable[Any]) -> None:
        self.difference_update(self.data.difference(self.data.intersection(*others)))

    def union(self, *others: Iterable[Any]) -> SlotSet:
        return SlotSet(self.data.union(*others))

    def intersection(self, *others: Iterable[Any]) -> SlotSet:
        return SlotSet(self.data.intersection(*others))

    def difference(self, *others: Iterable[Any]) -> SlotSet:
        return SlotSet(self.data.difference(*others))

    def symmetric_difference(self, other: Iterable[Any]) -> SlotSet:
        return SlotSet(self.data.symmetric_difference(other))

    def issubset(self, other: Iterable[Any]) -> bool:
        return self.data.issubset(other)

    def issuperset(self, other: Iterable[Any]) -> bool:
        return self.data.issuperset(other)

    def copy(self) -> SlotSet:
        return SlotSet(self.data)

    def __repr__(self) -> str:
        return f"SlotSet({self.data!r})"
