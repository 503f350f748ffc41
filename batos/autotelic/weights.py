"""What weighs how much in the entropy metric, and how it learns that from what becomes of missions.

A part that was above its usual value where something went well gains weight, one that was below it loses some, and the other way
round where it went badly: exponentiated gradient (Kivinen & Warmuth 1997), in steps of at most `weights_step`, within bounds.
Each step is logged with what it was before, and can be taken back.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from batos.autotelic import assessments, home
from batos.autotelic.assessments import Assessment
from batos.autotelic.entropy import Parts
from batos.errors import InvalidInput
from batos.image.genesis import add_missing
from batos.objects import Primitive, UvmObject

RATED_UP, RATED_DOWN, UNDONE, REUSED = "rated +1", "rated -1", "undone", "reused"
REDONE = "done again"
REWARDS = {RATED_UP: 1.0, RATED_DOWN: -1.0, UNDONE: -1.0, REUSED: 0.5}
"""By outcome. One that was only accepted says nothing about its parts: most are, whatever they are like."""
USUAL = 64  # missions whose mean is what is usual
LOGGED = 64  # steps that are remembered
_TOLERANCE = 1e-9


class Bounds(NamedTuple):
    """Settings `weights_step`, `weights_least`, `weights_most`."""

    step: float
    least: float
    most: float


class Step(NamedTuple):
    """One step of learning. Stored as a plain tuple, weights as plain tuples in it."""

    at: float
    number: int
    """Of the mission."""
    outcome: str
    before: Parts
    after: Parts


def learn(root: Any, found: Assessment, outcome: str, bounds: Bounds) -> bool:
    """Part of a system transaction: one step from what became of a mission; whether anything moved."""
    usual = assessments.last(root, USUAL)
    if not usual:
        return False
    before = assessments.weights_of(root)
    means = Parts(*(sum(one.parts[n] for one in usual) / len(usual) for n in range(len(Parts._fields))))
    after = stepped(before, found.parts, means, REWARDS[outcome], bounds)
    return after != before and _step(root, found.number, outcome, before, after)


def unlearn(root: Any, number: int, bounds: Bounds) -> bool:
    """Part of a transaction: what the undo of a mission moved is moved back, because it is done again; whether anything moved."""
    outcomes = (step for step in reversed(log_of(root)) if step.number == number and step.outcome in (UNDONE, REDONE))
    step = next(outcomes, None)
    if step is None or step.outcome == REDONE:
        return False
    before = assessments.weights_of(root)
    back = _within(before, [was - now for was, now in zip(step.before, step.after, strict=True)], bounds)
    return _step(root, number, REDONE, before, back)


def _step(root: Any, number: int, outcome: str, before: Parts, after: Parts) -> bool:
    weights = home.part(root, "weights")
    weights.weights = tuple(after)
    weights.log = (*weights.log, (round(time.time(), 3), number, outcome, tuple(before), tuple(after)))[-LOGGED:]
    return True


def stepped(weights: Parts, parts: Parts, usual: Parts, reward: float, bounds: Bounds) -> Parts:
    """The weights after a step; their sum stays as it is, and they stay within the bounds if they were."""
    grown = [weight * math.exp(reward * (part - mean)) for weight, part, mean in zip(weights, parts, usual, strict=True)]
    total, before = sum(grown), sum(weights)
    moves = _free([value / total * before - weight for value, weight in zip(grown, weights, strict=True)], weights, bounds)
    return _within(weights, moves, bounds) if max(map(abs, moves)) >= _TOLERANCE else weights


def _within(weights: Parts, moves: list[float], bounds: Bounds) -> Parts:
    """The weights moved so, or less far in the same direction."""
    most = max(map(abs, moves))
    room = [((bounds.most if move > 0 else bounds.least) - weight) / move for move, weight in zip(moves, weights, strict=True) if move]
    scale = min(1.0, bounds.step / most if most else 1.0, *(max(0.0, share) for share in room))
    return Parts(*(weight + scale * move for weight, move in zip(weights, moves, strict=True)))


def _free(moves: list[float], weights: Parts, bounds: Bounds) -> list[float]:
    """The moves without those that a bound stops; the others share what those leave, so that the sum stays 0."""
    free = set(range(len(moves)))
    least, most = bounds.least + _TOLERANCE, bounds.most - _TOLERANCE
    while free:
        mean = sum(moves[n] for n in free) / len(free)
        found = {n: moves[n] - mean for n in free}
        stopped = {n for n, move in found.items() if (move > 0 and weights[n] > most) or (move < 0 and weights[n] < least)}
        if not stopped:
            return [found.get(n, 0.0) for n in range(len(moves))]
        free -= stopped
    return [0.0] * len(moves)


def log_of(root: Any) -> list[Step]:
    """The steps that are remembered, oldest first."""
    log = home.part(root, "weights").log
    return [Step(at, number, outcome, Parts(*before), Parts(*after)) for at, number, outcome, before, after in log]


@Primitive.register("autotelic.weights_back_", reaches="by what the loop judges")
async def weights_back_(weights: UvmObject, steps: int = 1) -> dict[str, Any]:
    """Take back the last steps of learning: the weights are what they were before them. A message to `autotelic.weights`.

    :raises InvalidInput: where fewer steps are remembered.
    """
    log = weights.log
    if not (isinstance(steps, int) and 1 <= steps <= len(log)):
        raise InvalidInput(f"{len(log)} steps of learning are remembered; take back 1 to so many")
    weights.weights, weights.log = log[-steps][3], log[:-steps]
    return {"weights": list(weights.weights), "remembered": len(weights.log)}


def install(lobby: UvmObject) -> None:
    """The step of genesis by which the weights understand `weights_back_`."""
    add_missing(lobby.autotelic.weights, weights_back_=Primitive.of(weights_back_))
