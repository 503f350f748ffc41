"""Values of slots: Method, Intent, Primitive, tracked containers, and the check of values that may be stored.

A Primitive has a stable name, which images hold, and keeps it wherever its function moves. Images of earlier versions name Primitives
by the functions and modules of their time. The table of those aliases is complete and needs no further rows.

A plain list or dict in a slot is not tracked: a change in place is lost at the next load. So plain containers become persistent ones when
they are stored. Since unpickling runs `__reduce__`, nothing is stored but plain values, these containers, BTrees, blobs and the classes
of the object model.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import hashlib
import itertools
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSet
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from persistent import Persistent
from persistent.list import PersistentList
from persistent.mapping import PersistentMapping

FORMER = {
    "batos.autotelic.voices.try_voice_": "autotelic.try_voice_",
    "batos.autotelic.weights.weights_back_": "autotelic.weights_back_",
    "batos.memory.objects.chunks_": "memory.chunks_",
    "batos.memory.objects.mentioned_by_": "memory.mentioned_by_",
    "batos.memory.objects.mentions_": "memory.mentions_",
    "batos.memory.objects.neighbours_": "memory.neighbours_",
    "batos.memory.objects.source_": "memory.source_",
    "batos.memory.objects.summarised_": "memory.summarised_",
    "batos.mind.forge.put_in_place": "forge.put_in_place",
    "batos.mind.forge.reify": "forge.reify",
    "batos.mind.forge.study": "forge.study",
    "batos.mind.forge.try_out": "forge.try_out",
    "batos.mind.forge.write": "forge.write",
    "batos.mind.gists.gist_": "memory.gist_",
    "batos.mind.grants.grant_": "method.grant_",
    "batos.mind.learning.forget_exemplar_": "persona.forget_exemplar_",
    "batos.mind.memories.forget_": "memory.forget_",
    "batos.mind.memories.recall_": "memory.recall_",
    "batos.mind.memories.remember_": "memory.remember_",
    "batos.mind.psm.ask_user_": "persona.ask_user_",
    "batos.mind.psm.synthesize_response_for_": "persona.synthesize_response_for_",
    "batos.mind.psm.think_": "persona.think_",
    "batos.mind.states.complete": "psm.complete",
    "batos.mind.states.decompose": "psm.decompose",
    "batos.mind.states.delegate": "psm.delegate",
    "batos.mind.states.failed": "psm.failed",
    "batos.mind.states.idle": "psm.idle",
    "batos.mind.states.synthesize": "psm.synthesize",
    "batos.mind.summarising.summarise_": "memory.summarise_",
    "batos.mind.versions.learn_": "method.learn_",
    "batos.mind.versions.revert_": "method.revert_",
}
"""Maps the name that an earlier version wrote into images to the stable name of each Primitive."""


_NAME = re.compile(r"[a-z_]+\.[a-z_]+")
F = TypeVar("F", bound=Callable[..., Any])


class _Named:
    """A small value with one text, equal by that text. Stored inside the record of the object that holds it."""

    __slots__ = ("text",)
    text: str

    def __init__(self, text: str) -> None:
        if not (isinstance(text, str) and text.strip()):
            raise TypeError(f"{type(self).__name__} takes a text that is not blank, got {text!r}")
        object.__setattr__(self, "text", text)

    def __setattr__(self, name: str, value: Any) -> None:
        # The value has no record of its own, so a change would be lost silently. It may also be a key.
        raise AttributeError(f"{self!r} is a value: put another {type(self).__name__} into the slot")

    def __getstate__(self) -> str:
        return self.text

    def __setstate__(self, state: str) -> None:
        object.__setattr__(self, "text", state)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.text == self.text

    def __hash__(self) -> int:
        return hash((type(self), self.text))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class Intent(_Named):
    """Purpose of a method in natural language, in the method's place; compiled when the message is first sent."""

    __slots__ = ()
    __module__ = "batos.objects"


@dataclass(frozen=True, slots=True)
class Reach:
    """Scope of a Primitive that changes more than its receiver."""

    what: str
    """The part that changes, in words that follow `changes`: `documents of the memory`."""
    grantable: bool = True
    """True if a user can let a generated method send it."""


