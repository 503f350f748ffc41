"""Proof of answers: what enters a data set has passed the guardian, the sandbox and its own trials, as what a model writes must."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from batos.config import Settings
from batos.errors import MessageNotUnderstood, MethodError, MethodUnsupported, SandboxFailed
from batos.guardian import PersistenceGuardian
from batos.image import history
from batos.image.examples import Example
from batos.mind.plain_values import same
from batos.objects import Method, UvmObject
from batos.sandbox import Activity, Sandbox
from batos.training.tasks import Task

log = structlog.get_logger("batos.training")
_AGAIN = 3  # times


class Judgement(NamedTuple):
    """What came of a source: why it was refused ("" if it was not), and how many of the trials it passed."""

    refused: str
    passed: int
    trials: int

    @property
    def right(self) -> bool:
        """Whether it is what was asked for, as far as the trials tell."""
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
        """What becomes of a source as the answer to a task.

        :param trials: those of the task, if left out.
        :raises SandboxFailed: if no worker runs, again and again.
        """
        for _ in range(_AGAIN):  # a busy machine may keep a worker waiting for too long; the next one is a new one
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
        """What a source answers in a trial, and the slots after it; None for those where it failed."""
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
    """The tasks whose answers pass, and those whose do not, with the reason.

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
