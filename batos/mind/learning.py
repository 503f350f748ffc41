"""What the router learns: where a user chose another persona than it would have, the brief becomes an exemplar of that one.

Learned exemplars are a tree of their own in each persona, so that missions which end at the same time do not meet, and
so that a new codex, which brings its own exemplars, leaves them alone.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from BTrees.OOBTree import OOBTree

from batos.memory.embedders import normalised
from batos.objects import Primitive, SlotList, UvmObject

SLOT = "learned_exemplars"


class Exemplars(NamedTuple):
    """Briefs that are a persona's own."""

    given: tuple[str, ...]
    """Those of the codex."""
    learned: Mapping[bytes, str] = MappingProxyType({})
    """Those it was chosen for, by the digest of the text."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.given, *self.learned.values())))


def exemplars_of(persona: UvmObject) -> Exemplars:
    """The exemplars of a persona in the image; what is no text among them is left out."""
    given = persona._slots.get("exemplars", ())
    texts = given if isinstance(given, tuple | SlotList) else ()
    learned = {key: entry[0] for key, entry in _learned(persona).items()}
    return Exemplars(tuple(text for text in texts if isinstance(text, str) and text.strip()), learned)


def learned_by(examples: Mapping[str, Exemplars], text: str) -> str | None:
    """The persona that was chosen for this very text before, if one was."""
    if not any(own.learned for own in examples.values()):
        return None
    key = _key(text)
    return next((name for name, own in examples.items() if key in own.learned), None)


def learn(personas: Mapping[str, UvmObject], chosen: str, text: str, mission: str, limit: int) -> None:
    """Make `text` an exemplar of the persona `chosen` and of no other; past `limit` the oldest one goes.

    Part of the mission's own transaction: it is kept with the answer, and undone with it.
    """
    key = _key(text)
    for name, persona in personas.items():
        if name != chosen and key in _learned(persona):
            del _learned(persona)[key]
    entries = _learned(personas[chosen])
    if key in entries:
        return
    while len(entries) >= max(1, limit):
        del entries[min(entries, key=lambda old: entries[old][2])]
    entries[key] = (text, mission, time.time())


@Primitive.register("persona.forget_exemplar_", reaches="what the router has learned")
async def forget_exemplar_(persona: UvmObject, text: str) -> bool:
    """Take back what the router has learned of a brief; whether there was anything. A message to the persona."""
    return _learned(persona).pop(_key(text), None) is not None if isinstance(text, str) else False


def _learned(persona: UvmObject) -> Any:
    """Of each learned exemplar, by the digest of its text: text, mission, time."""
    found = persona._slots.get(SLOT)
    return found if isinstance(found, OOBTree) else {}


def _key(text: str) -> bytes:
    return hashlib.sha256(" ".join(normalised(text).casefold().split()).encode("utf-8", "surrogatepass")).digest()[:16]
