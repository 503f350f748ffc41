"""What a training gives by its rank, its targets, its rate and the order of its data: the same steps from an empty adapter, each way once.

Ends with one JSON line.

    python bench/training.py                 # some three minutes a way on two cores; extra `training`
    python bench/training.py --steps 300 --ways "as it is,rank 64"

The data are tasks of the training's part, without methods of the handbook, since a step takes less than half as long so; the rate falls
to nought with the steps. `loss` is that of 48 tasks of the validation's families, in nats a token; `step_s` the median of seconds a
step; `parameters` are in millions.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batos.config import Settings
from batos.training.dataset import generate, pairs
from batos.training.lora import Trainer, TrainingPlan
from batos.training.methods import CHECKED, training_tasks
from batos.training.workspace import base_of

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
FORWARD = ("gate_proj", "up_proj", "down_proj")
HOUR = 60.0


@dataclass(frozen=True)
class Way:
    """One way of training: what differs from the usual plan."""

    plan: dict[str, Any] = field(default_factory=dict)
    sorted: bool = False


WAYS = {
    "as it is": Way(),
    "rank 4": Way({"rank": 4, "alpha": 8}),
    "rank 64": Way({"rank": 64, "alpha": 128}),
    "attention alone": Way({"projections": ATTENTION}),
    "feed-forward alone": Way({"projections": FORWARD}),
    "all layers": Way({"first_layer": 0}),
    "upper ten layers": Way({"first_layer": 20}),
    "half the rate": Way({"rate": 4e-4}),
    "twice the rate": Way({"rate": 1.6e-3}),
    "easy to hard": Way(sorted=True),
}


class Timed(Trainer):
    """A training that notes its steps' seconds, and may have its data from short answers to long ones."""

    in_order = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.steps_s: list[float] = []

    def _learn(self, batch: Any, done: float) -> float:
        begun = time.perf_counter()
        loss = super()._learn(batch, done)
        self.steps_s.append(time.perf_counter() - begun)
        return loss

    def _batches(self, encoded: Any) -> Iterator[Any]:
        if not self.in_order:
            return super()._batches(encoded)
        size, ordered = self.plan.batch, sorted(encoded, key=lambda one: len(one[1]))
        return iter([ordered[i : i + size] for i in range(0, len(ordered), size)])


def main() -> None:
    """Train each way, and print its line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=80, help="of eight tasks each")
    parser.add_argument("--ways", default=",".join(WAYS), help="names with commas between them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    args = parser.parse_args()
    weights = base_of(Settings())[1]
    data = pairs(random.Random(args.seed).sample(training_tasks(args.seed), args.steps * TrainingPlan(0).batch), args.seed, shown=False)
    checked = pairs(generate("validation", args.seed, each=1)[:CHECKED], args.seed, shown=False)
    found = {}
    for name in args.ways.split(","):
        found[name] = one = trained(WAYS[name], weights, data, checked, args.seed)
        if not args.json:
            print(f"{name}: loss {one['loss']}, {one['step_s']} s a step, {one['parameters']} M parameters", flush=True)
    print(json.dumps({"bench": "training", "steps": args.steps, "ways": found}))


def trained(way: Way, weights: Path, data: list[tuple[str, str]], checked: list[tuple[str, str]], seed: int) -> dict[str, float]:
    """What came of one way."""
    with tempfile.TemporaryDirectory(prefix="batos-bench-") as work:
        trainer = Timed(weights, Path(work), TrainingPlan(**{"minutes": HOUR, "seed": seed, "passes": 1, **way.plan}))
        trainer.in_order = way.sorted
        trainer.train(data, (), "bench", lambda point, done: None)
        parameters = sum(value.numel() for value in trainer.tensors().values())
        return {
            "loss": round(math.log(trainer.perplexity(checked)), 4),
            "step_s": round(statistics.median(trainer.steps_s), 2),
            "parameters": round(parameters / 1e6, 2),
        }


if __name__ == "__main__":
    main()
