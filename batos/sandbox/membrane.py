"""Values on their way between image and sandbox. An object goes in as a handle; only a handle that went in comes back as an object.

Everything that comes out is checked: bounded in nodes and bytes (forty nested pairs of one list are 2**40 nodes), of plain types,
without cycles. Nothing is ever taken from the attributes of what comes back: the sandbox can forge those.
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

from batos.objects import Intent, Method, Primitive, SlotSet, UvmObject

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
_INT_BITS = 14_000  # an int that can still be printed: 4300 digits, the limit of CPython
_NO_VALUE = re.compile(r"<(function '.*' at 0x[0-9a-f]+|module '[\w.]+')>")
"""How functions and modules arrive, for the client turns them into text."""


class TooLarge(ValueError):
    """More nodes or bytes than may pass at a time."""


class Handle:
    """What a handle in the sandbox stands for. With a receiver it is a parent that a method named as its own receiver's:
    messages to it are resends, the receiver stays."""

    __slots__ = ("obj", "receiver")

    def __init__(self, obj: Any, receiver: UvmObject | None) -> None:
        self.obj, self.receiver = obj, receiver


Handle.__name__ = "UvmObject"  # as messages of the interpreter call it


class Name(uuid.UUID):
    """How a handle is called in the sandbox. What the client asks of one at each crossing is worked out once: those of a mission serve
    all its runs."""

    __slots__ = ("attributes", "bytes", "hex")
    attributes: dict[str, str]

    def __init__(self, key: bytes) -> None:
        super().__init__(bytes=key)
        for attribute, value in (("bytes", key), ("hex", key.hex()), ("attributes", {"_oid": key.hex()})):
            object.__setattr__(self, attribute, value)  # a UUID takes no others


class Handles:
    """The objects that one run of a method was given, and the handles by which it names them."""

    __slots__ = ("_by_name", "_name", "_refs")

    def __init__(self, name: Callable[[int], Name]) -> None:
        self._name = name
        self._by_name: dict[bytes, Handle] = {}
        self._refs: dict[tuple[int, int], ClassInstance] = {}

    def give(self, obj: UvmObject, receiver: UvmObject | None = None) -> ClassInstance:
        """The handle of an object, granted from now on."""
        key = id(obj), id(receiver)
        ref = self._refs.get(key)
        if ref is None:
            name, handle = self._name(len(self._refs)), Handle(obj, receiver)
            kind, held = _wrapper()
            ref = kind.__new__(kind)  # the client's own way of making one takes longer than the rest
            ref.__dict__.update(held, value=handle, id=name, get_eager_attrs=name.attributes.copy)
            self._refs[key], self._by_name[name.bytes] = ref, handle
        return ref

    def get(self, value: object) -> Handle:
        """What a handle stands for: `value` is what the client made of it, or its id.

        :raises PermissionError: for anything that was not granted.
        """
        if type(value) is Handle and (id(value.obj), id(value.receiver)) in self._refs:
            return value
        held = self._by_name.get(value.bytes) if isinstance(value, uuid.UUID) else None
        if held is None:
            raise PermissionError("that is no object of this method's")
        return held


@functools.cache
def client() -> Any:
    """The client library; late, since a daemon that runs no method does not pay for it."""
    import pydantic_monty

    return pydantic_monty


@functools.cache
def _wrapper() -> tuple[Any, dict[str, Any]]:
    """The client's wrapper of an object with nothing exposed and nothing to work out at each crossing, and what each has.

    What the client calls at each crossing is built-in: `bool()` is False, `dict()` is empty, and the copy of a dict is one. After a rest
    each function in Python would take two microseconds.
    """

    class Reference(client().ClassInstance):  # type: ignore[misc]
        is_dataclass = bool

        def __post_init__(self) -> None:
            pass  # there are no policies to make sense of

    class Kind(client().ClassType):  # type: ignore[misc]
        is_dataclass = bool
        get_eager_attrs = dict

    return Reference, dict(Reference(Handle(None, None), class_type=Kind(Handle, id=_CLASS)).__dict__)


_CLASS = Name(bytes.fromhex("6f3f7a528f0e5f0b9a635d6b1f6f2c11"))  # what `type(self)` is, in every worker


class Membrane:
    """Conversion both ways for one run of a method."""

    __slots__ = ("_nodes", "_text", "handles", "weight")

    def __init__(self, handles: Handles, *, nodes: int, text: int) -> None:
        self.handles, self._nodes, self._text = handles, nodes, text
        self.weight = 0  # of the value converted last, in nodes

    def inward(self, value: Any, *, nodes: int | None = None, text: int | None = None) -> Any:
        """An image value as the sandbox gets it.

        :param nodes: the limit for this value, as `text` is, where it is another.
        :raises TypeError: for what may not go in.
        :raises TooLarge: past the limits.
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
                value = value.data  # their own ways of iterating are slow
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
        """A value of the sandbox as the image gets it: new, plain, without sharing.

        :raises TypeError: for what may not leave.
        :raises PermissionError: for an object that was not granted.
        :raises TooLarge: past the limits.
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
        if isinstance(value, tuple):  # a named tuple too
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
        if kind is decimal.Decimal and value.is_snan():  # to compare it raises, and what is stored is compared
            raise TypeError("a signalling NaN may not leave a method; Decimal('NaN') may")
        if kind is str and value[:1] == "<" and _NO_VALUE.fullmatch(value):
            raise TypeError("a function or module may not leave a method; use plain values, containers of them, and objects")
        return value


_FREE = frozenset({type(None), bool, float})
"""Types whose values need no check but being counted."""


_NUMBERS = _FREE | {int}
_SMALL = 1 << 63
_FEW = 4
_SHORT = 200
CONTAINER = 8
"""Values that a container counts as, for a persistent one costs that much more to make and to compare."""


def is_number(value: Any) -> bool:
    """Whether a value of the sandbox needs no check: a small number, a truth value or None."""
    kind = type(value)
    return kind in _FREE or (kind is int and -_SMALL < value < _SMALL)


def is_number_in_slot(change: Any) -> bool:
    """Whether a change is a short name and a number, which need no budget."""
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
        """The items of a list, those of `_FREE` types counted here in one go."""
        self.nodes -= sum(map(_FREE.__contains__, map(type, values)))
        if self.nodes < 0:
            raise TooLarge("more data than may pass between a method and the image at a time")
        return values


def unchanged(stored: Any, given: Any) -> bool:
    """Whether a value of the image still is what `inward` made of it, to the types and the order of keys."""
    kind = type(given)
    if kind in _SCALARS:
        if type(stored) is kind:
            return bool(stored == given or stored != stored)
        return isinstance(stored, (Intent, Primitive)) and bool(given == stored.text)
    if isinstance(stored, PersistentList | PersistentMapping):
        stored = stored.data  # their own ways of iterating are slow
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
