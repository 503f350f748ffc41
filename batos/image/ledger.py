"""The ledger: the durable record of missions.

Everything here is a short function of the root, run as a system transaction, or a read. A mission is acknowledged only
when its `accept` is durable. `pending` holds every mission that is not final and maybe some that are: a cycle sets
COMPLETE in its own transaction and never writes a shared set, `settle` cleans up afterwards.

A mission is an object of the image. Nobody but `accept`, the counting of attempts, its own cycle, `fail` and an undo writes it.

Attempts at a mission that the daemon died in: which of them speak against the mission.

Attempts are counted before they are made. One that paid for something that the journal did not have before brought the mission further:
what ended it came from outside, and its count is taken back at the next start. One that died without progress counts.

What missions ask their users, and what they are told: system transactions and reads of a mission's record.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import structlog
from BTrees.LOBTree import LOBTree
from BTrees.OOBTree import OOBTree, OOTreeSet
from persistent import Persistent

from batos.config import nearest
from batos.errors import AttemptsExhausted, ImageDamaged, InvalidInput, MissionFolded, MissionIdTaken, RoleRefused, UnknownMission
from batos.image import blobs, journal, mission_index
from batos.image.blobs import Pictures
from batos.image.journal import Journal
from batos.image.mission_index import COMPLETE as COMPLETE
from batos.image.mission_index import FAILED as FAILED
from batos.image.mission_index import FINAL as FINAL
from batos.image.mission_index import MILESTONE as MILESTONE
from batos.image.mission_index import Ended, Folded, mark_of
from batos.image.mission_index import Line as Line
from batos.image.mission_index import listed as listed
from batos.image.mission_index import newest_first as newest_first
from batos.image.mission_index import numbered as numbered
from batos.objects import UvmObject

ATTEMPT_OVER: tuple[int, ...] = ()
"""What a mission's slot `begun_with` says while no attempt is under way that nobody has judged."""


def note_attempt_begin(mission: Any) -> None:
    """System transaction's part: note what the journal holds while an attempt begins."""
    _note(mission, _held(mission))


def note_attempt_end(mission: Any) -> None:
    """System transaction's part: the attempt is over and judged, a failure that is recorded, say; no start judges it anew."""
    _note(mission, ATTEMPT_OVER)


def forgive_attempt(mission: Any, most: int) -> bool:
    """System transaction's part at a start: take back the count of an attempt in which a daemon died, if it made progress; whether it did.

    :param most: inferences in the journal from which on no progress is seen: a mission asks for no more than it may, whatever it paid for.
    """
    begun_with, held = tuple(mission.begun_with), _held(mission)
    if not mission.attempts or begun_with == ATTEMPT_OVER or held <= begun_with or held[0] > most:
        return False
    mission.attempts -= 1
    note_attempt_end(mission)
    return True


def _note(mission: Any, held: tuple[int, ...]) -> None:
    if tuple(mission.begun_with) != held:
        mission.begun_with = held


def _held(mission: Any) -> tuple[int, int]:
    """How many inferences the journal has, and how many tokens of such as have not ended: more of either is progress."""
    held = journal.of(mission)
    tokens = 0
    for _, partial in held.partials:
        try:
            tokens += partial.tokens
        except ImageDamaged:  # it is asked for anew
            continue
    return len(held.entries), tokens


log = structlog.get_logger("batos.image")

ACCEPTED = "ACCEPTED"
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)

_NEAR = 50  # ids that are looked at for one that was meant

DEFAULTS: dict[str, Any] = {
    "persona": None, "priority": 0, "deadline_s": None, "origin": "client", "message": None,
    "context": None, "schema": None, "may_ask": False, "depth": None, "flavour": None, "needs": None, "paused": False, "questions": None,
    "rating": None, "undone": None, "lesson": None, "pupil": None, "begun_with": (0, 0),
    "images": None,
    "attempts": 0, "state": ACCEPTED, "result": None, "error": None, "thought": None, "finished": None, "journal": None,
}  # fmt: skip
"""Slots of the mission prototype; a mission holds only what differs."""


