"""Records of the entropy metric in the image: input from missions, assessments by the mission's number, and learned weights.

The weights learn from the outcomes of missions. A part that was above its usual value when something went well gains weight, and one below
it loses some. When something went badly, it is the other way round. The rule is exponentiated gradient (Kivinen & Warmuth 1997), in steps
of at most `WeightBounds.step`, within bounds. Each step is logged with the weights before it, and can be undone.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from batos.autotelic import entropy, schema
from batos.autotelic.entropy import Kinds, Parts
from batos.config.limits import Limits, limit
from batos.errors import InvalidInput
from batos.image import ledger
from batos.image.living_image import add_missing
from batos.mind.incarnation import facets
from batos.objects import Method, Primitive, Root, UvmObject, find


class MissionMaterial(NamedTuple):
    """A completed mission of a user's, asked in words."""

    number: int
    id: str
    brief: str
    answer: str
    personas: tuple[str, ...]
    facets: tuple[str, ...]
    described: int
    context: str | None
    """Id of the mission that this one follows."""
    rating: int
    """Rating of the user: 1, -1, or 0 for none."""
    undone: bool


def material_of(root: Root, mission: UvmObject) -> MissionMaterial | None:
    """Return the data of a mission to measure; None if it did not complete, is a message, or is a system mission."""
    told = ledger.describe(mission)
    cycle = mission.thought
    if told.state != ledger.COMPLETE or told.origin == "system" or told.message or cycle is None or told.result is None:
        return None
    personas, spoke, described = shape_of(cycle)
    return MissionMaterial(
        number=told.number,
        id=told.id,
        brief=told.brief,
        answer=str(told.result.get("text", "")),
        personas=personas,
        facets=spoke,
        described=described,
        context=told.context,
        rating=told.rating["rating"] if told.rating else 0,
        undone=told.undone is not None,
    )


def shape_of(cycle: UvmObject) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Return the personas and facets that took part in a cycle and its inner cycles, and the bytes of its structure's description."""
    cycles = list(_cycles(cycle))
    personas = tuple(str(one.persona.name).lower() for one in cycles if not one._slots.get("cycles"))
    spoke = tuple(f"{str(one.persona.name).lower()} {name}" for one in cycles for name in _spoke(one))
    return personas, spoke, entropy.description_length(line for one in cycles for line in _described(one))


def recent_material(root: Root, count: int, looked_at: int) -> list[MissionMaterial]:
    """Return the material of the last `count` missions that have any, oldest first; of at most `looked_at` missions."""
    rows = (material_of(root, mission) for mission in itertools.islice(ledger.newest_first(root), looked_at))
    return list(itertools.islice((row for row in rows if row is not None), count))[::-1]


def persona_kinds(root: Root) -> Kinds:
    """Return the number of personas to choose from, and of their facets."""
    lobby = root["lobby"]
    personas = [found for name in lobby.personas if isinstance(found := lobby._slots.get(name), UvmObject)]
    return Kinds(len(personas), sum(1 for persona in personas for _ in facets(persona)))


def _cycles(cycle: UvmObject) -> Iterator[UvmObject]:
    """Yield a cycle and those inside it."""
    yield cycle
    for inner in cycle._slots.get("cycles", ()):
        yield from _cycles(inner)


def _spoke(cycle: UvmObject) -> list[str]:
    """Return the facets of a cycle that contributed; other personas that took a part are not facets."""
    return [name for name, _ in cycle._slots.get("voices", ()) if name.endswith("_facet_")]


def _described(cycle: UvmObject) -> Iterator[str]:
    """Yield the structure of a cycle in words: personas, parts, their outcomes, the origin of each sentence, and the methods among them."""
    slots = cycle._slots
    yield f"{cycle.number} {cycle.persona.name} {slots.get('plan_source', '')}"
    silent = dict(slots.get("silent", ()))
    for name, _ in slots.get("plan", ()):
        yield f"{name} silent" if name in silent else name
        held = find(cycle.persona, name)
        if held is not None and isinstance(held[1], Method):
            yield held[1].source
    yield " ".join(name or "-" for name in slots.get("woven", ()))


class Assessment(NamedTuple):
    """Assessment of one mission. Stored as a plain tuple."""

    number: int
    cem: float
    relevance: float
    diversity: float
    novelty: float
    structure: float
    source: str
    """Source of the comparison of texts: `embedding`, or `words` without an embedder."""

    @property
    def parts(self) -> Parts:
        return Parts(self.relevance, self.diversity, self.novelty, self.structure)

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object for a mission's record."""
        return {name: value for name, value in self._asdict().items() if name != "number"}


def keep_assessments(root: Root, new: Sequence[Assessment], state: dict[str, Any], limit: int) -> None:
    """System transaction: store new assessments and the state of the watch. Remove those of more than `limit` missions ago."""
    held = schema.part_of(root, "entropy")
    for one in new:
        held.missions[one.number] = tuple(one)
    for old in list(held.missions.keys(None, held.missions.maxKey() - limit)) if held.missions else ():
        del held.missions[old]
    held.watch = tuple(sorted(state.items()))


def assessment_of(root: Root, number: int) -> Assessment | None:
    """Return the assessment of the mission with that number."""
    found = schema.part_of(root, "entropy").missions.get(number)
    return None if found is None else Assessment(*found)


def last_assessments(root: Root, count: int) -> list[Assessment]:
    """Return the last ones by number, oldest first."""
    missions = schema.part_of(root, "entropy").missions
    newest = missions.maxKey() if missions else 0
    found: list[Assessment] = []
    bound, step = newest, count
    while missions and len(found) < count and bound >= missions.minKey():
        rows = [Assessment(*row) for row in missions.values(bound - step + 1, bound)]
        found = [*rows, *found]
        bound, step = bound - step, 2 * step
    return found[-count:]


