"""Record of a mission: its slots, read once and kept as a frozen value.

The image holds a mission as an object whose slots are plain values or JSON text. `describe` reads it into a `MissionRecord`, which any
thread and any task may keep: a later transaction does not change it. The scheduler derives the next record with `dataclasses.replace`.
A mission that was folded into one line has a record, too, with `folded` set.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict, cast

from batos.image.mission_index import FAILED, FINAL, Line
from batos.objects import UvmObject

ACCEPTED = "ACCEPTED"
BY_USER = frozenset({"client", "console"})
"""Origins of missions whose briefs are the user's own words, as he says them."""
FROM_OTHERS = frozenset({"hook", "folder"})
"""Origins of missions whose briefs hold text of others: they have read it from their first moment."""
WITH_FILES = frozenset({"folder"})
"""Origins of missions whose briefs hold files of their user."""

DEFAULTS: Mapping[str, Any] = {
    "persona": None, "priority": 0, "deadline_s": None, "origin": "client", "message": None,
    "context": None, "schema": None, "may_ask": False, "depth": None, "flavour": None, "needs": None, "paused": False, "questions": None,
    "rating": None, "undone": None, "lesson": None, "pupil": None, "begun_with": (0, 0), "kernel": "", "cancelled": False,
    "images": None, "connection": "", "continued": None, "mends": None, "instructions": "",
    "attempts": 0, "state": ACCEPTED, "result": None, "error": None, "thought": None, "finished": None, "journal": None,
}  # fmt: skip
"""Slots of the mission prototype; a mission holds only the slots that differ."""


class AskedQuestion(TypedDict):
    """Question of a mission to its user, as the slot `questions` holds it."""

    number: int
    question: str
    occurrence: int
    """Count of earlier questions in the same words."""
    answer: str | None
    asked: float
    """Seconds since the epoch."""
    answered: NotRequired[float]
    grant: NotRequired[bool]
    """True if a yes lets a method do more than change its receiver."""