_DESCRIBED = (
    "id",
    "brief",
    "accepted",
    "number",
    *(name for name in DEFAULTS if name not in ("thought", "journal", "lesson", "pupil", "begun_with")),
)


class MissionTree(OOBTree):
    """Missions by id. Small leaves: an accept rewrites one, and ids come in no order."""

    __module__ = "batos.image"
    max_leaf_size = 16
    max_internal_size = 32


class PendingSet(OOTreeSet):
    """Ids of missions. Small inner nodes: one is rewritten whenever a leaf is parted."""

    __module__ = "batos.image"
    max_internal_size = 32


class Ledger(Persistent):
    """The root of the records of missions."""

    __module__ = "batos.image"
    ended: Ended = None  # type: ignore[assignment]
    folded: Folded = None  # type: ignore[assignment]
    """Both None in an image of an earlier version that is only looked at; see `add_missing_indexes`."""

    def __init__(self, prototype: UvmObject) -> None:
        """
        :param prototype: the parent of every mission.
        """
        self.prototype = prototype
        self.missions = MissionTree()
        self.pending = PendingSet()
        self.failures = OOBTree()
        self.failures_by_selector = OOBTree()
        self.newest: Newest = Newest()
        self.milestones = LOBTree()
        self.costs = Costs()
        self.ended, self.folded = Ended(), Folded()

    pictures: Pictures | None = None
    """Pictures of briefs; None until there is one."""


class Costs(Persistent):
    """What missions cost, up to one of them: see `batos.image.usage_totals`."""

    __module__ = "batos.image"
    until: int = 0
    """Number of the last mission that is counted in; all before it are, too, but for those `apart`."""
    apart: tuple[int, ...] = ()
    """Numbers of those that had not ended."""
    by_model: tuple[tuple[Any, ...], ...] = ()
    retained: int = 0
    """Number of the last mission whose journal retention has dealt with, or passed over."""
    passed_over: tuple[int, ...] = ()
    """Numbers of those up to it that it has not dealt with."""


class Newest(Persistent):
    """Where the chain of missions begins. Each mission links to the one accepted before it: a list that costs one small
    record an accept, whatever its length."""

    __module__ = "batos.image"
    mission: UvmObject | None = None


def ledger_of(root: Any) -> Ledger:
    """The ledger of an image."""
    return root["ledger"]  # type: ignore[no-any-return]


def mission_of(root: Any, id: str) -> UvmObject:
    """The mission of that id.

    :raises UnknownMission: if there is none.
    :raises MissionFolded: if a line is all that is left of it.
    """
    try:
        return ledger_of(root).missions[id]  # type: ignore[no-any-return]
    except KeyError:
        if (line := line_of(root, id)) is not None:
            raise MissionFolded(
                f"mission {id!r} is {line.state} and so old that only one line of it is kept (image.mission_days, image.missions_kept): "
                f"`batos show {id}` shows it"
            ) from None
        raise UnknownMission(f"no mission {id!r} in this image{nearest(id, _near(root, id))}; `batos missions` lists them") from None


def line_of(root: Any, id: str) -> Line | None:
    """What is left of a mission that was folded; None for any other."""
    folded: Folded | None = ledger_of(root).folded
    return None if folded is None else folded.get(id)


def record_of(root: Any, id: str) -> dict[str, Any]:
    """A mission as plain values (`describe`), or what is left of it: that has `folded`.

    :raises UnknownMission: if there is none.
    """
    line = line_of(root, id)
    return describe(mission_of(root, id)) if line is None else described(line)


def require(root: Any, id: str) -> None:
    """
    :raises UnknownMission: if there never was a mission of that id.
    """
    if line_of(root, id) is None:
        mission_of(root, id)


def is_known(root: Any, id: str) -> bool:
    """Whether a mission of that id was ever accepted."""
    return id in ledger_of(root).missions or line_of(root, id) is not None


