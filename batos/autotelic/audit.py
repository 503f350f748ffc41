"""The Cognitive Efficiency Audit: a mission of the loop ends with one proposal.

A model is asked only if a trigger has fired, its model is fit to judge, and it was not asked lately. Otherwise a rule answers the mission,
which then costs no inference (`Audits.ruled`). The persona that thought the mission through is asked for a proposal, as JSON of a schema.
Its inferences belong to the mission, and so to the mission's journal. If its proposal makes no sense, or its last one for the same trouble
did no good, a proposal follows from the measurements.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from batos.autotelic import change_types, changes, schema
from batos.autotelic.change_types import Ground
from batos.autotelic.changes import Proposal, Proposed
from batos.autotelic.rule_proposals import may_be_trained, remedies
from batos.autotelic.trigger_missions import Fired
from batos.autotelic.writer_evaluation import KIND
from batos.config import MIB
from batos.config.limits import Limits, limit
from batos.errors import BatosError, InferenceFailed
from batos.image import history, ledger
from batos.image.mission_record import MissionRecord
from batos.mind import plans
from batos.mind.attempt import current
from batos.mind.incarnation import facets, system_message
from batos.mind.psm import asker_of
from batos.objects import Method, Root, UvmObject

log = structlog.get_logger("batos.autotelic")

AUDIT, IMPROVEMENT = "self_audit-", "self_improvement-"
"""Prefixes of the ids of the loop's missions."""
PROMPT = (
    "$measured\n\nYou thought about it: $thought\n\nName one change of this system that would help. Kinds of changes:\n$kinds\n\n"
    "What there is:\n$there\n\nAnswer with a JSON object with the keys kind, target, content and why."
)
AGAIN = "\n\nYour proposal of the kind $kind for $target was refused: $fault. Propose another."
REPAIRS = 1  # further tries after a proposal of the right form that makes no sense
METHODS = 8  # greatest number of methods in a prompt
_SHOWN = 100  # greatest number of characters of a text in a prompt
_THOUGHT = 800  # greatest number of characters of the model's thought in a prompt
UNRECORDED = 64  # number of the newest missions that may have proposals without a recorded change, also after a kill; fewer are under way
_LOOKED_AT = 256  # greatest number of missions that are looked at


@dataclass(frozen=True, slots=True)
class SelfAuditLimits(Limits):
    """Limits of a self-audit."""

    window_s: float = limit(86_400.0, ge=1, le=366 * 86400)
    """Seconds of telemetry in the brief of a self-audit."""
    keys: int = limit(3, ge=1, le=100)
    """Number of rows of each table of telemetry in the brief of a self-audit, the most frequent."""
    missions: int = limit(8, ge=1, le=1_000_000)
    """Number of users' missions after which an audit asks a model about an open finding again."""
    records: int = limit(500, ge=1, le=100_000)
    """Number of records of the image that one self-audit checks for damage."""
    bytes: int = limit(8 * MIB, ge=1024, le=1024 * MIB)
    """Bytes of the image's file that one self-audit checks for damage."""


class Cause(NamedTuple):
    """Why a proposal is asked for."""

    trigger: str
    key: str
    words: str


async def _fit(model: str) -> str:
    """Return the reason why a model is not fit to judge; this default returns none."""
    return ""