class Primitive(_Named):
    """A stable public name of trusted host code, such as `psm.idle`.

    The slot holds the name, never the code or its place. Names are resolved only in the table that host modules fill with
    `Primitive.register`, so that an image cannot reach arbitrary functions by a name. Images of an earlier version name module and
    function; `FORMER` maps these to the stable names.
    """

    __slots__ = ()
    __module__ = "batos.objects"

    _table: ClassVar[dict[str, Callable[..., Any]]] = {}  # one table per process, filled at import
    _names: ClassVar[dict[Callable[..., Any], str]] = {}
    _reaches: ClassVar[dict[str, Reach]] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.__setstate__(text)

    def __setstate__(self, state: str) -> None:
        super().__setstate__(FORMER.get(state, state))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the stable public names of all primitives of this process."""
        return tuple(cls._table)

    @classmethod
    def register(cls, name: str, *, reaches: str = "", grantable: bool = True) -> Callable[[F], F]:
        """Decorate `function(receiver, …)` to make it reachable as a primitive.

        :param name: the stable public name, an area and a part: `psm.idle`. It is written into images, so it never changes.
        :param reaches: the change beyond the receiver, in words; a generated method needs a grant of its user to send it.
        :param grantable: False if no method may send it, even with a grant; only users can.
        :raises ValueError: for a name of another form, or one that is taken, or that grants could confuse with another.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r}: a primitive's name has two parts of small letters and `_`, with a dot between, as `psm.idle` has")

        def registered(function: F) -> F:
            held = cls._table.get(name)
            if held is not None and (held.__module__, held.__qualname__) != (function.__module__, function.__qualname__):
                raise ValueError(f"{name!r}: {held.__module__}.{held.__qualname__} has this name already; give this one another")
            if reaches:
                last = cls(name).name
                if any(cls(text).name == last for text in cls._reaches if text != name):
                    raise ValueError(f"{last!r}: grants name a primitive by this name, and another one has it already")
                cls._reaches[name] = Reach(reaches, grantable)
            cls._table[name] = function
            cls._names[function] = name
            return function

        return registered

    @classmethod
    def reaching(cls) -> dict[str, Reach]:
        """Return the primitives that change more than their receiver, by `name`."""
        return dict(sorted((cls(text).name, reach) for text, reach in cls._reaches.items()))

    @property
    def name(self) -> str:
        """Return the last part of the dotted name: `forget_`. Of those that change more than their receiver no two have the same."""
        return self.text.rpartition(".")[2]

    @property
    def reach(self) -> Reach | None:
        """Return the scope of the Primitive beyond its receiver; None if there is none."""
        return self._reaches.get(self.text)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Primitive:
        """Give the Primitive that names a registered function.

        :raises LookupError: for a function that is not registered.
        """
        if function not in cls._names:
            raise LookupError(f"{function!r} is not a registered primitive: decorate it with `@Primitive.register`")
        return cls(cls._names[function])

    def resolve(self) -> Callable[..., Any]:
        """Return the host code.

        :raises LookupError: if no host code is registered under this name.
        """
        try:
            return self._table[self.text]
        except KeyError:
            raise LookupError(f"no host code is registered as primitive {self.text!r}; the image may be of another version") from None

    def __call__(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the host code with the receiver; a coroutine function returns its coroutine."""
        return self.resolve()(receiver, *args, **kwargs)


class Method(Persistent):
    """Generated source text with its contract and provenance; runs in the sandbox only.

    A record of its own, never changed after it was made, but for `grants` and `acted`. A new version is a new Method whose `previous` is
    the old.
    """

    __module__ = "batos.objects"
    grants: tuple[tuple[str, str], ...] = ()
    """Sends to more than the receiver that the user has let this version make: the Primitive's name, and the mission that granted it."""
    acted: str = ""
    """Of a connection's method: the mission in which this version first acted outside, by its user's answer; empty before."""

    def __init__(
        self,
        selector: str,
        source: str,
        *,
        parameters: tuple[str, ...] = (),
        contract: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
        previous: Method | None = None,
    ) -> None:
        """
        :param contract: result of the audit: reads, writes, sends, imports.
        :param provenance: origin: mission, model digest, prompt digest, verdict, trials.
        """
        self.selector = selector
        self.source = source
        self.parameters = tuple(parameters)
        self.contract = tuple(sorted((contract or {}).items()))
        self.provenance = tuple(sorted((provenance or {}).items()))
        self.previous = previous
        self.version: int = 1 if previous is None else previous.version + 1
        self.digest = source_digest(source)

    def intact(self) -> bool:
        """Return True if the source is still the audited one."""
        return source_digest(self.source) == self.digest

    def may_send(self, primitive: str) -> bool:
        """Return True if the user granted the method to send this Primitive, which changes more than its receiver."""
        return any(name == primitive for name, _ in self.grants)

    def versions(self) -> list[Method]:
        """Return this version and the earlier ones, newest first."""
        found: list[Method] = []
        method: Method | None = self
        while method is not None:
            found.append(method)
            method = method.previous
        return found

    def __repr__(self) -> str:
        oid = self._p_oid.hex().lstrip("0") if self._p_oid else "new"
        return f"<Method {oid}>"  # must not load the record


def source_digest(source: str) -> str:
    """Return the SHA-256 of a source text, in hex."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


PLAIN = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes,
        datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone,
        decimal.Decimal, uuid.UUID, Intent, Primitive,
    }
)  # fmt: skip
_DEPTH = 64  # nesting of containers in one slot


def storable(value: Any, where: str, memo: dict[int, Any], depth: int = 0) -> Any:
    """Return `value` in the form in which it is stored: plain containers replaced by persistent ones, at every depth.

    :param where: the slot, for the message.
    :param memo: replaced containers by `id`: a container that occurs twice stays one, and may contain itself.
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
    """Return a deep copy of plain values and of slot containers; other persistent objects are shared.

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

    # methods that a plain set has beyond the abstract one: code written for a set must also work with this class

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
