"""Lessons: missions by which a user teaches a message by examples.

The examples are kept with the acceptance, and stay where the lesson fails: the next one goes on from them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from batos.errors import InvalidInput
from batos.guardian import A_SELECTOR, is_selector
from batos.image import examples, ledger
from batos.image.history import oid_of, resolve
from batos.objects import Intent, Method, Primitive, UvmObject, find


class Lesson(NamedTuple):
    """What a mission teaches."""

    mission: str
    pupil: str
    """The oid of who is taught, as the wire shows it."""
    selector: str
    examples: list[dict[str, Any]]
    intent: str = ""

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
    examples.teach(root, pupil._p_oid, lesson.selector, lesson.examples, lesson.intent, limit)


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


def called(obj: UvmObject) -> str:
    """An object in words: its name, if it has one."""
    name = obj._slots.get("name")
    return name if isinstance(name, str) and name else oid_of(obj) or repr(obj)
