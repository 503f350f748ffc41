"""Total cost of all missions by model: exact over restarts and kills, and without a record that missions would
conflict on.

A kernel that shares the image counts what it paid for itself since its start, and tells the durable total beside that.

The truth is in the journals. A durable total covers all ended missions up to one of them. Later missions, and the few
earlier ones that have not ended, are read at the start; costs from then on are added in memory. From time to time a
system transaction, which rides along with others, moves the durable total up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import structlog

from batos.errors import ImageDamaged
from batos.image import journal
from batos.image.journal import InferenceRecord, ModelCost, merged, spent_by, spent_on
from batos.image.ledger import Costs, ledger_of, unfinished
from batos.image.living_image import LivingImage
from batos.image.mission_index import FINAL, MILESTONE, next_numbered, numbered, of_numbers
from batos.objects import Root

log = structlog.get_logger("batos.image")
APART = 1024
"""Maximum number of unfinished missions that the total moves past: they may be paused, or wait for an answer, for ever. With
more, nothing is folded either (`batos.image.retention`)."""


class CountedMissions(NamedTuple):
    """Cost of the ended missions up to one of them."""

    until: int
    """Number of the last mission."""
    apart: tuple[int, ...]
    """Numbers of the missions up to it that have not ended, and are not counted."""
    rows: list[ModelCost]


class CostMeter:
    """Counter of the cost of inferences. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage) -> None:
        self._image = image
        self._spent: dict[str, ModelCost] = {}
        self._reading: asyncio.Task[None] | None = None
        self._folded = 0

    def begin(self) -> None:
        """Read earlier costs in the background, where the image is this daemon's alone. Call it before any mission is thought about."""
        if self._image.kernel:
            return
        stack = contextlib.ExitStack()
        root = stack.enter_context(self._image.snapshot())  # now: what is paid from here on is added by `add`
        self._reading = asyncio.create_task(self._read(stack, root), name="costs")

    async def _read(self, stack: contextlib.ExitStack, root: Root) -> None:
        def read() -> list[ModelCost]:
            with stack:
                return total_spent(root)

        try:
            rows = await asyncio.to_thread(read)
        except ImageDamaged as e:
            log.error("costs_incomplete", error=e.message, hint="what was paid for before this start is not counted in")
            return
        for row in rows:
            self._add(row)

    async def ready(self) -> None:
        """Wait until earlier costs are counted."""
        if self._reading is not None:
            await asyncio.shield(self._reading)

    def add(self, inference: InferenceRecord) -> None:
        """Count an inference that was just paid for."""
        self._add(spent_by(inference))

    def facts(self) -> dict[str, Any]:
        """Return the facts about costs for `info`; `counting` while earlier missions are still being read. Those of a kernel among several
        name the `kernel`, and are of its time. `durable` is what all kernels paid for the ended missions up to the one of number `until`,
        and in sessions of stepping."""
        rows = [self._spent[model] for model in sorted(self._spent)]
        facts: dict[str, Any] = {**_plain(rows), "by_model": {row.model: _plain([row]) for row in rows}}
        if self._reading is not None and not self._reading.done():
            facts["counting"] = True
        if self._image.kernel:
            facts |= {"kernel": self._image.kernel, "durable": self._image.read(_durable)}
        return facts

    async def fold(self) -> int:
        """Move the durable total up to the last stretch of ended missions; return its number, 0 if nothing moved."""
        counted: CountedMissions = await asyncio.to_thread(lambda: self._image.read(missions_to_count))
        if counted.until <= self._folded:
            return 0
        self._folded = counted.until
        self._image.defer(add_to_total, counted)
        return counted.until

    async def stop(self) -> None:
        """End the reading."""
        if self._reading is not None:
            await asyncio.wait([self._reading])  # its thread must be off the image before that is closed

    def _add(self, row: ModelCost) -> None:
        before = self._spent.get(row.model)
        self._spent[row.model] = row if before is None else before.and_also(row)


