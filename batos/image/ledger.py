"""Ledger: the durable record of all missions.

Every function here is a short function of the root, run as a system transaction, or a read. A mission is acknowledged
only when its `accept` is durable. Only `accept`, the counting of attempts, its own cycle, `fail`, a rating, a pause,
its questions and an undo write a mission. `pending` holds every mission that is not final, and maybe some that are. A cycle sets COMPLETE
in its own transaction and never writes a shared set; `settle` cleans up afterwards.

Attempts are counted before they are made. An attempt in which the daemon died counts against the mission only if it
made no progress. An attempt that paid for an inference which the journal did not have before brought the mission further. Its end came from
outside, and its count is taken back at the next start.

A mission may ask its user questions. They are kept with its record, so it waits for an answer also over restarts.
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
from batos.errors import (
    AttemptsExhausted,
    ImageDamaged,
    InvalidInput,
    MissionCancelled,
    MissionFolded,
    MissionIdTaken,
    RoleRefused,
    UnknownMission,
)
from batos.image import blobs, effects, journal, kernels, mission_index, notices, ownership
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
from batos.image.mission_record import ACCEPTED as ACCEPTED
from batos.image.mission_record import DEFAULTS as DEFAULTS
from batos.image.mission_record import AskedQuestion, MissionRecord, described, is_question
from batos.image.mission_record import describe as describe
from batos.objects import Root, UvmObject

ATTEMPT_OVER: tuple[int, ...] = ()
"""Value of a mission's slot `begun_with` while no attempt is under way, or waits to be judged."""


def note_attempt_begin(mission: Any) -> None:
    """Note the contents of the journal at the beginning of an attempt. Part of a system transaction."""
    _note(mission, _held(mission))


def note_attempt_end(mission: Any) -> None:
    """Note that an attempt is over and judged, so that no start judges it again. Part of a system transaction."""
    _note(mission, ATTEMPT_OVER)


def forgive_attempt(mission: Any, most: int) -> bool:
    """Take back the count of an attempt in which a daemon died, if it made progress; return True if so. Part of a
    system transaction.

    :param most: inferences in the journal above which no progress is seen: a mission may not ask for more, even of inferences already paid
        for.
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
    """Return the number of inferences in the journal, and the tokens of unfinished ones. Progress is more of either."""
    held = journal.of(mission)
    tokens = 0
    for _, partial in held.partials:
        try:
            tokens += partial.tokens
        except ImageDamaged:  # it is asked for anew
            continue
    return len(held.entries), tokens


log = structlog.get_logger("batos.image")

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)

_NEAR = 50  # ids that are looked at for one that was meant


class MissionTree(OOBTree):
    """Missions by id. Small nodes: an accept rewrites a leaf, and each leaf that is split the node above it."""

    __module__ = "batos.image"
    max_leaf_size, max_internal_size = 8, 16


class PendingSet(OOTreeSet):
    """Ids of missions. Small inner nodes: one is rewritten whenever a leaf is split."""

    __module__ = "batos.image"
    max_internal_size = 32


class Ledger(Persistent):
    """Root of the missions' records."""

    __module__ = "batos.image"
    ended: Ended = None  # type: ignore[assignment]
    folded: Folded = None  # type: ignore[assignment]
    """Both are None in an image of an earlier version that is only read; see `add_missing_indexes`."""

    def __init__(self, prototype: UvmObject) -> None:
        """
        :param prototype: parent of every mission.
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
    """Total cost of the missions up to one of them, and the progress of retention: see `batos.image.usage_totals`."""

    __module__ = "batos.image"
    until: int = 0
    """Number of the last mission in the total; all before it are in it, too, but for those `apart`."""
    apart: tuple[int, ...] = ()
    """Numbers of the missions that had not ended."""
    by_model: tuple[tuple[Any, ...], ...] = ()
    retained: int = 0
    """Number of the last mission whose journal retention has handled, or passed over."""
    passed_over: tuple[int, ...] = ()
    """Numbers of the missions up to it that retention has passed over."""
    stepped: tuple[tuple[Any, ...], ...] = ()
    """Cost of the inferences that sessions of stepping paid for and that are in no journal, by model."""


class Newest(Persistent):
    """Head of the chain of missions. Each mission links to the one accepted before it: a list that costs one small
    record an accept, whatever its length."""

    __module__ = "batos.image"
    mission: UvmObject | None = None


def ledger_of(root: Root) -> Ledger:
    """Return the ledger of an image."""
    return root["ledger"]  # type: ignore[no-any-return]


def origin_of_mission(root: Root, id: str) -> str:
    """Return the origin of a mission; empty for one of which at most a line is left."""
    mission = ledger_of(root).missions.get(id)
    return str(mission.origin) if mission is not None else ""


def mission_of(root: Root, id: str) -> UvmObject:
    """Return the mission of an id.

    :raises UnknownMission: if there is none.
    :raises MissionFolded: if only a line is left of it.
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