def weights_of(root: Root) -> Parts:
    """Return the weights in force."""
    return Parts(*schema.part_of(root, "weights").weights)


def watch_of(root: Root) -> dict[str, Any]:
    """Return the state of the watch over the metric, as `keep` was given it."""
    return dict(schema.part_of(root, "entropy").watch)


RATED_UP, RATED_DOWN, UNDONE, REUSED = "rated +1", "rated -1", "undone", "reused"
REDONE = "done again"
REWARDS = {RATED_UP: 1.0, RATED_DOWN: -1.0, UNDONE: -1.0, REUSED: 0.5}
"""Outcome -> reward. Acceptance alone gives no reward: most missions are accepted, whatever their parts are like."""
USUAL_WEIGHTS = 64  # number of missions whose mean is the usual value
STEPS_LOGGED = 64  # number of steps that the log keeps
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class WeightBounds(Limits):
    """Bounds of the weights of the entropy metric."""

    step: float = limit(0.02, ge=0, le=0.1)
    """Greatest change of a weight of the entropy metric by one outcome; 0: the weights never change."""
    least: float = limit(0.1, ge=0, le=0.25)
    """Least weight of a part of the entropy metric."""
    most: float = limit(0.5, ge=0.25, le=1)
    """Greatest weight of a part of the entropy metric."""


class WeightStep(NamedTuple):
    """One step of learning. Stored as a plain tuple, weights as plain tuples in it."""

    at: float
    number: int
    """Number of the mission."""
    outcome: str
    before: Parts
    after: Parts


def learn_weights(root: Root, found: Assessment, outcome: str, bounds: WeightBounds) -> bool:
    """Part of a system transaction: take one step from a mission's outcome. Return True if a weight moved."""
    usual = last_assessments(root, USUAL_WEIGHTS)
    if not usual:
        return False
    before = weights_of(root)
    means = Parts(*(sum(one.parts[n] for one in usual) / len(usual) for n in range(len(Parts._fields))))
    after = stepped_weights(before, found.parts, means, REWARDS[outcome], bounds)
    return after != before and _step(root, found.number, outcome, before, after)


def unlearn_weights(root: Root, number: int, bounds: WeightBounds) -> bool:
    """Part of a transaction: take back the step of a mission's undo, because the mission is done again. Return True if a weight moved."""
    outcomes = (step for step in reversed(weight_log_of(root)) if step.number == number and step.outcome in (UNDONE, REDONE))
    step = next(outcomes, None)
    if step is None or step.outcome == REDONE:
        return False
    before = weights_of(root)
    back = _within(before, [was - now for was, now in zip(step.before, step.after, strict=True)], bounds)
    return _step(root, number, REDONE, before, back)


def _step(root: Root, number: int, outcome: str, before: Parts, after: Parts) -> bool:
    weights = schema.part_of(root, "weights")
    weights.weights = tuple(after)
    weights.log = (*weights.log, (round(time.time(), 3), number, outcome, tuple(before), tuple(after)))[-STEPS_LOGGED:]
    return True


def stepped_weights(weights: Parts, parts: Parts, usual: Parts, reward: float, bounds: WeightBounds) -> Parts:
    """Return the weights after a step. Their sum stays the same, and they stay within the bounds."""
    grown = [weight * math.exp(reward * (part - mean)) for weight, part, mean in zip(weights, parts, usual, strict=True)]
    total, before = sum(grown), sum(weights)
    moves = _free([value / total * before - weight for value, weight in zip(grown, weights, strict=True)], weights, bounds)
    return _within(weights, moves, bounds) if max(map(abs, moves)) >= _TOLERANCE else weights


def _within(weights: Parts, moves: list[float], bounds: WeightBounds) -> Parts:
    """Return the weights moved so, or less far in the same direction."""
    most = max(map(abs, moves))
    room = [((bounds.most if move > 0 else bounds.least) - weight) / move for move, weight in zip(moves, weights, strict=True) if move]
    scale = min(1.0, bounds.step / most if most else 1.0, *(max(0.0, share) for share in room))
    return Parts(*(weight + scale * move for weight, move in zip(weights, moves, strict=True)))


def _free(moves: list[float], weights: Parts, bounds: WeightBounds) -> list[float]:
    """Return the moves within the bounds. The other weights share the stopped remainder, so that the sum stays 0."""
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


def weight_log_of(root: Root) -> list[WeightStep]:
    """Return the steps that are remembered, oldest first."""
    log = schema.part_of(root, "weights").log
    return [WeightStep(at, number, outcome, Parts(*before), Parts(*after)) for at, number, outcome, before, after in log]


@Primitive.register("autotelic.weights_back_", reaches="by what the loop judges")
async def weights_back_(weights: UvmObject, steps: int = 1) -> dict[str, Any]:
    """Take back the last steps of learning: the weights are what they were before them. A message to `autotelic.weights`.

    :raises InvalidInput: if fewer steps are remembered.
    """
    log = weights.log
    if not (isinstance(steps, int) and 1 <= steps <= len(log)):
        raise InvalidInput(f"cannot take back {steps!r} steps: {len(log)} are remembered; name a number from 1 to that")
    weights.weights, weights.log = log[-steps][3], log[:-steps]
    return {"weights": list(weights.weights), "remembered": len(weights.log)}


def install_weights(lobby: UvmObject) -> None:
    """Let the weights understand `weights_back_`. A step of genesis."""
    add_missing(lobby.autotelic.weights, weights_back_=Primitive.of(weights_back_))
