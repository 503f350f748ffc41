"""The data set: tasks of all families, deduplicated, split by family, and as a model reads them."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence

from batos.mind.handbook.families import EVERYDAY, Family, families
from batos.mind.handbook.nearest import handbook
from batos.mind.prompting import COMPACT_SYSTEM
from batos.training.tasks import Task, make

PARTS = ("train", "validation", "test", "far")
_COPIED = 0.1  # share of them that may be shown a method of the handbook that computes the same
_SHOWN = 0.6  # share of the training's tasks whose prompt has an example
_TRIES = 4  # draws, for each task that is wanted


def tasks_of(family: Family, count: int, seed: int) -> list[Task]:
    """Different tasks of a family, `count` at most; those of measurements have slot names that training has not."""
    rng = random.Random(f"{seed} {family.group} {family.name}")
    found: dict[str, Task] = {}
    for _ in range(count * _TRIES):
        task = make(family, rng, new_names=family.part != "train")
        if task is not None:
            found.setdefault(task.prompt(example=False), task)
        if len(found) == count:
            break
    return list(found.values())


def generate(part: str, seed: int, *, each: int, each_product: int | None = None, each_everyday: int | None = None) -> list[Task]:
    """The tasks of a part.

    :param each: tasks of a family; of one that is put together of parts, `each_product`; of those asked for first, `each_everyday`.
    """

    def count(family: Family) -> int:
        if family.name in EVERYDAY and each_everyday is not None:
            return each_everyday
        return each_product if each_product is not None and family.group.startswith("products") else each

    return [task for family in families() if family.part == part for task in tasks_of(family, count(family), seed)]


def pairs(tasks: Iterable[Task], seed: int, *, shown: bool = True) -> list[tuple[str, str]]:
    """Prompt and answer of each task as the model reads them; some prompts have the example, some not.

    Of the handbook they have what is near, and mostly nothing that computes the same: what to make of others is to be learned.

    :param shown: whether they have anything of the handbook.
    """
    rng, book = random.Random(seed), handbook() if shown else None

    def asked(task: Task) -> str:
        example = not task.intent or rng.random() < _SHOWN
        but = () if rng.random() < _COPIED else (task.shape,)
        return task.prompt(example=example, book=book, but=but)

    return [(as_read(asked(task)), answered(task.source)) for task in tasks]


def as_read(prompt: str, system: str = COMPACT_SYSTEM) -> str:
    """A request in the template of the base (ChatML).

    :param system: who is asked; as it stands, the expert for methods.
    """
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


def answered(source: str) -> str:
    """An answer in the template of the base."""
    return f"{source.strip()}<|im_end|>"


def digest_of(data: Sequence[tuple[str, str]]) -> str:
    """A digest of prompts and answers."""
    return hashlib.sha256(json.dumps(list(data), ensure_ascii=False).encode()).hexdigest()
