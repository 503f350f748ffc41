"""The membrane: conversion of values between image and sandbox.

An object goes in as a handle; only a handle that went in comes back as an object. Every value that comes out is checked. It is bounded in
nodes and bytes (forty nested pairs of one list are 2**40 nodes), of plain types, and without cycles. Nothing is ever taken from the
attributes of a returned value: the sandbox can forge those.

Slots written by methods change containers in place, so that their records keep their identity; if a method raises, all its writes are
undone.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import re
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from persistent.list import PersistentList
from persistent.mapping import PersistentMapping

from batos.objects import Intent, Method, Primitive, SlotDict, SlotList, SlotSet, UvmObject
from batos.objects.slot_values import PLAIN, storable

if TYPE_CHECKING:
    from pydantic_monty import ClassInstance

_SCALARS = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes,
        datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone, decimal.Decimal,
    }
)  # fmt: skip
_SETS = (set, SlotSet)
_BUILT_IN = frozenset({list, dict, tuple, set})
_DEPTH = 64
_INT_BITS = 14_000  # bits of the largest int that can be printed: CPython's limit is 4300 digits
_NO_VALUE = re.compile(r"<(function '.*' at 0x[0-9a-f]+|module '[\w.]+')>")
"""Texts that stand for functions and modules: the client converts them to text."""


class TooLarge(ValueError):
    """More nodes or bytes than may pass at a time."""


class Handle:
    """Object behind a handle in the sandbox. With a receiver it is a parent that a method named as its own receiver's: messages to it are
    resends, and the receiver stays.
    """

    __slots__ = ("obj", "receiver")

    def __init__(self, obj: Any, receiver: UvmObject | None) -> None:
        self.obj, self.receiver = obj, receiver


Handle.__name__ = "UvmObject"  # the name that the interpreter's messages use


class HandleName(uuid.UUID):
    """Name of a handle in the sandbox. The attributes that the client asks for at each crossing are computed once: the names of a mission
    serve all its runs.
    """

    __slots__ = ("attributes", "bytes", "hex")
    attributes: dict[str, str]

    def __init__(self, key: bytes) -> None:
        super().__init__(bytes=key)
        for attribute, value in (("bytes", key), ("hex", key.hex()), ("attributes", {"_oid": key.hex()})):
            object.__setattr__(self, attribute, value)  # a UUID forbids normal assignment


class Handles:
    """The objects given to one run of a method, and their handles."""

    __slots__ = ("_by_name", "_name", "_refs")

    def __init__(self, name: Callable[[int], HandleName]) -> None:
        self._name = name
        self._by_name: dict[bytes, Handle] = {}
        self._refs: dict[tuple[int, int], ClassInstance] = {}

    def give(self, obj: UvmObject, receiver: UvmObject | None = None) -> ClassInstance:
        """Return the handle of an object, granted from now on."""
        key = id(obj), id(receiver)
        ref = self._refs.get(key)
        if ref is None:
            name, handle = self._name(len(self._refs)), Handle(obj, receiver)
            kind, held = _wrapper()
            ref = kind.__new__(kind)  # the client's own constructor takes longer than the rest
            ref.__dict__.update(held, value=handle, id=name, get_eager_attrs=name.attributes.copy)
            self._refs[key], self._by_name[name.bytes] = ref, handle
        return ref

    def get(self, value: object) -> Handle:
        """Return the handle for `value`, which is the client's form of the handle, or its id.

        :raises PermissionError: for an object that the run was not given.
        """
        if type(value) is Handle and (id(value.obj), id(value.receiver)) in self._refs:
            return value
        held = self._by_name.get(value.bytes) if isinstance(value, uuid.UUID) else None
        if held is None:
            raise PermissionError("the reference is not to an object of this method")
        return held


@functools.cache
def client() -> Any:
    """Return the client library; late, since a daemon that runs no method does not pay for it."""
    import pydantic_monty

    return pydantic_monty


@functools.cache
def _wrapper() -> tuple[Any, dict[str, Any]]:
    """Return the client's wrapper of an object with nothing exposed and nothing to work out at each crossing, and what each has.

    What the client calls at each crossing is built-in: `bool()` is False, `dict()` is empty, and the copy of a dict is one. After a rest
    each function in Python would take two microseconds.
    """

    class Reference(client().ClassInstance):  # type: ignore[misc]
        is_dataclass = bool

        def __post_init__(self) -> None:
            pass  # there are no policies to check

    class Kind(client().ClassType):  # type: ignore[misc]
        is_dataclass = bool
        get_eager_attrs = dict

    return Reference, dict(Reference(Handle(None, None), class_type=Kind(Handle, id=_CLASS)).__dict__)


_CLASS = HandleName(bytes.fromhex("6f3f7a528f0e5f0b9a635d6b1f6f2c11"))  # the identity of `type(self)`, the same in every worker


class Membrane:
    """Conversion both ways for one run of a method."""

    __slots__ = ("_nodes", "_text", "handles", "weight")

    def __init__(self, handles: Handles, *, nodes: int, text: int) -> None:
        self.handles, self._nodes, self._text = handles, nodes, text
        self.weight = 0  # weight of the last converted value, in nodes

    def inward(self, value: Any, *, nodes: int | None = None, text: int | None = None) -> Any:
        """Return an image value as the sandbox gets it.

        :param nodes: a limit for this value, in place of the general one; likewise `text`.
        :raises TypeError: for a value that may not enter the sandbox.
        :raises TooLarge: for a value beyond the limits.
        """
        if type(value) in _NUMBERS:
            self.weight = 1
            return value
        if type(value) is tuple and len(value) <= _FEW and _NUMBERS.issuperset(map(type, value)):
            self.weight = CONTAINER + len(value)
            return value
        nodes = self._nodes if nodes is None else nodes
        budget = _Budget(nodes, self._text if text is None else text)
        plain = self._in(value, budget, 0)
        self.weight = nodes - budget.nodes
        return plain

    def _in(self, value: Any, budget: _Budget, depth: int) -> Any:
        kind = type(value)
        budget.spend(value, kind)
        if kind in _SCALARS:
            return value
        if kind not in _BUILT_IN:
            if isinstance(value, UvmObject):
                return self.handles.give(value)
            if isinstance(value, PersistentList | PersistentMapping):
                value = value.data  # iterating over the wrapped data is faster
        if depth > _DEPTH:
            raise TooLarge(f"containers nested deeper than {_DEPTH}")
        if isinstance(value, list):
            return [item if type(item) in _FREE else self._in(item, budget, depth + 1) for item in budget.count(value)]
        if isinstance(value, dict):
            return {self._in(key, budget, depth + 1): self._in(item, budget, depth + 1) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple([self._in(item, budget, depth + 1) for item in value])
        if isinstance(value, _SETS):
            return {self._in(item, budget, depth + 1) for item in value}
        if kind is frozenset:
            return frozenset([self._in(item, budget, depth + 1) for item in value])
        if isinstance(value, Intent | Primitive):
            return value.text
        if isinstance(value, Method):
            return f"<method {value.selector}>"
        if kind is uuid.UUID:
            return str(value)
        raise TypeError(f"a {kind.__name__} may not enter a method")

    def outward(self, value: Any) -> Any:
        """Return a value of the sandbox as the image gets it: new, plain, without sharing.

        :raises TypeError: for a value that may not leave the sandbox.
        :raises PermissionError: for an object that the run was not given.
        :raises TooLarge: for a value beyond the limits.
        """
        kind = type(value)
        if kind in _FREE or (kind is int and -_SMALL < value < _SMALL):
            self.weight = 1
            return value
        if kind is tuple and len(value) <= _FEW and all(map(is_number, value)):
            self.weight = CONTAINER + len(value)
            return value
        budget = _Budget(self._nodes, self._text)
        plain = self._out(value, budget, 0)
        self.weight = self._nodes - budget.nodes
        return plain

    def _out(self, value: Any, budget: _Budget, depth: int) -> Any:
        kind = type(value)
        budget.spend(value, kind)
        if kind in _SCALARS:
            return self._scalar(value, kind)
        if depth > _DEPTH:
            raise TooLarge(f"containers nested deeper than {_DEPTH}")
        if kind is list:
            return [item if type(item) in _FREE else self._out(item, budget, depth + 1) for item in budget.count(value)]
        if kind is dict:
            return {self._out(key, budget, depth + 1): self._out(item, budget, depth + 1) for key, item in value.items()}
        if isinstance(value, tuple):  # includes named tuples
            return tuple([self._out(item, budget, depth + 1) for item in value])
        if kind is set or kind is frozenset:
            return kind([self._out(item, budget, depth + 1) for item in value])
        if kind is Handle:
            return self.handles.get(value).obj
        raise TypeError(f"a {kind.__name__} may not leave a method; use plain values, containers of them, and objects")

    @staticmethod
    def _scalar(value: Any, kind: type) -> Any:
        if kind is int and value.bit_length() > _INT_BITS:
            raise TooLarge(f"an int of {value.bit_length()} bits")
        if kind is decimal.Decimal and value.is_snan():  # a signalling NaN raises when it is compared, and stored values are compared
            raise TypeError("a signalling NaN may not leave a method; Decimal('NaN') may")
        if kind is str and value[:1] == "<" and _NO_VALUE.fullmatch(value):
            raise TypeError("a function or module may not leave a method; use plain values, containers of them, and objects")
        return value


_FREE = frozenset({type(None), bool, float})
"""Types whose values are only counted and need no other check."""


_NUMBERS = _FREE | {int}
_SMALL = 1 << 63
_FEW = 4
_SHORT = 200
CONTAINER = 8
"""Number of values that a container counts as: making and comparing a persistent container costs that much more."""


def is_number(value: Any) -> bool:
    """Return True if a value of the sandbox needs no check: a small number, a truth value or None."""
    kind = type(value)
    return kind in _FREE or (kind is int and -_SMALL < value < _SMALL)


def is_number_in_slot(change: Any) -> bool:
    """Return True if a change is a short name and a number, which need no budget."""
    return type(change) is list and len(change) == 2 and type(change[0]) is str and len(change[0]) <= _SHORT and is_number(change[1])


class _Budget:
    __slots__ = ("nodes", "text")

    def __init__(self, nodes: int, text: int) -> None:
        self.nodes, self.text = nodes, text

    def spend(self, value: Any, kind: type) -> None:
        if kind is str or kind is bytes:
            self.nodes -= 1
            self.text -= len(value)
        else:
            self.nodes -= 1 if kind in _SCALARS else CONTAINER
        if self.nodes < 0 or self.text < 0:
            raise TooLarge("more data than may pass between a method and the image at a time")

    def count(self, values: Any) -> Any:
        """Return the items of a list, those of `_FREE` types counted here in one go."""
        self.nodes -= sum(map(_FREE.__contains__, map(type, values)))
        if self.nodes < 0:
            raise TooLarge("more data than may pass between a method and the image at a time")
        return values


def unchanged(stored: Any, given: Any) -> bool:
    """Return True if a value of the image still equals the result of `inward`, including types and the order of keys."""
    kind = type(given)
    if kind in _SCALARS:
        if type(stored) is kind:
            return bool(stored == given or stored != stored)
        return isinstance(stored, (Intent, Primitive)) and bool(given == stored.text)
    if isinstance(stored, PersistentList | PersistentMapping):
        stored = stored.data  # iterating over the wrapped data is faster
    if kind is list:
        return isinstance(stored, list) and len(stored) == len(given) and all(map(unchanged, stored, given))
    if kind is dict:
        if not isinstance(stored, dict) or len(stored) != len(given):
            return False
        return all(unchanged(a, b) for a, b in zip(stored, given, strict=True)) and all(map(unchanged, stored.values(), given.values()))
    if kind is tuple:
        return isinstance(stored, tuple) and len(stored) == len(given) and all(map(unchanged, stored, given))
    if kind is set:
        return isinstance(stored, _SETS) and len(stored) == len(given) and all(item in given for item in stored)
    if isinstance(stored, UvmObject):
        return given is stored if isinstance(given, UvmObject) else getattr(getattr(given, "value", None), "obj", None) is stored
    return type(stored) is kind and bool(stored == given)


_RESERVED = ("__", "_p_", "_v_", "_b_")
_MISSING: Any = object()
_ALIGNED = 200  # items; longer changed stretches are compared position by position


def check_slot_name(name: object) -> str:
    """Return a selector or slot that a method may name.

    :raises AttributeError: for a reserved name, or none.
    """
    if isinstance(name, str) and name and (name[0] != "_" or not (name.startswith(_RESERVED) or name == "_slots")):
        return name
    raise AttributeError(f"{str(name)[:100]!r} is a reserved name")


class SlotJournal:
    """Undo log of the writes by one run of a method and by the methods it sent to."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done: list[tuple[Any, str | None, Any]] = []

    def write(self, obj: UvmObject, name: str, value: Any) -> None:
        """Write one slot of `obj`; a container that it holds itself already is changed in place.

        :raises AttributeError: for a name that may not be written.
        :raises TypeError: for a value that may not be stored.
        """
        if name[:1] in "_":  # other names, nearly all, are not reserved
            check_slot_name(name)
        if not name.isidentifier():
            raise AttributeError(f"{name[:100]!r} cannot be written by a method")
        obj._p_activate()
        old = obj.__dict__.get(name, _MISSING)
        if type(old) in _PLAIN and type(value) is _PLAIN[type(old)]:
            self._merge(old, value)
            return
        stored = value if type(value) in PLAIN else storable(value, f"slot {name!r}", {})
        self._done.append((obj, name, old))
        setattr(obj, name, stored)  # as `_slots` does; any unreserved identifier can be a slot's name

    def delete(self, obj: UvmObject, name: str) -> None:
        """Take a slot away.

        :raises AttributeError: if `obj` has none of its own by that name.
        """
        check_slot_name(name)
        old = obj._slots.get(name, _MISSING)
        if old is _MISSING or not name.isidentifier():
            raise AttributeError(f"no own slot {name[:100]!r} to delete")
        self._done.append((obj, name, old))
        del obj._slots[name]

    def adopt(self, other: SlotJournal) -> None:
        """Add the changes of a method that succeeded. `undo` then undoes them, too."""
        self._done += other._done

    def undo(self) -> None:
        """Restore everything as it was, the latest change first."""
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
        """Return the value to store for `new` in the place of `held`."""
        if isinstance(held, _CONTAINERS) and type(new) is _PLAIN[type(held)]:
            self._merge(held, new)
            return held
        if not isinstance(held, _CONTAINERS) and type(held) is type(new) and type(new) is not tuple and (held is new or held == new):
            return held
        return storable(new, "an item of a container", {})

    def _list(self, held: SlotList, new: list[Any]) -> list[Any] | None:
        # Keep the items that did not change at the beginning and the end: else removing the first item would rewrite the records of all.
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
        """Return the items between two unchanged ends. Items that only moved stay the same objects; items that changed are changed in
        place.
        """
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
    import difflib  # late: only a list of which several parts changed needs it

    return [*difflib.SequenceMatcher(None, [_text(item) for item in old], [_text(item) for item in new], autojunk=False).get_opcodes()]


def _text(value: Any) -> str:
    """Return the same text for a stored value and for the plain one of the same content."""
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
_MERGES: dict[type, Any] = {SlotList: SlotJournal._list, SlotDict: SlotJournal._dict, SlotSet: SlotJournal._set}
