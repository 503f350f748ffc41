"""Lessons: missions by which a user teaches a message by examples.

The examples are kept with the acceptance, and stay where the lesson fails: the next one goes on from them. An undo of the lesson takes
them back, also where it FAILED.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged, InvalidInput
from batos.guardian import A_SELECTOR, is_selector
from batos.image import examples, ledger
from batos.image.examples import Example
from batos.image.history import resolve
from batos.mind import trial
from batos.mind.messages import called
from batos.objects import Intent, Method, Primitive, UvmObject, check_slot, find

_KIN = 64  # others whose examples a method has to keep, too


class Lesson(NamedTuple):
    """What a mission teaches."""

    mission: str
    pupil: str
    """The oid of who is taught, as the wire shows it."""
    selector: str
    examples: list[dict[str, Any]]
    intent: str = ""

    @property
    def oid(self) -> bytes:
        return int(self.pupil.removeprefix("oid:"), 16).to_bytes(8, "big")

    def touched(self) -> dict[str, Any]:
        """What changes where it is taken back, or taught again."""
        return {"oid": self.pupil, "parts": [f"examples of {self.selector}"]}

    def options(self) -> dict[str, Any]:
        """The slots by which its mission holds it: what tells it from another lesson, and apart from it whom a path named then."""
        told = {"selector": self.selector, "examples": [examples.as_text(one) for one in self.examples], "intent": self.intent}
        return {"lesson": ledger.compact(told), "pupil": self.pupil}


def begin(root: Any, lesson: Lesson, limit: int) -> None:
    """Part of the transaction that accepts a lesson: keep its examples.

    :param limit: most examples of one message.
    :raises InvalidInput: for what no lesson could mend; nothing is kept then.
    """
    pupil = resolve(root, lesson.pupil)
    check(pupil, lesson.selector)
    if (count := len(lesson.examples)) > limit:  # else the first of them would be let go of unseen
        raise InvalidInput(f"a lesson of {count} examples, and {limit} are kept for one message (setting examples_limit); teach fewer")
    for number, one in enumerate(lesson.examples):
        _check_slots(one, number)
    _keep(root, lesson, limit)


def take_back(root: Any, mission: UvmObject) -> list[dict[str, Any]]:
    """Part of the transaction that undoes a mission: take back what it taught; what that was, as `objects` of an undo.

    :raises InvalidInput: for one that FAILED and has nothing here that could be taken back.
    """
    lesson = _of(mission)
    if lesson is None:
        return []
    if examples.take_back(root, lesson.oid, lesson.selector, lesson.mission):
        return [lesson.touched()]
    if ledger.failed_lesson(mission):
        taught = [*map(examples.as_text, lesson.examples)]
        held = examples.brought(root, lesson.oid, lesson.selector)
        others = sorted({by for one, by in held if by and examples.as_text(one.to_json()) in taught})
        more = f"; what it taught, {' and '.join(map(repr, others))} had brought: undo that" if others else ""
        raise InvalidInput(f"mission {lesson.mission!r} FAILED, and no example that it brought is held: nothing could be undone{more}")
    return []


def again(root: Any, mission: UvmObject, limit: int) -> list[dict[str, Any]]:
    """Part of the transaction that does a mission again: teach what it taught.

    :raises InvalidInput: if an example contradicts another one by now.
    """
    lesson = _of(mission)
    if lesson is None:
        return []
    _keep(root, lesson, limit)
    return [lesson.touched()]


def kin(root: Any, pupil: UvmObject, holder: UvmObject, selector: str) -> list[UvmObject]:
    """Others who were taught a message, and have the method for it from the same holder: what is written for one of them is theirs, too."""
    found = []
    for oid in examples.pupils(root, selector) if holder._p_oid else ():
        with contextlib.suppress(POSKeyError, ImageDamaged):  # it is gone, or what it was taught cannot be read
            obj = root._p_jar.get(oid)
            held = find(obj, selector)
            if obj is not pupil and held is not None and held[0] is holder and examples.of(root, obj, selector)[0]:
                found.append(obj)
    return found[:_KIN]


def whose(root: Any, pupils: Iterable[UvmObject], selector: str, reason: str, mission: str) -> str:
    """Where a method was refused for its answer to an example: whose that is, and how to take it back; else "".

    :param pupils: who may have been taught it.
    :param mission: in which it was refused.
    """
    for pupil in pupils:
        for one, by in examples.brought(root, pupil._p_oid, selector):
            if trial.speaks_of(reason, one, selector):
                return f"; the example {trial.told(one, selector)} {_way_back(by, mission)}"
    return ""


def _way_back(by: str, mission: str) -> str:
    if not by:
        return "is an earlier one"
    if by == mission:
        return f"stays, for the next lesson to go on from; `batos undo {by}` takes it back"
    return f"is of the earlier lesson {by!r}; if it is wrong, `batos undo {by}` takes it back"


def _of(mission: UvmObject) -> Lesson | None:
    """What a mission taught; None for what is no lesson, or was recorded by an earlier version."""
    if mission.lesson is None:
        return None
    told = json.loads(mission.lesson)
    return Lesson(mission.id, mission.pupil, told["selector"], [json.loads(text) for text in told["examples"]], told["intent"])


def _keep(root: Any, lesson: Lesson, limit: int) -> None:
    _check_together(root, lesson)
    examples.teach(root, lesson.oid, lesson.selector, lesson.examples, lesson.intent, limit, lesson.mission)


def _check_slots(example: dict[str, Any], number: int) -> None:
    """Refuse slots that no object can have: each trial of the example would fail."""
    for part in ("slots", "after"):
        for name, value in (example.get(part) or {}).items():
            try:
                check_slot(name, value)
            except (TypeError, ValueError) as e:
                raise InvalidInput(f"examples[{number}].{part}: {e}") from None


def _check_together(root: Any, lesson: Lesson) -> None:
    """Refuse what no method can keep: two examples of the same call with different ends."""
    known: dict[str, list[tuple[Example, str]]] = {}
    told = [(Example.from_json(one), lesson.mission) for one in lesson.examples]
    for one, by in [*examples.brought(root, lesson.oid, lesson.selector), *told]:
        alike = known.setdefault(trial.asked(one), [])
        for other, earlier in alike:
            if by == lesson.mission and trial.contradict(one, other):
                raise InvalidInput(_contradiction(lesson, one, other, earlier))
        alike.append((one, by))


def _contradiction(lesson: Lesson, one: Example, other: Example, earlier: str) -> str:
    both = f"no method keeps both {trial.told(other, lesson.selector)} and {trial.told(one, lesson.selector)}"
    if earlier == lesson.mission:
        return f"{both}; teach the one that is right"
    if earlier:
        return f"{both}: the former was taught by {earlier!r}; `batos undo {earlier}` takes that lesson back, then teach this one"
    return f"{both}: the former was taught in an earlier version of BAT OS, and stays; teach this one under another selector"


def check(pupil: UvmObject, selector: str) -> None:
    """Whether a method could be written under a name.

    :raises InvalidInput: if no source could be accepted under it, or something else is held there.
    """
    check_name(selector)
    held = find(pupil, selector)
    if held is None or isinstance(held[1], Method | Intent):
        return
    what = "is BAT OS's own code" if isinstance(held[1], Primitive) else "holds a value"
    raise InvalidInput(f"{selector!r} of {called(pupil)} {what}, and no method that examples could change; choose another selector")


def check_name(selector: str) -> None:
    """Whether a method may have a name.

    :raises InvalidInput: if not.
    """
    if not is_selector(selector):
        raise InvalidInput(f"{selector!r} is no selector, so no method can be written for it; choose another. {A_SELECTOR}")
