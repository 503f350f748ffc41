"""Models provided for missions, as changes of the kind `provide`. Each has the mission that needed it, the origin of the permission to pull
it, and the parts to remove when it is undone.

proposed ─ kept                        pulled, probed, its personas made
         └ refused                     it is unfit or unavailable, or its mission ended
kept     ─ undone                      by its user

Everything pulled and made is recorded (`changes.PREPARED`) before it is done. The record has `model`, whether it is `pulled`, `by` whom
(`here`, `itself`, `user`), the `bytes` that came and those that were `counted`. It also has the `layers` that were begun, the `voices`, and
`cleared`, once all of that is removed again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from batos.autotelic import budget, changes, schema
from batos.autotelic.changes import Proposal
from batos.bridge.capabilities import Needs
from batos.errors import UnknownChange
from batos.image import journal, ledger
from batos.mind.model_needs import BEGUN
from batos.objects import Root, UvmObject

KIND = "provide"
HERE, ITSELF, USER = "here", changes.ITSELF, "user"
"""Permissions of a pull: `here`, no pull was needed; `itself`, the system's settings; `user`, the mission's user."""
NOT_WATCHED = "only missions that need it think with it, so nothing else can get worse"
_STANDING = (*changes.STANDING, changes.PROPOSED)


def begin(root: Root, mission: str, record: Mapping[str, Any], by: str, limit: int, now: float) -> int:
    """System transaction: record that a model is about to be installed for a mission. Return the number of the change.

    A model pulled without asking counts from here on, with its claimed size: so no kill leaves it uncounted.

    :param record: the mission's record (`batos.mind.model_needs`): a model was chosen.
    :param by: origin of the permission to pull it.
    :param limit: maximum records of changes to keep.
    :param now: seconds since the epoch.
    """
    model, needs = str(record["model"]), Needs.parse(record["needs"])
    evidence = {"words": f"mission {mission} needs a model that {needs.told()}, and no model in use does.", "needs": needs.words()}
    proposal = Proposal(KIND, " ".join(needs.words()), model, str(record["why"]))
    number = changes.propose(root, proposal, evidence, mission, source=changes.MISSION, limit=limit)
    counted = int(record["bytes"]) if by == ITSELF else 0
    facts = {"model": model, "pulled": by != HERE, "by": by, "bytes": 0, "counted": counted, "layers": [], "voices": []}
    changes.note(root, number, facts)
    if counted:
        budget.count_pull(root, counted, now)
    journal.set_provided(root, mission, {**record, "state": BEGUN, "change": number})
    return number


def note_layer(root: Root, number: int, layer: str) -> None:
    """System transaction: record a new layer whose transfer has started."""
    held = facts(root, number)
    if layer not in held.get("layers", ()):
        changes.note(root, number, {"layers": [*held.get("layers", ()), layer]})


def refuse(root: Root, number: int, why: str, now: float) -> None:
    """System transaction: refuse a change unless it is decided. Bytes that were counted and did not come no longer count."""
    if state_of(root, number) != changes.PROPOSED:
        return
    held = facts(root, number)
    changes.refuse(root, number, why, {changes.PREPARED: held})
    if held["counted"] > held["bytes"]:
        budget.count_pull(root, held["bytes"] - held["counted"], now)


def make(root: Root, number: int) -> None:
    """Part of a transaction: complete the change. The model is there, passed its probes, and has its personas.

    :raises InvalidInput: if its user refused it meanwhile.
    """
    record = changes.record_of(root, number)
    changes.make(root, number, json.loads(record.comparison), NOT_WATCHED)
    schema.part_of(root, "provided").models[facts(root, number)["model"]] = json.dumps({"change": number, "needs": record.target.split()})


def state_of(root: Root, number: int) -> str:
    """Return the state of a change; `refused` if its record no longer exists."""
    try:
        return str(changes.record_of(root, number).state)
    except UnknownChange:
        return changes.REFUSED


def facts(root: Root, number: int) -> dict[str, Any]:
    """Return the recorded facts of a change."""
    return dict(json.loads(changes.record_of(root, number).comparison).get(changes.PREPARED, {}))


def begun(root: Root, number: int) -> float:
    """Return the time when the trial of a change began, in seconds since the epoch."""
    return float(changes.record_of(root, number).proposed)


def standing(root: Root, model: str) -> int | None:
    """Return the number of the change by which a model is provided now."""
    held = schema.part_of(root, "provided").models.get(model)
    number = None if held is None else int(json.loads(held)["change"])
    return number if number is not None and state_of(root, number) in changes.STANDING else None


def was_undone(root: Root, model: str) -> bool:
    """Return True if a user undid the model: it is not pulled again without asking."""
    return any(one.state in (changes.UNDONE, changes.DISABLED) and _content(one) == model for one in _all(root))


def in_use(root: Root, model: str, besides: int) -> bool:
    """Return True if another change, or a persona's own slots, need a model."""
    lobby = root["lobby"]
    personas = (one for name in lobby.personas if isinstance(one := lobby._slots.get(name), UvmObject))
    others = (one for one in _all(root) if one.number != besides and one.state in _STANDING)
    return any(_content(one) == model for one in others) or any(one.model == model for one in personas)


def under_way(root: Root) -> set[str]:
    """Return the missions for which a model is being provided."""
    return {str(one.mission) for one in _all(root) if one.state == changes.PROPOSED}


def left_over(root: Root) -> list[tuple[int, str]]:
    """Return the changes with leftovers to remove, and the state of each: changes that were rolled back or refused, and those of ended
    missions.
    """
    found = []
    for one in _all(root):
        if one.state == changes.PROPOSED:
            if ended(root, str(one.mission)):
                found.append((int(one.number), str(one.state)))
        elif one.state in changes.LESSONS and not facts(root, one.number).get("cleared"):
            found.append((int(one.number), str(one.state)))
    return found


def ended(root: Root, mission: str) -> bool:
    """Return True if a mission has ended."""
    held = ledger.ledger_of(root).missions.get(mission)
    return held is None or held.state in ledger.FINAL


def _all(root: Root) -> Sequence[UvmObject]:
    return [one for one in changes.newest_first(root) if one.kind == KIND]


def _content(record: UvmObject) -> Any:
    return json.loads(record.content)
