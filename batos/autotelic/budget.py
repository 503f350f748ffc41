"""Daily budget of the loop and its spending: tokens, minutes of model time, bytes of the image, changes, pulls, trainings.

Nothing is counted in a place that could be lost. The cost of missions is in their journals, their writes are in the transactions that name
them, and changes have their records. Only rehearsals, which are paid for outside of missions, have rows of their own in the image, one an
hour. These rows also keep how far the transactions have been counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import structlog
from ZODB.utils import p64, u64

from batos.autotelic import changes, schema
from batos.concurrency import in_helper
from batos.errors import BatosError
from batos.image import journal, ledger
from batos.image.history import tid_of
from batos.image.living_image import LivingImage
from batos.image.transaction_undo import UNDO
from batos.objects import Root

log = structlog.get_logger("batos.autotelic")

DAY_S, HOUR_S = 86400.0, 3600.0
LEAST_WAIT_S = 1.0  # least number of seconds between two checks whether the budget has room


class DaySpending(NamedTuple):
    """Spending, or a limit on it."""

    tokens: float
    minutes: float
    bytes: float
    changes: float
    pull_bytes: float = 0
    training_minutes: float = 0


THOUGHT = ("tokens", "minutes", "bytes")
"""Parts of the budget that every thought needs: when one is spent, the loop waits. The other parts stop only the work that needs them."""


class Row(NamedTuple):
    """Costs of one hour that no mission's journal has. Stored as a plain tuple."""

    hour: int
    """Number of the hour since the epoch."""
    tokens: int
    seconds: float
    bytes: int
    pulled: int = 0
    trained: float = 0.0


class _Mission(NamedTuple):
    accepted: float
    tokens: int
    seconds: float
    final: bool


