"""What a slot may hold besides data: Method, Intent, Primitive."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, overload

from persistent import Persistent

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
    """A dotted name of trusted host code.

    The slot holds the name and never the code. Names are resolved only in the table that host modules fill with
    `Primitive.register`, so that an image cannot name its way to arbitrary functions.
    """

    __slots__ = ()
    __module__ = "batos.objects"

    _table: ClassVar[dict[str, Callable[..., Any]]] = {}  # one for the process, filled at import
    _reaches: ClassVar[dict[str, Reach]] = {}

    @overload
    @classmethod
    def register(cls, function: F) -> F: ...

    @overload
    @classmethod
    def register(cls, *, reaches: str, grantable: bool = True) -> Callable[[F], F]: ...

    @classmethod
    def register(cls, function: F | None = None, *, reaches: str = "", grantable: bool = True) -> F | Callable[[F], F]:
        """Decorator: make `function(receiver, …)` reachable as the primitive `<module>.<qualname>`.

        :param reaches: what it changes beyond its receiver, in words; a generated method that sends it needs a grant of its user.
        :param grantable: whether it can be granted to a method; what cannot be is sent by people alone.
        """

        def registered(function: F) -> F:
            primitive = cls(f"{function.__module__}.{function.__qualname__}")
            cls._table[primitive.text] = function
            if reaches:
                if any(cls(text).name == primitive.name for text in cls._reaches if text != primitive.text):
                    raise ValueError(f"{primitive.name!r}: grants name a primitive by this name, and another one has it already")
                cls._reaches[primitive.text] = Reach(reaches, grantable)
            return function

        return registered if function is None else registered(function)

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
        """The Primitive that names a registered function."""
        primitive = cls(f"{function.__module__}.{function.__qualname__}")
        primitive.resolve()
        return primitive

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
