"""Telemetry: events are counted in memory, and written into a ring of buckets in the image, one for each interval.

It never delays a mission. Counters take microseconds, from the events of missions and from inferences, audits and runs. Missions are read
when the interval ends, in a helper thread. A kill loses the counts of the current interval.

Tallies count times, sums and maxima, by table and key, within bounds. The ring has a fixed length and is overwritten. An interval in which
nothing happened leaves nothing, so a quiet system remembers further back than a busy one. The last use of each generated method is kept for
longer than the ring.
"""

from __future__ import annotations

import collections
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from batos.autotelic import schema
from batos.bus import EventBus, InferencePaid, MemoryQueried, MethodRan, MissionEnded, SourceAudited, ToolCalled
from batos.concurrency import in_helper
from batos.config.limits import Limits, limit
from batos.errors import BatosError
from batos.image import history, ledger
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.mind.events import Durations
from batos.objects import Method, Root, UvmObject

OTHER_KEYS = "other"
_DIGITS = 3  # decimals of stored seconds: milliseconds


@dataclass(frozen=True, slots=True)
class SensesLimits(Limits):
    """Limits of the telemetry."""

    every_s: float = limit(600.0, ge=0.05, le=86_400)
    """Seconds between two records of telemetry."""
    intervals: int = limit(1008, ge=2, le=100_000)
    """Number of records of telemetry that the image keeps, without those of quiet times, which are not stored."""
    keys: int = limit(64, ge=4, le=1000)
    """Greatest number of rows of a table in a record of telemetry; the sum of the others is `other`."""


class KeyTally(NamedTuple):
    """Tally of one key: the number of entries, the sum of their amounts, and the greatest amount."""

    times: int
    total: float
    most: float

    @property
    def mean(self) -> float:
        """Return the mean amount; 0 if there was none."""
        return self.total / self.times if self.times else 0.0


NO_TALLY = KeyTally(0, 0.0, 0.0)


class Tallies:
    """Tables of tallies. A table holds at most `keys` keys; the key `other` sums up all later ones."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._tables: dict[str, dict[str, KeyTally]] = {}

    def note(self, table: str, key: str, amount: float = 1.0) -> None:
        """Count one more, of that amount."""
        self._add(table, key, KeyTally(1, amount, amount))

    def add(self, table: str, key: str, count: int) -> None:
        """Add to a count; adding zero creates no entry."""
        if count:
            self._add(table, key, KeyTally(count, float(count), float(count)))

    def of(self, table: str, key: str) -> KeyTally:
        """Return the tally under a key."""
        return self._tables.get(table, {}).get(key, NO_TALLY)

    def rows(self, table: str) -> Iterator[tuple[str, KeyTally]]:
        """Yield a table's keys and tallies, the most frequent first."""
        yield from sorted(self._tables.get(table, {}).items(), key=lambda row: (-row[1].times, row[0]))

    def sum(self, table: str) -> KeyTally:
        """Return the sum of a table."""
        rows = self._tables.get(table, {}).values()
        return KeyTally(sum(row.times for row in rows), sum(row.total for row in rows), max((row.most for row in rows), default=0.0))

    def merge(self, plain: Mapping[str, Mapping[str, Any]]) -> None:
        """Add the counts of another `plain`."""
        for table, rows in plain.items():
            for key, row in rows.items():
                self._add(table, key, KeyTally(*row))

    def plain(self) -> dict[str, dict[str, list[float]]]:
        """Return the tallies as plain values, to be stored."""
        return {
            table: {key: [row.times, round(row.total, _DIGITS), round(row.most, _DIGITS)] for key, row in rows.items()}
            for table, rows in self._tables.items()
        }

    def __bool__(self) -> bool:
        return bool(self._tables)

    def _add(self, table: str, key: str, more: KeyTally) -> None:
        rows = self._tables.setdefault(table, {})
        if key not in rows and len(rows) >= self._keys:
            key = OTHER_KEYS
        before = rows.get(key, NO_TALLY)
        rows[key] = KeyTally(before.times + more.times, before.total + more.total, max(before.most, more.most))


