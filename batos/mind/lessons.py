"""Lessons: missions by which a user teaches a message by examples.

The examples are kept with the acceptance, and stay where the lesson fails: the next one goes on from them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from batos.image import examples, ledger
from batos.image.history import resolve


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
    """
    pupil = resolve(root, lesson.pupil)
    examples.teach(root, pupil._p_oid, lesson.selector, lesson.examples, lesson.intent, limit)
