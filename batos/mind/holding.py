"""Missions that are held back: paused by their user, waiting for an answer of theirs, or following one that has not ended.

Why a mission waits is in its record, so it waits on after a restart; here is only who does, for the running daemon.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from batos.errors import ImageDamaged
from batos.image import ledger, questions
from batos.image.living import LivingImage

Record = dict[str, Any]
PAUSED, NEEDS_INPUT = "PAUSED", "NEEDS_INPUT"


def held_state(record: Record) -> str | None:
    """PAUSED or NEEDS_INPUT for a mission that its user holds back; None for one that nobody does."""
    if record["paused"]:
        return PAUSED
    return NEEDS_INPUT if questions.open_question(record) else None


class Held:
    """The missions that are held back."""

    def __init__(self, image: LivingImage) -> None:
        self._image = image
        self._records: dict[str, Record] = {}

    def holds(self, record: Record) -> bool:
        """Whether a mission is to be held back; then it is from now on."""
        if held_state(record) is None and not self.waits_for(record["context"]):
            return False
        self._records[record["id"]] = record
        return True

    def waits_for(self, context: str | None) -> bool:
        """Whether a mission with this context has to wait for it."""
        try:
            return context is not None and not self._image.read(_is_final, context)
        except ImageDamaged:
            return False  # the attempt will say so

    def take(self, id: str) -> Record | None:
        """A mission's record, which is held back no longer; None if it was not."""
        return self._records.pop(id, None)

    def followers(self, id: str) -> list[Record]:
        """Take those that waited for a mission which has ended."""
        found = [record for record in self._records.values() if record["context"] == id]
        return [] if not found or self.waits_for(id) else [self._records.pop(record["id"]) for record in found]

    def state(self, id: str) -> str | None:
        """Why a mission is held back; None if it is not, or follows another."""
        record = self._records.get(id)
        return None if record is None else held_state(record)

    def live(self, id: str) -> Record | None:
        """What `status` says of one that is held back: its open `question`, or what it `waits_for`."""
        record = self._records.get(id)
        if record is None:
            return None
        question = questions.open_question(record)
        facts: Record = {"question": question} if question else {}
        return facts if held_state(record) else {**facts, "waits_for": record["context"]}

    def facts(self) -> Record:
        """How many, by reason."""
        counts = Counter(held_state(record) for record in self._records.values())
        return {"paused": counts[PAUSED], "needs_input": counts[NEEDS_INPUT], "following": counts[None]}


def _is_final(root: Any, id: str) -> bool:
    return ledger.is_final(root, id)
