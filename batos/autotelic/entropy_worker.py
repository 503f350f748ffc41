"""Assessor: it measures the entropy of each mission after its end, one at a time, with pauses between.

It is off the missions' way. It hears that a mission has ended, reads it in a helper thread, and has its brief and answer embedded where
there is an embedder. It compares them there with the last missions. Assessments are written in batches. A kill loses one batch at most, and
the next start measures what is missing. If more missions end than the assessor gets to, the oldest of them are left out.
"""

from __future__ import annotations

import asyncio
import collections
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from batos.autotelic import entropy, entropy_records
from batos.autotelic.entropy import Kinds, Parts, Text, Thought, Window
from batos.autotelic.entropy_records import Assessment, MissionMaterial, WeightBounds
from batos.bus import EventBus, MissionEnded
from batos.concurrency import in_helper
from batos.config.limits import Limits, limit
from batos.errors import BatosError
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.objects import Root

log = structlog.get_logger("batos.autotelic")

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]
DUTY = 4
"""Factor: a pause takes this many times as long as the work before it, so that a busy daemon keeps its cores."""
CROWD = 128
"""Number of waiting missions from which the worker makes no pauses. The fewer missions wait, the longer the pauses are."""
BATCH = 16  # assessments in one transaction
LOOKED_AT = 8  # factor of the window: number of missions among which the worker looks for those that count


@dataclass(frozen=True, slots=True)
class EntropyLimits(Limits):
    """Limits of the entropy metric's measuring."""

    window: int = limit(32, ge=2, le=256)
    """Number of the newest missions with which a mission is compared."""
    baseline: int = limit(32, ge=4, le=10_000)
    """Number of missions from which the usual entropy is learned."""
    missions: int = limit(10_000, ge=10, le=10_000_000)
    """Number of missions whose entropy the image keeps, the newest."""
    queue: int = limit(4096, ge=1, le=100_000)
    """Greatest number of finished missions that wait for their measurement; above it the oldest are skipped."""


class AssessorLimits(NamedTuple):
    """Limits of an assessor: settings of the same names, with `cem_` before them."""

    window: int
    baseline: int
    queue: int
    kept: int
    chars: int
    pause_s: float
    bounds: WeightBounds
    """Bounds of the weights."""


