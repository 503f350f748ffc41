"""Entropic decay: whether the metric has fallen for good. Page's cumulative sum (1954).

Each value is held against what was usual when the baseline was learned. What it lacks, in standard deviations and beyond a
slack, adds up; what it does not lack takes away again. One value counts `CLIP` at most, and the alarm needs more than four
of those: it takes a change that lasts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

SLACK = 0.6  # standard deviations that do not count: about half of the smallest fall that is to be found soon
LIMIT = 8.0  # of the sum: thousands of values between two false alarms, also where the baseline is a little off
CLIP = 2.5  # standard deviations: the most that one value may say
FLOOR = 0.02  # least standard deviation: below it is rounding
RECOVERED = 2.0  # the sum below which a fall is over
CEILING = 1.25 * LIMIT  # of the sum, so that recovering does not take for ever
ACCEPTED = 8  # baselines' length: after so many values a fallen level is the new baseline


class State(NamedTuple):
    """All that the watch remembers."""

    source: str = ""
    learned: int = 0
    """Values that the baseline was learned from."""
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean (Welford)."""
    sum: float = 0.0
    fallen: bool = False
    since: int = 0
    """Values since it fell."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the baseline."""
        return max(FLOOR, math.sqrt(self.squares / (self.learned - 1))) if self.learned > 1 else FLOOR


def taken(state: State, value: float, source: str, baseline: int) -> State:
    """The state after one more value. Values of another source are no continuation: the baseline is learned anew.

    :param baseline: values that make a baseline.
    """
    if state.source != source:
        state = State(source=source)
    if state.learned < baseline:
        count = state.learned + 1
        mean = state.mean + (value - state.mean) / count
        return state._replace(learned=count, mean=mean, squares=state.squares + (value - state.mean) * (value - mean))
    lack = max(-CLIP, min(CLIP, (state.mean - value) / state.deviation))
    total = min(CEILING, max(0.0, state.sum + lack - SLACK))
    fallen = total > RECOVERED if state.fallen else total >= LIMIT
    since = state.since + 1 if fallen else 0
    return State(source=source) if since >= ACCEPTED * baseline else state._replace(sum=total, fallen=fallen, since=since)


def read(plain: dict[str, Any]) -> State:
    """The state as the image keeps it; one that is not there, or of other fields, begins anew."""
    return State(**plain) if plain.keys() == set(State._fields) else State()