def line_of(root: Root, id: str) -> Line | None:
    """Return the line of a folded mission; None for any other id."""
    folded: Folded | None = ledger_of(root).folded
    return None if folded is None else folded.get(id)


def record_of(root: Root, id: str) -> MissionRecord:
    """Return a mission as plain values; of a folded one, what its line holds.

    :raises UnknownMission: if there is none.
    """
    line = line_of(root, id)
    return describe(mission_of(root, id)) if line is None else described(line)


def require(root: Root, id: str) -> None:
    """
    :raises UnknownMission: if no mission of that id was ever accepted.
    """
    if line_of(root, id) is None:
        mission_of(root, id)


def is_known(root: Root, id: str) -> bool:
    """Return True if a mission of that id was ever accepted."""
    return id in ledger_of(root).missions or line_of(root, id) is not None


def is_final(root: Root, id: str) -> bool:
    """Return True if a mission has ended.

    :raises UnknownMission: if there is none.
    """
    return line_of(root, id) is not None or mission_of(root, id).state in FINAL


def message_of(root: Root, id: str) -> str:
    """Return the message of a mission as JSON; empty for a brief, and for a folded mission."""
    mission = ledger_of(root).missions.get(id)
    return "" if mission is None else mission.message or ""


def failed_lesson(mission: UvmObject) -> bool:
    """Return True for a FAILED mission that taught examples, which are all that is in the image of it."""
    return mission.state == FAILED and mission.lesson is not None


def _near(root: Root, id: str) -> list[str]:
    """Return ids that may be meant by an unknown one: those after it in order, and the newest."""
    after = itertools.islice(ledger_of(root).missions.keys(min=id), _NEAR)
    return [*after, *(mission.id for mission in itertools.islice(newest_first(root), _NEAR))]


def add_missing_indexes(root: Root) -> None:
    """Add the indexes that the ledger of an earlier version lacks."""
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
    root: Root, id: str, brief: str, options: dict[str, Any], begin: bool, first: Callable[[Any], object] | None = None
) -> tuple[bool, MissionRecord]:
    """Accept a mission, or find that it was accepted before.

    :param options: slots that differ from the prototype's: those of `DEFAULTS` that a client chooses; lists and
        objects as JSON.
    :param begin: count its first attempt too, because it starts at once.
    :param first: function of the root that is run with the acceptance of a new mission; an error of it refuses the
        mission.
    :returns: True if the mission is new, and its record.
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
        if me := kernels.me(root):
            mission.kernel = me
    ledger.missions[id] = mission
    ledger.pending.insert(id)
    ledger.newest.mission = mission
    if mission.number % MILESTONE == 0:
        ledger.milestones[mission.number] = mission
    return True, describe(mission)


def own_pictures(images: str | None) -> list[str]:
    """Return the digests of a mission's own pictures."""
    return [one["digest"] for one in json.loads(images or "[]") if "of" not in one]


def _another_lesson(mission: UvmObject, options: dict[str, Any]) -> bool:
    """Return True if a mission taught other examples, or another intent; one that an earlier version recorded does
    not tell."""
    return mission.lesson is not None and mission.lesson != options.get("lesson")


def _next_number(ledger: Ledger) -> int:
    newest = ledger.newest.mission
    try:
        return 1 if newest is None else int(newest.number) + 1
    except ImageDamaged:  # numbers are left out, rather than that no mission is accepted any more
        return int(ledger.milestones.maxKey() if ledger.milestones else 0) + MILESTONE


def begin_attempt(root: Root, id: str, limit: int, most: int = 0) -> int:
    """Claim a mission and count an attempt before it is made; return its number.

    :param most: inferences that a mission may ask for: the attempt of a kernel that is gone does not count if it made progress
        (`forgive_attempt`).
    :raises AttemptsExhausted: past `limit`: the mission may be the cause of the daemon's death, so it is not tried
        again.
    :raises MissionCancelled: if its user cancelled it at another kernel, and the one that had it did not end it.
    :raises Overtaken: if another kernel has the mission, or it has ended there.
    """
    mission = mission_of(root, id)
    if ownership.claim(root, mission) and forgive_attempt(mission, most):
        log.info("attempt_forgiven", mission=id, why="its kernel died in it, and it had paid for more than those before it")
    if mission.cancelled:  # its kernel did not come to it
        raise MissionCancelled(f"mission {id!r} was cancelled")
    if mission.attempts >= limit:
        raise AttemptsExhausted(
            f"mission {id!r} was begun {mission.attempts} times, never ended and made no progress; it is not tried again"
        )
    mission.attempts += 1
    journal.opened(mission)  # now, since its record is written anyway: later it would meet what the cycle commits
    note_attempt_begin(mission)
    return int(mission.attempts)


