"""Rehearsals: recorded missions are thought through again in two mirrors of the image, one of them with a change.

Both sides take every inference from the missions' journals. One that is not there, because the change asks something else, is paid for
within an allowance (`batos.autotelic.rehearsal_budget`). Beyond the allowance, the mission's outcome is unknown and does not count. Nothing
that is thought in a mirror reaches the image: neither records, nor journals, nor what missions cost.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from batos import scope
from batos.autotelic import change_types, entropy, entropy_records, replay_selection, telemetry, writer_evaluation
from batos.autotelic.change_types import Ground
from batos.autotelic.changes import Proposal
from batos.autotelic.entropy import Text, Thought
from batos.autotelic.rehearsal_budget import RehearsalLimits
from batos.autotelic.rehearsal_verdict import Comparison, ComparisonLimits, Run, RunPair, Side, compared
from batos.autotelic.triggers import DAY_S, TriggerLimits
from batos.bridge.inference import Inference
from batos.concurrency import in_helper
from batos.config import Settings
from batos.errors import BatosError, BudgetSpent
from batos.forge import lessons, trials
from batos.forge.method_prompts import SynthesisLimits
from batos.image import history, ledger, model_registry, taught_examples
from batos.image.living_image import ImageLimits, LivingImage
from batos.methods.runtime import MethodRuntime
from batos.mind.attempt import Attempt
from batos.mind.attempt_services import REPLAYED
from batos.missions.mirror_stage import Stage, Staging, two_stages
from batos.missions.purse import Purse, Unknown
from batos.objects import Method, Root, UvmObject
from batos.synthesis.handbook import handbook
from batos.synthesis.specification import same

log = structlog.get_logger("batos.autotelic")


Tasks = Callable[[int], contextlib.AbstractAsyncContextManager[Sequence[writer_evaluation.WritingTask]]]
"""Gives tasks of writing a method, at most the given number."""


@contextlib.asynccontextmanager
async def no_tasks(count: int) -> AsyncIterator[Sequence[writer_evaluation.WritingTask]]:
    """Give no tasks."""
    yield ()


class Rehearsals:
    """Rehearsals of changes: `await of(...)` for one."""

    def __init__(
        self, image: LivingImage, inference: Inference, settings: Settings, staging: Staging, ground: Ground, tasks: Tasks = no_tasks
    ) -> None:
        """
        :param inference: asked for digests only; a purse pays for inferences.
        :param tasks: gives methods to be written that are of no image.
        """
        self._tasks = tasks
        self._image, self._inference, self._settings, self._staging, self._ground = image, inference, settings, staging, ground

    async def of(self, proposal: Proposal, mission: str, key: str, purse: Purse) -> Comparison:
        """Return what a change does to recorded missions, and to the trials of the method that it is about.

        :param mission: the mission that proposed it: its id names the trials.
        :param key: key of the trigger's measurement, for the choice of missions; empty for none.
        :raises BatosError: if the change cannot be made even there.
        """
        settings = self._settings
        async with two_stages(self._image, self._inference, self._staging, ImageLimits.of(settings).cache) as (without, changed):
            async with changed.image.unit() as unit:
                change_types.apply(unit.root, proposal, self._ground, "rehearsal")
            ids = await in_helper(without.image.read, replay_selection.chosen, proposal, key, RehearsalLimits.of(settings).missions)
            # before its missions: the tasks tell most, and each mission may need many inferences
            if proposal.kind == writer_evaluation.KIND:
                before, after, made = await self._writers(without, proposal, mission, purse)
            pairs = [await self._pair(without, changed, id, proposal, purse) for id in ids]
            if proposal.kind != writer_evaluation.KIND:
                before, made = await self._side(without, proposal, mission, purse)
                after, _ = await self._side(changed, proposal, mission, purse)
            weights = self._image.read(entropy_records.weights_of)
        slower = RehearsalLimits.of(settings).slower if proposal.kind == "model" else None
        limits = ComparisonLimits(
            RehearsalLimits.of(settings).least,
            RehearsalLimits.of(settings).costlier,
            RehearsalLimits.of(settings).better,
            RehearsalLimits.of(settings).alike,
            slower,
        )
        return await in_helper(lambda: compared(pairs, before, after, trials=made, weights=weights, limits=limits))

    async def _pair(self, without: Stage, changed: Stage, id: str, proposal: Proposal, purse: Purse) -> RunPair:
        rating = self._image.read(lambda root: ledger.describe(ledger.mission_of(root, id)).rating)
        runs = await self._run(without, id, proposal, purse), await self._run(changed, id, proposal, purse)
        return RunPair(id, *runs, rating=rating["rating"] if rating else 0)

    async def _run(self, stage: Stage, id: str, proposal: Proposal, purse: Purse) -> Run:
        reroutes = proposal.kind == "exemplar" and not stage.image.read(lambda root: ledger.mission_of(root, id).message)
        attempt = stage.attempt(id, purse, replace(REPLAYED, reroutes=reroutes, revoices=proposal.kind == change_types.VOICE))
        runs: list[Run] = []

        def see(result: dict[str, Any], cycle: UvmObject | None) -> None:
            runs.append(_seen(result, cycle, attempt))

        thought = await stage.think(attempt, see)
        if thought.unknown:
            return Run(known=False)
        return runs[0] if thought.result is not None else Run(known=True, failed=thought.failed, misrouted=_misrouted(attempt))

    async def _side(self, stage: Stage, proposal: Proposal, mission: str, purse: Purse) -> tuple[Side, int]:
        """Return the figures of one side besides its missions, and the number of trials."""
        found = stage.image.read(entropy_records.persona_kinds)
        if proposal.kind not in ("method", "retire"):
            return Side(found), 0
        failed = made = 0
        held = stage.image.read(_source_of, proposal.target)
        attempt = stage.attempt(mission, purse)
        async with stage.image.unit() as unit:
            unit.doom()
            if held:
                holder, selector, method = change_types.method_at(unit.root, proposal.target)
                with scope.begin(attempt):
                    for pupil, case in _cases(unit.root, holder, selector):
                        made += 1
                        failed += await self._fails(case, pupil, method, attempt, stage.services.methods)
        size = len(held.encode())
        if proposal.kind == "retire" and made > failed == 0 and stage.image.read(self._is_used, proposal.target):
            size = 0  # the method is used and does what it was taught: its removal saves nothing
        return Side(found, failed, size), made

    def _is_used(self, root: Root, target: str) -> bool:
        """Return True if a method was used within the last `TriggerLimits.unused_days` days, or that is not known."""
        holder, selector, _ = change_types.method_at(root, target)
        last = telemetry.last_use_of(root, f"{history.oid_of(holder)} {selector}")
        return last is None or time.time() - last < TriggerLimits.of(self._settings).unused_days * DAY_S

    async def _writers(self, stage: Stage, proposal: Proposal, mission: str, purse: Purse) -> tuple[Side, Side, int]:
        """Compare the expert that writes methods now with the one that was made; return both, and how many methods both have written."""
        settings, found = self._settings, stage.image.read(entropy_records.persona_kinds)
        experts_ = stage.image.read(model_registry.speaks_methods), str(writer_evaluation.model_of(proposal))
        attempt = stage.attempt(mission, purse)
        wrong, made = [writer_evaluation.Wrong(), writer_evaluation.Wrong()], 0
        async with stage.image.unit() as unit, self._tasks(RehearsalLimits.of(settings).tasks) as tasks:
            unit.doom()
            own = writer_evaluation.accepted(
                unit.root, RehearsalLimits.of(settings).tasks, SynthesisLimits.of(settings).chars, await in_helper(handbook)
            )

            async def right(one: writer_evaluation.Synthesis | writer_evaluation.WritingTask, model: str) -> bool:
                source = await writer_evaluation.written(attempt, model, one.selector, one.prompt)
                if isinstance(one, writer_evaluation.WritingTask):
                    return await one.right(source)
                return await writer_evaluation.is_right(one, source, unit.root, attempt, stage.services.methods)

            for one in [one for pair in itertools.zip_longest(own, tasks) for one in pair if one is not None]:
                try:
                    faults = [not await right(one, model) for model in experts_]
                except Unknown as e:
                    log.info("rehearsal_unknown", task=one.selector, why=str(e)[:200])
                    continue
                is_own = isinstance(one, writer_evaluation.Synthesis)
                wrong = [
                    so_far + writer_evaluation.Wrong(fault * is_own, fault * (not is_own))
                    for so_far, fault in zip(wrong, faults, strict=True)
                ]
                made += 1
        before, after = (Side(found, trials=one.own, tasks=one.tasks) for one in wrong)
        return before, after, made

    async def _fails(self, case: trials.Case, pupil: UvmObject, method: Method, attempt: Attempt, methods: MethodRuntime) -> bool:
        """Return True if a trial fails.

        :raises BatosError: if its outcome cannot be found.
        """
        try:
            return bool((await trials.run(case, pupil, method, attempt, methods, attempt.making.new_activity())).reason)
        except Unknown as e:
            raise BudgetSpent(f"a trial of {method.selector!r} could not be made: {e}") from e


def _cases(root: Root, holder: UvmObject, selector: str) -> list[tuple[UvmObject, trials.Case]]:
    """Return the examples that a method was taught, each with the object that was taught it: its holder, or one that inherits it."""
    pupils = (holder, *lessons.kin(root, holder, holder, selector))
    return [(pupil, case) for pupil in pupils for case in trials.of_examples(taught_examples.examples_of(root, pupil, selector)[0])]


def _source_of(root: Root, target: str) -> str:
    try:
        return change_types.method_at(root, target)[2].source
    except BatosError:
        return ""


def _seen(result: dict[str, Any], cycle: UvmObject | None, attempt: Attempt) -> Run:
    """Return the comparable data of a mission that ended COMPLETE."""
    record, usage = attempt.mission, attempt.usage()
    tokens = int(usage["prompt_tokens"]) + int(usage["answer_tokens"])
    seconds = sum(one.total_ms - one.load_ms for one in attempt.tally.used) / 1000
    if record.message:
        value = json.loads(json.dumps({"value": result.get("value")}, default=str))
        was = (record.result or {}).get("value")
        return Run(known=True, tokens=tokens, seconds=seconds, answer=value, like=float(same(value["value"], was)))
    assert cycle is not None
    personas, facets, described = entropy_records.shape_of(cycle)
    was = str((record.result or {}).get("text", ""))
    brief, answer, rated = (Text(entropy.words_of(str(text))) for text in (record.brief, result["text"], was))
    return Run(
        known=True,
        failed="unsure" if result.get("unsure") else "",
        tokens=tokens,
        seconds=seconds,
        gate=len(result.get("silent", ())) + (result["plan"] == "fallback") + bool(result.get("quoted")) + _revised(attempt),
        misrouted=_misrouted(attempt),
        thought=Thought(personas, facets, brief, answer, described),
        like=1.0 if result["text"] == was else entropy.alike(answer, rated, entropy.WORDS),
    )


def _revised(attempt: Attempt) -> int:
    """Count the answers that the checks refused: of each cycle those after the first."""
    woven = Counter(
        words[0] for one in attempt.tally.used if (words := one.label.split(" "))[1:2] == ["SYNTHESIZING"] and words[3:] == ["-"]
    )
    return sum(times - 1 for times in woven.values())


def _misrouted(attempt: Attempt) -> bool:
    route = attempt.routed
    return route is not None and route.preferred not in (None, route.persona)
