"""The leash: watches each change that the loop makes to itself, and undoes it if it does harm.

look ─ the watch is over, nothing got worse ──────── kept
     ├ worse, and worse still at a later look ────── undone, one transaction with its record
     └ neither ───────────────────────────────────── the next look
start ─ the daemon died too often under its watch ── disabled, before any mission goes on

Only the record tells the progress: after a kill at any moment, the next start continues the watch.

The effect of a change compares the missions after it with those before it, by failures, time and entropy. Like is compared with like:
missions of users and of the system, briefs and messages, each with its own. A difference counts if it is large enough to matter and
unlikely to be chance. The tests are Fisher's exact test for shares, and the rank sum of Mann and Whitney (1947) for times and entropy. Both
ignore the order of missions, so that a slow drift may look like an effect; a watch is short.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import structlog

from batos.autotelic import changes, entropy_records, schema
from batos.autotelic.replay_selection import was_not_taken
from batos.autotelic.triggers import LEAST_SECONDS
from batos.concurrency import in_helper
from batos.config.limits import Limits, limit
from batos.errors import BatosError, HistoryGone, UndoConflict
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.objects import Root

DOUBT = 0.01  # probability that chance alone causes such a difference; a less rare difference is not an effect
BEFORE = 4  # factor of the sufficient number of missions: how many missions before a change are looked at
AFTER = 16  # the same factor for missions after a change
LEAST_FAILED = 3  # least number of failures that may be an effect
_NO_FAULT = ("cancelled", "model_blind")  # error codes that are no fault of a change: a user's decision, and a lack of models that see


@dataclass(frozen=True, slots=True)
class EffectLimits(Limits):
    """Limits from which a change counts as harmful, and of its being watched."""

    missions: int = limit(12, ge=4, le=1000)
    """Number of missions after a change that suffices for a verdict."""
    failures: float = limit(0.15, gt=0, le=1)
    """Increase of the share of FAILED missions from which a change is rolled back."""
    slower: float = limit(1.5, ge=1.05, le=1000)
    """Factor by which missions get slower from which a change is rolled back."""
    fall: float = limit(0.08, gt=0, le=1)
    """Decrease of the entropy metric from which a change is rolled back."""
    period_s: float = limit(21_600.0, ge=0.05, le=366 * 86400)
    """Seconds for which a change is watched. The loop makes no other change in this time."""
    deaths: int = limit(2, ge=1, le=1000)
    """Number of deaths of the daemon while a change is watched that disable the change. A number below missions.attempts leaves an
    attempt to a mission that died with the daemon.
    """


class Sample(NamedTuple):
    """Measurements of one mission."""

    kind: str
    """`client` or `system`, and `brief` or `message`."""
    failed: bool
    """True if the mission FAILED, or its answer is marked as unsure."""
    seconds: float | None
    """Seconds of model time, or of the whole mission if no model was asked; None if it FAILED."""
    cem: float | None


class Effect(NamedTuple):
    """Visible effect of a change so far."""

    samples: int
    """Number of missions after the change, of the most frequent kind."""
    worse: tuple[str, ...]
    """Descriptions of the figures that are significantly worse."""
    harmed: int
    """Number of missions after the change, of the kinds that are worse."""
    figures: dict[str, dict[str, Any]]
    """Kind of mission -> its figures, as pairs of before and after."""


def effect_of(root: Root, change: Mapping[str, Any], limits: EffectLimits) -> Effect:
    """Return the visible effect of a change.

    :param change: record from `changes.of`.
    """
    return effect_between(*effect_samples(root, change, limits.missions), limits)


def effect_samples(root: Root, change: Mapping[str, Any], enough: int) -> tuple[list[Sample], list[Sample]]:
    """Return the samples of missions that ended before a change was made, and of missions accepted after it."""
    before: list[Sample] = []
    after: list[Sample] = []
    for mission in ledger.newest_first(root):
        if len(before) >= BEFORE * enough:
            break
        if mission.state not in ledger.FINAL or was_not_taken(root, mission):
            continue
        if mission.number > change["missions"]:
            if len(after) < AFTER * enough:
                after += _sample(root, ledger.describe(mission))
        elif mission.finished <= change["decided"]:
            before += _sample(root, ledger.describe(mission))
    return before, after


def effect_between(before: Sequence[Sample], after: Sequence[Sample], limits: EffectLimits) -> Effect:
    """Return the effect of a change, from what missions before and after it say."""
    figures: dict[str, dict[str, Any]] = {}
    worse: list[str] = []
    most = harmed = 0
    for kind in sorted({one.kind for one in after}):
        was, now = ([one for one in side if one.kind == kind] for side in (before, after))
        figures[kind] = {
            "missions": [len(was), len(now)],
            "failed": [sum(one.failed for one in side) for side in (was, now)],
            "seconds": [_middle([one.seconds for one in side if one.seconds is not None]) for side in (was, now)],
            "cem": [_middle([one.cem for one in side if one.cem is not None]) for side in (was, now)],
        }
        found = [f"{kind}: {words}" for words in _worse(was, now, limits)]
        worse += found
        most, harmed = max(most, len(now)), harmed + (len(now) if found else 0)
    return Effect(most, tuple(worse), harmed, figures)


def _worse(before: Sequence[Sample], after: Sequence[Sample], limits: EffectLimits) -> Iterator[str]:
    failed, was_failed = sum(one.failed for one in after), sum(one.failed for one in before)
    if failed >= LEAST_FAILED and before:
        rise = failed / len(after) - was_failed / len(before)
        if rise >= limits.failures and chance_of_failures(was_failed, len(before), failed, len(after)) <= DOUBT:
            yield f"{failed} of {len(after)} FAILED or unsure; before, {was_failed} of {len(before)}"
    was, now = ([one.seconds for one in side if one.seconds is not None] for side in (before, after))
    if min(len(was), len(now)) >= limits.missions:
        middle, usual = statistics.median(now), statistics.median(was)
        if middle >= max(LEAST_SECONDS, limits.slower * usual) and chance_of_ranks(was, now) <= DOUBT:
            yield f"{middle:.1f} s of model time in the middle; before, {usual:.1f} s"
    was, now = ([one.cem for one in side if one.cem is not None] for side in (before, after))
    if min(len(was), len(now)) >= limits.missions:
        mean, usual = statistics.fmean(now), statistics.fmean(was)
        if usual - mean >= limits.fall and chance_of_ranks(now, was) <= DOUBT:
            yield f"entropy {mean:.3f} on average; before, {usual:.3f}"


def chance_of_failures(was_failed: int, before: int, failed: int, after: int) -> float:
    """Return the chance that at least this many failures fall after, if it made no difference: Fisher's exact test, one-sided."""
    all_failed = was_failed + failed
    ways = sum(math.comb(after, k) * math.comb(before, all_failed - k) for k in range(failed, min(after, all_failed) + 1))
    return ways / math.comb(before + after, all_failed)