def fail(root: Root, id: str, error: dict[str, Any], context: dict[str, Any], final: bool) -> MissionRecord | None:
    """Record a failed attempt; with `final`, the mission is FAILED, and the context names the effects that stand (`effects`).

    :returns: None; or, if the mission is final already and stays as it is, its record. A cancellation or a deadline can come while the
        commit is under way.
    :raises Overtaken: if it is another kernel's. Any kernel may end a mission without an owner.
    """
    ledger, mission = ledger_of(root), mission_of(root, id)
    if mission.state in FINAL:
        return describe(mission)
    ownership.require_free(root, mission)
    if final:
        effects.end_unsent(root, id)
    if final and (stand := effects.standing(root, id)):
        context = {**context, "effects": stand}
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
    """Return a time for the key of a failure: clocks go backwards, the order of failures does not."""
    last = float(ledger.failures.maxKey()[:17]) if ledger.failures else 0.0
    return max(at, float(mission.accepted), last + 0.000001)


def uncount_attempt(root: Root, id: str, ended: int, keep: bool = False) -> None:
    """Take back the count of an interrupted attempt, which says nothing against the mission, and give the mission back: any kernel may take
    it up. Another kernel's mission stays as it is.

    :param ended: number of attempts before it, which count.
    :param keep: True if this kernel keeps the mission, since it goes on with it.
    """
    mission = mission_of(root, id)
    if mission.state in FINAL or not ownership.is_own(root, mission):
        return
    if mission.attempts > ended:
        mission.attempts = ended
        note_attempt_end(mission)
    if not keep:
        ownership.give_back(root, mission)


def hand_over(root: Root, id: str, connection: str, ended: int) -> None:
    """Give a mission to the kernels of a connection's machine: its attempt here says nothing against it.

    :param ended: see `uncount_attempt`.
    """
    mission = mission_of(root, id)
    if mission.state not in FINAL and ownership.is_own(root, mission) and mission.connection != connection:
        mission.connection = connection
    uncount_attempt(root, id, ended)


def set_paused(root: Root, id: str, paused: bool) -> MissionRecord:
    """Pause a mission, or let it go on; return its record. A final one stays as it is."""
    if (line := line_of(root, id)) is not None:
        return described(line)
    mission = mission_of(root, id)
    if mission.state not in FINAL and mission.paused != paused:
        mission.paused = paused
    return describe(mission)


def ask_to_cancel(root: Root, id: str) -> MissionRecord:
    """Ask the kernel that thinks a mission through to end it, whose commit of a result meets a conflict from now on; return the record.
    One that has ended, or that this kernel may end itself, stays as it is."""
    if (line := line_of(root, id)) is not None:
        return described(line)
    mission = mission_of(root, id)
    if mission.state not in FINAL and not mission.cancelled and not ownership.free(root, mission):
        mission.cancelled = True
    return describe(mission)


def rate(root: Root, id: str, rating: int, why: str) -> bool:
    """Keep a user's rating of a mission; return True if it differs from the one before, which it replaces.

    :param rating: 1 or -1.
    :raises InvalidInput: if the mission has not ended: its cycle's commit would conflict with the rating.
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


def settle(root: Root, id: str, recalled: bool = True) -> None:
    """Remove a final mission from the pending ones, and enter it into the index of ended ones.

    :param recalled: False if it was shown nothing from memory, so that its journal need not be read.
    """
    ledger = ledger_of(root)
    if id in ledger.pending:
        ledger.pending.remove(id)
        mission = ledger.missions[id]
        if mission.state in FINAL:
            effects.end_unsent(root, id)
            ledger.ended.by(mission.state)[mission.number] = mission
            notices.note_end(root, mission, mission.state == FAILED)
        if recalled:
            journal.forget_shown(journal.of(mission))


def recover(root: Root, most: int) -> list[MissionRecord]:
    """Return the missions to resume, oldest first, and clean the pending ones of those that are final.

    :param most: inferences that a mission may ask for. As long as it paid for no more, an attempt that paid for one
        does not count.
    """
    ledger = ledger_of(root)
    records = []
    for id in list(ledger.pending):
        try:
            mission = ledger.missions[id]
            if not ownership.free(root, mission):
                continue
            if mission.state not in FINAL and forgive_attempt(mission, most):
                log.info("attempt_forgiven", mission=id, why="the daemon died in it, and it had paid for more than those before it")
            records.append(describe(mission))
        except ImageDamaged as e:
            log.error("mission_damaged", mission=id, error=e.message, hint="it waits; the others go on")
    for record in records:
        if record.is_final:
            settle(root, record.id)
    return sorted((record for record in records if not record.is_final), key=lambda record: record.number)


# --- inside a cycle's own transaction


def complete(mission: UvmObject, result: dict[str, Any], thought: UvmObject | None) -> None:
    """Set COMPLETE and the result, in the cycle's own transaction: answer, effects and state are one commit."""
    mission.state, mission.result, mission.finished = COMPLETE, compact(result), time.time()
    if thought is not None:
        mission.thought = thought