def total_spent(root: Root) -> list[ModelCost]:
    """Return the cost of all missions so far, by model."""
    until, apart, rows = missions_to_count(root)
    rows = merged([*rows, *_stepped(root), *_spent_on(of_numbers(root, apart))])
    while missions := next_numbered(root, until, MILESTONE):
        rows = merged([*rows, *_spent_on(missions)])
        until = missions[-1].number
    return rows


def missions_to_count(root: Root) -> CountedMissions:
    """Return the missions up to which the durable total can move: whole stretches, past no more than `APART` missions
    that have not ended."""
    costs: Costs = ledger_of(root).costs
    until, rows = costs.until, [ModelCost(*row) for row in costs.by_model]
    apart = tuple(costs.apart)
    while len(missions := numbered(root, until, MILESTONE)) == MILESTONE:
        missions = [*of_numbers(root, apart), *missions]
        waiting = tuple(mission.number for mission in missions if mission.state not in FINAL)
        if len(waiting) > APART:
            break
        rows = merged([*rows, *_spent_on(mission for mission in missions if mission.number not in waiting)])
        until, apart = missions[-1].number, waiting
    return CountedMissions(until, apart, rows)


def add_to_total(root: Root, counted: CountedMissions) -> None:
    """Set the durable total. A system transaction."""
    costs: Costs = ledger_of(root).costs
    reopened = {mission.number for mission in unfinished(root)} - set(counted.apart)
    if counted.until > costs.until and all(number > counted.until for number in reopened):  # else it is counted the next time
        costs.until, costs.apart, costs.by_model = counted.until, counted.apart, tuple(tuple(row) for row in counted.rows)


def uncount(root: Root, mission: Any) -> None:
    """Take a mission out of the durable total, since it goes on: it is counted when it has ended again. Part of a transaction."""
    costs: Costs = ledger_of(root).costs
    if mission.number > costs.until or mission.number in costs.apart:
        return
    minus = [_minus(row) for row in spent_on(journal.of(mission))]
    costs.by_model = tuple(tuple(row) for row in merged([*(ModelCost(*row) for row in costs.by_model), *minus]))
    costs.apart = tuple(sorted((*costs.apart, mission.number)))


def count_stepped(root: Root, inference: InferenceRecord) -> None:
    """Count an inference that a session of stepping paid for, also if the session is dropped. A system transaction."""
    costs: Costs = ledger_of(root).costs
    costs.stepped = tuple(tuple(row) for row in merged([*_stepped(root), spent_by(inference)]))


def uncount_stepped(root: Root, inferences: Iterable[InferenceRecord]) -> None:
    """Count inferences of a session of stepping no more, since they enter the journal of its mission. Part of a transaction."""
    minus = [_minus(spent_by(one)) for one in inferences]
    if minus:
        costs: Costs = ledger_of(root).costs
        costs.stepped = tuple(tuple(row) for row in merged([*_stepped(root), *minus]) if row.inferences > 0)


def _stepped(root: Root) -> list[ModelCost]:
    return [ModelCost(*row) for row in ledger_of(root).costs.stepped]


def _minus(row: ModelCost) -> ModelCost:
    return ModelCost(row.model, -row.inferences, -row.prompt_tokens, -row.answer_tokens, -row.model_ms)


def _durable(root: Root) -> dict[str, Any]:
    costs: Costs = ledger_of(root).costs
    return {"until": costs.until, **_plain([*(ModelCost(*row) for row in costs.by_model), *_stepped(root)])}


def _spent_on(missions: Iterable[Any]) -> list[ModelCost]:
    return [row for mission in missions for row in spent_on(journal.of(mission))]


def _plain(rows: list[ModelCost]) -> dict[str, Any]:
    return {
        "inferences": sum(row.inferences for row in rows),
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "answer_tokens": sum(row.answer_tokens for row in rows),
        "model_s": round(sum(row.model_ms for row in rows) / 1000, 3),
    }