def is_final(root: Any, id: str) -> bool:
    """Whether a mission has ended.

    :raises UnknownMission: if there is none.
    """
    return line_of(root, id) is not None or mission_of(root, id).state in FINAL


def message_of(root: Any, id: str) -> str:
    """The message that a mission is, as JSON; empty for a brief, and for a mission that is not kept whole."""
    mission = ledger_of(root).missions.get(id)
    return "" if mission is None else mission.message or ""


def failed_lesson(mission: UvmObject) -> bool:
    """Whether a mission FAILED that taught something: nothing else of it is in the image but its examples."""
    return mission.state == FAILED and mission.lesson is not None


def _near(root: Any, id: str) -> list[str]:
    """Ids that somebody may have meant: those after it in order, and the newest."""
    after = itertools.islice(ledger_of(root).missions.keys(min=id), _NEAR)
    return [*after, *(mission.id for mission in itertools.islice(newest_first(root), _NEAR))]


def add_missing_indexes(root: Any) -> None:
    """Give the ledger of an earlier version what it lacks."""
    ledger = ledger_of(root)
    if getattr(ledger, "failures_by_selector", None) is None:
        ledger.failures_by_selector = OOBTree()
        for key, record in ledger.failures.items():
            mission_index.index_failure(ledger.failures_by_selector, key, record)
    if getattr(ledger, "milestones", None) is None:
        ledger.milestones = LOBTree({m.number: m for m in newest_first(root) if m.number % MILESTONE == 0})
        ledger.costs = Costs()
    if type(ledger.pending) is not PendingSet:
        ledger.pending = PendingSet(ledger.pending)
    if getattr(ledger, "folded", None) is None:
        newest = ledger.newest.mission
        ledger.folded, ledger.ended = Folded(), Ended(missing=0 if newest is None else _next_number(ledger) - 1)


# --- system transactions


def accept(
    root: Any, id: str, brief: str, options: dict[str, Any], begin: bool, first: Callable[[Any], object] | None = None
) -> tuple[bool, dict[str, Any]]:
    """Accept a mission, or find that it was accepted before.

    :param options: slots that differ from the prototype's: those of `DEFAULTS` that a client chooses; lists and objects as JSON.
    :param begin: count its first attempt too, because it starts at once.
    :param first: what is written with the acceptance of a new one; takes the root. What it raises refuses the mission.
    :returns: whether it is new, and its record (`describe`).
    :raises MissionIdTaken: if the id names a mission with another brief, message or lesson, or other pictures.
    :raises UnknownPicture: for a picture that is not there.
    """
    ledger = ledger_of(root)
    found = ledger.missions.get(id)
    if found is not None:
        another = found.brief != brief or (found.message or None) != options.get("message")
        if another or _another_lesson(found, options) or own_pictures(found.images) != own_pictures(options.get("images")):
            raise MissionIdTaken(f"the id {id!r} names another mission already (its brief begins {found.brief[:60]!r}); choose a new id")
        return False, describe(found)
    if (line := ledger.folded.get(id)) is not None:
        mark = mark_of(brief, options.get("message"), own_pictures(options.get("images")))
        if line.mark != mark or options.get("lesson"):  # lessons are not folded
            raise MissionIdTaken(f"the id {id!r} names another mission already (its brief begins {line.brief[:60]!r}); choose a new id")
        return False, described(line)
    if first is not None:
        first(root)
    before = ledger.newest.mission
    follows = ledger.missions.get(options["context"]) if options.get("context") else None
    if shown := blobs.hold_pictures(root, id, options.get("images"), follows):
        options = {**options, "images": compact(shown)}
    mission = UvmObject(
        **{"parent*": ledger.prototype, "id": id, "brief": brief, "accepted": time.time(), "before": before},
        number=_next_number(ledger),
        **{name: value for name, value in options.items() if DEFAULTS[name] != value},
    )
    if begin:
        mission.attempts, mission.journal = 1, Journal()
    ledger.missions[id] = mission
    ledger.pending.insert(id)
    ledger.newest.mission = mission
    if mission.number % MILESTONE == 0:
        ledger.milestones[mission.number] = mission
    return True, describe(mission)