# --- reads


def continuations_of(mission: UvmObject) -> int:
    """Return the number of times that the user let a mission go on after stepping into it."""
    return len(json.loads(mission.continued)) if mission._slots.get("continued") else 0


def unfinished(root: Root) -> list[UvmObject]:
    """Return the missions that are not final, the last accepted first."""
    ledger = ledger_of(root)
    missions = [mission for id in ledger.pending if (mission := ledger.missions[id]).state not in FINAL]
    return sorted(missions, key=lambda mission: -mission.number)


def counts(root: Root) -> dict[str, int]:
    """Return the number of accepted missions, and of pending ones (an upper bound)."""
    ledger = ledger_of(root)
    newest = ledger.newest.mission
    return {"accepted": 0 if newest is None else newest.number, "pending": len(ledger.pending)}


def failures(
    root: Root, *, id: str | None = None, code: str | None = None, selector: str | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """Return failed attempts, newest first.

    :param id: only attempts at this mission.
    :param code: only failures with this code, or this cause: of a failed inference or a refused method.
    :param selector: only failures of messages with this selector, or of refused methods for it; their `context` has
        `method`, with `selector`, `source` and `reasons`.
    :param limit: maximum number of failures.
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


def failures_of(root: Root, id: str) -> list[dict[str, Any]]:
    """Return the failed attempts at a mission, oldest first."""
    return failures(root, id=id)[::-1]


def compact(value: Any) -> str:
    """Return a slot's value as JSON, without blanks."""
    return _COMPACT.encode(value)


def ask_question(root: Root, id: str, question: str, occurrence: int, ended: int, grant: bool = False) -> None:
    """Record a question of a mission to its user. Its attempt ends here, and does not count.

    :param ended: number of attempts before it, which count.
    :param grant: True if the answer grants a method something; no other question is taken for it, whatever its words.
    :raises Overtaken: if the mission is another kernel's.
    """
    mission = mission_of(root, id)
    if mission.state in FINAL:
        return
    ownership.own(root, mission)
    asked = _questions(mission)
    if not any(is_question(one, question, occurrence, grant) for one in asked):
        new: AskedQuestion = {
            "number": len(asked) + 1, "question": question, "occurrence": occurrence, "answer": None, "asked": time.time(),
        }  # fmt: skip
        if grant:
            new["grant"] = True
        asked.append(new)
        mission.questions = compact(asked)
        notices.note_question(root, mission, question)
    uncount_attempt(root, id, ended)


def answer_question(root: Root, id: str, text: str, number: int | None, may_grant: bool = True) -> MissionRecord:
    """Record the user's answer; return the mission's record. The same answer again changes nothing.

    :param number: number of the question; None: the one that is open.
    :param may_grant: True if the client may grant a method something.
    :raises InvalidInput: if there is no such question, or it has another answer.
    :raises RoleRefused: for a question that grants something, if the client may not.
    """
    mission = mission_of(root, id)
    asked = _questions(mission)
    open_ones = [one for one in asked if one["answer"] is None]
    if number is None and not open_ones:
        raise InvalidInput(f"mission {id!r} has no open question; `batos status {id}` shows what it asked")
    found = open_ones[0] if number is None else next((one for one in asked if one["number"] == number), None)
    if found is None:
        raise InvalidInput(f"mission {id!r} has no question {number}; it has asked {len(asked)}")
    if found.get("grant") and not may_grant:
        raise RoleRefused(
            f"question {found['number']} of mission {id!r} lets it do more than think (a method change more than its receiver, a model be "
            "pulled). It needs the role operate, and an operator answers it"
        )
    if found["answer"] is not None and found["answer"] != text:
        raise InvalidInput(f"question {number} of mission {id!r} was answered already, with {found['answer'][:60]!r}")
    if found["answer"] is None and mission.state in FINAL:
        raise InvalidInput(f"mission {id!r} is {mission.state}; it no longer needs an answer")
    if found["answer"] is None:
        found["answer"], found["answered"] = text, time.time()
        mission.questions = compact(asked)
    return describe(mission)


def _questions(mission: UvmObject) -> list[AskedQuestion]:
    return json.loads(mission.questions) if mission.questions else []