class Audits:
    """Asks for proposals. `await ruled(...)` before a mission is thought through, `await propose(...)` at its end, inside its attempt."""

    def __init__(self, ground: Ground, why_unfit: Callable[[str], Awaitable[str]] = _fit) -> None:
        """:param why_unfit: why a model, by its name, is not fit to judge the system; empty if it is."""
        self._ground, self.why_unfit = ground, why_unfit

    async def ruled(self, root: Root, mission: UvmObject, persona: UvmObject) -> dict[str, Any] | None:
        """Return the result of a mission of the loop's own that no model is to be asked about. It has `text`, and `proposal` where one
        follows from the measurements. None for other missions, and where a model is to think it through.
        """
        if not mission.id.startswith((AUDIT, IMPROVEMENT)):
            return None
        causes, attempt, unfit = _causes(root, str(mission.id)), current(), ""
        for cause, source in self._ways(root, causes):
            if source == changes.MEASUREMENT and (found := self._measured(root, cause)) is not None:
                log.info("proposed", mission=mission.id, kind=found.kind, target=found.target, source=source)
                words = f"{_measured(causes)} What follows by rule: {found.kind} {found.target}, since {found.why}"
                return {"text": f"{words}{unfit}", "proposal": self._told(found, source, cause)}
            if source == changes.MODEL and not unfit and self._may_ask(root, mission):
                if not (why := await self.why_unfit(attempt.model_of(attempt.voice_of(persona)))):
                    return None
                unfit = f" No model was asked: {why}."
        return {"text": f"{_measured(causes)}{' Nothing follows from that by rule.' if causes else ''}{unfit}"}

    def _may_ask(self, root: Root, mission: UvmObject) -> bool:
        every = SelfAuditLimits.of(self._ground.settings).missions
        return mission.id.startswith(IMPROVEMENT) or _accepted_since(root, _last_asked(root)) >= every

    async def propose(self, root: Root, mission: UvmObject, cycle: UvmObject) -> dict[str, Any]:
        """Return the proposal of a mission of the loop, for its result: `proposal`, with its `source` and `evidence`.

        It is None if a model was asked in vain, and missing if nothing is to be done.

        :raises InferenceFailed: if the service failed; the mission is tried again.
        """
        if not mission.id.startswith((AUDIT, IMPROVEMENT)):
            return {}
        may_ask, causes = self._may_ask(root, mission), _causes(root, str(mission.id))
        asked = False
        for cause, source in self._ways(root, causes):
            if source == changes.MODEL and (asked or not may_ask):
                continue
            asked = asked or source == changes.MODEL
            found = self._measured(root, cause) if source == changes.MEASUREMENT else await self._asked(root, cause, mission, cycle)
            if found is not None:
                log.info("proposed", mission=mission.id, kind=found.kind, target=found.target, source=source)
                return {"proposal": self._told(found, source, cause)}
        return {"proposal": None} if asked else {}

    def by_rule(self, root: Root, mission: str) -> dict[str, Any] | None:
        """Return a proposal from the measurements, in the form of `propose`, for a mission of the loop that FAILED; None if none follows.

        So a model that cannot think the mission through does not stop the loop.
        """
        for cause in _causes(root, mission):
            if (found := self._measured(root, cause)) is not None:
                return self._told(found, changes.MEASUREMENT, cause)
        return None

    def _told(self, proposal: Proposal, source: str, cause: Cause) -> dict[str, Any]:
        evidence = cause._asdict()
        if may_be_trained(cause.trigger, cause.key) and proposal.kind != KIND and (why := self._ground.trains()):
            evidence["training"] = f"not proposed: {why}"
        return {**proposal.to_json(), "source": source, "evidence": evidence}

    def _ways(self, root: Root, causes: Sequence[Cause]) -> Iterator[tuple[Cause, str]]:
        """Yield the possible sources of a proposal in order: all for the first cause, the measurement for the others."""
        for n, cause in enumerate(causes):
            for source in self._sources(root, cause):
                if n == 0 or source == changes.MEASUREMENT:
                    yield cause, source

    def _sources(self, root: Root, cause: Cause) -> tuple[str, ...]:
        """Return the sources of proposals in order. The model is not the first one if its last proposal for the same cause failed."""
        last = next((one for one in changes.listed(root) if _is_of(one, cause)), None)
        failed = last is not None and last["source"] == changes.MODEL and last["state"] in changes.LESSONS
        return (changes.MEASUREMENT, changes.MODEL) if failed else (changes.MODEL, changes.MEASUREMENT)

    def _measured(self, root: Root, cause: Cause) -> Proposal | None:
        return next((one for one in remedies(root, cause.trigger, cause.key, self._ground) if not self.fault_of(root, one, cause)), None)

    async def _asked(self, root: Root, cause: Cause, mission: UvmObject, cycle: UvmObject) -> Proposal | None:
        attempt, speaker = current(), cycle.persona
        asked = self._prompt(root, cause.words, str(cycle._slots.get("answer", "")))
        prompt = asked
        for left in range(REPAIRS, -1, -1):
            try:
                found = await attempt.structured(
                    attempt.voice_of(speaker),
                    system_message(speaker),
                    prompt,
                    Proposed,
                    part="proposal",
                    by=asker_of(cycle),
                    temperature=0.3,
                )
            except InferenceFailed as e:
                if not e.context.get("raw"):  # the service failed; the form of the answers is not the reason
                    raise
                return None
            proposal = found.value.proposal()
            if not (fault := self.fault_of(root, proposal, cause)):
                return proposal
            log.info("proposal_makes_no_sense", kind=proposal.kind, target=proposal.target, why=fault, left=left)
            prompt = asked + plans.fill(AGAIN, kind=proposal.kind, target=proposal.target, fault=fault)
        return None

    def _prompt(self, root: Root, measured: str, thought: str) -> str:
        told = "\n".join(f"- {name}: {kind.says}" for name, kind in change_types.KINDS.items())
        there = changeable(root)
        if models := self._ground.settings.autonomy.models:
            there.append(f"- models that a persona may be given: {', '.join(models)}")
        return plans.fill(PROMPT, measured=measured, thought=thought[:_THOUGHT], kinds=told, there="\n".join(there))

    def fault_of(self, root: Root, proposal: Proposal, cause: Cause) -> str:
        """Return the reason why a proposal is refused; empty if it is not."""
        try:
            change_types.check(root, proposal, self._ground)
        except BatosError as e:
            return e.message
        digest = changes.digest_of(proposal)
        same = (changes.described(one) for one in changes.newest_first(root) if one.digest == digest)
        before = next((one for one in same if not _is_another(root, one, proposal, cause)), None)
        if before is None or before["state"] == changes.KEPT or self._may_be_judged_now(root, before):
            return ""
        return f"it was proposed before and is {before['state']}{' ({})'.format(before['reason']) if before['reason'] else ''}"

    def _may_be_judged_now(self, root: Root, before: dict[str, Any]) -> bool:
        """Return True if a change was refused for want of missions to try it on, and there are more by now."""
        found = before["comparison"]
        tried = found.get("missions", 0) + found.get("trials", 0)
        few = before["state"] == changes.REFUSED and "missions" in found and tried < found["least"]
        return few and _accepted_since(root, before["decided"]) >= SelfAuditLimits.of(self._ground.settings).missions