def own_pictures(images: str | None) -> list[str]:
    """The digests of a mission's own pictures."""
    return [one["digest"] for one in json.loads(images or "[]") if "of" not in one]


def _another_lesson(mission: UvmObject, options: dict[str, Any]) -> bool:
    """Whether other examples, or another intent, were taught by a mission; one that an earlier version recorded does not say."""
    return mission.lesson is not None and mission.lesson != options.get("lesson")


def _next_number(ledger: Ledger) -> int:
    newest = ledger.newest.mission
    try:
        return 1 if newest is None else int(newest.number) + 1
    except ImageDamaged:  # numbers are left out, rather than that no mission is accepted any more
        return int(ledger.milestones.maxKey() if ledger.milestones else 0) + MILESTONE


def begin_attempt(root: Any, id: str, limit: int) -> int:
    """Count an attempt before it is made; its number.

    :raises AttemptsExhausted: past `limit`: the mission may be what kills the daemon, so it is not tried again.
    """
    mission = mission_of(root, id)
    if mission.attempts >= limit:
        raise AttemptsExhausted(
            f"mission {id!r} was begun {mission.attempts} times and never ended, nor came any further; it is not tried again"
        )
    mission.attempts += 1
    journal.opened(mission)  # now, since its record is written anyway: later it would meet what the cycle commits
    note_attempt_begin(mission)
    return int(mission.attempts)


def fail(root: Any, id: str, error: dict[str, Any], context: dict[str, Any], final: bool) -> dict[str, Any] | None:
    """Record a failed attempt; with `final`, the mission is FAILED.

    :returns: None; or, if the mission is final already and stays as it is, its record: a cancellation or a deadline
        can come while the commit is under way.
    """
    ledger, mission = ledger_of(root), mission_of(root, id)
    if mission.state in FINAL:
        return describe(mission)
    record = UvmObject(
        mission=mission, error=compact(error), context=compact(context), at=time.time(), attempt=mission.attempts, final=final
    )
    key = f"{_after_the_last(ledger, mission, record.at):017.6f} {id}"
    ledger.failures[key] = record
    mission_index.index_failure(ledger.failures_by_selector, key, record)
    if final:
        mission.state, mission.error, mission.finished = FAILED, compact(error), record.at
        settle(root, id)
    else:
        note_attempt_end(mission)
    return None


def _after_the_last(ledger: Ledger, mission: UvmObject, at: float) -> float:
    """A time for the key of a failure: clocks go backwards, the order of failures does not."""
    last = float(ledger.failures.maxKey()[:17]) if ledger.failures else 0.0
    return max(at, float(mission.accepted), last + 0.000001)


def uncount_attempt(root: Any, id: str, ended: int) -> None:
    """Take back the count of an attempt that was interrupted, and says nothing against the mission: the `ended` before it count."""
    mission = mission_of(root, id)
    if mission.state not in FINAL and mission.attempts > ended:
        mission.attempts = ended
        note_attempt_end(mission)


def set_paused(root: Any, id: str, paused: bool) -> dict[str, Any]:
    """Pause a mission, or let it go on; its record. A final one stays as it is."""
    if (line := line_of(root, id)) is not None:
        return described(line)
    mission = mission_of(root, id)
    if mission.state not in FINAL and mission.paused != paused:
        mission.paused = paused
    return describe(mission)


def rate(root: Any, id: str, rating: int, why: str) -> bool:
    """Keep what a user thinks of a mission; whether the rating is another than before. A later rating takes the place of an earlier one.

    :param rating: 1 or -1.
    :raises InvalidInput: if it has not ended: what its cycle commits would meet the rating.
    """
    mission = mission_of(root, id)
    if mission.state not in FINAL:
        raise InvalidInput(f"mission {id!r} has not ended; rate it when it is COMPLETE or FAILED")
    given = {"rating": rating, "why": why}
    before = json.loads(mission.rating) if mission.rating else {}
    if {name: before.get(name) for name in given} == given:
        return False
    mission.rating = compact({**given, "at": time.time()})
    return int(before.get("rating", 0)) != rating


