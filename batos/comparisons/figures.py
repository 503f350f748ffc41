"""Figures of a comparison: wins with an exact interval, costs with bootstrapped ones, and what they allow to say. Pure functions.

The share of wins is of the pairs that were decided, without ties. Its interval is the exact binomial one (Clopper and Pearson), 95 %. The
variant is better if the whole interval lies above one half, worse if all of it lies below. With fewer than six decided pairs no result can
say so. Costs are means over the pairs that completed on both sides. The interval of the difference is a percentile bootstrap over the
pairs, 95 %, 2,000 resamples of a fixed seed.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from batos.comparisons.records import BASE, CHANGED, TIE

LEVEL = 0.95
LEAST_DECIDED = 6
"""Least number of decided pairs whose interval can leave out one half: all six for one side."""
RESAMPLES = 2000
METHODS = {
    "wins": "exact binomial (Clopper-Pearson), 95 %, ties left out",
    "costs": f"bootstrap of the mean difference over pairs, 95 %, {RESAMPLES} resamples",
}
COSTS = ("inferences", "tokens", "seconds", "chars")
BETTER, WORSE, UNDECIDED = "better", "worse", "undecided"
_STEPS = 60  # bisections: the interval is exact to many digits


def interval_of_share(wins: int, decided: int) -> tuple[float, float]:
    """Return the exact binomial interval of a share, from 0 to 1."""
    tail = (1 - LEVEL) / 2
    low = 0.0 if wins == 0 else _root(lambda p: _at_least(wins, decided, p) - tail)
    high = 1.0 if wins == decided else _root(lambda p: tail - _at_most(wins, decided, p))
    return low, high


def _root(rises: Any) -> float:
    """Return where a function that rises on 0 to 1 passes zero."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < 0 else (low, middle)
    return (low + high) / 2


def _at_least(wins: int, decided: int, p: float) -> float:
    return sum(_chance(k, decided, p) for k in range(wins, decided + 1))


def _at_most(wins: int, decided: int, p: float) -> float:
    return sum(_chance(k, decided, p) for k in range(wins + 1))


def _chance(k: int, n: int, p: float) -> float:
    if p in (0.0, 1.0):
        return float(k == (n if p else 0))
    return math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p))


def interval_of_mean(values: Sequence[float], seed: int) -> tuple[float, float] | None:
    """Return the bootstrapped interval of a mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    chance = random.Random(seed)
    means = sorted(statistics.fmean(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    cut = (1 - LEVEL) / 2
    return means[round(cut * (RESAMPLES - 1))], means[round((1 - cut) * (RESAMPLES - 1))]


def figures(
    pairs: Mapping[int, Mapping[str, Any]], winners: Mapping[int, str | None], seed: int, hidden: Collection[int] = ()
) -> dict[str, Any]:
    """Return the figures of the pairs, and the verdict.

    :param pairs: those that were thought through on both sides, by number.
    :param winners: number of a pair -> the side that won, or a tie; None: its judge could not tell. Pairs that are missing are unjudged.
    :param hidden: pairs whose costs do not count yet: how long the answers of each side are would tell their judge which is which.
    """
    won = [winners.get(number) for number in pairs]
    wins = {side: won.count(side) for side in (BASE, CHANGED, TIE)}
    decided = wins[BASE] + wins[CHANGED]
    share = interval = None
    if decided:
        share = round(wins[CHANGED] / decided, 4)
        interval = [round(part, 4) for part in interval_of_share(wins[CHANGED], decided)]
    verdict, why = _verdict(wins, interval, len(pairs) - sum(wins.values()))
    return {
        "pairs": len(pairs),
        "judged": sum(wins.values()),
        "wins": wins,
        "share": share,
        "interval": interval,
        "verdict": verdict,
        "why": why,
        "costs": {name: _cost(name, [pair for number, pair in pairs.items() if number not in hidden], seed) for name in COSTS},
        "methods": METHODS,
    }


def _verdict(wins: Mapping[str, int], interval: Sequence[float] | None, unjudged: int) -> tuple[str, str]:
    decided = wins[BASE] + wins[CHANGED]
    told = f"it won {wins[CHANGED]} of {decided} decided pairs"
    if wins[TIE]:
        told += f", {wins[TIE]} more are ties"
    if interval is None:
        return UNDECIDED, "no pair is decided" if not wins[TIE] else f"all {wins[TIE]} judged pairs are ties"
    told += f"; its share lies between {interval[0]:.2f} and {interval[1]:.2f}"
    if interval[0] > 0.5:
        return BETTER, told
    if interval[1] < 0.5:
        return WORSE, told
    if decided < LEAST_DECIDED:
        return UNDECIDED, f"{told}: too few to say anything, at least {LEAST_DECIDED} decided pairs are needed"
    return UNDECIDED, f"{told}: one half is among that, so these pairs do not tell" + (
        f"; {unjudged} are not judged yet" if unjudged else ""
    )


def _cost(name: str, pairs: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    both = [(pair[BASE][name], pair[CHANGED][name]) for pair in pairs if not (pair[BASE]["failed"] or pair[CHANGED]["failed"])]
    if not both:
        return {"base": None, "changed": None, "difference": None, "interval": None}
    base, changed = (statistics.fmean(side) for side in zip(*both, strict=True))
    interval = interval_of_mean([float(after - before) for before, after in both], seed)
    return {
        "base": round(base, 2),
        "changed": round(changed, 2),
        "difference": round(changed - base, 2),
        "interval": None if interval is None else [round(part, 2) for part in interval],
    }
