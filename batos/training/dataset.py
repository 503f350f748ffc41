"""The data set of the expert for methods: tasks of all families and of an image, without duplicates, split by family, with proved answers.

The tasks of an image are its accepted methods, with the calls that users made of them, refused ones included. Every answer has passed the
guardian, the sandbox and its own trials, as a model's methods must.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from batos.config import Settings
from batos.errors import ImageDamaged, MessageNotUnderstood, MethodError, MethodUnsupported, SandboxFailed
from batos.forge import method_prompts
from batos.forge.lessons import RecordedCall, last_refusal, method_for, recorded_calls, was_refused
from batos.forge.method_prompts import COMPACT_SYSTEM, WantedMethod
from batos.guardian import PersistenceGuardian
from batos.image import history, ledger, taught_examples
from batos.objects import Example, Method, Root, UvmObject
from batos.sandbox import Activity, Sandbox
from batos.synthesis.families import EVERYDAY, Family, families
from batos.synthesis.handbook import handbook
from batos.synthesis.specification import same
from batos.training.tasks import Task, make

PARTS = ("train", "validation", "test", "far")
_COPIED = 0.1  # share of tasks that may be shown a handbook method that computes the same
_SHOWN = 0.6  # share of the training tasks whose prompt contains an example
_TRIES = 4  # draws for each wanted task


def tasks_of(family: Family, count: int, seed: int) -> list[Task]:
    """Return different tasks of a family, at most `count`. Tasks for measurement have slot names that training tasks do not have."""
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
    """Return the tasks of a part.

    :param each: tasks of a family; `each_product` for a family that is put together of parts, `each_everyday` for one that is asked for
        first.
    """

    def count(family: Family) -> int:
        if family.name in EVERYDAY and each_everyday is not None:
            return each_everyday
        return each_product if each_product is not None and family.group.startswith("products") else each

    return [task for family in families() if family.part == part for task in tasks_of(family, count(family), seed)]


def pairs(tasks: Iterable[Task], seed: int, *, shown: bool = True) -> list[tuple[str, str]]:
    """Return prompt and answer of each task as the model reads them. Some prompts contain the example, some do not.

    Prompts show similar methods of the handbook, but mostly none that computes the same: the model is to learn to adapt methods.

    :param shown: True if prompts may show methods of the handbook.
    """
    rng, book = random.Random(seed), handbook() if shown else None

    def asked(task: Task) -> str:
        example = not task.intent or rng.random() < _SHOWN
        but = () if rng.random() < _COPIED else (task.shape,)
        return task.prompt(example=example, book=book, but=but)

    return [(as_read(asked(task)), answered(task.source)) for task in tasks]


def as_read(prompt: str, system: str = COMPACT_SYSTEM) -> str:
    """Return a request in the template of the base (ChatML).

    :param system: the system message; that of the expert for methods, if left out.
    """
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


def answered(source: str) -> str:
    """Return an answer in the template of the base."""
    return f"{source.strip()}<|im_end|>"


def digest_of(data: Sequence[tuple[str, str]]) -> str:
    """Return a digest of prompts and answers."""
    return hashlib.sha256(json.dumps(list(data), ensure_ascii=False).encode()).hexdigest()


_CALLS = 6  # calls of one method
HARD_FROM_IMAGE = 3
"""Number of times that a method counts if it was refused before it was accepted: the model could not write it at first."""


def pairs_from_image(root: Root, *, chars: int) -> list[tuple[str, str]]:
    """Return prompt and answer of each accepted method of an image, for the calls that missions made of it, newest first.

    Only methods count that a model wrote, that are in place, and that a user confirmed by an example or a rating of +1. Most methods that
    were written from a name and an intent alone are wrong. A mission whose method was refused is paired with the method accepted later: a
    repaired pair. Such a method counts several times.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    counted: Counter[bytes] = Counter()
    for mission in ledger.newest_first(root):
        with contextlib.suppress(ImageDamaged):  # skip damaged records: they teach nothing
            for prompt, answer, times in _asked(root, mission, counted, chars):
                found.setdefault(prompt, [(as_read(prompt), answer)] * times)
    return [pair for pairs in found.values() for pair in pairs]


