"""UvmObject: the one class of object. State and behaviour are slots; inheritance is delegation to parents.

The slots *are* the instance's `__dict__`: reads and writes run at the speed of C with `persistent`'s own tracking of changes. Only a name
that the object lacks reaches Python code (measured: docs/rationale.md, decision 6). There is no `__setattr__`; what may be stored is
checked when the object is stored.

Attributes are read by `object.__getattribute__`, not by `Persistent`'s: beside a `__getattr__` the interpreter has a fast path for that one
only (2.6 times faster). It does not load a ghost. A ghost has no slots, though, so the read of a slot misses and `__getattr__` loads the
object. The class's own methods look for a slot first (`_Replaceable`).

Delegation looks up a message that an object does not answer itself. It looks in the object's slots first, then in the parents, depth
first, left to right, each object once (Self: Ungar and Smith, OOPSLA 1987). Cycles and diamonds are harmless. A ghost's `__dict__` is
empty, so an object with an empty one is activated before the lookup.
"""

from __future__ import annotations

import types
from collections.abc import Callable, ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from persistent import Persistent

from batos.errors import MessageNotUnderstood
from batos.objects.slot_values import PLAIN, Primitive, copied, storable

MISSING: Any = object()
_STEPS = 32  # parents visited without a set of those seen; longer chains and cycles take the careful path


def parents_of(obj: UvmObject) -> tuple[UvmObject, ...]:
    """Return the parents of `obj`: the objects in its slots named `…*`, in the order of the slots."""
    slots = obj.__dict__
    if not slots:
        obj._p_activate()
    found: tuple[Any, ...] = ()
    for name in slots:
        if name[-1:] == "*":
            value = slots[name]
            found += value if type(value) is tuple else (value,)
    for parent in found:
        if not hasattr(type(parent), "_p_activate"):
            raise _no_parent(obj, parent)
    return found


def _no_parent(obj: UvmObject, parent: object) -> TypeError:
    # Do not raise AttributeError: `hasattr` would hide the error.
    return TypeError(f"a parent slot of {obj!r} holds a {type(parent).__name__}; it holds a UvmObject or a tuple of them")


def lookup_order(obj: UvmObject) -> list[UvmObject]:
    """Yield `obj` and all objects that it inherits from, in the order of lookup."""
    seen, order, stack = set(), [], [obj]
    while stack:
        current = stack.pop()
        if id(current) not in seen:
            seen.add(id(current))
            order.append(current)
            stack.extend(reversed(parents_of(current)))
    return order


def find(obj: UvmObject, name: str) -> tuple[UvmObject, Any] | None:
    """Return the object that holds slot `name` for `obj`, and the slot's value; None if nothing does."""
    slots = obj.__dict__
    if not slots:
        obj._p_activate()
    if name in slots:
        return obj, slots[name]
    return _find_inherited(obj, name)


def understands(obj: UvmObject, name: str) -> bool:
    """Return True if `obj` or a parent has slot `name`. Runs no code of any object."""
    return find(obj, name) is not None


def inherited(obj: UvmObject, name: str) -> Any:
    """Return the value that the parents of `obj` hold for `name`, or MISSING. The quick way of `find`, for attribute access."""
    current: Any = obj
    slots = obj.__dict__
    waiting: tuple[Any, ...] = ()  # the end of a diamond may be visited twice: that costs less than remembering what was visited
    for _ in range(_STEPS):
        parent: Any = None
        for key in slots:
            if "*" in key:  # "*" stands only at the end of a name; `in` is the fastest test
                value = slots[key]
                parent = value if parent is None else _in_a_row(parent) + _in_a_row(value)
        if type(parent) is tuple:
            waiting = parent + waiting
            parent = None
        if parent is None:
            if not waiting:
                return MISSING
            parent, waiting = waiting[0], waiting[1:]
        try:
            slots = parent.__dict__
        except AttributeError:
            raise _no_parent(current, parent) from None
        if not slots:
            parent._p_activate()
        if name in slots:
            return slots[name]
        current = parent
    careful = _find_inherited(obj, name)
    return MISSING if careful is None else careful[1]


def _in_a_row(parents: Any) -> tuple[Any, ...]:
    return parents if type(parents) is tuple else (parents,)


def _find_inherited(obj: UvmObject, name: str) -> tuple[UvmObject, Any] | None:
    seen = {id(obj)}
    stack = list(reversed(parents_of(obj)))
    while stack:
        holder = stack.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        slots = holder.__dict__
        if not slots:
            holder._p_activate()
        if name in slots:
            return holder, slots[name]
        stack.extend(reversed(parents_of(holder)))
    return None


