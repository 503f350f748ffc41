"""News of provisioning on their way to whoever listens: to watchers at a bounded pace, to the log far less often.

Ollama reports a pull some sixteen times a second and layer. What is heard is the first step of a layer, its last, and between
them one now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

from batos.bridge.wants import ModelStatus, Progress

log = structlog.get_logger(__name__)

Event = dict[str, Any]
Hear = Callable[[Event], None]

EVENT_GAP_S = 0.1  # between two events of one layer
LINE_GAP_S, LINE_DUE_S = 1.0, 10.0  # between two lines about one layer: at least, where a tenth was done, and at most
LINE_BYTES = 1024 * 1024  # layers below this have no lines of their own


class Reports:
    """Takes every step and status, and passes on what is worth it.

    :param clock: seconds, as `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hearers: list[Hear] = []
        self._steps: dict[tuple[str, str], Progress] = {}
        self._told: dict[tuple[str, str], float] = {}
        self._lines: dict[tuple[str, str], tuple[float, int]] = {}

    def watch(self, hear: Hear) -> Callable[[], None]:
        """Let `hear` have the events from now on, and first those of what is under way; answers the way to end that."""
        for step in self._steps.values():
            hear({"type": "progress", **step.to_wire()})
        self._hearers.append(hear)
        return lambda: self._hearers.remove(hear)

    def step(self, step: Progress) -> None:
        """A model got on."""
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
        """Nothing more is done about a model for now."""
        for kept in (self._steps, self._told, self._lines):
            for key in [key for key in kept if key[0] == model]:
                del kept[key]

    def status(self, status: ModelStatus) -> None:
        """It is settled, otherwise than before, how it stands with a model."""
        self._tell({"type": "model", **status.to_wire()})
        if status.state == "failed":
            log.warning("model cannot be had", model=status.name, cause=status.cause, detail=status.detail, remedy=status.remedy)
        elif status.state in ("created", "pulled"):
            log.info("model provisioned", model=status.name, state=status.state, detail=status.detail)

    def _line(self, key: tuple[str, str], step: Progress, now: float) -> None:
        assert step.total is not None
        tenth = 10 * (step.completed or 0) // step.total
        at, told = self._lines.get(key, (float("-inf"), -1))
        if (tenth > told and (now - at >= LINE_GAP_S or step.done)) or now - at >= LINE_DUE_S:
            self._lines[key] = now, tenth
            log.info("provisioning", **step.to_wire(), percent=100 * (step.completed or 0) // step.total)

    def _tell(self, event: Event) -> None:
        for hear in list(self._hearers):
            hear(event)
