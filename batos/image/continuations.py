"""Continuations: missions that go on after their user stepped into them, and the changes that were made for it.

The changes are kept as a mission of its own, which is COMPLETE from its first moment: `M.step1` mends `M`. So they have a note, and a place
in the list and in the history of what they changed. They can be undone like any other mission's. The mended mission goes on under its own
id: its record says so, and its failures stay in the ledger. All of it is one transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from persistent.list import PersistentList

from batos.errors import InvalidInput
from batos.image import journal, ledger, ownership, usage_totals
from batos.image.journal import InferenceRecord, JournalEntry
from batos.image.mission_record import MissionRecord
from batos.objects import Root, UvmObject

_NO_USE = {
    "inferences": 0, "replayed": 0, "prompt_tokens": 0, "answer_tokens": 0, "model_ms": 0.0, "prompt_ms": 0.0, "models": [],
}  # fmt: skip


_KEY = "continued"  # in the root: ids of the missions that were continued last
_NOTED = 64  # more than are continued between two looks of a kernel


class ThoughtChange(NamedTuple):
    """Change of a mission's own thought, as plain values."""

    answers: tuple[InferenceRecord, ...] = ()
    """Inferences that take the place of those of the same content, or are added."""
    amended: tuple[tuple[str, int, str, str], ...] = ()
    """Slots of cycles, as `Journal.amended` holds them."""


def step_id(root: Root, id: str) -> str:
    """Return the id of the next mission that mends one."""
    number = 1
    while ledger.is_known(root, made := f"{id[:110]}.step{number}"):
        number += 1
    return made


def check_continues(root: Root, id: str) -> UvmObject:
    """Return a mission that may be continued.

    :raises UnknownMission: if there is none of that id.
    :raises MissionFolded: if only a line of it is left.
    :raises InvalidInput: with the reason, for any other that cannot go on.
    """
    mission = ledger.mission_of(root, id)
    if mission.state == ledger.COMPLETE:
        raise InvalidInput(f"mission {id!r} is COMPLETE by now; `batos undo {id}` takes it back, and `batos send` gives its brief anew")
    if journal.of(mission).spent:
        raise InvalidInput(
            f"mission {id!r} cannot be continued: its journal has lost its texts (image.journal_days), so that all would be paid for and "
            "done once more. Send its brief as a new mission"
        )
    if mission.state not in ledger.FINAL and not ownership.free(root, mission):
        owner = ownership.owner_of(mission)
        raise InvalidInput(f"mission {id!r} is being thought through by the kernel {owner!r}; step into it there, or pause it first")
    return mission


def record_mending(root: Root, made: str, mends: str, note: str, thought: ThoughtChange, diff: Sequence[dict[str, Any]]) -> None:
    """Record the changes as a mission that is COMPLETE, in the transaction that makes them.

    :param made: its id.
    :param mends: id of the mission that goes on; empty for none.
    """
    what = f"mend {mends}" if mends else "changes made while stepping"
    held = journal.of(ledger.mission_of(root, mends)) if mends else None
    before = {(one.inference.key, one.inference.occurrence): one.inference.text for one in (held.entries if held is not None else ())}
    answers = [[one.key.hex(), one.occurrence, before.get((one.key, one.occurrence)), one.text] for one in thought.answers]
    told = {"mission": mends, "answers": answers, "amended": [list(one) for one in thought.amended]}
    ledger.accept(root, made, f"{what}: {note}" if note else what, {"mends": ledger.compact(told)}, False)
    mission = ledger.mission_of(root, made)
    text = "\n".join(f"{row['target']}: {row['kind']} changed" for row in diff)
    facts = {"text": text, "value": list(diff), "persona": None, "why": "its user stepped into a mission", "usage": dict(_NO_USE)}
    ledger.complete(mission, facts, None)
    ledger.ledger_of(root).pending.remove(made)
    ledger.ledger_of(root).ended.complete[mission.number] = mission