def settle(root: Any, id: str, recalled: bool = True) -> None:
    """Take a final mission off the list of pending ones.

    :param recalled: whether it may have been shown anything from memory; else its journal is not looked into.
    """
    ledger = ledger_of(root)
    if id in ledger.pending:
        ledger.pending.remove(id)
        mission = ledger.missions[id]
        if mission.state in FINAL:
            ledger.ended.by(mission.state)[mission.number] = mission
        if recalled:
            journal.forget_shown(journal.of(mission))


def recover(root: Any, most: int) -> list[dict[str, Any]]:
    """The missions to resume, oldest first; the pending list is cleaned of those that are final.

    :param most: inferences that a mission may ask for: as long as it paid for no more, an attempt that paid for one does not count.
    """
    ledger = ledger_of(root)
    records = []
    for id in list(ledger.pending):
        try:
            mission = ledger.missions[id]
            if mission.state not in FINAL and forgive_attempt(mission, most):
                log.info("attempt_forgiven", mission=id, why="the daemon died in it, and it had paid for more than those before it")
            records.append(describe(mission))
        except ImageDamaged as e:
            log.error("mission_damaged", mission=id, error=e.message, hint="it waits; the others go on")
    for record in records:
        if record["state"] in FINAL:
            settle(root, record["id"])
    return sorted((record for record in records if record["state"] not in FINAL), key=lambda record: record["number"])


# --- inside a cycle's own transaction


def complete(mission: UvmObject, result: dict[str, Any], thought: UvmObject | None) -> None:
    """Set COMPLETE and the result, in the cycle's own transaction: answer, effects and state are one commit."""
    mission.state, mission.result, mission.finished = COMPLETE, compact(result), time.time()
    if thought is not None:
        mission.thought = thought


# --- reads


def describe(mission: UvmObject) -> dict[str, Any]:
    """A mission as plain values."""
    mission._p_activate()
    own, prototype = mission.__dict__, getattr(mission, "parent*")
    # As it was at a moment before an upgrade, and in an image that is only looked at, the prototype lacks the newest slots.
    plain = {name: own[name] if name in own else getattr(prototype, name, DEFAULTS.get(name)) for name in _DESCRIBED}
    plain["result"] = json.loads(plain["result"]) if plain["result"] else None
    plain["error"] = json.loads(plain["error"]) if plain["error"] else None
    plain["rating"] = json.loads(plain["rating"]) if plain["rating"] else None
    plain["schema"] = json.loads(plain["schema"]) if plain["schema"] else None
    plain["needs"] = json.loads(plain["needs"]) if plain["needs"] else None
    plain["undone"] = json.loads(plain["undone"]) if plain["undone"] else None
    plain["images"] = json.loads(plain["images"]) if plain["images"] else []
    plain["questions"] = json.loads(plain["questions"]) if plain["questions"] else []
    return plain


def described(line: Line) -> dict[str, Any]:
    """What is left of a mission, with the keys of `describe`: what is not kept is as if it had not been said; `folded` is True."""
    plain: dict[str, Any] = {**{name: DEFAULTS.get(name) for name in _DESCRIBED}, "folded": True, "questions": [], "images": []}
    plain |= {"id": line.id, "brief": line.brief, "number": line.number, "state": line.state, "origin": line.origin}
    plain |= {"accepted": float(line.accepted), "finished": float(line.accepted + line.seconds)}
    if line.undone:
        plain["undone"] = {"at": None, "with": line.id, "missions": 1}
    if line.state == FAILED:
        code, _, message = line.came.partition(" ")
        plain["error"] = {"code": code, "message": message}
    else:
        inferences, read, written, seconds = line.cost
        usage = {"inferences": inferences, "prompt_tokens": read, "answer_tokens": written, "model_ms": seconds * 1000.0}
        plain["result"] = {"text": line.came, "usage": usage, "folded": True}
    return plain