P = ParamSpec("P")
R = TypeVar("R")
_RESERVED = ("__", "_p_", "_v_")
_AS_STORED = ("utf-8", "surrogatepass")
_NAMES_KEPT = 4096
_NEVER = b"\0" * 8  # the serial of an object that was never stored


class _Replaceable(Generic[P, R]):
    """Method of the class that a slot of its name replaces, own or inherited. Because this is not a data descriptor, an own slot of a
    loaded object is found first.
    """

    def __init__(self, function: Callable[Concatenate[Any, P], R]) -> None:
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    def __get__(self, obj: UvmObject | None, owner: type | None = None) -> Callable[P, R]:
        if obj is None:
            return self.function  # type: ignore[return-value]  # as a function of the class, it takes the receiver too
        held = find(obj, self.name)
        return types.MethodType(self.function, obj) if held is None else held[1]


class UvmObject(Persistent):
    """A prototype object. `UvmObject(**{"parent*": other, "name": "x"})` makes one with these slots."""

    __module__ = "batos.objects"
    __getattribute__ = object.__getattribute__

    def __init__(self, /, **slots: Any) -> None:
        for name, value in slots.items():
            if not (_names.get(name) or _stored_name(name))[1]:  # else the name is valid, as nearly always
                check_slot(name, value)
        self.__dict__.update(slots)  # a new object has no connection that could register a change

    @property
    def _slots(self) -> SlotsView:
        """Return a live mapping view of the object's own slots."""
        return SlotsView(self)

    # --- delegation: reached only if neither the loaded instance nor its class has the name

    def __getattr__(self, name: str) -> Any:
        # Special names that copy, pickle, inspect and hasattr probe end here: they must be fast and load no object.
        if name[:1] == "_" and name.startswith(_RESERVED):
            raise AttributeError(name)
        slots = self.__dict__
        if not slots:
            self._p_activate()
            if name in slots:
                return slots[name]
        value = inherited(self, name)
        if value is not MISSING:
            return value
        held = find(self, "_doesNotUnderstand_")
        if held is None or not callable(held[1]):
            raise MessageNotUnderstood(self, name)
        return held[1](self, name)

    @_Replaceable
    def _doesNotUnderstand_(self, selector: str) -> Any:
        """Answer an access that found no slot; a slot of this name, own or inherited, takes its place.

        :raises MessageNotUnderstood: always, as the default.
        """
        raise MessageNotUnderstood(self, selector)

    # --- copying: never through the graph of persistent objects

    @_Replaceable
    def clone(self, /, **slots: Any) -> UvmObject:
        """Return a new object with copies of the own slots; persistent values and parents are shared."""
        return _cloned(self, {}, slots)

    @_Replaceable
    def derive(self, /, **slots: Any) -> UvmObject:
        """Return a new object that has nothing but this one as its parent, and `slots`."""
        return type(self)(**{"parent*": self, **slots})

    @_Replaceable
    def _clone_persistent_(self, /, **slots: Any) -> UvmObject:
        """Return the message by which an object is cloned from inside the image."""
        return _cloned(self, {}, slots)

    def __copy__(self) -> UvmObject:
        return _cloned(self, {}, {})

    def __deepcopy__(self, memo: dict[int, Any]) -> UvmObject:
        """Return a clone: a copy that followed persistent values would be one of half the image."""
        return _cloned(self, memo, {})

    # --- storing

    def __getstate__(self) -> dict[bytes, Any]:
        """Return the slots as they are stored: their names as bytes, of which a pickle of protocol 3 needs three fewer a name."""
        self._p_activate()
        slots = self.__dict__
        state: dict[bytes, Any] = {}
        converted: dict[str, Any] = {}
        memo: dict[int, Any] = {}
        for name, value in slots.items():
            stored_name, usual = _names.get(name) or _stored_name(name)
            if stored_name is None:
                continue
            if type(value) not in PLAIN and not isinstance(value, Persistent):
                stored = storable(value, f"slot {name!r}", memo)
                if stored is not value:
                    converted[name] = value = stored
            if not usual:
                check_slot(name, value)
            state[stored_name] = value
        # Keep the converted values in memory, else a later change of the plain container would be lost.
        slots.update(converted)
        return state

    def __setstate__(self, state: Mapping[bytes | str, Any]) -> None:
        # Earlier versions wrote names as text, later ones as bytes.
        super().__setstate__({name.decode(*_AS_STORED) if type(name) is bytes else name: value for name, value in state.items()})

    def __repr__(self) -> str:
        # Must neither load a ghost nor look up a slot.
        oid = self._p_oid
        return f"<UvmObject {oid.hex().lstrip('0') or '0'}>" if oid else "<UvmObject new>"


