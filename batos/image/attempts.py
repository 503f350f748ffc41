"""Attempts at a mission that the daemon died in: which of them speak against the mission.

Attempts are counted before they are made. One that paid for something that the journal did not have before brought the mission further:
what ended it came from outside, and its count is taken back at the next start. One that died without progress counts.
"""

from __future__ import annotations

from typing import Any

from batos.errors import ImageDamaged
from batos.image import journal

OVER: tuple[int, ...] = ()
"""What a mission's slot `begun_with` says while no attempt is under way that nobody has judged."""


def note_begin(mission: Any) -> None:
    """System transaction's part: note what the journal holds while an attempt begins."""
    _note(mission, _held(mission))


def note_end(mission: Any) -> None:
    """System transaction's part: the attempt is over and judged, a failure that is recorded, say; no start judges it anew."""
    _note(mission, OVER)


def forgive(mission: Any, most: int) -> bool:
    """System transaction's part at a start: take back the count of an attempt in which a daemon died, if it made progress; whether it did.

    :param most: inferences in the journal from which on no progress is seen: a mission asks for no more than it may, whatever it paid for.
    """
    begun_with, held = tuple(mission.begun_with), _held(mission)
    if not mission.attempts or begun_with == OVER or held <= begun_with or held[0] > most:
        return False
    mission.attempts -= 1
    note_end(mission)
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