def unfinished(root: Any) -> list[UvmObject]:
    """The missions that are not final, the last accepted first."""
    ledger = ledger_of(root)
    missions = [mission for id in ledger.pending if (mission := ledger.missions[id]).state not in FINAL]
    return sorted(missions, key=lambda mission: -mission.number)


def counts(root: Any) -> dict[str, int]:
    """How many missions were accepted, and how many are pending (at most)."""
    ledger = ledger_of(root)
    newest = ledger.newest.mission
    return {"accepted": 0 if newest is None else newest.number, "pending": len(ledger.pending)}


def failures(
    root: Any, *, id: str | None = None, code: str | None = None, selector: str | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """Failed attempts, newest first.

    :param id: only those at this mission.
    :param code: only those with this code, or this cause: of an inference that failed, a method that was refused.
    :param selector: only those of messages with this selector, or of refused methods for it: their `context` has `method`,
        with `selector`, `source` and `reasons`.
    :param limit: at most so many.
    :raises UnknownMission: if there is no mission of that id.
    """
    ledger, since = ledger_of(root), "" if id is None else f"{mission_of(root, id).accepted:017.6f}"
    if selector is None:
        rows = mission_index.newest_failures(ledger.failures, since, None)
    else:
        rows = mission_index.newest_failures(ledger.failures_by_selector, f"{selector} {since}", f"{selector} \U0010ffff")
    found: list[dict[str, Any]] = []
    for key, record in rows:
        if limit is not None and len(found) >= limit:
            break
        if id is not None and not key.endswith(" " + id):
            continue
        row = mission_index.failure_row(record)
        error = row["error"]
        if id is not None and row["mission"] != id:
            continue
        if code is None or code in (error["code"], error.get("context", {}).get("cause")):
            found.append(row)
    return found


def failures_of(root: Any, id: str) -> list[dict[str, Any]]:
    """The failed attempts at a mission, oldest first."""
    return failures(root, id=id)[::-1]


def compact(value: Any) -> str:
    """A slot's value as JSON, without blanks."""
    return _COMPACT.encode(value)


def ask_question(root: Any, id: str, question: str, occurrence: int, ended: int, grant: bool = False) -> None:
    """Record a question that a mission has for its user; its attempt ends here, and does not count: it said nothing wrong.

    :param ended: the attempts before it, which count.
    :param grant: whether its answer grants a method something; no other question is taken for it, whatever its words.
    """
    mission = mission_of(root, id)
    if mission.state in FINAL:
        return
    asked = json.loads(mission.questions) if mission.questions else []
    if not any(_is(one, question, occurrence, grant) for one in asked):
        number, mark = len(asked) + 1, {"grant": True} if grant else {}
        asked.append({"number": number, "question": question, "occurrence": occurrence, "answer": None, "asked": time.time(), **mark})
        mission.questions = compact(asked)
    uncount_attempt(root, id, ended)


def answer_question(root: Any, id: str, text: str, number: int | None, may_grant: bool = True) -> dict[str, Any]:
    """Record what the user answers; the mission's record. The same answer again changes nothing.

    :param number: of the question; None: the one that is open.
    :param may_grant: whether who answers may grant a method something.
    :raises InvalidInput: if there is no such question, or it was answered otherwise.
    :raises RoleRefused: for a question that grants something, where he may not.
    """
    mission = mission_of(root, id)
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
    if found["answer"] is None and mission.state in FINAL:
        raise InvalidInput(f"mission {id!r} is {mission.state}; an answer has no use any more")
    if found["answer"] is None:
        found["answer"], found["answered"] = text, time.time()
        mission.questions = compact(asked)
    return describe(mission)


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
