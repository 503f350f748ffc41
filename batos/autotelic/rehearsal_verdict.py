"""Verdict of a rehearsal: comparison of the outcomes with a change and without it. Pure functions of plain values.

Only pairs with two known sides count. A change is good if nothing gets worse and something gets better. Ratings count: an answer that
was liked must stay similar; one that was disliked, and stays, does not speak for the change.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from batos.autotelic import entropy
from batos.autotelic.entropy import Kinds, Parts, Thought, Window
from batos.autotelic.triggers import LEAST_SECONDS
from batos.synthesis.specification import same

CHEAPER = 0.05
"""Least share of the cost that a mission must save to count as cheaper; smaller savings are noise."""


class Run(NamedTuple):
    """Outcome of one recorded mission in a rehearsal."""

    known: bool
    """False if an answer was missing and the budget could not pay for it, so that the mission did not end."""
    failed: str = ""
    """Code of the error of the mission, or `unsure` for an unconfirmed answer; empty if it ended well."""
    tokens: int = 0
    seconds: float = 0.0
    """Seconds of model time, without loads."""
    gate: int = 0
    """Number of refused answers, silent facets and invalid plans."""
    misrouted: bool = False
    """True if the router chose another persona than the user did."""
    answer: Any = None
    """Answer of a message as a JSON value; None for a brief."""
    thought: Thought | None = None
    """Data for the entropy metric; None for a message."""
    like: float = 0.0
    """Similarity of the answer to the recorded one, from 0 to 1: by words, and 1 or 0 for a message."""


class RunPair(NamedTuple):
    """One mission without the change and with it."""

    mission: str
    without: Run
    changed: Run
    rating: int = 0
    """The user's rating of the recorded answer: 1, -1, or 0 for none."""

    @property
    def known(self) -> bool:
        return self.without.known and self.changed.known

    @property
    def complete(self) -> bool:
        """Return True if both sides completed."""
        return self.known and not (self.without.failed or self.changed.failed)

    def stays(self, alike: float) -> bool:
        """Return True if the user disliked the answer, and the change leaves it the same."""
        return self.complete and self.rating < 0 and self.changed.like >= alike

    def uncredited(self) -> RunPair:
        """Return the same, but that nothing is better with the change."""
        gate = max(self.without.gate, self.changed.gate)
        misrouted = self.without.misrouted or self.changed.misrouted
        return self._replace(changed=self.changed._replace(gate=gate, misrouted=misrouted))


class Side(NamedTuple):
    """One side of a rehearsal besides its missions."""

    kinds: Kinds
    trials: int = 0
    """Number of failed trials of a method."""
    held: int = 0
    """Bytes of a method's source in the image."""
    tasks: int = 0
    """Number of general tasks, outside of the image, that an expert for methods does not solve."""


class ComparisonLimits(NamedTuple):
    """Limits of a verdict, each as `RehearsalLimits` describes it."""

    least: int
    costlier: float
    better: float
    alike: float
    slower: float | None = None
    """Greatest factor of model time; None if both sides use the same models, so that tokens measure the cost."""


class Figures(NamedTuple):
    """Figures of one side. Costs and entropy are means over the informative missions that ended well on both sides."""

    failures: int
    gate: int
    misrouted: int
    trials: int
    differing: int
    """Number of messages with another answer than without the change, where no user disliked the recorded answer."""
    lost: int
    """Number of liked answers that the change loses."""
    disliked: int
    """Number of disliked answers that the side still gives."""
    tokens: float
    seconds: float
    cem: float
    held: int
    tasks: int


class Comparison(NamedTuple):
    """Outcome of a rehearsal."""

    missions: int
    """Number of missions that are comparable and informative."""
    unknown: int
    unliked: int
    """Number of missions without information: the user disliked the answer, and it is unchanged."""
    trials: int
    """Number of trials on each side."""
    without: Figures
    changed: Figures
    better: tuple[str, ...]
    worse: tuple[str, ...]
    least: int

    @property
    def reason(self) -> str:
        """Return the reason against the change; empty if there is none."""
        if self.missions + self.trials < self.least:
            few = f"too little is known to judge: {self.missions} missions and {self.trials} trials of at least {self.least}"
            return f"{few}; {self.unliked} more were rated -1, and are answered as they were" if self.unliked else few
        if self.worse:
            return f"worse: {'; '.join(self.worse)}"
        return "" if self.better else "nothing gets better"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        told = {**self._asdict(), "without": self.without._asdict(), "changed": self.changed._asdict()}
        return {**told, "better": list(self.better), "worse": list(self.worse)}


