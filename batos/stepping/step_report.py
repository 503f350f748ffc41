"""Report of a session, in plain values: where it stands, and what can be looked at there."""

from __future__ import annotations

import json
from typing import Any

from batos.image import effects, history
from batos.objects.json_form import plain
from batos.stepping.session import StepSession
from batos.stepping.stepped_run import Transition
from batos.stepping.stepped_source import MISSING, NEW, RECORDED, AskedInference

_BEGINNING = 200  # characters of a text in a list
_TOOL_CHARS = 400


def place(session: StepSession) -> dict[str, Any]:
    """Return where a session stands."""
    run, mission, error = session.run, session.mission, session.error
    counted = [one.source for one in session.source.asked]
    told: dict[str, Any] = {
        "session": session.name,
        "id": session.id,
        "brief": history.in_list(mission.record.brief),
        "state": mission.record.state,
        "moment": mission.moment.said,
        "at": transition(session.standing),
        "ended": run.has_ended,
        "changed": session.is_changed,
        "rail": [transition(one) for one in session.rail],
        "slots": _slots(session),
        "inferences": [inference_row(number, one) for number, one in enumerate(session.source.asked, 1)],
        "tools": [effects.to_wire(one, chars=_TOOL_CHARS) for one in session.stage.image.read(effects.load, session.id)],
        "runs": [one.row() for one in session.runs],
        "edits": [one.to_wire() for one in session.edits],
        "counts": {"recorded": counted.count(RECORDED), "new": counted.count(NEW), "missing": counted.count(MISSING)},
        "notes": notes(session),
    }
    if error is not None:
        told["error"], told["recorded"] = error
    if (question := session.question) is not None:
        told["question"] = question["question"]
    if run.result is not None:
        told["result"] = plain(run.result, -2)
    return told


def transition(one: Transition) -> dict[str, Any]:
    """Return a transition as the wire shows it."""
    return {"number": one.number, "cycle": one.cycle, "state": one.state, "persona": one.persona or None}


def inference_row(number: int, one: AskedInference, *, whole: bool = False) -> dict[str, Any]:
    """Return an inference as a row, or whole."""
    cycle, state, persona, part = one.label.split(" ", 3)
    row: dict[str, Any] = {
        "number": number, "cycle": cycle.strip("-"), "state": state, "persona": persona.strip("-"), "part": part.strip("-") or None,
        "model": one.request.model, "source": one.source,
    }  # fmt: skip
    said = None if one.answer is None else one.answer.text
    if not whole:
        return {**row, "said": None if said is None else said[:_BEGINNING], "asked": one.request.user[-_BEGINNING:]}
    row |= {"said": said, "system": one.request.system, "user": one.request.user, "changed": list(one.changed)}
    if one.request.turns:
        row["turns"] = [list(turn) for turn in one.request.turns]
    if one.request.schema is not None:
        row["schema"] = one.request.schema
    if one.answer is not None:
        row |= {"prompt_tokens": one.answer.prompt_tokens, "answer_tokens": one.answer.answer_tokens, "thinking": one.answer.thinking}
    return row


def _slots(session: StepSession) -> dict[str, Any]:
    """Return the slots of the cycle that stands here; of the mission where none does."""
    cycle = session.run.cycles[session.run.standing]
    if cycle is None:
        record = session.mission.record
        shown = {"brief": record.brief, "message": json.loads(record.message) if record.message else None, "context": record.context}
        return {name: plain(value) for name, value in shown.items() if value is not None}
    return {name: plain(value) for name, value in cycle._slots.items() if name != "parent*"}


def notes(session: StepSession) -> list[str]:
    """Return what the user should know of how faithful this is."""
    found, mission = [], session.mission
    if mission.is_dropped:
        found.append(
            "the journal of this mission has lost its texts (image.journal_days): no answer is known any more, and none is invented; "
            "it cannot be continued"
        )
    if (error := session.error) is not None and error[1]:
        found.append("the error is the recorded one: an answer that never came, or time that ran out, is not brought about again")
    missing = next((one for one in session.source.asked if one.source == MISSING), None)
    if missing is not None and missing.changed:
        found.append(f"the journal has an answer for this place, but another was asked for: {', '.join(missing.changed)} differ")
    if session.is_changed:
        found.append("something was changed since; go on, and the mission is thought again with it")
    if session.run.attempt.tools.was_tied:
        found.append("a tool that the mission did not call then is not called here")
    return found
