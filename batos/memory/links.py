"""Explicit links: a chunk that names another document points at it; and one step along them, for questions that go by way of something.

"In which year was the company founded that made X?" has its answer in a text that says nothing of X. The text about X is found
and names the company; from there the best chunk of the text about the company gets a part of what the first one earned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from batos.memory.fusion import Fused, Weighing
from batos.memory.segments import Array

SEEDS = 8
"""How many of the best chunks hand on."""
SHARE = 1.0
"""How much of what a seed has over the middle of the candidates its targets get."""


class Step(NamedTuple):
    """How a row was come by: the row that points at it, and what that added to its score."""

    seed: int
    added: float


def spread(weighing: Weighing, fused: Fused, *, seeds: int = SEEDS, share: float = SHARE) -> tuple[Fused, dict[int, Step]]:
    """One step along the links of the best rows: of each document that one of them points at, the best row gets a share of what that
    one earned.

    Answers the rows weighed anew, and how those were come by that got something. What a row gets is that of its best seed.
    """
    links = weighing.view.links
    if not len(links) or not len(fused.rows):
        return fused, {}
    middle = float(np.median(fused.scores))
    steps: dict[int, Step] = {}
    for seed, score in zip(fused.rows[:seeds].tolist(), fused.scores[:seeds].tolist(), strict=True):
        for document in targets(links, seed):
            target, added = weighing.best_of(document), share * max(0.0, score - middle)
            if target is not None and target != seed and added > (steps[target].added if target in steps else 0.0):
                steps[target] = Step(seed, added)
    if not steps:
        return fused, {}
    weighed = _joined(fused, weighing.of(np.setdiff1d(np.fromiter(steps, np.int64, len(steps)), fused.rows)))
    added = np.fromiter((steps[row].added if row in steps else 0.0 for row in weighed.rows.tolist()), np.float32, len(weighed.rows))
    scores = weighed.scores + added
    order = np.lexsort((weighed.rows, -scores))
    signals = {name: found[order] for name, found in {**weighed.signals, "link": added}.items()}
    return Fused(weighed.rows[order], scores[order], signals), steps


def targets(links: Array, seed: int) -> list[int]:
    """The documents that the chunk of a row points at."""
    begin, end = np.searchsorted(links[:, 0], [seed, seed + 1])
    return links[begin:end, 1].tolist()  # type: ignore[no-any-return]


def _joined(one: Fused, other: Fused) -> Fused:
    if not len(other.rows):
        return one
    signals = {name: np.concatenate([found, other.signals[name]]) for name, found in one.signals.items()}
    return Fused(np.concatenate([one.rows, other.rows]), np.concatenate([one.scores, other.scores]), signals)