def compared(
    pairs: Sequence[RunPair], without: Side, changed: Side, *, trials: int, weights: Parts, limits: ComparisonLimits
) -> Comparison:
    """Compare both sides of a rehearsal. Return the better and the worse figures.

    :param weights: weights of the entropy metric.
    """
    known = [pair.uncredited() if pair.stays(limits.alike) else pair for pair in pairs if pair.known]
    telling = [pair for pair in known if not pair.stays(limits.alike)]
    differing = sum(_differs(pair) for pair in known)
    before = _figures(known, telling, lambda pair: pair.without, without, 0, weights, limits.alike)
    after = _figures(known, telling, lambda pair: pair.changed, changed, differing, weights, limits.alike)
    better, worse = _judged(before, after, limits)
    return Comparison(len(telling), len(pairs) - len(known), len(known) - len(telling), trials, before, after, better, worse, limits.least)


def _figures(
    known: Sequence[RunPair],
    telling: Sequence[RunPair],
    side_of: Callable[[RunPair], Run],
    side: Side,
    differing: int,
    weights: Parts,
    alike: float,
) -> Figures:
    runs = [side_of(pair) for pair in known]
    complete = [side_of(pair) for pair in telling if pair.complete]
    return Figures(
        failures=sum(bool(run.failed) for run in runs),
        gate=sum(side_of(pair).gate for pair in known if pair.complete),
        lost=sum(pair.rating > 0 and not _given(side_of(pair), alike) for pair in known),
        disliked=sum(pair.rating < 0 and _given(side_of(pair), alike) for pair in known),
        misrouted=sum(run.misrouted for run in runs),
        trials=side.trials,
        differing=differing,
        tokens=round(statistics.fmean(run.tokens for run in complete), 1) if complete else 0.0,
        seconds=round(statistics.fmean(run.seconds for run in complete), 3) if complete else 0.0,
        cem=round(_cem([run.thought for run in complete if run.thought is not None], side.kinds, weights), 4),
        held=side.held,
        tasks=side.tasks,
    )


def _cem(thoughts: Sequence[Thought], kinds: Kinds, weights: Parts) -> float:
    """Return the mean of the entropy metric over thoughts, each measured against those before it; by words, so that it costs nothing."""
    if not thoughts:
        return 0.0
    window = Window(len(thoughts))
    return sum(entropy.composite(window.take(thought, kinds)[0], weights) for thought in thoughts) / len(thoughts)


def _given(run: Run, alike: float) -> bool:
    """Return True if a mission is answered as it was when it was rated."""
    return not run.failed and run.like >= alike


def _differs(pair: RunPair) -> bool:
    without, changed = pair.without, pair.changed
    return pair.complete and pair.rating >= 0 and without.answer is not None and not same(without.answer, changed.answer)


def _judged(before: Figures, after: Figures, limits: ComparisonLimits) -> tuple[tuple[str, ...], tuple[str, ...]]:
    better: list[str] = []
    worse: list[str] = []
    for name, words in _COUNTED.items():
        was, now = getattr(before, name), getattr(after, name)
        if now != was:
            (worse if now > was else better).append(f"{words}: {was} before, {now} with it")
    cost = f"a mission takes {after.tokens:.0f} tokens, {before.tokens:.0f} before"
    if after.tokens > before.tokens * (1 + limits.costlier):
        worse.append(cost)
    elif after.tokens < before.tokens * (1 - CHEAPER):
        better.append(cost)
    if limits.slower is not None and after.seconds > max(before.seconds * limits.slower, LEAST_SECONDS):
        worse.append(f"a mission takes {after.seconds:.1f} s of model time, {before.seconds:.1f} s before")
    moved = after.cem - before.cem
    if abs(moved) > limits.better:
        (better if moved > 0 else worse).append(f"entropy is {after.cem:.3f}, {before.cem:.3f} before")
    if after.held < before.held:
        better.append(f"{before.held - after.held} bytes of a method less are kept in use")
    return tuple(better), tuple(worse)


_COUNTED = {
    "failures": "missions that fail",
    "gate": "answers that the gate refuses",
    "misrouted": "briefs for which users chose another persona than the router would",
    "trials": "trials that fail",
    "tasks": "methods of no image that are not written right",
    "differing": "messages that are answered otherwise",
    "lost": "answers that users liked and that are no longer given",
}
"""Figures of which any increase is worse -> their descriptions."""
