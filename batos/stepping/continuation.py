"""Continuation of a mission that was stepped through: the changes as one diff, conflicts with the image as it is now, and one transaction.

diff ─ agreed to ─ one unit of work: changes of the image · the record of the changes · the mission's journal and state ─ a new attempt
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import structlog
from transaction.interfaces import TransientError

from batos.errors import BatosError, Conflicted, InvalidInput, StepConflict
from batos.image import continuations, history, journal, ledger, usage_totals
from batos.image.continuations import ThoughtChange
from batos.image.journal import InferenceRecord
from batos.missions.mission_queue import AttemptLimits
from batos.objects import Root
from batos.stepping import step_edits
from batos.stepping.session import StepSession
from batos.stepping.step_edits import StepEdit
from batos.stepping.stepped_source import MISSING, RECORDED, edited_record

log = structlog.get_logger("batos.stepping")
GoOn = Callable[[str], Awaitable[None]]
"""Attempts a mission anew: `Scheduler.go_on`."""


class StepContinuation(NamedTuple):
    """Continues missions."""

    go_on: GoOn
    dropped: Callable[[list[int]], object]
    """Hears of the chunks that the memory forgot: what it knew of a failure that stands no more."""

    async def dry(self, session: StepSession) -> dict[str, Any]:
        """Return what a continuation would do: `diff`, `conflicts`, `why_not` if the mission cannot go on, and `ahead`. `ahead` counts
        inferences: those known in the image as it is now, and those to be paid for up to the first unknown one. It also has the number of
        edits that were not used, and whether the thought ended."""
        told: dict[str, Any] = {"diff": diff(session), "conflicts": session.image.read(conflicts, session)}
        if session.is_of_method:
            return told
        try:
            session.image.read(continuations.check_continues, session.id)
            twin = await session.ahead()
        except BatosError as e:
            return {**told, "why_not": e.message}
        try:
            counted = Counter(one.source for one in twin.source.asked)
            unused = len([key for key in session.memory.edited if all(one.place[:2] != key for one in twin.source.asked)])
            told["ahead"] = {
                "known": counted.total() - counted[MISSING], "missing": counted[MISSING], "edits_unused": unused,
                "ends": twin.run.result is not None,
            }  # fmt: skip
        finally:
            await twin.close()
        return told

    async def carry_out(self, session: StepSession, note: str, *, anyway: bool) -> dict[str, Any]:
        """Take the changes over into the image, and let the mission go on; return `diff`, and `with`, the mission that holds the changes.

        :param anyway: also where the image was changed in the same places meanwhile.
        :raises StepConflict: if it was.
        :raises InvalidInput: if the mission cannot go on, or there is nothing to take over.
        :raises Conflicted: if others kept committing in the same places.
        """
        if session.is_of_method and not session.edits:
            raise InvalidInput("nothing was changed, and there is no mission to continue: a method alone was run")
        rows = diff(session)
        for _ in range(AttemptLimits.of(session.settings).conflict_retries + 1):
            try:
                made, dropped = await self._once(session, note, rows, anyway)
                break
            except TransientError as e:
                log.info("step_met_conflict", mission=session.id, error=str(e)[:200])
        else:
            raise Conflicted(f"others committed in the same places each time that mission {session.id!r} was to be continued; try it again")
        if dropped:
            self.dropped(dropped)
        log.info("continued", mission=session.id, changes=made, note=note)
        if not session.is_of_method:
            await self.go_on(session.id)
        return {"diff": rows, "with": made or None, "conflicts": []}

    async def _once(self, session: StepSession, note: str, rows: list[dict[str, Any]], anyway: bool) -> tuple[str, list[int]]:
        mends, dropped = "" if session.is_of_method else session.id, list[int]()
        async with session.image.unit() as unit:
            try:
                if mends:
                    continuations.check_continues(unit.root, mends)
                if not anyway and (found := conflicts(unit.root, session)):
                    raise _refusal(session, found)
                made = continuations.step_id(unit.root, session.id) if session.edits else ""
                for edit in session.edits:
                    if edit.kind in step_edits.OF_IMAGE:
                        step_edits.apply_edit(unit.root, edit, session.ground, made)
                thought = _thought(session)
                if made:
                    continuations.record_mending(unit.root, made, mends, note, thought, rows)
                if mends:
                    dropped = _forget_failure(unit.root, mends)
                    whole = thought._replace(answers=(*_unedited(session), *thought.answers))
                    continuations.go_on(unit.root, mends, made, note, whole, _replies(session))
                    usage_totals.uncount_stepped(unit.root, session.memory.paid)  # the journal has them from now on
                    if whole.answers:  # they fit what the session decided on the way
                        session.run.attempt.decisions.write(unit.root)
            except BaseException:
                unit.doom()
                raise
            unit.note(made or mends, f"COMPLETE by its user: {note}" if made else f"continued by its user: {note}")
        return made, dropped


def _forget_failure(root: Root, id: str) -> list[int]:
    from batos.missions.memory_writer import forget_failure  # imported late: it brings numpy, which a running daemon has already

    mission = ledger.mission_of(root, id)
    return forget_failure(root, mission) if mission.state == ledger.FAILED else []


def diff(session: StepSession) -> list[dict[str, Any]]:
    """Return the changes, one row for each place: the value before the first change, and the last one."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for edit in session.edits:
        key = (edit.kind, edit.target, edit.about)
        found[key] = {**edit.to_wire(), "before": found[key]["before"] if key in found else edit.before}
    return [row for row in found.values() if row["before"] != row["after"]]


