"""Bus of typed events: facts about the daemon's work, for the parts that count, measure or follow it.

publisher ─ `bus.publish(MethodRan(...))` ─ each subscriber of `MethodRan`, in the order in which they subscribed

The events of one mission, as clients watch them over the wire, are another matter: see `batos.mind.events.Events`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from batos.image.journal import InferenceRecord

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class InferencePaid:
    """A model answered an inference that a mission asked for, and the journal has it, or gets it soon."""

    record: InferenceRecord


@dataclass(frozen=True, slots=True)
class SourceAudited:
    """The guardian gave its verdict of a source."""

    accepted: bool


@dataclass(frozen=True, slots=True)
class MethodRan:
    """A generated method ran in a mission; trials are left out."""

    holder: str
    """The oid of the object that holds the method. It is empty if that object is not stored yet."""
    selector: str
    succeeded: bool
    fitting: bool = True
    """True if the method accepts such a call (`batos.methods.runtime.takes`). A failure of any other call is not the method's fault."""


@dataclass(frozen=True, slots=True)
class MemoryQueried:
    """A mission asked the memory, and got this many passages."""

    hits: int


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A mission called a tool, or asked for leave to."""

    tool: str
    """`CONNECTION.TOOL`"""
    outcome: str
    """`done`, `failed`, `doubt`, `asked`, `denied`, or `replayed` where the journal had the result"""
    seconds: float
    bytes: int
    """Size of the result's JSON."""


@dataclass(frozen=True, slots=True)
class StateEntered:
    """A cycle of a mission went into a state."""

    mission: str
    cycle: str
    state: str
    elapsed_s: float
    """Seconds since the attempt began."""


@dataclass(frozen=True, slots=True)
class MissionEnded:
    """A mission is COMPLETE or FAILED, and that is durable."""

    mission: str
    state: str
    persona: str | None
    error_code: str | None
    here: bool = True
    """False where another kernel of the image ended it: that one counts it."""


@dataclass(frozen=True, slots=True)
class ScheduleStopped:
    """A schedule makes no missions any more, because its last runs failed; that is durable."""

    schedule: str
    why: str


@dataclass(frozen=True, slots=True)
class FolderStopped:
    """The files of a folder become missions no more, because the last ones failed; that is durable."""

    folder: str
    """name of the trigger"""
    why: str


@dataclass(frozen=True, slots=True)
class NoticeSent:
    """A message of notices was sent, or could not be; that is durable."""

    channel: str
    outcome: str
    """`done`, `failed`, or `doubt` where it may have arrived"""
    notices: int
    """number of facts in it"""


class EventBus:
    """Delivers each event to the subscribers of its type. All methods are called on the loop's thread; a subscriber must not block."""

    def __init__(self) -> None:
        self._subscribers: dict[type[Any], list[Callable[[Any], object]]] = {}

    def subscribe(self, event: type[E], subscriber: Callable[[E], object]) -> Callable[[], None]:
        """Call `subscriber` with each event of that type from now on; return a function that ends this."""
        self._subscribers.setdefault(event, []).append(subscriber)

        def end() -> None:
            rest = list(self._subscribers[event])  # another list: an event may be on its way
            rest.remove(subscriber)
            self._subscribers[event] = rest

        return end

    def is_heard(self, event: type[Any]) -> bool:
        """Return whether the type of event has a subscriber."""
        return bool(self._subscribers.get(event))

    def publish(self, event: object) -> None:
        """Deliver an event to the subscribers of its type."""
        for subscriber in self._subscribers.get(type(event), ()):
            subscriber(event)

    def branch(self) -> BusBranch:
        """Return this bus, for parts that end before it."""
        return BusBranch(self)


class BusBranch(EventBus):
    """Bus as parts see it whose subscriptions end together."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._ends: list[Callable[[], None]] = []

    def subscribe(self, event: type[E], subscriber: Callable[[E], object]) -> Callable[[], None]:
        """Call `subscriber` with each event of that type until `close`."""
        self._ends.append(end := self._bus.subscribe(event, subscriber))
        return end

    def is_heard(self, event: type[Any]) -> bool:
        """See `EventBus.is_heard`."""
        return self._bus.is_heard(event)

    def publish(self, event: object) -> None:
        """See `EventBus.publish`."""
        self._bus.publish(event)

    def close(self) -> None:
        """End the subscriptions."""
        while self._ends:
            self._ends.pop()()