def chance_of_ranks(low: Sequence[float], high: Sequence[float]) -> float:
    """Return the chance that `high` ranks so high above `low`, if they were alike: Mann and Whitney's test, one-sided, by its normal
    limit.
    """
    n, m = len(high), len(low)
    values = sorted([*low, *high])
    first: dict[float, int] = {}
    count: dict[float, int] = {}
    for place, value in enumerate(values, 1):
        first.setdefault(value, place)
        count[value] = count.get(value, 0) + 1
    ranks = sum(first[value] + (count[value] - 1) / 2 for value in high)
    ties = sum(times**3 - times for times in count.values())
    variance = n * m / 12 * ((n + m + 1) - ties / ((n + m) * (n + m - 1)))
    if variance <= 0:  # all values are equal
        return 1.0
    above = ranks - n * (n + 1) / 2 - n * m / 2 - 0.5
    return 0.5 * math.erfc(above / math.sqrt(2 * variance))


def _sample(root: Root, told: MissionRecord) -> list[Sample]:
    kind = f"{told.origin} {'message' if told.message else 'brief'}"
    if told.state == ledger.FAILED:
        return [] if told.error and told.error["code"] in _NO_FAULT else [Sample(kind, True, None, None)]
    result = told.result or {}
    usage = result.get("usage", {})
    asked = usage.get("model_ms", 0) / 1000
    found = entropy_records.assessment_of(root, told.number)
    return [
        Sample(
            kind,
            bool(result.get("unsure")),
            asked or max(0.0, (told.finished or told.accepted) - told.accepted),
            None if found is None else found.cem,
        )
    ]


def _middle(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 4) if values else None


log = structlog.get_logger("batos.autotelic")

PATIENCE = 4  # factor of `EffectLimits.period_s`: longest wait for missions that show an effect
WatchedChange = dict[str, Any]


class ChangeReversal(Protocol):
    """Takes a change back and records that, in one transaction: see `batos.app.undo.UndoRunner.undo_change`."""

    def __call__(self, number: int, why: str, *, state: str, effect: WatchedChange) -> Awaitable[Any]:
        """
        :raises UndoConflict: if later work depends on it.
        :raises BatosError: if it could not be done for another reason.
        """