class Budget:
    """Counts, and says when it is enough. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        limits: DaySpending,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        """
        :param limits: of 24 hours; the settings of these names, with `loop_` before them.
        """
        self._image, self._limits, self._now, self._sleep = image, limits, now, sleep
        self._missions: dict[str, _Mission] = {}
        self._looked_at = 0  # number of the last mission that was counted
        self._until = ""  # id of the last transaction that was counted
        self._counting = asyncio.Lock()
        self._last = DaySpending(0, 0, 0, 0)
        self.deferred = ""

    async def spent(self) -> DaySpending:
        """Return the spending of the last 24 hours."""
        async with self._counting:
            since = self._now() - DAY_S
            await self._count_bytes(since)
            until = self._now() + HOUR_S  # a later hour dates from a time when the clock was ahead
            known, self._looked_at = await in_helper(self._image.read, _missions, since, self._missions, self._looked_at)
            self._missions = {id: one for id, one in known.items() if one.accepted <= until}
            rows, made = self._image.read(_rows, since, until), self._image.read(changes.promoted_since, since, until)
        own = [Row(0, one.tokens, one.seconds, 0) for one in self._missions.values()] + rows
        sums = Row(*(sum(column) for column in zip(*own, strict=True))) if own else Row(0, 0, 0.0, 0)
        self._last = DaySpending(sums.tokens, round(sums.seconds / 60, 3), sums.bytes, made, sums.pulled, round(sums.trained / 60, 3))
        return self._last

    async def why_not(self) -> str:
        """Return the reason why the loop may not think now; empty if it may."""
        why = _told(await self.spent(), self._limits, THOUGHT)
        if why and not self.deferred:
            log.info("loop_deferred", why=why)
        self.deferred = why
        return why

    async def why_no_change(self) -> str:
        """Return the reason why the loop may not change anything now; empty if it may."""
        return _told(await self.spent(), self._limits, (*THOUGHT, "changes"))

    async def may_pull(self) -> int:
        """Return the bytes of models that may be pulled now."""
        return max(0, int(self._limits.pull_bytes - (await self.spent()).pull_bytes))

    @property
    def pull_limit(self) -> int:
        """Return the bytes of models that may be pulled in 24 hours."""
        return int(self._limits.pull_bytes)

    async def pulled(self, size: int) -> None:
        """Count bytes of a model that was pulled; returns when that is durable."""
        await self._image.system(_note, Row(self._hour(), 0, 0.0, 0, size))

    def came(self, size: int) -> None:
        """Count bytes of a pull under way: like `pulled`, without waiting."""
        self._image.later(_note, Row(self._hour(), 0, 0.0, 0, size))

    async def may_train(self) -> float:
        """Return the minutes that the training of an expert may take now."""
        return max(0.0, self._limits.training_minutes - (await self.spent()).training_minutes)

    async def trains(self, minutes: float) -> None:
        """Count minutes of a training that is about to begin; returns when that is durable."""
        await self._image.system(_note, Row(self._hour(), 0, 0.0, 0, 0, minutes * 60))

    async def ready(self) -> None:
        """Return when the loop may think; at once, if it may now."""
        while await self.why_not():
            await self._sleep(self._wait())

    def paid(self, inference: journal.InferenceRecord) -> None:
        """Count an inference that the loop paid for outside of its missions."""
        tokens = inference.prompt_tokens + inference.answer_tokens
        self._image.later(_note, Row(self._hour(), tokens, round(inference.total_ms / 1000, 3), 0))

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info`: spending in 24 hours at the last count, the limits, and the reason why the loop waits."""
        pairs = zip(DaySpending._fields, self._last, self._limits, strict=True)
        return {"spent": {name: {"spent": spent, "limit": limit} for name, spent, limit in pairs}, "deferred": self.deferred or None}

    def _wait(self) -> float:
        """Return the seconds until the oldest counted costs are a day old."""
        begun = [one.accepted for one in self._missions.values()]
        begun += [(row.hour + 1) * HOUR_S for row in self._image.read(_rows, self._now() - DAY_S, self._now() + HOUR_S)]
        return max(LEAST_WAIT_S, min(begun) + DAY_S - self._now()) if begun else HOUR_S

    def _hour(self) -> int:
        return int(self._now() // HOUR_S)

    async def _count_bytes(self, since: float) -> None:
        counted, size, until = await in_helper(self._image.read, _written, since, self._until)
        if size:
            await self._image.system(_note, Row(self._hour(), 0, 0.0, size), counted, until)
        self._until = until


def count_pull(root: Root, size: int, now: float) -> None:
    """Part of a transaction: count the bytes of a model before its pull. A negative number takes back a cancelled pull."""
    _note(root, Row(int(now // HOUR_S), 0, 0.0, 0, size))


def _told(spent: DaySpending, limits: DaySpending, names: Sequence[str]) -> str:
    over = (name for name in names if getattr(spent, name) >= getattr(limits, name))
    words = [f"{getattr(spent, name):g} of {getattr(limits, name):g} {name} (autonomy.{name})" for name in over]
    return f"in 24 hours the loop has spent {' and '.join(words)}" if words else ""


def _missions(root: Root, since: float, known: dict[str, _Mission], looked_at: int) -> tuple[dict[str, _Mission], int]:
    """Return the system missions accepted since a time, with their costs, and the number of the last mission that was looked at."""
    found = {id: one for id, one in known.items() if one.accepted > since}
    open_ones = [id for id, one in found.items() if not one.final]
    newest = looked_at
    try:
        for mission in ledger.newest_first(root):
            if mission.number <= looked_at or mission.accepted <= since:
                break
            newest = max(newest, int(mission.number))
            if mission.origin == "system":
                open_ones.append(mission.id)
        for id in open_ones:
            mission = ledger.mission_of(root, id)
            spent = journal.spent_on(journal.of(mission))
            tokens = sum(one.prompt_tokens + one.answer_tokens for one in spent)
            seconds = sum(one.model_ms for one in spent) / 1000
            found[id] = _Mission(float(mission.accepted), tokens, seconds, mission.state in ledger.FINAL)
    except BatosError as e:  # the image is damaged: readable records count
        log.warning("budget_incomplete", error=e.message)
    return found, newest


def _rows(root: Root, since: float, until: float) -> list[Row]:
    rows = (Row(*row) for row in schema.part_of(root, "budget").rows)
    return [row for row in rows if since < (row.hour + 1) * HOUR_S and row.hour * HOUR_S <= until]


def _written(root: Root, since: float, looked_at: str) -> tuple[str, int, str]:
    """Return the transaction counted so far, the bytes that later ones wrote for the loop, and the transaction reached now.

    :param looked_at: transaction up to which there is nothing beyond the counted ones.
    """
    db = root._p_jar.db()
    counted = schema.part_of(root, "budget").until
    after = max(counted, looked_at)
    begin = max(p64(u64(bytes.fromhex(after)) + 1) if after else b"", tid_of(db, since))
    last = db.lastTransaction()
    size = 0.0
    own: dict[str, bool] = {}
    with contextlib.closing(db.storage.iterator(begin, last)) as transactions:
        for transaction in transactions:
            names = transaction.user.decode("utf-8", "replace").split()
            for name in names:
                if name not in own:
                    own[name] = _is_own(root, name)
            share = sum(own[name] for name in names) / len(names) if names else 0
            if share:
                size += share * sum(len(record.data or b"") for record in transaction)
    return counted, round(size), last.hex()


def _is_own(root: Root, name: str) -> bool:
    if changes.number_in(name.removeprefix(UNDO)) is not None:
        return True
    mission = ledger.ledger_of(root).missions.get(name)
    try:
        return mission is not None and mission.origin == "system"
    except BatosError:  # the record is damaged: its owner is unknown
        return False


def _note(root: Root, more: Row, counted: str | None = None, until: str = "") -> None:
    """System transaction: add costs to the row of their hour, and remove rows older than a day.

    :param counted: transaction counted before; if that has changed, another process has counted these.
    :param until: transaction counted now.
    """
    held = schema.part_of(root, "budget")
    if counted is not None:
        if held.until != counted:
            return
        held.until = until
    if not any(more[1:]):
        return
    rows = [Row(*row) for row in held.rows if abs(more.hour - row[0]) <= DAY_S // HOUR_S]
    same = next((row for row in rows if row.hour == more.hour), Row(more.hour, 0, 0.0, 0))
    new = Row(
        more.hour, same.tokens + more.tokens, round(same.seconds + more.seconds, 3), same.bytes + more.bytes,
        same.pulled + more.pulled, round(same.trained + more.trained, 3),
    )  # fmt: skip
    held.rows = tuple(tuple(row) for row in sorted([*(row for row in rows if row.hour != more.hour), new]))
