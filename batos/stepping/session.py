"""Step session: one mission that its user steps through, in a mirror that is dropped with it.

A session keeps what its user changed and what it paid for; where it stands is one thinking again (`SteppedRun`). To go back, or to go on
after a change, the mission is thought again from its beginning: what was paid for answers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from batos.autotelic.change_types import Ground
from batos.bridge.inference import Inference
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import DeadlineExceeded, InvalidInput, UnknownSession
from batos.image import continuations, history, journal, ledger
from batos.image.living_image import ImageLimits, LivingImage, mirror
from batos.image.mission_record import AskedQuestion, MissionRecord, is_question
from batos.mind.attempt import Attempt
from batos.mind.attempt_services import REPLAYED
from batos.mind.inference import as_error
from batos.missions.mirror_stage import Stage, Staging
from batos.objects import Root
from batos.sandbox.tracing import TracedRun
from batos.stepping import step_edits
from batos.stepping.method_runs import MethodRun
from batos.stepping.moments import NOW, StepMoment, moment_of
from batos.stepping.step_edits import StepEdit
from batos.stepping.stepped_run import SteppedRun, Stop, Transition, never
from batos.stepping.stepped_source import MISSING, AskedInference, OnPaid, StepInference, StepMemory, SteppedSource

NEXT, END, FAILURE = "next", "end", "failure"


@dataclass(frozen=True, slots=True)
class StepLimits(Limits):
    """Limits of sessions of stepping."""

    sessions: int = limit(8, ge=1, le=100)
    """Greatest number of sessions that are open at a time."""
    idle_s: float = limit(1800.0, gt=0, le=86_400)
    """Seconds without a request after which a session is dropped."""
    go_s: float = limit(300.0, gt=0, le=86_400)
    """Longest time for going on, new inferences included."""
    digest_s: float = limit(2.0, gt=0, le=60)
    """Longest time to wait for the digest of a model."""
    edits: int = limit(100, ge=1, le=1000)
    """Greatest number of changes in one session."""
    runs: int = limit(200, ge=1, le=10_000)
    """Greatest number of runs of methods that are kept to be looked at, the last ones."""


class SteppedMission(NamedTuple):
    """Mission that is stepped through, as plain values read from the image once."""

    record: MissionRecord
    failure: dict[str, Any] | None
    """The last failed attempt, as `ledger.failures` gives it; None if it is none that stands."""
    is_dropped: bool
    """True if the journal has lost its texts."""
    moment: StepMoment
    fresh: frozenset[bytes]
    """Ids of the mission's own records, which are seen as they are now."""


def stepped_mission(root: Root, image: LivingImage, id: str) -> SteppedMission:
    """Return a mission to step through.

    :raises UnknownMission: if there is none of that id.
    :raises MissionFolded: if only a line of it is left.
    :raises InvalidInput: for one that only holds changes which were made while stepping.
    """
    mission = ledger.mission_of(root, id)
    if continuations.is_mending(mission):
        mended = json.loads(mission.mends)["mission"]
        raise InvalidInput(f"mission {id!r} holds changes, no thought; step into {mended!r}, which it mends, or `batos show {id}`")
    failures = ledger.failures(root, id=id, limit=1) if mission.state != ledger.COMPLETE else []
    held, moment = journal.of(mission), moment_of(image, root, id)
    fresh = journal.record_oids(mission) if moment.before is not None else set()
    return SteppedMission(ledger.describe(mission), failures[0] if failures else None, bool(held.spent), moment, frozenset(fresh))


class StepParts(NamedTuple):
    """Parts of the daemon that sessions work with."""

    settings: Settings
    inference: Inference
    """Answers new inferences, and names the digests of models."""
    staging: Staging
    """Makes the services of attempts in a mirror."""
    ground: Ground
    """Context of checks of changes: the guardian, and the models that are there."""
    on_paid: OnPaid
    """Counts an inference that a session has paid for."""