def _measured(causes: Sequence[Cause]) -> str:
    """Describe an open finding in words."""
    return (
        f"Triggers in force: {' '.join(cause.words for cause in causes)}"
        if causes
        else "No trigger is in force: nothing calls for a change."
    )


def _causes(root: Root, mission: str) -> list[Cause]:
    """Return the troubles that a mission is to do something about, but for those about which a change is under way.

    An improvement has its trigger, unless that has recovered. An audit has those that have not, once their own missions have ended; the
    one first about which nothing was proposed for longest.
    """
    fired = [Fired(*row) for row in schema.part_of(root, "triggers").fired.values()]
    if mission.startswith(IMPROVEMENT):
        found = [one for one in fired if one.mission == mission]
    else:
        tried = {(one["evidence"].get("trigger"), one["evidence"].get("key")): one["number"] for one in reversed(changes.listed(root))}
        found = [one for one in fired if schema.is_known_mission(root, one.mission) and not schema.is_pending_mission(root, one.mission)]
        found.sort(key=lambda one: (tried.get((one.trigger, one.key), 0), one.at))
    busy = _under_way(root)
    return [Cause(one.trigger, one.key, one.words) for one in found if (one.trigger, one.key) not in busy]


def unrecorded(root: Root) -> list[MissionRecord]:
    """Return the last missions of the loop's own that no change records, as `ledger.describe` tells of them, the newest first."""
    known, since = {one.mission for one in changes.newest_first(root)}, changes.whole_since(root)
    own = (one for one in itertools.islice(ledger.newest_first(root), UNRECORDED) if one.origin == "system")
    new = (one for one in own if one.id.startswith((AUDIT, IMPROVEMENT)) and one.id not in known)
    return [ledger.describe(one) for one in new if one.finished is None or one.finished > since]


