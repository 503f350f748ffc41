"""Status of provisioning: wanted models, their state, failures, and progress reports.

Progress goes to watchers at a bounded pace, to the log far less often. Ollama reports a pull some sixteen times a second and layer. Passed
on are the first step of a layer, the last, and one now and then between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import structlog

from batos.bridge.failures import failure_cause
from batos.bridge.modelfile import Modelfile
from batos.bridge.profiles import BaseModelSource

State = Literal["waiting", "present", "created", "pulled", "failed"]
AGAIN = "the daemon tries again by itself"


@dataclass(frozen=True, slots=True)
class ModelProgress:
    """Progress of one model. `layer` is the current blob's digest or file's name; `completed` and `total` are its bytes."""

    model: str
    status: str
    layer: str = ""
    completed: int | None = None
    total: int | None = None

    @property
    def done(self) -> bool:
        """Return True if the layer is complete."""
        return self.total is not None and self.completed is not None and self.completed >= self.total

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object, without unknown values."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """State of one model. After a failure `detail` says why, `remedy` what to do, and `cause` names the obstacle in one word.

    A state `waiting` with a cause waits for an Ollama that does not answer.
    """

    name: str
    state: State
    detail: str = ""
    remedy: str = ""
    cause: str = ""

    @property
    def ready(self) -> bool:
        """Return True if the model can serve inferences."""
        return self.state in ("present", "created", "pulled")

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


class ModelUnavailable(Exception):
    """A model is not available: the reason, the remedy, and the cause in one word (see `errors.ProvisioningFailed`)."""

    def __init__(self, detail: str, remedy: str, cause: str = "recipe") -> None:
        super().__init__(detail)
        self.detail, self.remedy, self.cause = detail, remedy, cause


@dataclass(slots=True)
class PullAllowance:
    """Limit of a pull in bytes (`most`; None: no limit), and the bytes pulled so far (`came`).

    `whole` is called with the size of each layer as soon as it is complete: an interrupted pull has brought those all the same. `begins` is
    called with the digest of each layer that is new here: an abandoned pull may leave it behind.
    """

    most: int | None = None
    came: int = 0
    whole: Callable[[int], object] = lambda size: None
    begins: Callable[[str], object] = lambda layer: None


@dataclass(slots=True, eq=False)
class WantedModel:
    """Model that is needed: one with a source, or one that a Modelfile describes, which is in a `file` or was `made` here.

    Work on it `began` and `ended` last at these times of the monotonic clock; `waits_for` is its base. `kept` is True if a failed model
    is retried: a model that was only requested by name is forgotten when it fails. `allowance` limits its pull. `waiting` counts the
    callers that wait for the work under way.
    """

    name: str
    source: BaseModelSource | None = None
    file: Path | None = None
    made: Modelfile | None = None
    kept: bool = True
    allowance: PullAllowance = field(default_factory=PullAllowance)
    status: ModelStatus = field(init=False)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = float("-inf")
    ended: float = float("-inf")
    waits_for: WantedModel | None = None
    waiting: int = 0

    def __post_init__(self) -> None:
        self.status = ModelStatus(self.name, "waiting")

    def settle(self, state: State, detail: str = "", remedy: str = "", cause: str = "") -> None:
        """Set the final state, ready or failed, and wake the waiting callers."""
        self.status = ModelStatus(self.name, state, detail, remedy, cause)
        self.settled.set()

    def reopen(self, detail: str, remedy: str = "", cause: str = "") -> None:
        """Set the state to `waiting`: callers that need the model wait from now on."""
        self.status = ModelStatus(self.name, "waiting", detail, remedy, cause)
        self.settled.clear()


class ServerErrors:
    """Turns what a request to Ollama raises into `Cannot`.

    :param reported: the cause of what Ollama reports without a status of its own.
    """

    def __init__(self, what: str, remedy: str, reported: str = "server_error") -> None:
        self._what, self._remedy, self._reported = what, remedy, reported

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import httpx

        from batos.bridge.client_library import ResponseError

        # ValueError: an answer that is not JSON, or does not fit its schema.
        if isinstance(error, ResponseError | ConnectionError | httpx.HTTPError | OSError | ValueError):
            # For an error in the middle of a stream, ollama adds "(status code: -1)".
            said = error.error if isinstance(error, ResponseError) else str(error)
            raise ModelUnavailable(f"{self._what}: {said or repr(error)}", self._remedy, failure_cause(error, self._reported)) from error


log = structlog.get_logger(__name__)

Event = dict[str, Any]
Hear = Callable[[Event], None]

EVENT_GAP_S = 0.1  # seconds between two events of one layer
LINE_GAP_S, LINE_DUE_S = 1.0, 10.0  # seconds between two log lines about one layer: at least, after a tenth of it; and at most
LINE_BYTES = 1024 * 1024  # a smaller layer has no log lines of its own


class Reports:
    """Filter of progress and status events: passes on those worth reporting.

    :param clock: seconds, as `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hearers: list[Hear] = []
        self._steps: dict[tuple[str, str], ModelProgress] = {}
        self._told: dict[tuple[str, str], float] = {}
        self._lines: dict[tuple[str, str], tuple[float, int]] = {}

    def watch(self, hear: Hear) -> Callable[[], None]:
        """Call `hear` with the events of the work under way, then with all later events. Return the function that ends this."""
        for step in self._steps.values():
            hear({"type": "progress", **step.to_wire()})
        self._hearers.append(hear)
        return lambda: self._hearers.remove(hear)

    def step(self, step: ModelProgress) -> None:
        """Record a progress event of a model."""
        key, now = (step.model, step.layer), self._clock()
        before = self._steps.get(key)
        self._steps[key] = step
        news = before is None or step.done or step.status != before.status
        if news or now - self._told[key] >= EVENT_GAP_S:
            self._told[key] = now
            self._tell({"type": "progress", **step.to_wire()})
        if step.total is not None and step.total >= LINE_BYTES and not (before is not None and before.done):
            self._line(key, step, now)

    def over(self, model: str) -> None:
        """Report that the work on a model has ended for now."""
        for kept in (self._steps, self._told, self._lines):
            for key in [key for key in kept if key[0] == model]:
                del kept[key]

    def status(self, status: ModelStatus) -> None:
        """Record a new status of a model."""
        self._tell({"type": "model", **status.to_wire()})
        if status.state == "failed":
            log.warning("model cannot be had", model=status.name, cause=status.cause, detail=status.detail, remedy=status.remedy)
        elif status.state in ("created", "pulled"):
            log.info("model provisioned", model=status.name, state=status.state, detail=status.detail)

    def _line(self, key: tuple[str, str], step: ModelProgress, now: float) -> None:
        assert step.total is not None
        tenth = 10 * (step.completed or 0) // step.total
        at, told = self._lines.get(key, (float("-inf"), -1))
        if (tenth > told and (now - at >= LINE_GAP_S or step.done)) or now - at >= LINE_DUE_S:
            self._lines[key] = now, tenth
            log.info("provisioning", **step.to_wire(), percent=100 * (step.completed or 0) // step.total)

    def _tell(self, event: Event) -> None:
        for hear in list(self._hearers):
            hear(event)