def conflicts(root: Root, session: StepSession) -> list[dict[str, Any]]:
    """Return the places of the image that another unit of work has changed since, in another way than the session did."""
    last: dict[tuple[str, str], StepEdit] = {}
    first: dict[tuple[str, str], StepEdit] = {}
    for edit in session.edits:
        if edit.kind in step_edits.OF_IMAGE:
            first.setdefault((edit.kind, edit.target), edit)
            last[edit.kind, edit.target] = edit
    found = []
    for place, edit in first.items():
        now, who = _standing(root, session, *place)
        if now not in (edit.before, last[place].after):
            found.append({"target": edit.target, "before": edit.before, "now": now, "yours": last[place].after, "mission": who})
    return found


def _standing(root: Root, session: StepSession, kind: str, target: str) -> tuple[Any, str | None]:
    try:
        now = step_edits.value_at(root, kind, target)
    except BatosError as e:  # the object is gone
        return f"({e.message})", None
    path = target.lower() if kind == "model" else step_edits.state_target(target) if kind == "prompt" else target.rpartition(".")[0]
    try:
        return now, history.revision(session.image.db, history.resolve(root, path))["mission"] or None
    except BatosError:
        return now, None


def _refusal(session: StepSession, found: list[dict[str, Any]]) -> StepConflict:
    named = "; ".join(f"{one['target']} (by {one['mission'] or 'BAT OS itself'})" for one in found[:3])
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return StepConflict(
        f"the image went on meanwhile, and was changed where you changed it: {named}{more}. Look at it as it is now: drop your change, "
        f"or continue mission {session.id!r} with yours anyway",
        conflicts=found,
    )


def _thought(session: StepSession) -> ThoughtChange:
    """Return the changes of the mission's own thought."""
    amended = tuple(
        (str(cycle), int(after), edit.target, json.dumps(edit.value))
        for edit in session.edits
        if edit.kind == "cycle"
        for cycle, after in [json.loads(edit.about)]
    )
    return ThoughtChange(tuple(_edited(session)), amended)


def _edited(session: StepSession) -> list[InferenceRecord]:
    known = {(one.key, one.occurrence): one for one in [*session.image.read(journal.load, session.id), *session.memory.paid]}
    asked = {**session.memory.answered, **{one.place[:2]: one for one in session.source.asked}}
    found = []
    for key, text in session.memory.edited.items():
        if (one := asked.get(key)) is not None:
            found.append(edited_record(known.get(key) or one.answer, one.request, one.place, one.label, text))
        elif key in known:
            found.append(known[key]._replace(text=text, done_reason="stop"))
    return found


def _unedited(session: StepSession) -> list[InferenceRecord]:
    """Return the inferences that the session has paid for, and recorded ones that another model, or one with other options, gave. What was
    paid for is not paid for again."""
    taken = [one.answer._replace(key=one.place.key, occurrence=one.place.occurrence, parts=one.place.parts)
             for one in session.source.asked
             if one.source == RECORDED and one.answer is not None and (one.answer.key, one.answer.occurrence) != one.place[:2]]  # fmt: skip
    return [one for one in [*session.memory.paid, *taken] if (one.key, one.occurrence) not in session.memory.edited]


def _replies(session: StepSession) -> list[tuple[dict[str, Any], str]]:
    return [(json.loads(edit.about), str(edit.value)) for edit in session.edits if edit.kind == "reply"]