class Leash:
    """Watches the change that was made last. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        limits: EffectLimits,
        *,
        period_s: float,
        deaths: int,
        undo: ChangeReversal,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        :param period_s: seconds for which a change is watched.
        :param deaths: number of deaths of the daemon that disable a watched change.
        """
        self._image, self._limits, self._period, self._deaths, self._undo, self._now = image, limits, period_s, deaths, undo, now
        self._suspect: tuple[int, int] | None = None  # change that looked worse at the last look, and its number of missions
        # change whose time lies in the future, and the time when this was first seen: the clock was set back
        self._set_back: tuple[int, float] | None = None

    async def begin(self) -> None:
        """Start the watch with the daemon. If too many daemons died while a change was watched, roll the change back first."""
        try:
            deaths, change = await self._image.system(daemon_begun)
        except (BatosError, OSError) as e:  # for example a full disk: the start of the daemon is more important than this record
            log.warning("start_not_noted", error=str(e))
            return
        if change is None or deaths < self._deaths:
            return
        why = f"the daemon died {deaths} times since it was made"
        log.error("change_disabled", change=change["number"], kind=change["kind"], target=change["target"], why=why)
        await self._take_back(change, why, changes.DISABLED, {"deaths": deaths})

    async def end(self) -> None:
        """Record an orderly end of the daemon."""
        try:
            await self._image.system(daemon_ended)
        except (BatosError, OSError) as e:
            log.warning("end_not_noted", error=str(e))

    async def check(self) -> str | None:
        """Check the change under watch. Return its outcome; None if that is open or there is none."""
        change = self._image.read(changes.watched)
        if change is None:
            self._suspect = None
            return None
        found: Effect = await in_helper(self._image.read, effect_of, change, self._limits)
        age, set_back = self._age(change)
        long = set_back or age >= self._period
        over = long and (found.samples >= self._limits.missions or age >= PATIENCE * self._period)
        if found.worse:
            if not (over or self._is_confirmed(change, found)):
                self._suspect = self._suspect or (change["number"], found.harmed)
                log.warning("change_suspected", change=change["number"], worse=list(found.worse))
                return None
            return await self._take_back(change, f"worse since it was made: {'; '.join(found.worse)}", changes.UNDONE, found.figures)
        self._suspect = None
        if not over:
            return None
        why = f"watched for {max(0.0, age) / 3600:.1f} h over {found.samples} missions: nothing got worse"
        return await self._keep(change, why, found.figures)

    def _age(self, change: WatchedChange) -> tuple[float, bool]:
        """Return for how long a change has been watched, as far as known if the clock was set back to long before it was made."""
        now = self._now()
        age = now - change["decided"]
        if age > -self._period:
            self._set_back = None
            return age, False
        if self._set_back is None or self._set_back[0] != change["number"] or self._set_back[1] > now:
            self._set_back = change["number"], now
        return now - self._set_back[1], True

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info`: changes under watch and until when, deaths under the watch, and the outcome of the last watch."""
        return self._image.read(_facts, self._period)

    def _is_confirmed(self, change: WatchedChange, found: Effect) -> bool:
        """Return True if the effect looked worse before, and later missions confirm it."""
        return self._suspect is not None and self._suspect[0] == change["number"] and found.harmed > self._suspect[1]

    async def _take_back(self, change: WatchedChange, why: str, state: str, figures: WatchedChange) -> str | None:
        self._suspect = None
        try:
            await self._undo(change["number"], why, state=state, effect=figures)
        except (UndoConflict, HistoryGone) as e:  # an undo alone cannot roll it back: tell the user, and end the watch
            log.error("change_not_undone", change=change["number"], why=why, error=e.message)
            return await self._keep(change, f"{why}; it could not be taken back: {e.message}", figures)
        except (BatosError, OSError) as e:
            log.warning("change_not_undone_yet", change=change["number"], why=why, error=str(e))
            return None
        log.warning("change_taken_back", change=change["number"], state=state, why=why)
        return state

    async def _keep(self, change: WatchedChange, why: str, figures: WatchedChange) -> str | None:
        if not await self._image.system(changes.keep, change["number"], why, figures):
            return None  # the user has undone it just now
        log.info("change_kept", change=change["number"], why=why)
        return changes.KEPT


def daemon_begun(root: Root) -> tuple[int, WatchedChange | None]:
    """System transaction: record the start of a daemon. Return the number of daemons that died during the present watch, and the watched
    change.
    """
    held, change = schema.part_of(root, "leash"), changes.watched(root)
    number = 0 if change is None else change["number"]
    deaths = held.deaths if number == held.change else 0
    held.deaths = deaths + 1 if held.running and number else deaths
    held.running, held.change = True, number
    return held.deaths, change


def daemon_ended(root: Root) -> None:
    """System transaction: record an orderly end of the daemon."""
    schema.part_of(root, "leash").running = False


def _facts(root: Root, period_s: float) -> dict[str, Any]:
    held, change = schema.part_of(root, "leash"), changes.watched(root)
    last = next((one for one in changes.newest_first(root) if one.ended is not None), None)
    return {
        "watched": None if change is None else {"number": change["number"], "until": change["decided"] + period_s},
        "deaths": held.deaths if change is not None and held.change == change["number"] else 0,
        "last": None if last is None else {name: getattr(last, name) for name in ("number", "state", "reason")},
        "proposed": len(changes.listed(root, state=changes.PROPOSED)),
    }
