"""What a slot may hold besides data: Method, Intent, Primitive."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from persistent import Persistent

from batos.objects.primitive_names import FORMER

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
        # It has no record of its own, so a change would be lost unseen; and it may be a key.
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
    """What a method should do, in natural language, in the method's place; compiled when the message is first sent."""

    __slots__ = ()
    __module__ = "batos.objects"


@dataclass(frozen=True, slots=True)
class Reach:
    """What a Primitive changes beyond its receiver."""

    what: str
    """In words that go on after `changes`: `documents of the memory`."""
    grantable: bool = True
    """Whether a user can let a generated method send it."""


class Primitive(_Named):
    """A stable public name of trusted host code, such as `psm.idle`.

    The slot holds the name and never the code, nor where that stands. Names are resolved only in the table that host modules fill
    with `Primitive.register`, so that an image cannot name its way to arbitrary functions. What an earlier version named by module
    and function is read under its stable name: see `batos.objects.primitive_names`.
    """

    __slots__ = ()
    __module__ = "batos.objects"

    _table: ClassVar[dict[str, Callable[..., Any]]] = {}  # one for the process, filled at import
    _names: ClassVar[dict[Callable[..., Any], str]] = {}
    _reaches: ClassVar[dict[str, Reach]] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.__setstate__(text)

    def __setstate__(self, state: str) -> None:
        super().__setstate__(FORMER.get(state, state))

    @classmethod
    def register(cls, name: str, *, reaches: str = "", grantable: bool = True) -> Callable[[F], F]:
        """Decorate `function(receiver, …)` to make it reachable as a primitive.

        :param name: its stable public name, of an area and a part: `psm.idle`. It is written into images, and so never changes.
        :param reaches: what it changes beyond its receiver, in words; a generated method that sends it needs a grant of its user.
        :param grantable: whether it can be granted to a method; what cannot be is sent by people alone.
        :raises ValueError: for a name of another form, one that another function has, or one that grants could not tell from another's.
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
        """The primitives that change more than their receiver, by `name`."""
        return dict(sorted((cls(text).name, reach) for text, reach in cls._reaches.items()))

    @property
    def name(self) -> str:
        """The last part of the dotted name: `forget_`. Of those that change more than their receiver no two have the same."""
        return self.text.rpartition(".")[2]

    @property
    def reach(self) -> Reach | None:
        """What it changes beyond its receiver; None if that is nothing."""
        return self._reaches.get(self.text)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Primitive:
        """Give the Primitive that names a registered function.

        :raises LookupError: for a function that is not registered.
        """
        if function not in cls._names:
            raise LookupError(f"{function!r} is no registered primitive: decorate it with `@Primitive.register`")
        return cls(cls._names[function])

    def resolve(self) -> Callable[..., Any]:
        """The host code.

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

    A record of its own, never changed after it was made, but for `grants`: a new version is a new Method whose `previous` is the old.
    """

    __module__ = "batos.objects"
    grants: tuple[tuple[str, str], ...] = ()
    """What its user lets this version send that changes more than a receiver: the primitive's name, and the mission that granted it."""

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
        :param contract: what the audit found: reads, writes, sends, imports.
        :param provenance: where it came from: mission, model digest, prompt digest, verdict, trials.
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
        """Whether the source still is what was audited."""
        return source_digest(self.source) == self.digest

    def may_send(self, primitive: str) -> bool:
        """Whether its user lets it send the primitive of this name, which changes more than its receiver."""
        return any(name == primitive for name, _ in self.grants)

    def versions(self) -> list[Method]:
        """This version and the earlier ones, newest first."""
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
    """SHA-256 of a source text, in hex."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
