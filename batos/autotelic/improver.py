"""Improver: each proposal is rehearsed once, then made or refused, one at a time, while users do not need the system.

mission COMPLETE with a proposal ─ recorded ─ prepared ─ rehearsed ─ promoted, in one annotated transaction
                                                                  └ refused, with the reason and the figures

Its state is in the image. After a kill, proposals of missions that ended are found again, and a rehearsal begins anew with the inferences
that it has paid for. A promotion is one commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog
from transaction.interfaces import TransientError

from batos.autotelic import change_types, changes, rehearsal_budget
from batos.autotelic.audit import Audits, proposal_of, unrecorded
from batos.autotelic.change_preparation import NotYet, Preparation
from batos.autotelic.change_types import STANDING, Ground
from batos.autotelic.changes import PREPARED, ChangeLimits, Proposal
from batos.autotelic.rehearsal import Rehearsals
from batos.autotelic.rehearsal_budget import RehearsalLimits, RehearsalPayments, WorkTime
from batos.autotelic.telemetry import SensesLimits
from batos.bridge.inference import Inference
from batos.concurrency import in_helper
from batos.errors import BatosError, Conflicted, InvalidInput, MissionCancelled
from batos.image import journal, ledger
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.missions.mission_queue import AttemptLimits
from batos.missions.purse import Allowance, Purse
from batos.objects import Root

log = structlog.get_logger("batos.autotelic")

OWN_WAY_BACK = "it changes no way of thinking, and has its own way back"
"""Reason why the loop does not watch a change that it does not rehearse."""
AFTER = "after"
"""Key in a comparison: the number of the last earlier change."""


class ImproverBudget(Protocol):
    """`budget.Budget`, as the improver needs it."""

    async def why_not(self) -> str:
        """Return the reason why the loop may not think now; empty if it may."""

    async def why_no_change(self) -> str:
        """Return the reason why the loop may not change anything now; empty if it may."""

    def paid(self, inference: journal.InferenceRecord) -> None:
        """Count an inference that the loop paid for outside of its missions."""


@dataclass(frozen=True)
class ImproverParts:
    """The parts that check, rehearse, prepare and make a proposed change."""

    ground: Ground
    audits: Audits
    rehearsals: Rehearsals
    preparations: Mapping[str, Preparation] = field(default_factory=dict)
    """Kind of change -> its preparation."""
    curate: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
    """Runs the memory's curator and returns its work as a JSON object; None: the curator is off."""


