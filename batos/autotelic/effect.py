"""The effect of a change: the missions after it beside those before it, by failures, time and entropy.

Like is compared with like: missions of users and of the system, briefs and messages, each with its own. A difference counts
where it is large enough to matter and would hardly come by chance: Fisher's exact test for shares, the rank sum of Mann and Whitney
(1947) for times and entropy. Both know nothing of the order of missions, so that a slow drift may look like an effect; a watch is short.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.autotelic import assessments
from batos.autotelic.recorded import was_not_taken
from batos.autotelic.triggers import LEAST_SECONDS
from batos.image import ledger

DOUBT = 0.01  # the chance of such a difference without an effect, above which it is none
BEFORE = 4  # times the missions that are enough: how many before a change are looked at
AFTER = 16  # likewise, of those after it
LEAST_FAILED = 3  # failures that may be an effect
_NO_FAULT = ("cancelled", "model_blind")  # codes: what a user decides says nothing, nor what no model here can do


class Limits(NamedTuple):
    """Settings of the same names, with `leash_` before them."""

    missions: int
    failures: float
    slower: float
    fall: float


class Sample(NamedTuple):
    """What one mission says."""

    kind: str
    """`client` or `system`, and `brief` or `message`."""
    failed: bool
    """Whether it FAILED, or came to an answer that it is not sure of."""
    seconds: float | None
    """Of model time; of all time where no model was asked. None for one that FAILED."""
    cem: float | None


class Effect(NamedTuple):
    """What is to be seen of a change so far."""

    samples: int
    """Missions after it, of the kind of which there are most."""
    worse: tuple[str, ...]
    """In words, what is worse, beyond doubt."""
    harmed: int
    """Missions after it, of the kinds of which something is worse."""
    figures: dict[str, dict[str, Any]]
    """By kind: pairs of before and after."""


def seen(root: Any, change: Mapping[str, Any], limits: Limits) -> Effect:
    """What is to be seen of a change that was made.

    :param change: as `changes.of` has it.
    """
    return compared(*sampled(root, change, limits.missions), limits)


def sampled(root: Any, change: Mapping[str, Any], enough: int) -> tuple[list[Sample], list[Sample]]:
    """What missions say that ended before a change was made, and what those say that were accepted after it."""
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


def compared(before: Sequence[Sample], after: Sequence[Sample], limits: Limits) -> Effect:
    """The effect of a change, from what missions before and after it say."""
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


def _worse(before: Sequence[Sample], after: Sequence[Sample], limits: Limits) -> Iterator[str]:
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
    """The chance that so many or more of the failures fall after, if it made no difference: Fisher's exact test, one-sided."""
    all_failed = was_failed + failed
    ways = sum(math.comb(after, k) * math.comb(before, all_failed - k) for k in range(failed, min(after, all_failed) + 1))
    return ways / math.comb(before + after, all_failed)


def chance_of_ranks(low: Sequence[float], high: Sequence[float]) -> float:
    """The chance that `high` ranks so high above `low`, if they were alike: Mann and Whitney's test, one-sided, by its normal limit."""
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
    if variance <= 0:  # all are the same
        return 1.0
    above = ranks - n * (n + 1) / 2 - n * m / 2 - 0.5
    return 0.5 * math.erfc(above / math.sqrt(2 * variance))


def _sample(root: Any, told: Mapping[str, Any]) -> list[Sample]:
    kind = f"{told['origin']} {'message' if told['message'] else 'brief'}"
    if told["state"] == ledger.FAILED:
        return [] if told["error"] and told["error"]["code"] in _NO_FAULT else [Sample(kind, True, None, None)]
    result = told["result"] or {}
    usage = result.get("usage", {})
    asked = usage.get("model_ms", 0) / 1000
    found = assessments.of(root, told["number"])
    return [
        Sample(
            kind, bool(result.get("unsure")), asked or max(0.0, told["finished"] - told["accepted"]), None if found is None else found.cem
        )
    ]


def _middle(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 4) if values else None
