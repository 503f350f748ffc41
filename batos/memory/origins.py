"""Who says what a document holds: a file, the user, a tool, or the system itself. What it said itself is no evidence of a fact.

The kind of a document tells it mostly, also of those that were there before origins were; a note says it, or its mission's record does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from BTrees.LLBTree import LLTreeSet

from batos.errors import BatosError
from batos.image import ledger
from batos.memory.kinds import DIGEST, FAILURE, MISSION, NOTE, STATEMENT, SUMMARY
from batos.memory.library import library_of
from batos.objects import UvmObject

FILE, USER, TOOL, SELF = "file", "user", "tool", "self"
ORIGINS = (FILE, USER, TOOL, SELF)

_LEAST = 12
"""Characters of what a model said that a note repeats, for the note to be the model's."""


def origin_of(root: Any, document: UvmObject) -> str:
    """Who says what a document holds; one of `ORIGINS`."""
    kind = document.kind
    if document.origin in ORIGINS:
        return str(document.origin)
    if kind == STATEMENT:
        return USER
    if kind in (MISSION, FAILURE, DIGEST):
        return SELF
    if kind == SUMMARY:
        return _of_summary(root, document)
    return _of_note(root, document) if kind == NOTE else FILE


def _of_summary(root: Any, document: UvmObject) -> str:
    """Sentences that were chosen are whose they were; what a model made of them is the system's own."""
    if document.archive is None or document.archive.by_model:
        return SELF
    origins = {origin_of(root, one) for one in document.of if "kind" in one._slots or "sections" in one._slots}
    return origins.pop() if len(origins) == 1 else FILE


def _of_note(root: Any, document: UvmObject) -> str:
    """Of a note that does not say it, as those of version 0.1.0: by the mission that kept it."""
    try:
        mission = ledger.mission_of(root, document.mission)
    except BatosError:  # it is not known any more
        return TOOL
    text = "".join(chunk.text for chunk in library_of(root).chunks_of(document))
    return noted_by(text, str(mission.brief), mission.message, ())


def noted_by(text: str, brief: str, message: str | None, said: Iterable[str]) -> str:
    """Who says a note that a mission keeps.

    :param message: of the mission, as the ledger has it; None: it is a brief that is thought about.
    :param said: what models said in it.
    """
    given = " ".join([brief, *_texts(json.loads(message))] if message else [brief])
    if " ".join(text.split()) in " ".join(given.split()):
        return USER
    told = [one.strip() for one in said]
    if any((len(one) >= _LEAST and one in text) or (text.strip() in one) for one in told):
        return SELF
    return TOOL if message else SELF


def _texts(value: Any) -> list[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


# --- own answers that the user vouched for


def vouched(root: Any) -> frozenset[int]:
    """The numbers of the documents that are of missions which the user rated +1."""
    return frozenset(root["lobby"].memory.vouched.keys(0, excludemin=True))


def none_vouched() -> LLTreeSet:
    """The tree of `vouched`; 0 is no document's number and stays: two transactions that add to an empty tree would meet."""
    return LLTreeSet([0])


def vouch(root: Any, mission: str, rating: int) -> None:
    """In a system transaction: what a mission answered is evidence from now on where it is rated +1, and none where it is not."""
    number = library_of(root).by_source.get(f"mission:{mission}")
    if number is None:  # it is told again when it becomes memory
        return
    numbers = root["lobby"].memory.vouched
    if rating > 0:
        numbers.add(number)
    elif number in numbers:
        numbers.remove(number)