class Improver:
    """Rehearses proposals, and makes the good ones. All methods are called on the loop's thread; `await run()` until cancelled."""

    def __init__(
        self,
        image: LivingImage,
        inference: Inference,
        leash: ImproverBudget,
        parts: ImproverParts,
        *,
        quiet: Callable[[], Awaitable[None]],
    ) -> None:
        """
        :param inference: answers what a rehearsal asks; the budget of a rehearsal bounds it.
        :param quiet: returns when no mission is under way or waits.
        """
        self._image, self._inference, self._leash, self.quiet = image, inference, leash, quiet
        self._ground, self.audits, self._rehearsals = parts.ground, parts.audits, parts.rehearsals
        self.preparations, self._curate = parts.preparations, parts.curate
        self._settings = parts.ground.settings
        self._failed: set[str] = set()  # missions of the loop for which no rule had a proposal
        self._came = asyncio.Event()
        self._came.set()

    def wake(self) -> None:
        """Look at the proposals soon: a mission of the loop's own has ended."""
        self._came.set()

    async def run(self) -> None:
        """Process proposals until cancelled."""
        tidy = False
        while True:
            with contextlib.suppress(TimeoutError):  # with a timeout: a watch may end, or a new day begin, and waiting proposals may go on
                async with asyncio.timeout(SensesLimits.of(self._settings).every_s):
                    await self._came.wait()
            self._came.clear()
            try:
                if not tidy:  # a kill may have come between a decision and this clean-up
                    await self._image.system(rehearsal_budget.forget_payments)
                    tidy = True
                while await self.step():
                    pass
            except (BatosError, OSError) as e:
                log.warning("proposals_not_looked_at", error=str(e))

    async def step(self) -> bool:
        """Take one step with one proposal. Return True if there was one.

        :raises BatosError: if that could not be done now; it is tried again at the next look.
        """
        await self.record()
        observe = self._settings.autonomy.mode == "observe"
        change = self._image.read(_next, observe, self.preparations.keys() if observe else ())
        if change is None or await self._leash.why_not():
            return False
        await self.quiet()
        proposal = Proposal.from_json(change)
        if not change["comparison"].keys() - {PREPARED}:
            return await self._try(change, proposal)
        if change["comparison"].get("reason"):
            await self._refuse(change, change["comparison"]["reason"], change["comparison"])
            return True
        return await self._promote(change, proposal)

    async def record(self) -> None:
        """Record what missions of the loop's own have proposed since; each proposal once."""
        if found := await in_helper(self._image.read, self._new):
            await self._image.system(_take, found, ChangeLimits.of(self._settings).kept)

    def _new(self, root: Root) -> list[tuple[str, dict[str, Any]]]:
        """Return the proposals of the last missions of the loop's own that have ended and that no change records, oldest first."""
        last = unrecorded(root)
        self._failed &= {one.id for one in last}
        found = [(one.id, proposal) for one in last if (proposal := self._proposed(root, one))]
        return found[::-1]

    def _proposed(self, root: Root, mission: MissionRecord) -> dict[str, Any] | None:
        if mission.state == ledger.FAILED and (mission.error or {})["code"] != MissionCancelled.code:
            if mission.id in self._failed:
                return None
            self._failed.add(mission.id)
            return self.audits.by_rule(root, mission.id)
        return proposal_of(mission)

    async def _try(self, change: dict[str, Any], proposal: Proposal) -> bool:
        """Rehearse a change, and store the outcome. Return False if it has to wait."""
        number = change["number"]
        if await self._image.system(rehearsal_budget.begin_rehearsal, number, RehearsalLimits.of(self._settings).tries) is None:
            await self._refuse(change, f"its rehearsal was begun {RehearsalLimits.of(self._settings).tries} times and never ended", {})
            return True
        try:
            standing, made = self._image.read(self._stands, proposal)
            prepared = await self._prepared(number, proposal)
            proposal = self._made(proposal, prepared)
            found = await self._compared(change, proposal) if change_types.KINDS[proposal.kind].rehearsed else {"reason": ""}
        except asyncio.CancelledError:
            self._image.later(rehearsal_budget.take_back_rehearsal, number)
            raise
        except NotYet as e:
            log.info("change_waits", change=number, why=str(e))
            await self._image.system(rehearsal_budget.take_back_rehearsal, number)
            return False
        except TimeoutError:  # the next step continues with the inferences that are paid for, as often as the limit of tries allows
            log.warning("rehearsal_too_long", change=number, seconds=RehearsalLimits.of(self._settings).limit_s)
        except BatosError as e:
            await self._refuse(change, e.message, {})
        else:
            await self._image.system(changes.rehearsed, number, {**prepared, **found, STANDING: standing, AFTER: made})
            log.info("rehearsed", change=number, why=found["reason"] or "good")
        return True

    def _made(self, proposal: Proposal, comparison: Mapping[str, Any]) -> Proposal:
        """Return the proposal with what was prepared for it."""
        preparation = self.preparations.get(proposal.kind)
        return proposal if preparation is None else preparation.made(proposal, comparison[PREPARED])

    async def _prepared(self, number: int, proposal: Proposal) -> dict[str, Any]:
        """Prepare what a trial of the change needs. Return the preparations for the record."""
        if (preparation := self.preparations.get(proposal.kind)) is None:
            return {}

        async def keep(facts: dict[str, Any]) -> None:
            await self._image.system(changes.rehearsed, number, {PREPARED: facts})

        return {PREPARED: await preparation.prepare(number, proposal, self._image.read(_held, number), keep)}

    def _stands(self, root: Root, proposal: Proposal) -> tuple[str, str]:
        """Return the value at the target, and the last change.

        :raises BatosError: if the proposal makes no sense any more.
        """
        change_types.check(root, proposal, self._ground)
        return change_types.standing(root, proposal), last_change(root)

    async def _compared(self, change: dict[str, Any], proposal: Proposal) -> dict[str, Any]:
        settings, limits = self._settings, RehearsalLimits.of(self._settings)
        allowance = Allowance(limits.inferences, limits.tokens, settings.inference.deadline_s)
        time = WorkTime(limits.limit_s)

        async def quiet() -> None:
            with time.waiting():
                await self.quiet()

        payments = RehearsalPayments(self._image, change["number"])
        spent = Purse(self._inference, payments, allowance, quiet=quiet, on_paid=self._leash.paid)
        async with time.limit():
            found = await self._rehearsals.of(proposal, change["mission"], change["evidence"].get("key", ""), spent)
        return {**found.to_json(), "reason": found.reason, "paid": {"inferences": spent.inferences, "tokens": spent.tokens}}

    async def _promote(self, change: dict[str, Any], proposal: Proposal) -> bool:
        """Make a change that its rehearsal found good, in one transaction; return whether it is decided now."""
        number, comparison = change["number"], change["comparison"]
        proposal = self._made(proposal, comparison)
        if self._image.read(changes.watched) is not None:
            return False
        if why := await self._leash.why_no_change():
            log.info("change_waits", change=number, why=why)
            return False
        if proposal.kind == "curate" and self._curate is not None:
            try:
                comparison = {**comparison, "curated": dict(await self._curate())}
            except BatosError as e:
                await self._refuse(change, e.message, comparison)
                return True
        for _ in range(AttemptLimits.of(self._settings).conflict_retries + 1):
            try:
                async with self._image.unit() as unit:
                    if changes.watched(unit.root) is not None:
                        unit.doom()
                        return False
                    if last_change(unit.root) != comparison[AFTER]:
                        unit.doom()
                        break
                    try:
                        if change_types.standing(unit.root, proposal) != comparison[STANDING]:
                            raise InvalidInput(f"{proposal.target} was changed since this was tried")
                        change_types.apply(unit.root, proposal, self._ground, changes.name_of(number))
                        changes.promote(unit.root, number, comparison)
                        if not change_types.KINDS[proposal.kind].rehearsed:
                            changes.keep(unit.root, number, OWN_WAY_BACK, {})
                    except BaseException:
                        unit.doom()
                        raise
                    unit.note(changes.name_of(number), f"{changes.NOTE}: {proposal.kind} {proposal.target}: {proposal.why}")
            except TransientError as e:
                log.info("change_conflict", change=number, error=str(e)[:200])
            except BatosError as e:
                await self._refuse(change, e.message, comparison)
                return True
            else:
                log.info("promoted", change=number, kind=proposal.kind, target=proposal.target)
                await self._image.system(rehearsal_budget.forget_payments)
                return True
        else:
            raise Conflicted(f"change {number} met conflicts too often; it is tried again")
        log.info("rehearsed_again", change=number, why="another change was made since it was tried")
        await self._image.system(_again, number)
        return True

    async def _refuse(self, change: dict[str, Any], why: str, comparison: Mapping[str, Any]) -> None:
        held = self._image.read(_held, change["number"])
        if (preparation := self.preparations.get(change["kind"])) is not None:
            try:  # before the refusal is recorded: after a kill between the two, the clean-up runs again
                await preparation.clear(held)
            except BatosError as e:
                log.warning("not_cleared", change=change["number"], what=held, error=e.message)
        if self._image.read(changes.of, change["number"])["state"] != changes.PROPOSED:
            return  # the user has refused it just now
        await self._image.system(_refused, change["number"], why, {**({PREPARED: held} if held else {}), **comparison})
        log.info("refused", change=change["number"], kind=change["kind"], target=change["target"], why=why)