_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
Bucket = dict[str, Any]
"""Data of one interval: `begun` and `ended` in seconds since the epoch, `tallies` (`Tallies.plain`), and `levels`. The levels are states at
the end of the interval, which are not counts.
"""


def write_bucket(root: Root, bucket: Bucket, length: int) -> None:
    """System transaction: add a bucket; above `length` buckets it replaces the oldest."""
    senses = schema.part_of(root, "senses")
    number, ring = senses.written, senses.ring
    slot = number % length
    for beyond in list(ring.keys(length)):  # the ring was longer before
        del ring[beyond]
    if slot not in ring:
        ring[slot] = senses.derive()
    held: UvmObject = ring[slot]
    held.number, held.facts = number, _COMPACT.encode(bucket)
    senses.written = number + 1


def read_buckets(root: Root, since: float = 0.0) -> list[Bucket]:
    """Return the buckets that ended after `since`, oldest first."""
    held = sorted(schema.part_of(root, "senses").ring.values(), key=lambda one: one.number)
    return [bucket for one in held if (bucket := json.loads(one.facts))["ended"] > since]


def summed_buckets(buckets: Iterable[Bucket], keys: int) -> Tallies:
    """Return the sum of buckets."""
    tallies = Tallies(keys)
    for bucket in buckets:
        tallies.merge(bucket["tallies"])
    return tallies


METHOD_TABLES = ("written", "runs", "runs_failed", "runs_unfit")
"""Tables of the senses that concern methods."""
METHODS_KEPT = 1024  # greatest number of methods; the method with the oldest use goes first


class MethodUse(NamedTuple):
    """Use of one method, identified by the oid of its holder and its selector. Stored as a plain tuple."""

    method: str
    written: float
    """Time when the method was first seen, in seconds since the epoch."""
    last: float
    """Time of its last run, or of its writing, in seconds since the epoch."""
    runs: int


def note_method_use(root: Root, bucket: Bucket) -> None:
    """System transaction: add a bucket's data about methods."""
    uses, tallies, at = schema.part_of(root, "usage").methods, bucket["tallies"], bucket["ended"]
    for table in METHOD_TABLES:
        for key, (times, *_) in tallies.get(table, {}).items():
            if " " not in key:  # otherwise it is the sum of keys without a row of their own
                continue
            before = MethodUse(key, *uses.get(key, (at, at, 0)))
            uses[key] = (before.written, max(before.last, at), before.runs + (times if table != "written" else 0))
    for key in sorted(uses, key=lambda key: uses[key][1])[: max(0, len(uses) - METHODS_KEPT)]:
        del uses[key]


def concerns_methods(bucket: Bucket) -> bool:
    """Return True if a bucket contains data about methods."""
    return not bucket["tallies"].keys().isdisjoint(METHOD_TABLES)


def used_methods(root: Root) -> list[MethodUse]:
    """Return the methods that were noted and that the image still has."""
    return [MethodUse(key, *row) for key, row in schema.part_of(root, "usage").methods.items() if _is_there(root, key)]


def last_use_of(root: Root, key: str) -> float | None:
    """Return the time at which a method was last of use; None where nothing was noted of it."""
    found = schema.part_of(root, "usage").methods.get(key)
    return None if found is None else float(found[1])


def _is_there(root: Root, key: str) -> bool:
    oid, _, selector = key.partition(" ")
    try:
        return isinstance(history.resolve(root, oid)._slots.get(selector), Method)
    except BatosError:  # the object is gone or damaged
        return False


log = structlog.get_logger("batos.autotelic")

