"""What all missions cost, by model: exact over restarts and kills, and without a record in the way of a mission.

The truth is in the journals. A durable total covers all missions up to one of them; those after it are read at the
start, and what is paid from then on is added in memory. From time to time the total is moved up, by a system
transaction that rides along with others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

import structlog

from batos.errors import ImageDamaged
from batos.image import journal
from batos.image.journal import Inference, Spent, merged, spent_by, spent_on
from batos.image.ledger import FINAL, MILESTONE, Costs, ledger_of, numbered
from batos.image.living import LivingImage

log = structlog.get_logger("batos.image")


class Meter:
    """Counts what inferences cost. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage) -> None:
        self._image = image
        self._spent: dict[str, Spent] = {}
        self._reading: asyncio.Task[None] | None = None
        self._folded = 0

    def begin(self) -> None:
        """Read what was paid for before now, in the background. To be called before any mission is thought about."""
        stack = contextlib.ExitStack()
        root = stack.enter_context(self._image.snapshot())  # now: what is paid from here on is added by `add`
        self._reading = asyncio.create_task(self._read(stack, root), name="costs")

    async def _read(self, stack: contextlib.ExitStack, root: Any) -> None:
        def read() -> list[Spent]:
            with stack:
                return total(root)

        try:
            rows = await asyncio.to_thread(read)
        except ImageDamaged as e:
            log.error("costs_incomplete", error=e.message, hint="what was paid for before this start is not counted in")
            return
        for row in rows:
            self._add(row)

    async def ready(self) -> None:
        """Wait until what was paid for earlier is counted in."""
        if self._reading is not None:
            await asyncio.shield(self._reading)

    def add(self, inference: Inference) -> None:
        """Count an inference that was just paid for."""
        self._add(spent_by(inference))

    def facts(self) -> dict[str, Any]:
        """What `info` says of costs; `counting` while earlier missions are still being read."""
        rows = [self._spent[model] for model in sorted(self._spent)]
        facts: dict[str, Any] = {**_plain(rows), "by_model": {row.model: _plain([row]) for row in rows}}
        if self._reading is not None and not self._reading.done():
            facts["counting"] = True
        return facts

    async def fold(self) -> int:
        """Move the durable total up to the last stretch of missions that all have ended; its number, 0 if nothing moved."""
        until, rows = await asyncio.to_thread(lambda: self._image.read(foldable))
        if until <= self._folded:
            return 0
        self._folded = until
        self._image.committer.defer(fold, until, rows)
        return int(until)

    async def stop(self) -> None:
        """End the reading."""
        if self._reading is not None:
            await asyncio.wait([self._reading])  # its thread must be off the image before that is closed

    def _add(self, row: Spent) -> None:
        (self._spent[row.model],) = merged([row, *filter(None, [self._spent.get(row.model)])])


def total(root: Any) -> list[Spent]:
    """What all missions cost so far, by model."""
    until, rows = foldable(root)
    while missions := numbered(root, until, MILESTONE):
        rows = merged([*rows, *_spent_on(missions)])
        until = missions[-1].number
    return rows


def foldable(root: Any) -> tuple[int, list[Spent]]:
    """Up to which mission all have ended, in whole stretches, and what they cost."""
    costs: Costs = ledger_of(root).costs
    until, rows = costs.until, [Spent(*row) for row in costs.by_model]
    while len(missions := numbered(root, until, MILESTONE)) == MILESTONE and all(m.state in FINAL for m in missions):
        rows = merged([*rows, *_spent_on(missions)])
        until = missions[-1].number
    return until, rows


def fold(root: Any, until: int, rows: list[Spent]) -> None:
    """System transaction: set the durable total."""
    costs: Costs = ledger_of(root).costs
    if until > costs.until:
        costs.until, costs.by_model = until, tuple(tuple(row) for row in rows)


def _spent_on(missions: Iterable[Any]) -> list[Spent]:
    return [row for mission in missions for row in spent_on(journal.of(mission))]


def _plain(rows: list[Spent]) -> dict[str, Any]:
    return {
        "inferences": sum(row.inferences for row in rows),
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "answer_tokens": sum(row.answer_tokens for row in rows),
        "model_s": round(sum(row.model_ms for row in rows) / 1000, 3),
    }