def _take(root: Root, found: Sequence[tuple[str, dict[str, Any]]], limit: int) -> None:
    """System transaction: record proposals, each with its mission. A repetition records none twice."""
    known = {one.mission for one in changes.newest_first(root)}
    for mission, told in found:
        if mission not in known:
            changes.propose(root, Proposal.from_json(told), told["evidence"], mission, source=told["source"], limit=limit)


def _next(root: Root, observe: bool, left: Collection[str]) -> dict[str, Any] | None:
    """Return the oldest proposal that can be taken on.

    :param observe: True: a change that passed its rehearsal stays proposed.
    :param left: kinds that stay proposed as they are.
    """
    open_ones = [
        one
        for one in changes.listed(root, state=changes.PROPOSED)
        if one["kind"] in change_types.KINDS and one["kind"] not in left and (not observe or one["comparison"].get("reason", "-"))
    ]
    return open_ones[-1] if open_ones else None


def last_change(root: Root) -> str:
    """Return the number of the last change in the image: a rehearsal is on top of it."""
    kinds = (*change_types.KINDS, changes.COMPARED)
    made = (one for one in changes.newest_first(root) if one.state in (changes.PROMOTED, changes.KEPT) and one.kind in kinds)
    return " ".join(str(one.number) for one in itertools.islice(made, 1))


def _held(root: Root, number: int) -> dict[str, Any]:
    """Return the preparations of a change."""
    return dict(changes.of(root, number)["comparison"].get(PREPARED, {}))


def _again(root: Root, number: int) -> None:
    """System transaction: mark a proposal for another rehearsal; inferences that are paid for stay."""
    held = _held(root, number)
    changes.rehearsed(root, number, {PREPARED: held} if held else {})
    rehearsal_budget.take_back_rehearsal(root, number)


def _refused(root: Root, number: int, why: str, comparison: Mapping[str, Any]) -> None:
    """System transaction: refuse the proposal, and release the inferences paid for it."""
    changes.refuse(root, number, why, comparison)
    rehearsal_budget.forget_payments(root)