class MissionRating(TypedDict):
    """Rating of a mission by its user."""

    rating: int
    """1 or -1."""
    why: str
    at: float
    """Seconds since the epoch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MissionRecord:
    """Mission as plain values. The names of the fields are those of the wire protocol."""

    id: str
    brief: str
    accepted: float
    """Seconds since the epoch."""
    number: int
    """Place in the order of acceptance, from 1."""
    persona: str | None = None
    """Persona that the user chose; None leaves the choice to the router."""
    priority: int = 0
    deadline_s: float | None = None
    """Seconds from the acceptance; None applies the setting `missions.deadline_s` to each attempt."""
    origin: str = "client"
    """`system` for a mission of BAT OS itself, else the kind of client that sent it."""
    message: str | None = None
    """JSON of the message that the mission sends; None for a brief."""
    context: str | None = None
    """Id of the mission that this one follows."""
    schema: dict[str, Any] | None = None
    """JSON schema of the answer."""
    may_ask: bool = False
    depth: str | None = None
    flavour: str | None = None
    needs: list[str] | None = None
    """Abilities that its model must have."""
    paused: bool = False
    questions: list[AskedQuestion] = dataclasses.field(default_factory=list)
    rating: MissionRating | None = None
    undone: dict[str, Any] | None = None
    """Time, request and number of missions of the undo that took it back; None while its effects are in the image."""
    images: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Pictures of the brief; one with `of` belongs to an earlier mission of the conversation."""
    instructions: str = ""
    """Words of a client on how to answer, which hold for its whole conversation; no part of the brief."""
    connection: str = ""
    """Connection of one machine that it needs: only a kernel of that machine goes on with it."""
    continued: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Each time that its user stepped into it and let it go on. Each has `at`, `with` (the mission that holds the changes), `note`, and the
    mission's state, error and attempts then."""
    attempts: int = 0
    """Attempts that count, the one under way included."""
    state: str = ACCEPTED
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    finished: float | None = None
    """Seconds since the epoch."""
    folded: bool = False
    """True if one line is all that the image keeps of the mission."""
    kernel: str = ""
    """Kernel that thinks it through, or did; empty: no kernel, or the one daemon that has the image to itself."""
    cancelled: bool = False
    """True if its user cancelled it at another kernel than the one that thinks it through, which ends it."""
    resumed: bool = False
    """True if an earlier attempt, or an earlier daemon, may have left inferences in the journal. No slot: the scheduler sets it."""

    @property
    def is_final(self) -> bool:
        """Return True if the mission is COMPLETE or FAILED."""
        return self.state in FINAL

    @property
    def has_own_pictures(self) -> bool:
        """Return True if the brief came with pictures; those of earlier missions do not count."""
        return any("of" not in picture for picture in self.images)

    @property
    def open_question(self) -> dict[str, Any] | None:
        """Return `number` and `question` of the question that the mission waits with, or None."""
        if not self.questions:  # nearly always
            return None
        open_ones = (asked for asked in self.questions if asked["answer"] is None)
        return next(({"number": asked["number"], "question": asked["question"]} for asked in open_ones), None)

    def answer_to(self, question: str, occurrence: int, *, grant: bool = False) -> str | None:
        """Return the user's answer to a question; None if it is open or was never asked.

        :param grant: True for a question whose answer grants something; a plain question of the same words is another one.
        """
        return next((asked["answer"] for asked in self.questions if is_question(asked, question, occurrence, grant)), None)

    def to_wire(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the fields of these names, in this order, as replies to clients show them."""
        return {name: getattr(self, name) for name in names}


def is_question(asked: AskedQuestion, question: str, occurrence: int, grant: bool) -> bool:
    """Return True if a question was asked in these words, for this time, and for this purpose."""
    return (asked["question"], asked["occurrence"], asked.get("grant", False)) == (question, occurrence, grant)


_NO_SLOTS = ("folded", "resumed")
_SLOTS = tuple((one.name, DEFAULTS.get(one.name)) for one in dataclasses.fields(MissionRecord) if one.name not in _NO_SLOTS)
_NAMES = frozenset(name for name, _ in _SLOTS)
_JSON = ("schema", "needs", "rating", "undone", "result", "error")  # slots that hold JSON text, or None
_JSON_LISTS = ("questions", "images", "continued")  # likewise; None is the empty list


def describe(mission: UvmObject) -> MissionRecord:
    """Return a mission of the ledger as plain values.

    :raises ImageDamaged: if its record in the image cannot be read.
    """
    mission._p_activate()
    values = _inherited(getattr(mission, "parent*")).copy()
    for name, value in mission.__dict__.items():
        if name in _NAMES:
            values[name] = value
    for name in _JSON:
        if (text := values[name]) is not None:
            values[name] = json.loads(text) if text else None
    for name in _JSON_LISTS:
        values[name] = json.loads(text) if (text := values[name]) else []
    values["folded"] = values["resumed"] = False
    # Each acceptance comes through here: a constructor that sets one frozen field after the other would take three times as long.
    record = object.__new__(MissionRecord)
    record.__dict__.update(values)
    return record


def _inherited(prototype: UvmObject) -> dict[str, Any]:
    """Return the slots of a mission that has none of its own. They are read once for a revision of the prototype."""
    prototype._p_activate()
    known = prototype.__dict__.get("_v_inherited")
    if known is not None and known[0] == prototype._p_serial and not prototype._p_changed:
        return cast("dict[str, Any]", known[1])
    # As it was at a moment before an upgrade, and in an image that is only looked at, the prototype lacks the newest slots.
    values = {name: getattr(prototype, name, default) for name, default in _SLOTS}
    if not prototype._p_changed:
        prototype._v_inherited = (prototype._p_serial, values)
    return values


def draft(id: str, brief: str, options: Mapping[str, Any]) -> MissionRecord:
    """Return a mission that is about to be accepted as plain values; it has no number yet.

    :param options: slots that differ from the prototype's, as `batos.image.ledger.accept` takes them.
    """
    values = {name: value for name, value in options.items() if name in _NAMES and value is not None}
    for name in (*_JSON, *_JSON_LISTS):
        if isinstance(text := values.get(name), str):
            values[name] = json.loads(text)
    return MissionRecord(**{**values, "id": id, "brief": brief, "accepted": 0.0, "number": 0})


def described(line: Line) -> MissionRecord:
    """Return the record of a folded mission: a field that its line does not hold has its default; `folded` is True."""
    error: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    if line.state == FAILED:
        code, _, message = line.came.partition(" ")
        error = {"code": code, "message": message}
    else:
        inferences, read, written, seconds = line.cost
        usage = {"inferences": inferences, "prompt_tokens": read, "answer_tokens": written, "model_ms": seconds * 1000.0}
        result = {"text": line.came, "usage": usage, "folded": True}
    return MissionRecord(
        id=line.id,
        brief=line.brief,
        number=line.number,
        state=line.state,
        origin=line.origin,
        accepted=float(line.accepted),
        finished=float(line.accepted + line.seconds),
        undone={"at": None, "with": line.id, "missions": 1} if line.undone else None,
        error=error,
        result=result,
        folded=True,
    )
