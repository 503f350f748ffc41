"""The senses: what happens, gathered in memory, and written into the image's ring once an interval.

Nothing here is on a mission's way: what is counted is counted in microseconds from the events of missions and by those who
pay, audit and run; what must be read of a mission is read when the interval ends, in a helper thread. A kill costs what the
interval under way had counted.
"""

from __future__ import annotations

import collections
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import structlog

from batos.autotelic import ring
from batos.autotelic.ring import Bucket
from batos.autotelic.tallies import Tallies, Tally
from batos.errors import BatosError
from batos.image import journal, ledger
from batos.image.living import LivingImage
from batos.image.turns import in_helper
from batos.mind.events import Durations, Events

log = structlog.get_logger("batos.autotelic")

NEW = "new"  # the holder of a method that is not stored yet
ENDED_KEPT = 4096  # missions that ended within one interval and are looked at; of more, the newest
TABLES = {
    "states": "seconds in a state of thought, by state",
    "missions": "seconds from acceptance to end, by origin and outcome",
    "personas": "missions of users that a persona completed",
    "facets": "the facets that took part in them, by persona",
    "failures": "missions that FAILED, by code, cause, target and selector",
    "inferences": "seconds of an inference, by model",
    "prompt_tokens": "tokens read, by model",
    "answer_tokens": "tokens written, by model",
    "verdicts": "verdicts of the guardian",
    "written": "methods that were written, by holder and selector",
    "runs": "runs of a generated method that ended well, by holder and selector",
    "runs_failed": "those that did not, of calls that it takes",
    "runs_unfit": "those of others",
    "retrievals": "passages that memory answered with, by whether there were any",
    "citations": "passages that an answer comes from, by persona",
    "transactions": "conflicts met, units of work committed and aborted",
    "models": "loads, unloads and preloads of models",
}
"""The tables of tallies: what is noted in each."""


class Levels(NamedTuple):
    """What the daemon counts itself since its start, and what is a state and no count."""

    counters: dict[str, dict[str, int]]
    """By table and key; a bucket notes by how much they grew."""
    levels: dict[str, float]


class Senses:
    """Gathers. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        events: Events,
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
        self._durations = Durations(events, lambda state, seconds: self._tallies.note("states", state, seconds))
        events.listen("result", lambda event: self._ended.append(event["id"]))

    # --- what is heard

    def paid(self, inference: journal.Inference) -> None:
        """An inference was paid for."""
        self._tallies.note("inferences", inference.model, inference.total_ms / 1000)
        self._tallies.note("prompt_tokens", inference.model, inference.prompt_tokens)
        self._tallies.note("answer_tokens", inference.model, inference.answer_tokens)

    def verdict(self, accepted: bool) -> None:
        """The guardian gave a verdict."""
        self._tallies.note("verdicts", "accepted" if accepted else "refused")

    def ran(self, holder: str, selector: str, ok: bool, taken: bool = True) -> None:
        """A generated method ran.

        :param taken: whether the call was one that it takes: what fails of others is no fault of the method's.
        """
        self._tallies.note("runs" if ok else "runs_failed" if taken else "runs_unfit", f"{holder or NEW} {selector}")

    def retrieved(self, hits: int) -> None:
        """Memory was asked, and answered with so many passages."""
        self._tallies.note("retrievals", "found" if hits else "nothing", hits)

    # --- what is made of it

    async def flush(self) -> Bucket | None:
        """End the interval: its bucket, which is on its way into the image; None where nothing happened."""
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
        self._image.later(ring.write, bucket, self._length)
        return bucket

    async def since(self, at: float) -> list[Bucket]:
        """The buckets of the time since `at` (seconds since the epoch), oldest first; the last is of the interval under way."""
        await self._look()
        buckets: list[Bucket] = await in_helper(self._image.read, ring.read, at)
        if self._tallies:
            now = {"begun": self._begun, "ended": self._now(), "tallies": self._tallies.plain(), "levels": self._levels().levels}
            buckets.append(now)
        return buckets

    async def _look(self) -> None:
        """Note what must be read of the missions that ended."""
        ended = list(self._ended)
        self._ended.clear()
        try:
            rows = await in_helper(self._image.read, _looked_at, ended)
        except BaseException:  # cancelled, because the daemon ends: the flush at its end looks at them
            self._ended.extendleft(reversed(ended))
            raise
        for row in rows:
            _note_mission(self._tallies, row)


def _looked_at(root: Any, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Missions that ended, as plain values; one that is damaged is left out."""
    rows = []
    for id in ids:
        try:
            rows.append(ledger.describe(ledger.mission_of(root, id)))
        except BatosError as e:
            log.warning("mission_not_sensed", mission=id, error=e.message)
    return rows


def _note_mission(tallies: Tallies, row: Mapping[str, Any]) -> None:
    tallies.note("missions", f"{row['origin']} {row['state']}", max(0.0, (row["finished"] or row["accepted"]) - row["accepted"]))
    if row["error"]:
        tallies.note("failures", failure_key(row))
    result = row["result"] or {}
    for wrote in result.get("wrote", ()):
        tallies.note("written", f"{wrote['object']} {wrote['selector']}")
    if row["origin"] == "system" or not result.get("persona") or row["message"]:
        return
    persona = str(result["persona"]).lower()
    tallies.note("personas", persona)
    tallies.note("citations", persona, len(result.get("citations", ())))
    for facet in result.get("facets", ()):
        tallies.note("facets", f"{persona} {facet}")


def failure_key(row: Mapping[str, Any]) -> str:
    """What makes two failures the same: code, cause, and of a message its target and selector."""
    error, message = row["error"], json.loads(row["message"]) if row["message"] else {}
    words = (error["code"], error.get("context", {}).get("cause"), message.get("target"), message.get("selector"))
    return " ".join(str(word) for word in words if word)


def told(tallies: Tallies, most: int) -> str:
    """Tallies in words, for a brief: of each table the `most` frequent keys."""
    sentences = []
    for table, what in TABLES.items():
        rows = list(tallies.rows(table))
        if rows:
            shown = "; ".join(f"{key} {_said(table, tally)}" for key, tally in rows[:most])
            sentences.append(f"{what[:1].upper()}{what[1:]}: {shown}{'; and others' if len(rows) > most else ''}.")
    return " ".join(sentences)


def _said(table: str, tally: Tally) -> str:
    if "seconds" in TABLES[table]:
        return f"{tally.times} times, {tally.mean:.1f} s each, {tally.most:.1f} s at most"
    return f"{tally.total:.0f}" if "tokens" in table else f"{tally.times}"