NEW_HOLDER = "new"  # holder of a method that is not stored yet
ENDED_KEPT = 4096  # greatest number of missions of one interval that are looked at, the newest
TABLES = {
    "states": "seconds in a state of thought, by state",
    "missions": "seconds of a mission, by origin and outcome",
    "personas": "missions of users that a persona completed",
    "facets": "facets in them, by persona",
    "failures": "missions that FAILED, by code, cause, target and selector",
    "inferences": "seconds of an inference, by model",
    "prompt_tokens": "tokens read, by model",
    "answer_tokens": "tokens written, by model",
    "verdicts": "verdicts of the guardian",
    "written": "methods written, by holder and selector",
    "runs": "runs of methods that ended well, by holder and selector",
    "runs_failed": "failed runs of calls that it takes",
    "runs_unfit": "those of others",
    "tools": "seconds of calls of tools, by tool",
    "tool_bytes": "bytes of their answers, by tool",
    "tools_failed": "seconds of failed ones, by tool",
    "retrievals": "passages found, by whether there were any",
    "citations": "passages that answers come from, by persona",
    "transactions": "conflicts, units of work committed and aborted",
    "models": "loads and unloads of models",
}
"""Tables of tallies -> their contents, as an audit reads them."""
_ONE = ("tools", "tool_bytes", "tools_failed")
"""Tables of which an audit reads one key, that of the greatest sum: a small model reads little."""


class Levels(NamedTuple):
    """Counters that the daemon keeps since its start, and levels: states that are not counts."""

    counters: dict[str, dict[str, int]]
    """Table -> key -> counter; a bucket stores the growth."""
    levels: dict[str, float]


class Senses:
    """Counts of one interval, from the events of the bus. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        bus: EventBus,
        *,
        length: int,
        keys: int,
        levels: Callable[[], Levels],
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        :param length: buckets in the ring.
        :param keys: keys of one table in one bucket.
        """
        self._image, self._length, self._keys, self._levels, self._now = image, length, keys, levels, now
        self._tallies, self._begun = Tallies(keys), now()
        self._counted: dict[str, dict[str, int]] = {}
        self._ended: collections.deque[str] = collections.deque(maxlen=ENDED_KEPT)
        self._durations = Durations(bus, lambda state, seconds: self._tallies.note("states", state, seconds))
        bus.subscribe(MissionEnded, lambda ended: self._ended.append(ended.mission))
        bus.subscribe(InferencePaid, self._note_inference)
        bus.subscribe(SourceAudited, lambda audited: self._tallies.note("verdicts", "accepted" if audited.accepted else "refused"))
        bus.subscribe(MethodRan, self._note_run)
        bus.subscribe(ToolCalled, self._note_call)
        bus.subscribe(MemoryQueried, lambda asked: self._tallies.note("retrievals", "found" if asked.hits else "nothing", asked.hits))

    # --- events

    def _note_inference(self, paid: InferencePaid) -> None:
        inference = paid.record
        self._tallies.note("inferences", inference.model, inference.total_ms / 1000)
        self._tallies.note("prompt_tokens", inference.model, inference.prompt_tokens)
        self._tallies.note("answer_tokens", inference.model, inference.answer_tokens)

    def _note_run(self, ran: MethodRan) -> None:
        table = "runs" if ran.succeeded else "runs_failed" if ran.fitting else "runs_unfit"
        self._tallies.note(table, f"{ran.holder or NEW_HOLDER} {ran.selector}")

    def _note_call(self, called: ToolCalled) -> None:
        if called.outcome == "done":
            self._tallies.note("tools", called.tool, called.seconds)
            self._tallies.note("tool_bytes", called.tool, called.bytes)
        elif called.outcome in ("failed", "doubt"):
            self._tallies.note("tools_failed", called.tool, called.seconds)

    # --- results

    async def flush(self) -> Bucket | None:
        """End the interval; return its bucket, which is on its way into the image, or None where nothing happened."""
        await self._look()
        tallies, self._tallies = self._tallies, Tallies(self._keys)
        begun, self._begun = self._begun, self._now()
        found = self._levels()
        for table, counters in found.counters.items():
            before = self._counted.get(table, {})
            for key, value in counters.items():
                tallies.add(table, key, value - before.get(key, 0))
        self._counted = found.counters
        if not tallies:
            return None
        bucket = {"begun": round(begun, 3), "ended": round(self._begun, 3), "tallies": tallies.plain(), "levels": found.levels}
        self._image.later(write_bucket, bucket, self._length)
        return bucket

    async def since(self, at: float) -> list[Bucket]:
        """Return the buckets of the time since `at` (seconds since the epoch), oldest first; the last is of the interval under way."""
        await self._look()
        buckets: list[Bucket] = await in_helper(self._image.read, read_buckets, at)
        if self._tallies:
            now = {"begun": self._begun, "ended": self._now(), "tallies": self._tallies.plain(), "levels": self._levels().levels}
            buckets.append(now)
        return buckets

    async def _look(self) -> None:
        """Count the missions that ended. Their records must be read from the image."""
        ended = list(self._ended)
        self._ended.clear()
        try:
            rows = await in_helper(self._image.read, _looked_at, ended)
        except BaseException:  # cancelled, because the daemon ends: the last flush looks at them
            self._ended.extendleft(reversed(ended))
            raise
        for row in rows:
            _note_mission(self._tallies, row)