def proposal_of(mission: MissionRecord) -> dict[str, Any] | None:
    """Return the proposal in a mission's record (`ledger.describe`); None if there is none, or the mission was undone."""
    return (mission.result or {}).get("proposal") if mission.undone is None else None


def _under_way(root: Root) -> set[tuple[str, str]]:
    """Return the troubles about which a change is proposed, if only by a mission that has just ended, or made and watched."""
    found = [one["evidence"] for one in changes.listed(root) if one["state"] in (changes.PROPOSED, changes.PROMOTED)]
    found += [proposal["evidence"] for one in unrecorded(root) if (proposal := proposal_of(one)) is not None]
    return {(evidence.get("trigger", ""), evidence.get("key", "")) for evidence in found}


def _last_asked(root: Root) -> float:
    """Return the time when the loop's last mission was accepted that asked a model for a proposal."""
    for mission in itertools.islice(ledger.newest_first(root), _LOOKED_AT):
        own = mission.origin == "system" and mission.id.startswith((AUDIT, IMPROVEMENT)) and mission.state == ledger.COMPLETE
        result = (ledger.describe(mission).result or {}) if own else {}
        if "proposal" in result and not result.get("by_rule"):
            return float(mission.accepted)
    return 0.0


def _accepted_since(root: Root, at: float) -> int:
    """Return the number of users' missions accepted since a time."""
    missions = itertools.islice(ledger.newest_first(root), _LOOKED_AT)
    return sum(one.origin != "system" for one in itertools.takewhile(lambda one: one.accepted > at, missions))


def _is_of(change: dict[str, Any], cause: Cause) -> bool:
    return (change["evidence"].get("trigger"), change["evidence"].get("key")) == (cause.trigger, cause.key)


def _is_another(root: Root, before: dict[str, Any], proposal: Proposal, cause: Cause) -> bool:
    """Return True if a refused change would have retired something else at that place, or for another cause; its content does not tell."""
    if proposal.kind != "retire" or before["state"] != changes.REFUSED:
        return False
    stood = before["comparison"].get(change_types.STANDING)
    return before["evidence"].get("trigger") != cause.trigger or (stood is not None and stood != change_types.standing(root, proposal))


def changeable(root: Root) -> list[str]:
    """Return in words the parts that could be changed: personas with their facets, states with their prompts, some methods."""
    lobby = root["lobby"]
    lines = []
    for name in lobby.personas:
        persona = lobby._slots.get(name)
        if isinstance(persona, UvmObject):
            own = ", ".join(f"{name}.{selector} ({_short(intent)})" for selector, intent in facets(persona) if selector in persona._slots)
            lines.append(f"- the persona {name}: {own}")
    for name in change_types.prompted():
        lines.append(f"- psm.{name}: {_short(lobby.psm._slots[name].meta_prompt)}")
    for holder, selector in itertools.islice(_methods(root), METHODS):
        lines.append(f"- the method {history.oid_of(holder)}.{selector}")
    return lines


def _methods(root: Root) -> Iterator[tuple[UvmObject, str]]:
    for key in schema.part_of(root, "usage").methods:
        oid, _, selector = key.partition(" ")
        try:
            holder = history.resolve(root, oid)
        except BatosError:  # the object is gone
            continue
        if isinstance(holder._slots.get(selector), Method):
            yield holder, selector


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"