class Assessor:
    """Measures missions. All methods are called on the loop's thread; `await run()` until cancelled."""

    def __init__(self, image: LivingImage, bus: EventBus, embed: Embed, limits: AssessorLimits) -> None:
        """:param embed: returns the vectors of texts; raises BatosError if there is no embedder."""
        self._image, self.embed, self._limits = image, embed, limits
        self._window = Window(limits.window)
        self._ended: collections.deque[str] = collections.deque()
        self._came = asyncio.Event()
        self._away_until = -math.inf
        self._totals: collections.deque[float] = collections.deque(maxlen=limits.window)
        self._taken: collections.deque[int] = collections.deque(maxlen=limits.window)
        self._pending: dict[int, Assessment] = {}
        self._outcomes: list[tuple[int, str]] = []
        self._watch: entropy.CusumState = image.read(lambda root: entropy.cusum_state(entropy_records.watch_of(root)))
        self.last: Assessment | None = None
        self.left_out = 0
        bus.subscribe(MissionEnded, self._hear)

    async def run(self) -> None:
        """Load the last missions, measure those that were missed, then each mission that ends."""
        for row in await in_helper(self._image.read, _recent, self._limits.window):
            await self._take(row)
        while True:
            await self._came.wait()
            while self._ended:
                begun = time.perf_counter()
                row = await in_helper(self._image.read, _material, self._ended.popleft())
                if row is not None and row.number not in self._taken:  # otherwise the mission ended while the worker read the last ones
                    await self._take(row)
                patience = max(0.0, 1 - len(self._ended) / CROWD)
                await asyncio.sleep(DUTY * patience * (time.perf_counter() - begun))
            self._came.clear()

    def flush(self) -> None:
        """Request that results are stored, without waiting for it."""
        if self._pending:
            new, self._pending = list(self._pending.values()), {}
            outcomes, self._outcomes = self._outcomes, []
            self._image.later(_keep, new, self._watch._asdict(), self._limits, outcomes)

    def of(self, root: Root, number: int) -> Assessment | None:
        """Return the assessment of the mission of that number, including one that is not stored yet."""
        return self._pending.get(number) or entropy_records.assessment_of(root, number)

    @property
    def watch(self) -> entropy.CusumState:
        """Return the state of the watch for decay."""
        return self._watch

    @property
    def rolling(self) -> float | None:
        """Return the mean of the last values, as many as the window has; None if there are none."""
        return sum(self._totals) / len(self._totals) if self._totals else None

    @property
    def spread(self) -> float | None:
        """Return the difference between the highest and the lowest of the last values; None before the window is full."""
        return max(self._totals) - min(self._totals) if len(self._totals) == self._totals.maxlen else None

    @property
    def usual(self) -> float | None:
        """Return the mean of the baseline; None before it is learned."""
        return self._watch.mean if self._watch.learned >= self._limits.baseline else None

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info`."""
        rolling, usual = self.rolling, self.usual
        return {
            "rolling": None if rolling is None else round(rolling, 4),
            "last": None if self.last is None else self.last.to_wire(),
            "weights": self._image.read(entropy_records.weights_of)._asdict(),
            "fallen": self._watch.fallen,
            "usual": None if usual is None else round(usual, 4),
            "waiting": len(self._ended),
            "left_out": self.left_out,
        }

    def told(self) -> str:
        """Return the state of the metric, in words for a brief; empty where nothing was measured."""
        if self.last is None or self.rolling is None:
            return ""
        parts = ", ".join(f"{name} {value:.2f}" for name, value in self.last.parts._asdict().items())
        usual = f", usual is {self.usual:.2f}" if self.usual is not None else ""
        return f"Composite entropy of the last {len(self._totals)} missions: {self.rolling:.2f}{usual}; of the last one: {parts}."

    def _hear(self, ended: MissionEnded) -> None:
        if ended.state != ledger.COMPLETE:
            return
        self._ended.append(ended.mission)
        if len(self._ended) > self._limits.queue:
            self._ended.popleft()
            self.left_out += 1
        self._came.set()

    async def _take(self, row: MissionMaterial) -> None:
        """Measure a mission, unless that was done before, and let it join the window."""
        try:
            await self._measure(row)
        except BatosError as e:  # damage of the image or of an earlier mission: measure the next missions
            log.warning("mission_not_assessed", mission=row.id, error=e.message)

    async def _measure(self, row: MissionMaterial) -> None:
        self._taken.append(row.number)
        thought = await self._thought(row)
        known, kinds, weighed, outcomes = await in_helper(self._image.read, _known, row)
        parts, source = await in_helper(self._window.take, thought, kinds)
        found = known or self._pending.get(row.number)
        if found is None:
            cem = entropy.composite(parts, weighed)
            found = Assessment(row.number, source=source, cem=round(cem, 4), **{n: round(part, 4) for n, part in parts._asdict().items()})
            self._outcomes += outcomes
            self._new(found)
        self._totals.append(found.cem)
        self.last = found

    def _new(self, found: Assessment) -> None:
        self._pending[found.number] = found
        if self._window.full:
            before = self._watch.fallen
            self._watch = entropy.cusum_after(self._watch, found.cem, found.source, self._limits.baseline)
            if self._watch.fallen and not before:
                log.warning("entropic_decay", usual=round(self._watch.mean, 4), rolling=round(self.rolling or 0.0, 4))
        if len(self._pending) >= BATCH:
            self.flush()

    async def _thought(self, row: MissionMaterial) -> Thought:
        texts = [row.brief[: self._limits.chars], row.answer[: self._limits.chars]]
        vectors: list[list[float]] | None = None
        if time.monotonic() >= self._away_until:
            try:
                vectors = await self.embed(texts)
            except BatosError as e:
                self._away_until = time.monotonic() + self._limits.pause_s
                log.info("entropy_by_words_only", cause=e.message, pause_s=self._limits.pause_s)
        return await in_helper(_thought_of, row, texts, vectors)


def _thought_of(row: MissionMaterial, texts: Sequence[str], vectors: Sequence[Sequence[float]] | None) -> Thought:
    meanings = [entropy.meaning_of(vector) for vector in vectors] if vectors else [None] * len(texts)
    if None in meanings or len({len(meaning or ()) for meaning in meanings}) > 1:
        meanings = [None] * len(texts)
    brief, answer = (Text(entropy.words_of(text), meaning) for text, meaning in zip(texts, meanings, strict=True))
    return Thought(row.personas, row.facets, brief, answer, row.described)


def _recent(root: Root, count: int) -> list[MissionMaterial]:
    """Return the last missions that have something to measure, oldest first; none where damage is in the way."""
    try:
        return entropy_records.recent_material(root, count, LOOKED_AT * count)
    except BatosError as e:
        log.warning("last_missions_not_assessed", error=e.message)
        return []


def _material(root: Root, id: str) -> MissionMaterial | None:
    """Return the data of a mission for its measurement; None if the mission cannot be read."""
    try:
        return entropy_records.material_of(root, ledger.mission_of(root, id))
    except BatosError as e:
        log.warning("mission_not_assessed", mission=id, error=e.message)
        return None


def _known(root: Root, row: MissionMaterial) -> tuple[Assessment | None, Kinds, Parts, list[tuple[int, str]]]:
    """Return the stored data: the mission's assessment, the kinds, the weights, and the outcomes of missions."""
    outcomes = [(row.number, entropy_records.RATED_UP if row.rating > 0 else entropy_records.RATED_DOWN)] if row.rating else []
    if row.undone:
        outcomes.append((row.number, entropy_records.UNDONE))
    if row.context is not None:
        outcomes.append((ledger.record_of(root, row.context).number, entropy_records.REUSED))
    return entropy_records.assessment_of(root, row.number), entropy_records.persona_kinds(root), entropy_records.weights_of(root), outcomes


def _keep(
    root: Root, new: Sequence[Assessment], watch: dict[str, Any], limits: AssessorLimits, outcomes: Sequence[tuple[int, str]]
) -> None:
    """System transaction: store the results, and learn from the outcomes of missions, from each outcome once."""
    entropy_records.keep_assessments(root, new, watch, limits.kept)
    for number, outcome in outcomes:
        if (found := entropy_records.assessment_of(root, number)) is not None and not (
            outcome == entropy_records.UNDONE and _is_redone(root, number)
        ):
            entropy_records.learn_weights(root, found, outcome, limits.bounds)


def _is_redone(root: Root, number: int) -> bool:
    """Return True if an undone mission was done again."""
    return not any(mission.undone for mission in ledger.numbered(root, number - 1, 1))