def _looked_at(root: Root, ids: Iterable[str]) -> list[MissionRecord]:
    """Return missions that ended as plain values; one that is damaged is left out."""
    rows = []
    for id in ids:
        try:
            rows.append(ledger.describe(ledger.mission_of(root, id)))
        except BatosError as e:
            log.warning("mission_not_sensed", mission=id, error=e.message)
    return rows


def _note_mission(tallies: Tallies, row: MissionRecord) -> None:
    tallies.note("missions", f"{row.origin} {row.state}", max(0.0, (row.finished or row.accepted) - row.accepted))
    if row.error:
        tallies.note("failures", failure_key(row))
    result = row.result or {}
    for wrote in result.get("wrote", ()):
        tallies.note("written", f"{wrote['object']} {wrote['selector']}")
    if row.origin == "system" or not result.get("persona") or row.message:
        return
    persona = str(result["persona"]).lower()
    tallies.note("personas", persona)
    tallies.note("citations", persona, len(result.get("citations", ())))
    for facet in result.get("facets", ()):
        tallies.note("facets", f"{persona} {facet}")


def failure_key(row: MissionRecord) -> str:
    """Return the key of a failure, by which two are the same: code, cause, and of a message its target and selector."""
    error: dict[str, Any] = row.error or {}
    message = json.loads(row.message) if row.message else {}
    words = (error["code"], error.get("context", {}).get("cause"), message.get("target"), message.get("selector"))
    return " ".join(str(word) for word in words if word)


def tallies_in_words(tallies: Tallies, most: int) -> str:
    """Return tallies in words, for a brief: of each table the `most` frequent keys, of tools the one that costs most."""
    sentences = []
    for table, what in TABLES.items():
        rows = list(tallies.rows(table))
        if rows:
            count = 1 if table in _ONE else most
            rows = sorted(rows, key=lambda row: -row[1].total) if table in _ONE else rows
            shown = "; ".join(f"{key} {_said(table, tally)}" for key, tally in rows[:count])
            sentences.append(f"{what[:1].upper()}{what[1:]}: {shown}{'; and others' if len(rows) > count else ''}.")
    return " ".join(sentences)


def _said(table: str, tally: KeyTally) -> str:
    if "seconds" in TABLES[table]:
        return f"{tally.times} times, {tally.mean:.1f} s each, {tally.most:.1f} s at most"
    return f"{tally.total:.0f}" if "tokens" in table or "bytes" in table else f"{tally.times}"