def _asked(root: Root, mission: UvmObject, counted: Counter[bytes], chars: int) -> Iterator[tuple[str, str, int]]:
    """Return prompt and answer for each request of a mission, and how often the pair counts.

    :param counted: number of calls of each method so far.
    """
    for call in recorded_calls(root, mission):
        method = method_for(root, mission, call)
        if method is None:
            continue
        counted[method.source.encode()] += 1
        if counted[method.source.encode()] > _CALLS:
            continue
        taught, intent = taught_examples.examples_of(root, call.target, call.selector)
        intent = intent or str(dict(method.provenance).get("intent", ""))
        wanted = WantedMethod(call.target, call.selector, call.args, call.kwargs, intent, taught)
        (prompt,) = method_prompts.compact(wanted, chars=chars, book=handbook())
        yield prompt, answered(method.source), HARD_FROM_IMAGE if _was_hard(root, mission, call, method) else 1


def _was_hard(root: Root, mission: UvmObject, call: RecordedCall, method: Method) -> bool:
    """Return True if the model failed to write a method at its first try, in this mission or an earlier one."""
    came = dict(method.provenance)
    return bool(came.get("tries", 1) > came.get("candidates", 1) or was_refused(mission) or last_refusal(root, call))


log = structlog.get_logger("batos.training")
_AGAIN = 3  # tries of one check


class Judgement(NamedTuple):
    """The judgement of a source: why it was refused ("" if it was not), and how many of the trials it passed."""

    refused: str
    passed: int
    trials: int

    @property
    def right(self) -> bool:
        """Return True if the source passed all trials."""
        return not self.refused and self.passed == self.trials


class Prover:
    """Guardian and sandbox for tasks that are in no image. An async context manager."""

    def __init__(self, settings: Settings) -> None:
        self._guardian, self._sandbox = PersistenceGuardian(settings), Sandbox(settings)

    async def __aenter__(self) -> Prover:
        await self._sandbox.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._sandbox.close()

    async def judge(self, task: Task, source: str, trials: Sequence[Example] | None = None) -> Judgement:
        """Judge a source as the answer to a task.

        :param trials: the trials; those of the task, if left out.
        :raises SandboxFailed: if no worker runs, again and again.
        """
        for _ in range(_AGAIN):  # a busy machine may keep a worker waiting for too long; the next try uses a new worker
            try:
                return await self._judged(task, source, trials)
            except SandboxFailed as e:
                log.info("judged_again", family=task.family, why=e.message)
        return await self._judged(task, source, trials)

    async def _judged(self, task: Task, source: str, trials: Sequence[Example] | None) -> Judgement:
        wanted = task.trials if trials is None else trials
        verdict = self._guardian.audit(source, task.selector)
        if not verdict.accepted:
            return Judgement(str(verdict.errors[0]), 0, len(wanted))
        try:
            await self._sandbox.compile(source)
        except MethodUnsupported as e:
            return Judgement(e.message, 0, len(wanted))
        passed = 0
        for trial in wanted:
            value, after = await self.run(task, source, trial)
            passed += after is not None and same(value, trial.result) and all(same(after.get(name), held) for name, held in trial.after)
        return Judgement("", passed, len(wanted))

    async def run(self, task: Task, source: str, trial: Example) -> tuple[Any, Mapping[str, Any] | None]:
        """Return the answer of a source in each trial, with the slots after it; None where it failed."""
        obj = task.target()
        for name, value in copy.deepcopy(trial.slots):
            obj._slots[name] = value
        activity = Activity(self._sends, "proof", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        args, kwargs = copy.deepcopy(list(trial.args)), dict(copy.deepcopy(trial.kwargs))
        try:
            value = await self._sandbox.run(obj, Method(task.selector, source), args, kwargs, activity=activity)
        except (MethodError, MessageNotUnderstood) as e:
            return e.message, None
        return history.uncut(value), {name: history.uncut(held) for name, held in obj._slots.items() if name in dict(trial.slots)}

    async def _sends(
        self, obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], /, *, start: tuple[UvmObject, ...] = ()
    ) -> Any:
        held = obj._slots.get(selector)
        if not isinstance(held, Method):
            raise MessageNotUnderstood(obj, selector)
        activity = Activity(self._sends, "proof", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        return await self._sandbox.run(obj, held, args, kwargs, activity=activity)


async def proved(tasks: Sequence[Task], settings: Settings) -> tuple[list[Task], list[tuple[Task, str]]]:
    """Return the tasks whose answers pass, and those whose answers fail, with the reasons.

    :raises SandboxFailed: if no worker runs, again and again.
    """
    good: list[Task] = []
    bad: list[tuple[Task, str]] = []
    async with Prover(settings) as prover:
        for task in tasks:
            judgement = await prover.judge(task, task.source, [task.shown, *task.trials])
            if judgement.right:
                good.append(task)
            else:
                bad.append((task, judgement.refused or f"{judgement.passed} of {judgement.trials} trials passed"))
    return good, bad
