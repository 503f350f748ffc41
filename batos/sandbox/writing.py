"""Slots written by methods: containers changed in place, so that their records stay who they are, and everything undone when
a method raises."""

from __future__ import annotations

import difflib
from typing import Any

from batos.objects import SlotDict, SlotList, SlotSet, UvmObject
from batos.objects.containers import PLAIN, storable
from batos.sandbox.membrane import unchanged

_RESERVED = ("__", "_p_", "_v_", "_b_")
_MISSING: Any = object()
_ALIGNED = 200  # items; longer stretches that changed are compared place by place


def check_name(name: object) -> str:
    """A selector or slot that a method may name.

    :raises AttributeError: for a reserved name, or none.
    """
    if isinstance(name, str) and name and (name[0] != "_" or not (name.startswith(_RESERVED) or name == "_slots")):
        return name
    raise AttributeError(f"{str(name)[:100]!r} is a reserved name")


class Journal:
    """What was written by one run of a method and by the methods it sent to, so that it can be taken back."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done: list[tuple[Any, str | None, Any]] = []

    def write(self, obj: UvmObject, name: str, value: Any) -> None:
        """Write one slot of `obj`; a container that it holds itself already is changed in place.

        :raises AttributeError: for a name that may not be written.
        :raises TypeError: for a value that may not be stored.
        """
        if name[:1] in "_":  # others are not reserved: nearly all
            check_name(name)
        if not name.isidentifier():
            raise AttributeError(f"{name[:100]!r} cannot be written by a method")
        obj._p_activate()
        old = obj.__dict__.get(name, _MISSING)
        if type(old) in _PLAIN and type(value) is _PLAIN[type(old)]:
            self._merge(old, value)
            return
        stored = value if type(value) in PLAIN else storable(value, f"slot {name!r}", {})
        self._done.append((obj, name, old))
        setattr(obj, name, stored)  # as `_slots` does; an identifier that is not reserved may be any slot's name

    def delete(self, obj: UvmObject, name: str) -> None:
        """Take a slot away.

        :raises AttributeError: if `obj` has none of its own by that name.
        """
        check_name(name)
        old = obj._slots.get(name, _MISSING)
        if old is _MISSING or not name.isidentifier():
            raise AttributeError(f"no own slot {name[:100]!r} to delete")
        self._done.append((obj, name, old))
        del obj._slots[name]

    def adopt(self, other: Journal) -> None:
        """Take on what a method that ended well has done: it is undone with this one's own."""
        self._done += other._done

    def undo(self) -> None:
        """Everything as it was, latest first."""
        while self._done:
            holder, name, old = self._done.pop()
            if name is None:
                holder.data = old
                holder._p_changed = True
            elif old is _MISSING:
                holder._slots.pop(name, None)
            else:
                holder._slots[name] = old

    # --- containers

    def _merge(self, held: Any, new: Any) -> None:
        data = _MERGES[type(held)](self, held, new)
        if data is not None:
            self._done.append((held, None, held.data))
            held.data = data
            held._p_changed = True

    def _value(self, held: Any, new: Any) -> Any:
        """What stands for `new` where `held` stood."""
        if isinstance(held, _CONTAINERS) and type(new) is _PLAIN[type(held)]:
            self._merge(held, new)
            return held
        if not isinstance(held, _CONTAINERS) and type(held) is type(new) and type(new) is not tuple and (held is new or held == new):
            return held
        return storable(new, "an item of a container", {})

    def _list(self, held: SlotList, new: list[Any]) -> list[Any] | None:
        # What stayed at the beginning and at the end stays: else taking the first of many rewrote the records of all.
        first, last = 0, 0
        shorter = min(len(held), len(new))
        while first < shorter and _equal(held.data[first], new[first]):
            first += 1
        while last < shorter - first and _equal(held.data[-1 - last], new[-1 - last]):
            last += 1
        if first == len(held) == len(new):
            return None
        middle = self._middle(held.data[first : len(held) - last], new[first : len(new) - last])
        return [*held.data[:first], *middle, *held.data[len(held) - last :]]

    def _middle(self, old: list[Any], new: list[Any]) -> list[Any]:
        """Items between two ends that stayed: those that only moved up or down are still themselves, those that changed are
        changed in place."""
        found: list[Any] = []
        for tag, i, end, j, stop in _matches(old, new):
            if tag == "equal":
                found += old[i:end]
                continue
            both = min(end - i, stop - j)
            found += [self._value(a, b) for a, b in zip(old[i : i + both], new[j : j + both], strict=True)]
            found += [storable(item, "an item of a list", {}) for item in new[j + both : stop]]
        return found

    def _dict(self, held: SlotDict, new: dict[Any, Any]) -> dict[Any, Any] | None:
        data = {
            storable(key, "a key of a dict", {}): self._value(held.data[key], item)
            if key in held.data
            else storable(item, f"item {key!r}", {})
            for key, item in new.items()
        }
        same = len(data) == len(held.data) and all(
            a == b and type(a) is type(b) and v is w for (a, v), (b, w) in zip(data.items(), held.data.items(), strict=True)
        )
        return None if same else data

    def _set(self, held: SlotSet, new: set[Any]) -> set[Any] | None:
        if held.data == new and {type(item) for item in held.data} == {type(item) for item in new}:
            return None
        return {storable(item, "an item of a set", {}) for item in new}


def _matches(old: list[Any], new: list[Any]) -> list[tuple[str, int, int, int, int]]:
    if max(len(old), len(new)) > _ALIGNED or not any(isinstance(item, _CONTAINERS) for item in old):
        return [("replace", 0, len(old), 0, len(new))]
    return [*difflib.SequenceMatcher(None, [_text(item) for item in old], [_text(item) for item in new], autojunk=False).get_opcodes()]


def _text(value: Any) -> str:
    """The same text for a stored value and for the plain one of the same content."""
    if isinstance(value, UvmObject):
        return f"object {id(value)}"
    if isinstance(value, SlotList | list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, SlotDict | dict):
        return f"{{{','.join(f'{_text(k)}:{_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, SlotSet | set):
        return f"set {sorted(map(_text, value))}"
    return f"({','.join(map(_text, value))})" if isinstance(value, tuple) else f"{type(value).__name__} {value!r}"


def _equal(held: Any, new: Any) -> bool:
    return held is new if isinstance(held, UvmObject) else unchanged(held, new)


_CONTAINERS = (SlotList, SlotDict, SlotSet)
_PLAIN: dict[type, type] = {SlotList: list, SlotDict: dict, SlotSet: set}
_MERGES: dict[type, Any] = {SlotList: Journal._list, SlotDict: Journal._dict, SlotSet: Journal._set}
