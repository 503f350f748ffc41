"""`batos train methods`: from families and an image to an expert in the staging folder."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

from batos.bridge import adapters
from batos.config import Settings
from batos.training.base import base_of, line, reading
from batos.training.composed import composed
from batos.training.dataset import digest_of, generate, pairs, tasks_of
from batos.training.export import Expert, Lineage, export
from batos.training.from_image import pairs_of
from batos.training.lora import Plan, Trainer, begun
from batos.training.proof import proved
from batos.training.tasks import Task

EACH, EACH_PRODUCT, EACH_EVERYDAY, COMPOSED, CHECKED = 3, 2, 20, 3000, 48
"""Tasks of a family, of one of `products.txt`, of one that is asked for first; composed families, of one task each; the validation's."""
NAME = "method-writer"
EXPERT = Expert("brick", NAME, "methods", "Writes methods.")
_SHARE = 0.25  # of the data that an image's own methods make up at least, where there are any
_BATCH = 500  # answers that are proved between two notes of it
_ON = 0.5  # of the rate, where it goes on from what was trained before: at the whole rate a short training forgets first


def train_methods(
    settings: Settings,
    plan: Plan,
    staging: Path,
    *,
    image: str = "",
    resume: bool = False,
    fresh: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Path:
    """Train the expert for methods on the base of the profile and write it into the staging folder.

    :param image: URI of an image whose accepted methods are learned, too.
    :param resume: go on with a training that was interrupted, from whatever it began with.
    :param fresh: begin with an empty adapter, and not with the one that is staged.
    :returns: the expert's folder.
    :raises ConfigError: where the base's weights are not to be had as a file, or the extra is missing.
    :raises InvalidInput: for a resume of nothing, or with other data.
    """
    source, weights = base_of(settings)
    work, before = settings.data / "training" / NAME, staging / NAME / adapters.WEIGHTS
    if resume:
        fresh = begun(work, plan).rate == plan.rate
    tell("proving the answers: minutes, once")
    tasks, refused = proved_tasks(training_tasks(plan.seed), settings, work)
    tell(f"{len(tasks)} tasks of {len({task.family for task in tasks})} families, proved; {refused} refused")
    data = pairs(tasks, plan.seed)
    own, revision = _of_image(image, settings)
    found = len(set(own))
    if own:
        own = own * max(1, round(_SHARE * len(data) / len(own)))
        tell(f"{found} examples from the image {revision}, {len(own) / len(data):.0%} of the data")
    data = random.Random(plan.seed).sample([*data, *own], len(data) + len(own))
    checked = pairs(generate("validation", plan.seed, each=1), plan.seed)[:CHECKED]
    digest = digest_of(data)
    going_on = before.exists() and not fresh
    trainer = Trainer(weights, work, dataclasses.replace(plan, rate=plan.rate * _ON) if going_on else plan)
    held = trainer.read(before) if going_on else None
    if resume and trainer.resume(digest):
        tell(f"going on at step {trainer.step}")
    elif held is not None:
        trainer.take(held)
        tell(f"beginning with {before}")
    trainer.train(data, checked, digest, lambda point, done: tell(line(point, done)), settings.training_save_s)
    figures = _figures(trainer, tasks, found)
    if held is not None and not own:  # what users taught is kept whole
        alone, together = trainer.keep_the_better(held, checked)
        figures["validation"] = min(alone, together)
        tell(f"validation {alone}; {together} as the mean with what it began with: the better one is kept")
    lineage = Lineage(digest, plan.seed, revision, figures=figures)
    return export(trainer, staging / NAME, EXPERT, source, lineage)


def training_tasks(seed: int) -> list[Task]:
    """All tasks that are trained on."""
    written = generate("train", seed, each=EACH, each_product=EACH_PRODUCT, each_everyday=EACH_EVERYDAY)
    return written + [task for family in composed(COMPOSED, seed) for task in tasks_of(family, 1, seed)]


def proved_tasks(tasks: list[Task], settings: Settings, work: Path) -> tuple[list[Task], int]:
    """The tasks whose answers pass guardian, sandbox and trials, and how many do not.

    Answers that differ by nothing but their selector are one; those proved before are known by their digest in the work folder.
    """
    file = work / "proved.json"
    known: dict[str, bool] = json.loads(file.read_text()) if file.exists() else {}
    fresh = list({key: task for task in tasks if (key := _key(task)) not in known}.values())
    work.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(fresh), _BATCH):  # what an interruption costs
        good, bad = asyncio.run(proved(fresh[start : start + _BATCH], settings))
        known |= {_key(task): True for task in good} | {_key(task): False for task, _ in bad}
        (partial := file.with_suffix(".partial")).write_text(json.dumps(known))
        partial.replace(file)
    found = [task for task in tasks if known[_key(task)]]
    return found, len(tasks) - len(found)


def _key(task: Task) -> str:
    body = task.source.replace(f"def {task.selector}(", "def m(", 1)
    return hashlib.sha256(json.dumps([body, dict(task.helpers)]).encode()).hexdigest()[:32]


def _of_image(image: str, settings: Settings) -> tuple[list[tuple[str, str]], str]:
    if not image:
        return [], ""
    with reading(image) as (root, revision):
        return pairs_of(root, chars=settings.synthesis_chars), revision


def _figures(trainer: Trainer, tasks: list[Task], own: int) -> dict[str, float]:
    checked = [point.validation for point in trainer.curve if point.validation is not None]
    return {
        "steps": trainer.step, "seconds": round(trainer.seconds), "tasks": len(tasks), "families": len({task.family for task in tasks}),
        "from_image": own, "loss": trainer.curve[-1].loss if trainer.curve else 0.0, **({"validation": checked[-1]} if checked else {}),
    }  # fmt: skip