class StepSession:
    """One session. `await StepSession.open(…)` makes it; all methods are called on the loop's thread, one at a time (`lock`)."""

    def __init__(self, name: str, image: LivingImage, mission: SteppedMission, parts: StepParts) -> None:
        """
        :param image: the real image, which is only read.
        """
        self.name, self.image, self.mission = name, image, mission
        self.settings = settings = parts.settings
        self.ground, self._staging, self._parts = parts.ground, parts.staging, parts
        self.limits = StepLimits.of(settings)
        self.lock = asyncio.Lock()
        self.used = time.monotonic()
        self.edits: list[StepEdit] = []
        error = mission.record.error or (mission.failure["error"] if mission.failure else None)
        self.memory = StepMemory(error=error, on_paid=parts.on_paid)
        self.is_changed = False
        """True if something was changed since the mission was thought up to here."""
        self.runs: list[MethodRun] = []
        """Runs of methods up to here, in the order in which they ended."""
        self._runs_so_far, self._touched, self._is_closed = 0, False, False
        self.rail: list[Transition] = []
        """Transitions of the longest thinking again with the present changes."""
        self._life = contextlib.AsyncExitStack()
        self.source: SteppedSource
        self.run: SteppedRun
        self.stage: Stage
        self._inference = StepInference(parts.inference, self.limits.digest_s)

    @classmethod
    async def open(cls, name: str, image: LivingImage, mission: SteppedMission, parts: StepParts) -> StepSession:
        """Open a mirror for a mission. Nothing is thought yet."""
        session = cls(name, image, mission, parts)
        try:
            await session._enter()
        except BaseException:
            await session._life.aclose()
            raise
        return session

    async def _enter(self) -> None:
        seen = {"before": self.mission.moment.before, "fresh": self.mission.fresh}
        opened = await self._life.enter_async_context(mirror(self.image, cache_size=ImageLimits.of(self.settings).cache, **seen))  # type: ignore[arg-type]
        self.stage = await self._life.enter_async_context(self._staging(opened, self._inference))
        if self.is_of_method:
            await opened.system(ledger.accept, self.id, self.mission.record.brief, {"message": self.mission.record.message}, False)
        await self._anew()

    async def close(self) -> None:
        """Drop the mirror, and what is under way in it."""
        self._is_closed = True
        await self.run.close()
        await self._life.aclose()

    # --- where it stands

    @property
    def id(self) -> str:
        """Return the mission's id."""
        return self.mission.record.id

    @property
    def is_of_method(self) -> bool:
        """Return True if it is of a method alone: its mission is in the mirror only."""
        return self.mission.record.number == 0

    @property
    def standing(self) -> Transition:
        """Return the transition at which it stands."""
        return self.run.transitions[self.run.standing]

    @property
    def error(self) -> tuple[dict[str, Any], bool] | None:
        """Return the error that ended the thinking as the wire shows it, and True if it is only recorded. The mission was not brought to it
        again then."""
        error, known = self.run.error, self.mission.failure
        if error is None:
            return self._recorded
        is_missing = self.run.attempt.tools.was_tied or any(one.source == MISSING for one in self.source.asked[-1:])
        if is_missing and known is not None and not self.edits:
            return known["error"], True
        return as_error(error).to_wire(), is_missing and self.memory.error is not None

    @property
    def question(self) -> AskedQuestion | None:
        """Return the question that the mission waits with here; also about a call of a tool, which is not made here."""
        need, known = self.run.question, self._record().questions
        if need is not None:
            new: AskedQuestion = {
                "number": len(known) + 1, "question": need.question, "occurrence": need.occurrence, "answer": None, "asked": 0.0,
            }  # fmt: skip
            if need.grant:
                new["grant"] = True
            return next((one for one in known if is_question(one, need.question, need.occurrence, need.grant)), new)
        return next((one for one in known if one["answer"] is None), None) if self.run.attempt.tools.was_tied else None

    # --- looking

    def look_at(self, target: str) -> dict[str, Any]:
        """Return an object as it is here, by its path: `cycle` and `mission` are those that stand here.

        :raises UnknownTarget: if it is not there.
        """
        cycle = self.run.cycles[self.run.standing]
        if target == "cycle" and cycle is not None:
            return {"target": target, **history.show(cycle)}
        if self.run.unit is not None:
            return self._looked_at(self.run.unit.root, target)
        return self.stage.image.read(self._looked_at, target)

    def _looked_at(self, root: Root, target: str) -> dict[str, Any]:
        found = ledger.mission_of(root, self.id) if target == "mission" else history.resolve(root, target)
        return {"target": target, **history.show(found), "entries": history.entries(found)}

    def inference(self, number: int) -> AskedInference:
        """Return an inference by its number.

        :raises InvalidInput: if there is none.
        """
        if number > len(self.source.asked):
            raise InvalidInput(f"there is no inference {number} up to here; there are {len(self.source.asked)}")
        return self.source.asked[number - 1]

    def method_run(self, number: int) -> MethodRun:
        """Return a run of a method by its number.

        :raises InvalidInput: if there is none, or no longer.
        """
        found = next((one for one in self.runs if one.number == number), None)
        if found is None:
            there = f"there are {self.runs[0].number} to {self.runs[-1].number}" if self.runs else "no method ran up to here"
            raise InvalidInput(f"there is no run {number}; {there}")
        return found

    def _ran(self, run: TracedRun) -> None:
        self.runs.append(MethodRun.of(self._runs_so_far + 1, run))
        self._runs_so_far += 1
        del self.runs[: -self.limits.runs]

    # --- going

    async def go(self, to: int | str, inferences: int = 0) -> None:
        """Go to a place: the number of a transition, the name of a state, `NEXT`, `END` or `FAILURE`.

        :param inferences: number of inferences that may be paid for.
        :raises DeadlineExceeded: after `StepLimits.go_s`; it stands at the beginning then.
        """
        self.memory.allowance = inferences
        try:
            async with asyncio.timeout(self.limits.go_s):
                if to == FAILURE:
                    await self._to_failure()
                else:
                    await self._to(to)
            self._check_open()
        except TimeoutError:
            await self._anew()
            raise DeadlineExceeded(
                f"mission {self.id!r} did not come to {to!r} within {self.limits.go_s:g} s; it stands at its beginning again"
            ) from None
        finally:
            self.memory.allowance = 0

    def touched(self) -> None:
        """Note that something was tried here: what comes next begins anew, so that nothing of it is left."""
        self._touched = True

    async def _to(self, to: int | str) -> None:
        here = self.run.standing
        if self._touched and to != NEXT:
            await self._anew()
        number = here + 1 if to == NEXT else to
        if isinstance(number, int):
            if number <= here or self.is_changed or self._touched or self.run.has_ended:
                await self._anew()
            if number > 0:
                await self._go(lambda transition: transition.number >= number)
        elif number == END:
            if self.is_changed or (self.run.has_ended and self.run.result is None):
                await self._anew()
            await self._go(never)
        else:
            state = number.upper()
            if self.is_changed or self.run.has_ended:
                await self._anew()
            begun = self.run.standing
            await self._go(lambda transition: transition.number > begun and transition.state.upper() == state)
            if self.run.has_ended and self.standing.state.upper() != state:
                known = ", ".join(dict.fromkeys(one.state for one in self.run.transitions[1:])) or "none"
                raise InvalidInput(f"mission {self.id!r} comes to no state {number!r}; it came to: {known}")

    async def _to_failure(self) -> None:
        """Think the mission to where it failed; where it does not fail any more, to the state in which it did."""
        await self._anew()
        await self._go(never)
        failure = self.mission.failure
        if failure is None or self.edits:
            return
        if self.question is not None:  # it waited here; the error of one that is over came from outside
            self._recorded = (failure["error"], True) if self.mission.record.is_final else None
            return
        state = failure["context"].get("state", "")
        if self.run.error is not None and self.run.attempt.reached == state:
            return
        own = [one for one in self.run.transitions[1:] if "." not in one.cycle and one.state == state]
        await self._anew()
        if own:
            await self._go(lambda transition: transition.number >= own[-1].number)
        self._recorded = failure["error"], True

    async def _go(self, stop: Stop) -> None:
        await self.run.go(stop)
        if len(self.run.transitions) >= len(self.rail):
            self.rail = list(self.run.transitions)

    def _check_open(self) -> None:
        if self._is_closed:
            raise UnknownSession(f"the session {self.name!r} was closed in the middle of this; nothing was changed by it")

    async def _anew(self) -> None:
        """Begin to think the mission again, with all changes."""
        self._check_open()
        if hasattr(self, "run"):
            await self.run.close()
        if self.is_changed:
            self.rail = []
        self.is_changed, self._recorded, self._touched = False, None, False
        self.runs, self._runs_so_far = [], 0
        self.stage.services.methods.trace = self._ran
        self.source = SteppedSource(self.id, self.stage.image, self._inference, self.memory, self.settings.inference.deadline_s)
        attempt = Attempt(self._record(), self.stage.services, self.source, REPLAYED)
        attempt.recall()
        attempt.earlier = attempt.earlier and bool(self.source.unused)  # what the session has paid for is of this version
        for key, changes in self._amended().items():
            attempt.decisions.amended.setdefault(key, []).extend(changes)
        self.run = SteppedRun(self.stage.image, attempt)
        await self.run.enter()
        if len(self.rail) < 1:
            self.rail = list(self.run.transitions)

    _recorded: tuple[dict[str, Any], bool] | None = None

    # --- changing

    async def edit(self, kind: str, target: str, value: Any, *, remove: bool = False) -> None:
        """Change something. It shows in what is thought from now on: the next `go` thinks the mission again.

        :raises InvalidInput: (or another BatosError) if the change is refused; nothing is changed then.
        """
        if len(self.edits) >= self.limits.edits:
            raise InvalidInput(f"a session has at most {self.limits.edits} changes; continue the mission, or drop some")
        step_edits.check_size(value)
        if remove and kind != "slot":
            raise InvalidInput("only a slot can be removed")
        number = self.edits[-1].number + 1 if self.edits else 1
        if kind in step_edits.OF_IMAGE:
            made = StepEdit(number, kind, target, value, remove, self.stage.image.read(step_edits.value_at, kind, target))
            await self._apply(made)
        else:
            made = self._of_thought(number, kind, target, value)
        self.edits.append(made)
        if made.kind == "answer":
            key, occurrence = json.loads(made.about)
            self.memory.edited[bytes.fromhex(key), occurrence] = value
            self.memory.answered[bytes.fromhex(key), occurrence] = self.inference(int(target))
        self.is_changed = True

    async def drop(self, number: int) -> None:
        """Take a change back.

        :raises InvalidInput: if there is none of that number.
        """
        if all(one.number != number for one in self.edits):
            raise InvalidInput(f"there is no change {number}; there are: {', '.join(str(one.number) for one in self.edits) or 'none'}")
        await self.run.close()
        await self._life.aclose()
        self._life = contextlib.AsyncExitStack()
        self.edits = [one for one in self.edits if one.number != number]
        self.memory.edited = {
            (bytes.fromhex(key), occurrence): one.value
            for one in self.edits
            if one.kind == "answer"
            for key, occurrence in [json.loads(one.about)]
        }
        self.is_changed, self.rail = True, []
        await self._enter()
        for place, one in enumerate(self.edits):
            if one.kind in step_edits.OF_IMAGE:
                # what was dropped may have been of the same place: then the value before is another one
                self.edits[place] = one._replace(before=self.stage.image.read(step_edits.value_at, one.kind, one.target))
                await self._apply(one)

    async def ahead(self) -> StepSession:
        """Return a session of the same mission with the same changes in the image as it is now, at its end; the caller closes it.

        :raises BatosError: if a change cannot be made there.
        """
        twin = await StepSession.open(f"{self.name} now", self.image, self.mission._replace(moment=NOW, fresh=frozenset()), self._parts)
        try:
            for one in self.edits:
                if one.kind in step_edits.OF_IMAGE:
                    await twin._apply(one)
            twin.edits = list(self.edits)
            twin.memory.paid, twin.memory.edited = list(self.memory.paid), dict(self.memory.edited)
            twin.is_changed = True
            await twin.go(END)
        except BaseException:
            await twin.close()
            raise
        return twin

    async def _apply(self, edit: StepEdit) -> None:
        async with self.stage.image.unit() as unit:
            try:
                step_edits.apply_edit(unit.root, edit, self.ground, f"step:{self.id}")
            except BaseException:
                unit.doom()
                raise

    def _of_thought(self, number: int, kind: str, target: str, value: Any) -> StepEdit:
        if kind == "cycle":
            cycle = self.run.cycles[self.run.standing]
            if cycle is None:
                raise InvalidInput("there is no cycle here: go on to a state first")
            step_edits.check_cycle_slot(cycle, target)
            place = json.dumps([self.standing.cycle, self.standing.after])
            return StepEdit(number, kind, target, value, False, history.uncut(cycle._slots.get(target)), place)
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"the new {kind} is a text that is not blank")
        if kind == "answer":
            asked = self.source.asked
            if not target.isdecimal() or not 1 <= int(target) <= len(asked):
                raise InvalidInput(f"there is no inference {target!r} up to here; there are {len(asked)}")
            one = asked[int(target) - 1]
            about = json.dumps([one.place.key.hex(), one.place.occurrence])
            return StepEdit(number, kind, target, value, False, one.answer.text if one.answer else None, about)
        question = self.question
        if question is None:
            raise InvalidInput("the mission does not wait for a reply here")
        about = json.dumps({name: question.get(name) for name in ("question", "occurrence", "grant") if question.get(name) is not None})
        return StepEdit(number, kind, str(question["number"]), value, False, None, about)

    def _record(self) -> MissionRecord:
        """Return the mission's record with the answers that the session's user gave to its questions."""
        record = dataclasses.replace(self.mission.record, resumed=True)
        for edit in self.edits:
            if edit.kind == "reply":
                number = int(edit.target)
                asked = [{**one, "answer": edit.value} if one["number"] == number else one for one in record.questions]
                if number == len(asked) + 1 and edit.about:
                    asked.append({**json.loads(edit.about), "number": number, "answer": edit.value, "asked": time.time()})
                record = dataclasses.replace(record, questions=asked)  # type: ignore[arg-type]
        return record

    def _amended(self) -> dict[tuple[str, int], list[tuple[str, str]]]:
        found: dict[tuple[str, int], list[tuple[str, str]]] = {}
        for edit in self.edits:
            if edit.kind == "cycle":
                cycle, after = json.loads(edit.about)
                found.setdefault((cycle, after), []).append((edit.target, json.dumps(edit.value)))
        return found


def method_mission(root: Root, target: str, selector: str, args: list[Any], kwargs: dict[str, Any]) -> SteppedMission:
    """Return a mission that is only stepped through: one message to an object of the image as it is now. No mission of the image has its
    id."""
    message = json.dumps({"target": target, "selector": selector, "args": args, "kwargs": kwargs})
    ids = itertools.chain([f"step-{selector}"], (f"step-{selector}-{number}" for number in itertools.count(2)))
    id = next(one for one in ids if not ledger.is_known(root, one))
    record = MissionRecord(id=id, brief=f"send {target} {selector}", accepted=time.time(), number=0, message=message)
    return SteppedMission(record, None, False, NOW, frozenset())
