"""Selection of recorded missions for a rehearsal: those that the change concerns first, of these the rated ones, then the newest."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from batos.autotelic import writer_evaluation
from batos.autotelic.change_types import exemplars_of
from batos.autotelic.changes import Proposal
from batos.errors import BatosError, CovenantViolationError, MethodFailed, MethodRefused, MethodUnsupported, SandboxLimit
from batos.image import history, journal, ledger
from batos.methods.runtime import taken
from batos.objects import Method, Root, UvmObject, find

LOOKED_AT = 256  # greatest number of missions that are looked at, the newest first
REFUSED = (MethodRefused.code, CovenantViolationError.code)
"""Error codes of missions for which the forge could keep no method."""
FAULTS = (MethodFailed.code, MethodUnsupported.code, SandboxLimit.code)
"""Error codes of missions that failed by a defect of a method, and not of its arguments or surroundings."""
_NOT_TRIED = ("cancelled", "deadline", "attempts_exhausted", "conflict", "model_blind")
"""Error codes of missions that say nothing about their thought."""


def chosen(root: Root, proposal: Proposal, key: str, count: int) -> list[str]:
    """Return the ids of the missions that a change is tried on, oldest first.

    :param key: what the trigger was measured on (`triggers.Measurement`): of a way to fail, missions that failed so go first.
    """
    found = [mission for mission in itertools.islice(ledger.newest_first(root), LOOKED_AT) if can_be_tried(mission)]
    if proposal.kind == "retire":  # a failed call that no method has to answer does not count against the present method
        found = [mission for mission in found if not was_not_taken(root, mission)]
    if proposal.kind == writer_evaluation.KIND:
        found = [mission for mission in found if _concern(mission, proposal, key) > 0]
    found.sort(key=lambda mission: (-_concern(mission, proposal, key), mission.rating is None, -mission.number))
    return [str(mission.id) for mission in sorted(found[:count], key=lambda mission: mission.number)]


def can_be_tried(mission: UvmObject) -> bool:
    """Return a user's mission that was thought through and has ended, of which the journal still has the texts."""
    if mission.origin == "system" or mission.state not in ledger.FINAL or mission.undone is not None or journal.of(mission).spent:
        return False
    if mission.thought is None and mission.state == ledger.COMPLETE and not mission.message:  # an errand: no model thought about it
        return False
    if mission.message and str(json.loads(mission.message)["target"]).split(".")[0] == "autotelic":  # a message to the loop itself
        return False
    return mission.error is None or json.loads(mission.error)["code"] not in _NOT_TRIED


def was_not_taken(root: Root, mission: UvmObject) -> bool:
    """Return True if the mission failed because the caller passed invalid arguments: that is not the method's fault."""
    failed = bool(mission.error and mission.message) and json.loads(mission.error)["code"] in FAULTS
    return failed and not is_taken(root, json.loads(mission.message))


def is_taken(root: Root, message: Mapping[str, Any]) -> bool:
    """Return True if the method that answers a message accepts its arguments, or no method answers it."""
    try:
        target = history.resolve(root, message["target"])
    except BatosError:  # the object is gone
        return True
    held = find(target, message["selector"])
    if held is None or not isinstance(held[1], Method):
        return True
    return taken(target, held[0], held[1], message["args"], message["kwargs"])


def _concern(mission: UvmObject, proposal: Proposal, key: str) -> int:
    """Return how much a change concerns a mission."""
    if proposal.kind == writer_evaluation.KIND:  # missions for which the expert could write no method
        return 1 if mission.message and mission.error and json.loads(mission.error)["code"] in REFUSED else -1
    if mission.message:
        message = json.loads(mission.message)
        concerned = message["selector"] == proposal.target.rpartition(".")[2]
        return (2 if concerned else -1) + (mission.error is not None and concerned)
    if proposal.kind == "exemplar":
        return 1 if " ".join(str(mission.brief).split()) in exemplars_of(proposal) else 0
    failed = json.loads(mission.error)["code"] if mission.error else ""
    if failed and key.split(" ")[0] == failed:
        return 2
    persona = (json.loads(mission.result) or {}).get("persona") if mission.result else None
    return int(bool(persona) and proposal.target.split(".")[0] == str(persona).lower())
