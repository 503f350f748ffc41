"""Lessons: missions by which a user teaches a message by examples.

The examples are kept with the acceptance, and stay where the lesson fails: the next one goes on from them. An undo of the lesson takes
them back, also where it FAILED.

Methods of an image that a user has confirmed, with the calls that needed them: training may use them.

A model wrote them, they are in place, and there is an example that they answer, or a rating of +1 and none of -1.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ZODB.POSException import POSKeyError

from batos.errors import BatosError, CovenantViolationError, ImageDamaged, InvalidInput, MethodRefused
from batos.forge import method_prompts, trials
from batos.guardian import A_SELECTOR, is_selector
from batos.image import history, ledger, taught_examples
from batos.image.history import resolve
from batos.mind.messages import BUILT_IN, called
from batos.objects import Example, Intent, Method, Primitive, Root, UvmObject, check_slot, find
from batos.synthesis import specification
from batos.synthesis.handbook import LONGEST, HandbookEntry, words_in
from batos.tools import connections, operation_messages

_KIN = 64  # greatest number of other objects whose examples a method has to fulfil as well


class Lesson(NamedTuple):
    """A lesson of a mission: examples and a purpose that a user taught for a message of an object."""

    mission: str
    pupil: str
    """Id of the object that the lesson is for, as on the wire."""
    selector: str
    examples: list[dict[str, Any]]
    intent: str = ""
    tools: bool = False
    """True if the method may use tools."""

    @property
    def oid(self) -> bytes:
        return int(self.pupil.removeprefix("oid:"), 16).to_bytes(8, "big")

    def touched(self) -> dict[str, Any]:
        """Return the objects that change when the lesson is taken back, or taught again."""
        return {"oid": self.pupil, "parts": [f"examples of {self.selector}"]}

    def options(self) -> dict[str, Any]:
        """Return the slots of the mission that tell the lesson from another, and apart from them the object that a path named then."""
        examples = [taught_examples.example_text(one) for one in self.examples]
        told: dict[str, Any] = {"selector": self.selector, "examples": examples, "intent": self.intent}
        if self.tools:
            told["tools"] = True
        return {"lesson": ledger.compact(told), "pupil": self.pupil}


def begin(root: Root, lesson: Lesson, limit: int) -> None:
    """Part of the transaction that accepts a lesson: keep its examples.

    :param limit: most examples of one message.
    :raises InvalidInput: for what no lesson could mend; nothing is kept then.
    """
    pupil = resolve(root, lesson.pupil)
    check(pupil, lesson.selector)
    if (count := len(lesson.examples)) > limit:  # otherwise the oldest examples would be dropped without notice
        raise InvalidInput(f"a lesson of {count} examples, and {limit} are kept for one message; teach fewer")
    for number, one in enumerate(lesson.examples):
        _check_slots(one, number)
    _keep(root, lesson, limit)


def take_back(root: Root, mission: UvmObject) -> list[dict[str, Any]]:
    """Part of the transaction that undoes a mission: take back its lesson. Return the lesson as the `objects` of an undo.

    :raises InvalidInput: for one that FAILED and has nothing here that could be taken back.
    """
    lesson = _of(mission)
    if lesson is None:
        return []
    if taught_examples.take_back(root, lesson.oid, lesson.selector, lesson.mission):
        return [lesson.touched()]
    if ledger.failed_lesson(mission):
        taught = [*map(taught_examples.example_text, lesson.examples)]
        held = taught_examples.examples_with_missions(root, lesson.oid, lesson.selector)
        others = sorted({by for one, by in held if by and taught_examples.example_text(one.to_json()) in taught})
        more = f"; what it taught, {' and '.join(map(repr, others))} had brought: undo that" if others else ""
        raise InvalidInput(f"mission {lesson.mission!r} FAILED, and none of its examples is kept, so there is nothing to undo{more}")
    return []


def teach_again(root: Root, mission: UvmObject, limit: int) -> list[dict[str, Any]]:
    """Part of the transaction that does a mission again: store its lesson again.

    :raises InvalidInput: if an example contradicts another one by now.
    """
    lesson = _of(mission)
    if lesson is None:
        return []
    _keep(root, lesson, limit)
    return [lesson.touched()]


def kin(root: Root, pupil: UvmObject, holder: UvmObject, selector: str) -> list[UvmObject]:
    """Return the other objects that were taught this message and get its method from the same holder. One method serves all of them."""
    found = []
    for oid in taught_examples.taught_objects(root, selector) if holder._p_oid else ():
        with contextlib.suppress(POSKeyError, ImageDamaged):  # the object is gone, or its examples cannot be read
            obj = root._p_jar.get(oid)
            held = find(obj, selector)
            if obj is not pupil and held is not None and held[0] is holder and taught_examples.examples_of(root, obj, selector)[0]:
                found.append(obj)
    return found[:_KIN]


def whose(root: Root, pupils: Iterable[UvmObject], selector: str, reason: str, mission: str) -> str:
    """Return a hint that names the lesson by which a method was refused, and how to take it back; "" where no lesson is the cause.

    :param pupils: objects that may have been taught the message.
    :param mission: in which it was refused.
    """
    for pupil in pupils:
        for one, by in taught_examples.examples_with_missions(root, pupil._p_oid, selector):
            if trials.speaks_of(reason, one, selector):
                return f"; the example {trials.example_text(one, selector)} {_way_back(by, mission)}"
    return ""


def _way_back(by: str, mission: str) -> str:
    if not by:
        return "is an earlier one"
    if by == mission:
        return f"stays, for the next lesson to go on from; `batos undo {by}` takes it back"
    return f"is of the earlier lesson {by!r}; if it is wrong, `batos undo {by}` takes it back"


def _of(mission: UvmObject) -> Lesson | None:
    """Return the lesson of a mission. Return None for a mission without one, or one recorded by an earlier version."""
    if mission.lesson is None:
        return None
    told = json.loads(mission.lesson)
    return Lesson(
        mission.id,
        mission.pupil,
        told["selector"],
        [json.loads(text) for text in told["examples"]],
        told["intent"],
        told.get("tools", False),
    )


def _keep(root: Root, lesson: Lesson, limit: int) -> None:
    _check_together(root, lesson)
    taught_examples.teach(root, lesson.oid, lesson.selector, lesson.examples, lesson.intent, limit, lesson.mission)
    if lesson.tools:
        taught_examples.allow_tools(root, lesson.oid, lesson.selector, lesson.mission)


def _check_slots(example: dict[str, Any], number: int) -> None:
    """Refuse slots that no object can have: each trial of the example would fail."""
    for part in ("slots", "after"):
        for name, value in (example.get(part) or {}).items():
            try:
                check_slot(name, value)
            except (TypeError, ValueError) as e:
                raise InvalidInput(f"examples[{number}].{part}: {e}") from None


def _check_together(root: Root, lesson: Lesson) -> None:
    """Refuse contradictions: two examples of one call with different results."""
    known: dict[str, list[tuple[Example, str]]] = {}
    told = [(Example.from_json(one), lesson.mission) for one in lesson.examples]
    for one, by in [*taught_examples.examples_with_missions(root, lesson.oid, lesson.selector), *told]:
        alike = known.setdefault(trials.call_key(one), [])
        for other, earlier in alike:
            if by == lesson.mission and trials.contradict(one, other):
                raise InvalidInput(_contradiction(lesson, one, other, earlier))
        alike.append((one, by))


def _contradiction(lesson: Lesson, one: Example, other: Example, earlier: str) -> str:
    both = f"no method keeps both {trials.example_text(other, lesson.selector)} and {trials.example_text(one, lesson.selector)}"
    if earlier == lesson.mission:
        return f"{both}; teach the one that is right"
    if earlier:
        return f"{both}: the former was taught by {earlier!r}; `batos undo {earlier}` takes that lesson back, then teach this one"
    return f"{both}: the former was taught in an earlier version of BAT OS, and stays; teach this one under another selector"


def check(pupil: UvmObject, selector: str) -> None:
    """Check that a method can be written under a name.

    :raises InvalidInput: if no source could be accepted under it, something else is held there, or it is an operation of a connection.
    :raises UnknownTool: if it means an operation that is suspended.
    """
    check_name(selector)
    held = find(pupil, selector)
    if held is None and pupil._p_jar is not None and connections.is_connection(pupil._p_jar.root(), pupil):
        tool = operation_messages.operation_of(pupil, selector)
        if tool is not None:
            raise InvalidInput(
                f"{selector!r} of {called(pupil)} performs its operation {tool.name!r}; choose another selector for the method"
            )
    if held is None or isinstance(held[1], Method | Intent):
        return
    what = "is BAT OS's own code" if isinstance(held[1], Primitive) else "holds a value"
    raise InvalidInput(f"{selector!r} of {called(pupil)} {what}, and no method that examples could change; choose another selector")


def check_name(selector: str) -> None:
    """Check that a method may have a name.

    :raises InvalidInput: if not.
    """
    if not is_selector(selector):
        raise InvalidInput(f"{selector!r} is not a valid selector, so no method can be written for it; choose another. {A_SELECTOR}")


_LOOKED_AT = 16  # greatest number of failures of a selector that are looked at, the newest
_MISSIONS = 256  # greatest number of missions in which a handbook looks for methods, the newest
_REFUSED = (MethodRefused.code, CovenantViolationError.code)


class RecordedCall(NamedTuple):
    """A message that a mission sent, or was to learn to answer."""

    target: UvmObject
    selector: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def accepted_entries(root: Root, before: float, but: tuple[UvmObject, str]) -> list[HandbookEntry]:
    """Return the image's own accepted methods as entries of a handbook, the last called first.

    :param before: time (seconds since the epoch) by which a mission must have ended, so that a replay finds the same.
    :param but: an object and a selector whose methods are left out: the method for them is the one that is wanted.
    """
    found: dict[str, HandbookEntry] = {}
    for mission in itertools.islice(ledger.newest_first(root), _MISSIONS):
        with contextlib.suppress(ImageDamaged):  # unreadable methods have no confirmation
            for call in recorded_calls(root, mission) if (mission.finished or before) < before else ():
                held = find(call.target, call.selector)
                known = held is not None and isinstance(held[1], Method) and held[1].source in found
                if not known and (call.target, call.selector) != but and (method := method_for(root, mission, call)) is not None:
                    found[method.source] = _entry(root, call, method)
    return [entry for entry in found.values() if len(entry.source) <= LONGEST]


def _entry(root: Root, call: RecordedCall, method: Method) -> HandbookEntry:
    came, does = dict(method.provenance), dict(method.contract)
    intent = taught_examples.examples_of(root, call.target, call.selector)[1] or str(came.get("intent", ""))
    slots = {*does.get("reads", ()), *does.get("writes", ())}
    told = f"{intent} {call.selector}".replace("_", " ")
    return HandbookEntry(
        " ".join(method_prompts.purpose(call.selector, intent).split()),  # the prompt shows it on one line, behind a mark
        method.source.strip(),
        words_in(told) - words_in(" ".join(map(str, slots)).replace("_", " ")),
        tuple(specification.parameters(call.selector, call.args, call.kwargs)),
        bool(slots),
        method.source,
    )


def recorded_calls(root: Root, mission: UvmObject) -> Iterator[RecordedCall]:
    """Yield the message of each mission that ended, or failed because no method could be kept. For a lesson it is the message that was
    taught.
    """
    if not mission.message or mission.undone or not (mission.state == ledger.COMPLETE or was_refused(mission)):
        return
    message = json.loads(mission.message)
    if (target := _resolved(root, message["target"])) is None:
        return
    if message["selector"] == "learn_" and message["args"]:
        selector = str(message["args"][0])
        taught: list[Example] = taught_examples.examples_of(root, target, selector)[0]
        if taught:
            yield RecordedCall(target, selector, taught[0].args, dict(taught[0].kwargs))
    elif message["selector"] not in BUILT_IN:
        yield RecordedCall(target, message["selector"], tuple(message["args"]), message["kwargs"])


def was_refused(mission: UvmObject) -> bool:
    """Return True if a mission failed because no method could be kept."""
    return bool(mission.error) and json.loads(mission.error)["code"] in _REFUSED


def method_for(root: Root, mission: UvmObject, call: RecordedCall) -> Method | None:
    """Return the method that answers a call now, if a model wrote it and a user confirmed it."""
    held = find(call.target, call.selector)
    if held is None or not isinstance(method := held[1], Method):
        return None
    came = dict(method.provenance)
    if came.get("model") in (None, "rule"):
        return None
    writer = ledger.ledger_of(root).missions.get(came.get("mission", ""))
    ratings = {_rating(mission), _rating(writer)}
    if -1 in ratings or (writer is not None and last_refusal(root, call) > (writer.finished or 0)):
        return None  # the method is wrong, or a stopgap for a better one
    return method if 1 in ratings or taught_examples.examples_of(root, call.target, call.selector)[0] else None


def _rating(mission: UvmObject | None) -> int:
    return int(json.loads(mission.rating)["rating"]) if mission is not None and mission.rating else 0


def last_refusal(root: Root, call: RecordedCall) -> float:
    """Return the time at which a method for this message to this object was last refused for good; 0 if never."""
    for row in ledger.failures(root, selector=call.selector, limit=_LOOKED_AT):
        message = ledger.message_of(root, row["mission"])
        if row["final"] and row["error"]["code"] in _REFUSED and message and _resolved(root, json.loads(message)["target"]) is call.target:
            return float(row["at"])
    return 0.0


def _resolved(root: Root, target: str) -> UvmObject | None:
    try:
        return history.resolve(root, target)
    except BatosError:  # the mission is gone
        return None
