"""Run context: everything that the methods of one attempt at a mission share: sender, limits, clock, seed and budgets.

The limits are read from the settings once: each look at those costs a microsecond after a rest. Clock and randomness of methods are those
of the mission, so that a replay is exact.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from batos.config import MIB, Settings
from batos.config.limits import Limits, limit
from batos.objects import UvmObject, is_new
from batos.resources import ProcessorAccount
from batos.sandbox.membrane import HandleName
from batos.sandbox.tracing import TraceListener


@dataclass(frozen=True, slots=True)
class SandboxLimits(Limits):
    """Limits of the sandbox and of what the methods of one attempt use."""

    parallel: int = limit(8, ge=1, le=256)
    """Largest number of chains of sends between methods that run at the same time."""
    depth: int = limit(16, ge=1, le=64)
    """Largest depth of sends from method to method. Each level holds a worker."""
    ready: int = limit(6, ge=0, le=64)
    """Number of workers that stay loaded with the methods used last. With 0, no worker does."""
    total_s: float = limit(60.0, gt=0, le=86_400)
    """Processor seconds for all methods of one attempt, including the daemon's own work for them."""
    recursion: int = limit(800, ge=50, le=10_000)
    """Largest depth of calls within one method."""
    host_calls: int = limit(10_000, ge=10, le=10_000_000)
    """Most reads, sends and other calls to the host by one method."""
    sends: int = limit(2000, ge=1, le=10_000_000)
    """Most sends by the methods of one attempt at a mission."""
    nodes: int = limit(25_000, ge=100, le=10_000_000)
    """Most values that pass between method and image at a time. A container counts as 8 values."""
    text_bytes: int = limit(8 * MIB, ge=1024, le=256 * MIB)
    """Bytes of text that may pass between method and image at a time."""
    start_s: float = limit(5.0, gt=0, le=60)
    """Seconds to wait for a worker to become free or to start."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one run: those of the sandbox, and the seconds that the user allows a method."""

    nodes: int
    text_bytes: int
    host_calls: int
    sends: int
    depth: int
    time_s: float
    total_s: float

    @classmethod
    def of(cls, settings: Settings) -> RunLimits:
        """Return the limits in the settings."""
        return cls(**{name: getattr(settings, f"sandbox_{name}") for name in cls.__slots__})


class Sender(Protocol):
    """Function that sends a method's messages to their receivers: `batos.mind.messages` in the daemon."""

    def __call__(
        self, obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], /, *, start: tuple[UvmObject, ...] = ()
    ) -> Awaitable[Any]:
        """Send a message and return its answer.

        :param start: objects to look the selector up in, in order and with what they inherit, in place of `obj`; the receiver
            stays `obj` (a resend).
        """


@dataclass(eq=False)
class Activity:
    """One attempt at a mission, as the sandbox sees it. Each attempt has its own; the same seed and clock give the same run.

    :param send: sends each message of a method.
    :param seed: seed of `random`, such as the mission's id.
    :param now: the instant that all clocks in methods show.
    :param writable: objects whose slots methods may write besides their own receiver's. Objects made in the same transaction
        always are.
    """

    send: Sender
    seed: str
    now: datetime.datetime
    writable: set[int] = field(default_factory=set)
    sends: int = 0
    seconds: float = 0.0
    """Processor seconds of the workers that ran the methods of this attempt."""
    host: ProcessorAccount = field(default_factory=ProcessorAccount)
    """Processor time of the daemon for the methods: reads, writes and sends, the conversion of their values, and Primitives."""
    started: dict[str, int] = field(default_factory=dict)
    trace: TraceListener | None = None
    """Hears of each run, with the lines that it came to, where a user steps through them; None: runs are not traced."""
    _names: list[HandleName] = field(default_factory=list)

    @property
    def computed(self) -> float:
        """Return the seconds of its workers and of the daemon."""
        return self.seconds + self.host.seconds

    def grant(self, obj: UvmObject) -> None:
        """Let the methods of this activity write the slots of `obj`, which must stay alive as long as the activity does."""
        self.writable.add(id(obj))

    def may_write(self, obj: UvmObject, receiver: UvmObject) -> bool:
        """Return True for the receiver itself, an object that this transaction made, or a granted one."""
        return obj is receiver or is_new(obj) or id(obj) in self.writable

    def name(self, number: int) -> HandleName:
        """Return the name of the `number`th object that a run was given. The names follow from the seed, and mean nothing to another run,
        which has its own worker and its own objects.
        """
        while len(self._names) <= number:
            self._names.append(HandleName(self.derived("handles", str(len(self._names)), 16)))
        return self._names[number]

    def derived(self, purpose: str, path: str, size: int) -> bytes:
        """Return the bytes that follow from the seed, a purpose and a place in the run, and from nothing else."""
        return hashlib.shake_256(f"{purpose}\0{self.seed}\0{path}".encode("utf-8", "surrogatepass")).digest(size)


_BYTES = 65_536  # bytes of randomness at a time


def deterministic_answer(activity: Activity, path: str, name: str, args: Sequence[Any]) -> Any:
    """Return the answer to the interpreter's request for `name`.

    :param path: the run's position among the sends.
    :raises PermissionError: for anything else.
    """
    if "urandom" in name:
        size = args[0] if args and isinstance(args[0], int) else 0
        if not 0 < size <= _BYTES:
            raise PermissionError("not available in a method")
        return activity.derived("random", path, size)
    now = activity.now.astimezone(datetime.UTC)
    if name in ("date.today", "datetime.today"):
        return now.date() if name == "date.today" else now.replace(tzinfo=None)
    if name == "datetime.now":
        zone = args[0] if args and isinstance(args[0], datetime.tzinfo) else None
        return now.astimezone(zone) if zone is not None else now.replace(tzinfo=None)
    if name.startswith("time."):
        return now.timestamp()
    raise PermissionError("not available in a method")