def go_on(
    root: Root, id: str, made: str, note: str, thought: ThoughtChange, replies: Iterable[tuple[dict[str, Any], str]]
) -> MissionRecord:
    """Let a mission go on, in the same transaction; return its record.

    :param made: id of the mission that mends it; empty if nothing was changed.
    :param replies: answers to its questions, each with the question as `AskedQuestion` names it.
    """
    mission = check_continues(root, id)
    now = time.time()
    facts = {"at": round(now, 3), "with": made or None, "note": note, "attempts": mission.attempts, "state": mission.state}
    if mission.state == ledger.FAILED:
        facts |= {"error": json.loads(mission.error), "finished": mission.finished}
        reopen(root, mission, now)
    ownership.claim(root, mission)
    _note(root, id)
    mission.continued = ledger.compact([*_continued(mission), facts])
    if thought.answers or thought.amended:
        held = journal.opened(mission)
        put_answers(held, thought.answers)
        held.amended += thought.amended
    for asked, text in replies:
        ledger.ask_question(root, id, asked["question"], asked["occurrence"], mission.attempts, bool(asked.get("grant")))
        number = next(
            one["number"] for one in json.loads(mission.questions) if one["question"] == asked["question"] and one["answer"] is None
        )
        ledger.answer_question(root, id, text, number)
    return ledger.describe(mission)


def lately(root: Root) -> tuple[bytes, list[str]]:
    """Return the ids of the missions that were continued last, and what changes with each of them. Another kernel may have continued one
    and thought it through between two looks."""
    held = root.get(_KEY)
    if held is None:
        return b"", []
    ids = list(held)
    return held._p_serial, ids


def _note(root: Root, id: str) -> None:
    held = root.setdefault(_KEY, PersistentList())
    held[:] = [*(one for one in held if one != id), id][-_NOTED:]


def reopen(root: Root, mission: UvmObject, now: float) -> None:
    """Make a FAILED mission one that is to be attempted. Its attempts are counted anew, and so is a deadline of its own."""
    usage_totals.uncount(root, mission)
    if mission.deadline_s is not None:  # it counts from the acceptance, and has the time once more that it had since its last end
        since = max([mission.accepted, *(one["at"] for one in _continued(mission) if one["state"] == ledger.FAILED)])
        mission.deadline_s = round(now - since + mission.deadline_s, 3)
    for name in ("state", "error", "finished", "attempts", "kernel", "cancelled", "paused"):
        if name in mission._slots:
            del mission._slots[name]
    ledger.note_attempt_end(mission)
    records = ledger.ledger_of(root)
    records.pending.insert(mission.id)
    if mission.number in records.ended.failed:
        del records.ended.failed[mission.number]


def _continued(mission: UvmObject) -> list[dict[str, Any]]:
    held = getattr(mission, "continued", None)
    return json.loads(held) if held else []


def put_answers(held: journal.Journal, answers: Sequence[InferenceRecord]) -> None:
    """Put inferences in the place of those of the same content and occurrence, or behind the others. Part of a transaction."""
    new = {(one.key, one.occurrence): JournalEntry(one) for one in answers}
    kept = [new.pop((one.inference.key, one.inference.occurrence), one) for one in held.entries]
    held.entries = (*kept, *new.values())
    held.partials = tuple(one for one in held.partials if one[0] not in {(a.key, a.occurrence) for a in answers})


def is_mending(mission: UvmObject) -> bool:
    """Return True for a mission that holds changes made while stepping."""
    return bool(getattr(mission, "mends", None))


def turn_back(root: Root, id: str, *, redo: bool) -> None:
    """Take back what a mending mission changed in the thought of another, or with `redo` change it again. Part of the transaction of its
    undo."""
    told = json.loads(ledger.mission_of(root, id).mends)
    mended = ledger.ledger_of(root).missions.get(told["mission"])
    if mended is None or (held := journal.of(mended)).spent:
        return
    amended = tuple((str(cycle), int(after), str(slot), str(value)) for cycle, after, slot, value in told["amended"])
    kept = tuple(one for one in held.amended if one not in amended)
    held.amended = (*kept, *amended) if redo else kept
    entries, withdrawn = [], []
    texts = {(bytes.fromhex(key), occurrence): (was, now) for key, occurrence, was, now in told["answers"]}
    for entry in held.entries:
        one = entry.inference
        was, now = texts.get((one.key, one.occurrence), (one.text, one.text))
        then, text = (was, now) if redo else (now, was)
        if one.text != then or text == then:  # a later continuation changed it again: that one stands
            entries.append(entry)
        elif text is None:
            withdrawn.append(entry)
        else:
            entries.append(JournalEntry(one._replace(text=text)))
    if redo:
        there = set(map(_key, entries))
        mine = [one for one in held.withdrawn if texts.get(_key(one), (None, None))[1] == one.inference.text]
        back = [one for one in mine if _key(one) not in there]
        entries += back
        held.withdrawn = tuple(one for one in held.withdrawn if one not in back)
    elif withdrawn:
        held.withdrawn = (*held.withdrawn, *withdrawn)
    held.entries = tuple(entries)


def _key(entry: JournalEntry) -> journal.Key:
    return entry.inference.key, entry.inference.occurrence
