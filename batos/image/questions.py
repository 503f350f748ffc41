"""What missions ask their users, and what they are told: system transactions and reads of a mission's record."""

from __future__ import annotations

import json
import time
from typing import Any

from batos.errors import InvalidInput, RoleRefused
from batos.image import ledger


def ask(root: Any, id: str, question: str, occurrence: int, ended: int, grant: bool = False) -> None:
    """Record a question that a mission has for its user; its attempt ends here, and does not count: it said nothing wrong.

    :param ended: the attempts before it, which count.
    :param grant: whether its answer grants a method something; no other question is taken for it, whatever its words.
    """
    mission = ledger.mission_of(root, id)
    if mission.state in ledger.FINAL:
        return
    asked = json.loads(mission.questions) if mission.questions else []
    if not any(_is(one, question, occurrence, grant) for one in asked):
        number, mark = len(asked) + 1, {"grant": True} if grant else {}
        asked.append({"number": number, "question": question, "occurrence": occurrence, "answer": None, "asked": time.time(), **mark})
        mission.questions = ledger.compact(asked)
    ledger.uncount_attempt(root, id, ended)


def answer(root: Any, id: str, text: str, number: int | None, may_grant: bool = True) -> dict[str, Any]:
    """Record what the user answers; the mission's record. The same answer again changes nothing.

    :param number: of the question; None: the one that is open.
    :param may_grant: whether who answers may grant a method something.
    :raises InvalidInput: if there is no such question, or it was answered otherwise.
    :raises RoleRefused: for a question that grants something, where he may not.
    """
    mission = ledger.mission_of(root, id)
    asked = json.loads(mission.questions) if mission.questions else []
    open_ones = [one for one in asked if one["answer"] is None]
    if number is None and not open_ones:
        raise InvalidInput(f"mission {id!r} has no open question; `batos status {id}` shows what it asked")
    found = open_ones[0] if number is None else next((one for one in asked if one["number"] == number), None)
    if found is None:
        raise InvalidInput(f"mission {id!r} has no question {number}; it has asked {len(asked)}")
    if found.get("grant") and not may_grant:
        raise RoleRefused(
            f"question {found['number']} of mission {id!r} lets it do more than think (a method change more than its receiver, a model be "
            "pulled), and needs the role operate; an operator answers it"
        )
    if found["answer"] is not None and found["answer"] != text:
        raise InvalidInput(f"question {number} of mission {id!r} was answered already, with {found['answer'][:60]!r}")
    if found["answer"] is None and mission.state in ledger.FINAL:
        raise InvalidInput(f"mission {id!r} is {mission.state}; an answer has no use any more")
    if found["answer"] is None:
        found["answer"], found["answered"] = text, time.time()
        mission.questions = ledger.compact(asked)
    return ledger.describe(mission)


def answer_to(record: dict[str, Any], question: str, occurrence: int, *, grant: bool = False) -> str | None:
    """What the user answered to a question, as the mission's record has it; None if it is open or was never asked."""
    return next((one["answer"] for one in record["questions"] if _is(one, question, occurrence, grant)), None)


def open_question(record: dict[str, Any]) -> dict[str, Any] | None:
    """The question that a mission waits with, if there is one: its `number` and `question`."""
    if not record["questions"]:  # nearly always
        return None
    return next(({name: one[name] for name in ("number", "question")} for one in record["questions"] if one["answer"] is None), None)


def _is(one: dict[str, Any], question: str, occurrence: int, grant: bool) -> bool:
    return (one["question"], one["occurrence"], one.get("grant", False)) == (question, occurrence, grant)
