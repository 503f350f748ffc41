"""`batos train methods`: from families and an image to an expert in the staging folder."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from batos import private_files
from batos.bridge.lora import adapters
from batos.config import Settings
from batos.errors import InvalidInput
from batos.forge.method_prompts import SynthesisLimits
from batos.training.composed_tasks import composed
from batos.training.dataset import digest_of, generate, pairs, pairs_from_image, proved, tasks_of
from batos.training.lora import Pairs, Trainer, TrainingPlan, begun
from batos.training.tasks import Task
from batos.training.workspace import (
    Expert,
    TrainingLimits,
    TrainingLineage,
    alone,
    base_of,
    check_place,
    export,
    line,
    next_version,
    reading,
    versions_in,
)

EACH, EACH_PRODUCT, EACH_EVERYDAY, COMPOSED, CHECKED = 3, 2, 20, 3000, 48
"""Numbers of tasks: of each family, of each product of `products.txt`, of each family that users ask for first. Then of composed families,
with one task each, and of the validation."""
NAME = "method-writer"
EXPERT = Expert("brick", NAME, "methods", "Writes methods.")
_SHARE = 0.25  # least share of the data that an image's own methods make up, if there are any
_OWN = "from_image.json"  # file in the work folder
_BATCH = 500  # answers checked between two writes of the progress file
_ON = 0.5  # factor of the learning rate when training continues from an adapter: at the full rate a short training forgets first


def train_methods(
    settings: Settings,
    plan: TrainingPlan,
    staging: Path,
    *,
    image: str = "",
    known: str = "",
    resume: bool = False,
    fresh: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Path:
    """Train the expert for methods on the base of the profile and write it into the staging folder.

    :param image: URI of an image whose accepted methods are learned, too.
    :param known: URI of the image whose experts the new one continues as a further version, if there is one.
    :param resume: resume an interrupted training, with the same start and the same data of an image.
    :param fresh: begin with an empty adapter instead of the staged one.
    :returns: the expert's folder.
    :raises ConfigError: if the base's weights are not available as a file, the extra is missing, or the folder cannot be written.
    :raises InvalidInput: if there is nothing to resume, or other data; another training runs; or the staged adapter is unreadable.
    """
    source, weights = base_of(settings)
    work, folder = settings.data / "training" / NAME, staging / NAME
    check_place(folder)
    with alone(work):
        _version(folder, known, tell)  # report an obstacle now, not at the end of the training
        if resume:
            fresh = begun(work, plan).rate == plan.rate
        before = _staged(folder) if not fresh else None
        data = _data_of(settings, plan, work, image, resume, tell)
        trainer = Trainer(weights, work, plan if before is None else dataclasses.replace(plan, rate=plan.rate * _ON))
        held = trainer.read(before) if before is not None else None
        if resume and trainer.resume(data.digest):
            tell(f"going on at step {trainer.step}")
        elif held is not None:
            trainer.take(held)
            tell(f"beginning with {before}")
        if not resume:
            _keep(work, data)
        trainer.train(
            data.pairs, data.checked, data.digest, lambda point, done: tell(line(point, done)), TrainingLimits.of(settings).save_s
        )
        figures = _figures(trainer, data)
        if held is not None and not data.own:  # what users taught is kept in full
            learned, together = trainer.keep_the_better(held, data.checked)
            figures["validation"] = min(learned, together)
            tell(f"validation {learned}; {together} as the mean with what it began with: the better one is kept")
        lineage = TrainingLineage(data.digest, plan.seed, data.revision, figures=figures)
        return export(trainer, folder, EXPERT, source, lineage, _version(folder, known, tell))


def _version(folder: Path, known: str, tell: Callable[[str], None]) -> int:
    return next_version(folder, EXPERT, versions_in(known, EXPERT.persona, EXPERT.name, tell))


def _staged(folder: Path) -> Path | None:
    """Return the weights of the staged expert; None where there are none.

    :raises InvalidInput: where they are damaged.
    """
    if not (folder / adapters.WEIGHTS).exists():
        return None
    try:
        return adapters.read(folder).file
    except adapters.Unfit as e:
        raise InvalidInput(f"{folder}: {e}; move it away, or begin with --fresh") from None


class _Data(NamedTuple):
    """The data of a training: examples, validation examples, the tasks behind them, and what an image added, with its revision."""

    pairs: Pairs
    checked: Pairs
    tasks: list[Task]
    own: list[tuple[str, str]]
    revision: str

    @property
    def digest(self) -> str:
        return digest_of(self.pairs)


def _data_of(settings: Settings, plan: TrainingPlan, work: Path, image: str, resume: bool, tell: Callable[[str], None]) -> _Data:
    kept = _kept(work) if resume else None
    own, revision = _of_image(image, settings) if kept is None else kept
    tell("proving the answers: minutes, once")
    tasks, refused = proved_tasks(training_tasks(plan.seed), settings, work)
    tell(f"{len(tasks)} tasks of {len({task.family for task in tasks})} families, proved; {refused} refused")
    data = pairs(tasks, plan.seed)
    more = own * max(1, round(_SHARE * len(data) / len(own))) if own else []
    if own:
        tell(f"{len(set(own))} examples from the image {revision}, {len(more) / len(data):.0%} of the data")
    mixed = random.Random(plan.seed).sample([*data, *more], len(data) + len(more))
    return _Data(mixed, pairs(generate("validation", plan.seed, each=1), plan.seed)[:CHECKED], tasks, own, revision)


def _keep(work: Path, data: _Data) -> None:
    """Write down the data that an image added. The image may have more when the training resumes, but the data must be the same."""
    private_files.write(work / _OWN, json.dumps({"revision": data.revision, "pairs": data.own}))


def _kept(work: Path) -> tuple[list[tuple[str, str]], str] | None:
    """Return the data that an image had added to a training to resume; None if they are unknown."""
    try:
        held = json.loads((work / _OWN).read_text("utf-8"))
        return [(prompt, answer) for prompt, answer in held["pairs"]], held["revision"]
    except (FileNotFoundError, ValueError):  # the file of a training that an earlier version began, or an empty file after a power cut
        return None


def training_tasks(seed: int) -> list[Task]:
    """Return all tasks for training."""
    written = generate("train", seed, each=EACH, each_product=EACH_PRODUCT, each_everyday=EACH_EVERYDAY)
    return written + [task for family in composed(COMPOSED, seed) for task in tasks_of(family, 1, seed)]


def proved_tasks(tasks: list[Task], settings: Settings, work: Path) -> tuple[list[Task], int]:
    """Return the tasks whose answers pass guardian, sandbox and trials, and how many do not.

    Answers that differ by their selector alone count as one. Answers that were proved before are known by their digest in the work folder.
    """
    file = work / "proved.json"
    known: dict[str, bool] = {}
    with contextlib.suppress(FileNotFoundError, ValueError):  # a power cut may have left an empty file: then all answers are checked again
        known = json.loads(file.read_text())
    fresh = list({key: task for task in tasks if (key := _key(task)) not in known}.values())
    private_files.make(work)
    for start in range(0, len(fresh), _BATCH):  # an interruption costs one batch
        good, bad = asyncio.run(proved(fresh[start : start + _BATCH], settings))
        known |= {_key(task): True for task in good} | {_key(task): False for task, _ in bad}
        private_files.write(file, json.dumps(known))
    found = [task for task in tasks if known[_key(task)]]
    return found, len(tasks) - len(found)


def _key(task: Task) -> str:
    body = task.source.replace(f"def {task.selector}(", "def m(", 1)
    return hashlib.sha256(json.dumps([body, dict(task.helpers)]).encode()).hexdigest()[:32]


def _of_image(image: str, settings: Settings) -> tuple[list[tuple[str, str]], str]:
    if not image:
        return [], ""
    with reading(image) as (root, revision):
        return pairs_from_image(root, chars=SynthesisLimits.of(settings).chars), revision


def _figures(trainer: Trainer, data: _Data) -> dict[str, float]:
    checked = [point.validation for point in trainer.curve if point.validation is not None]
    return {
        "steps": trainer.step, "seconds": round(trainer.seconds),
        "tasks": len(data.tasks), "families": len({task.family for task in data.tasks}), "from_image": len(set(data.own)),
        "loss": trainer.curve[-1].loss if trainer.curve else 0.0, **({"validation": checked[-1]} if checked else {}),
    }  # fmt: skip