class Root(Protocol):
    """Root of an image: its few entries by name.

    `lobby` is the object from which all others are found by name, and `ledger` holds the missions. `genesis` and `format` are the versions
    of what the image began with and of its file.
    """

    _p_jar: Any
    """The connection that loaded the object. None for a new object."""

    @overload
    def __getitem__(self, name: Literal["lobby"], /) -> UvmObject: ...
    @overload
    def __getitem__(self, name: Literal["genesis", "format"], /) -> int: ...
    @overload
    def __getitem__(self, name: str, /) -> Any: ...
    def __setitem__(self, name: str, value: Any, /) -> None: ...
    def __contains__(self, name: object, /) -> bool: ...
    def get(self, name: str, default: Any = None, /) -> Any: ...
    def setdefault(self, name: str, default: Any, /) -> Any: ...


class SlotsView(MutableMapping[str, Any]):
    """An object's own slots as a mapping; writing through it writes the slot."""

    __slots__ = ("_obj",)

    def __init__(self, obj: UvmObject) -> None:
        self._obj = obj

    def _own(self) -> dict[str, Any]:
        self._obj._p_activate()
        return self._obj.__dict__

    def __getitem__(self, name: str) -> Any:
        if name[:3] == "_v_":
            raise KeyError(name)
        return self._own()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        check_slot(name, value)
        # Use setattr, so that the change is registered. Its C code takes any string as a name.
        setattr(self._obj, name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        delattr(self._obj, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name[:3] != "_v_" and name in self._own()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an own slot."""
        return self._own().get(name, default) if name[:3] != "_v_" else default

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._own() if name[:3] != "_v_"])

    def items(self) -> ItemsView[str, Any]:
        """Return the names and values as they are now."""
        return self._held().items()

    def values(self) -> ValuesView[Any]:
        """Return the values as they are now."""
        return self._held().values()

    def _held(self) -> dict[str, Any]:
        return {name: value for name, value in self._own().items() if name[:3] != "_v_"}

    def __len__(self) -> int:
        return sum(name[:3] != "_v_" for name in self._own())

    def __repr__(self) -> str:
        return f"<slots of {self._obj!r}: {', '.join(self)}>"


_names: dict[str, tuple[bytes | None, bool]] = {}
"""Cache of `_stored_name` by name."""


def _stored_name(name: str) -> tuple[bytes | None, bool]:
    """Return a slot's stored name, or None; and whether it is a usual one, which need not be checked with its value."""
    if len(_names) >= _NAMES_KEPT:
        _names.clear()
    if name[:3] == "_v_":
        found: tuple[bytes | None, bool] = None, False
    else:
        found = name.encode(*_AS_STORED), not (name[:1] in "_" or "*" in name)  # `in` also catches the empty name
    _names[name] = found
    return found


def is_new(obj: UvmObject) -> bool:
    """Return True if no transaction has stored an object yet. A ghost has been stored: it learns its serial with its state."""
    return obj._p_jar is None or (obj._p_changed is not None and obj._p_serial == _NEVER)


def check_slot(name: str, value: Any) -> None:
    """Refuse names that are not valid for slots, and parent slots with values other than objects.

    :raises ValueError: for a reserved or malformed name.
    :raises TypeError: for a parent slot with another value than a UvmObject or a tuple of them.
    """
    if isinstance(name, str) and name.isidentifier() and name[0] != "_":
        return  # the common case
    if name == "parent*" and isinstance(value, UvmObject):
        return  # the second most common case
    if not (isinstance(name, str) and name):
        raise ValueError(f"a slot's name is a text that is not empty, got {name!r}")
    if name.startswith(_RESERVED) or name == "_slots":
        raise ValueError(f"{name!r} is a reserved name; slot names begin with neither '__', '_p_' nor '_v_', and '_slots' is the view")
    if "*" in name[:-1] or name == "*":
        raise ValueError(f"{name!r}: '*' is allowed only at the end of a slot's name, where it marks a parent")
    if name[-1] == "*":
        parents = value if type(value) is tuple else (value,)
        for parent in parents:
            if not isinstance(parent, UvmObject):
                raise TypeError(f"parent slot {name!r} holds a UvmObject or a tuple of them, not {type(parent).__name__}")


def _cloned(obj: UvmObject, memo: dict[int, Any], slots: dict[str, Any]) -> UvmObject:
    obj._p_activate()
    new = type(obj).__new__(type(obj))
    memo[id(obj)] = new
    for name, value in obj.__dict__.items():
        if name[:3] != "_v_":
            new.__dict__[name] = copied(value, memo)
    for name, value in slots.items():
        new._slots[name] = value
    return new


def add_missing(target: UvmObject, **slots: Any) -> None:
    """Set those slots that `target` does not have itself; its own slots stay."""
    for name, value in slots.items():
        if name not in target._slots:
            target._slots[name] = value() if callable(value) and not isinstance(value, UvmObject | Primitive) else value
