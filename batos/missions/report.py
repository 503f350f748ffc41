"""Report of one mission, for people: its thoughts, personas, sources and cost."""

from __future__ import annotations

import json
from typing import Any

from batos.image import journal, ledger
from batos.image.mission_record import MissionRecord, described
from batos.mind.evidence import Citation, RecalledPassage, passages
from batos.objects import Root, UvmObject
from batos.objects.json_form import plain

TEXT_CHARS = 2000  # of each inference's text
RECALLED_CHARS = 20_000  # of the passages that one question was answered with
FAILURES = 20  # the newest of a mission's failed attempts

_OF_MISSION = (
    "id", "brief", "state", "origin", "persona", "priority", "accepted", "finished", "attempts", "context", "schema", "questions", "rating",
    "images",
)  # fmt: skip


def is_mission(obj: UvmObject) -> bool:
    """Return True if an object is a mission of the ledger."""
    return "brief" in obj._slots and "journal" in obj._slots


def report_of(root: Root, id: str) -> dict[str, Any]:
    """Return the report of a mission.

    `routing` names the persona and why it was chosen. `recalled` holds the questions to the memory with the passages
    found. `thought` is the cycle that completed (`thought.cycles`: those inside it). `inferences` is the journal, by
    cycle, state, persona and part; `cost` its sum by model. `failures` are the failed attempts, newest first.

    :raises UnknownMission: if there is no mission of that id.
    """
    mission = ledger.mission_of(root, id)
    record = _facts(ledger.describe(mission))
    if (route := journal.route_of(root, id)) is not None:
        record["routing"] = json.loads(route)
    record["recalled"] = [
        {"question": question, "passages": [_passage(n, one) for n, one in enumerate(passages(root, found.chunks, RECALLED_CHARS), 1)]}
        for question, found in journal.recalled_of(root, id).items()
    ]
    if mission.thought is not None:
        record["thought"] = _cycle(mission.thought)
    record["inferences"] = [_inference(entry.inference) for entry in journal.of(mission).entries]
    record["cost"] = [spent._asdict() for spent in journal.spent_on(journal.of(mission))]
    record["texts_dropped"] = bool(journal.of(mission).spent)
    record["failures"] = ledger.failures(root, id=id, limit=FAILURES)
    return record


def folded_report(root: Root, target: str) -> dict[str, Any] | None:
    """Return the report of a folded mission (`batos.image.retention`), or None if `target` names anything else.

    It has `folded`, the beginnings of brief and result, and the cost. An object of the same name hides the mission.
    """
    line = ledger.line_of(root, target)
    if line is None or target in root["lobby"]._slots:
        return None
    cost = [line.spent()._asdict()] if line.cost[0] else []
    record = {**_facts(described(line)), "folded": True, "recalled": [], "inferences": [], "cost": cost}
    return {**record, "texts_dropped": True, "failures": []}


def _facts(mission: MissionRecord) -> dict[str, Any]:
    ends = mission.to_wire(("result", "error", "undone"))
    return {**mission.to_wire(_OF_MISSION), **{name: value for name, value in ends.items() if value is not None}}


def _cycle(cycle: UvmObject) -> dict[str, Any]:
    slots = cycle._slots
    said, silent = dict(slots.get("voices", ())), dict(slots.get("silent", ()))
    plan = [
        {"part": name, "query": query, **({"said": said[name]} if name in said else {"silent": silent.get(name, "")})}
        for name, query in slots.get("plan", ())
    ]
    thought = {
        "cycle": str(cycle.number),
        "persona": str(cycle.persona.name),
        "why": slots.get("why", ""),
        "brief": slots.get("brief", ""),
        "state": str(slots["state*"].name),
        "depth": slots.get("depth", ""),
        "depth_why": slots.get("depth_why", ""),
        **({"left_out": dict(slots["left_out"])} if slots.get("left_out") else {}),
        "flavour": slots.get("flavour", ""),
        "planned_by": slots.get("plan_source", ""),
        "plan": plan,
        "woven_from": list(slots.get("woven", ())),
        "citations": [Citation(*one).to_wire() for one in slots.get("cited", ())],
        "cycles": [_cycle(inner) for inner in slots.get("cycles", ())],
    }
    if "asked" in slots:
        thought["asked"] = dict(zip(("question", "answer"), slots["asked"], strict=True))
    return thought


def _passage(n: int, found: RecalledPassage) -> dict[str, Any]:
    return {"n": n, "chunk": found.oid, "title": found.title, "source": found.source, "text": found.text}


def _inference(found: journal.InferenceRecord) -> dict[str, Any]:
    cycle, state, persona, part = (word if word != "-" else "" for word in (found.label or "- - - -").split(" ", 3))
    return {
        "cycle": cycle,
        "state": state,
        "persona": persona,
        "part": part,
        "model": found.model,
        "digest": found.digest,
        "prompt_tokens": found.prompt_tokens,
        "answer_tokens": found.answer_tokens,
        "model_ms": found.total_ms,
        "prompt_ms": found.prompt_eval_ms,
        "ended": found.done_reason,
        "at": found.at,
        "text": plain(found.text, text=TEXT_CHARS),
    }
