"""Registers of triggers in the image: named objects under the lobby, with history and undo like all others, and what they have in common.

A trigger holds what its user said, and its last missions. The id of each mission is derived from the trigger and what called for it. So
neither a kill, nor a repetition, nor an undo makes two missions of one thing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from batos.config import nearest
from batos.errors import InvalidInput
from batos.image import ledger
from batos.image.living_image import add_missing
from batos.objects import Root, UvmObject

RUNS_KEPT = 20
"""Missions that a trigger remembers; the greatest number of failures after which one stops."""
BRIEF_CHARS = 20_000
DEPTHS = ("", "auto", "direct", "facets", "council")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}\Z")


class MissionTerms(NamedTuple):
    """Terms under which the missions of a trigger are thought about."""

    persona: str = ""
    """empty: the router chooses"""
    depth: str = ""
    priority: int = 0

    def options(self, origin: str) -> dict[str, Any]:
        """Return them as options of a mission."""
        return {"persona": self.persona or None, "depth": self.depth or None, "priority": self.priority, "origin": origin}


class TriggeredRun(NamedTuple):
    """A mission of a trigger."""

    mission: str
    at: float
    """when it was called for, in seconds since the epoch"""


@dataclass(frozen=True)
class Register:
    """The triggers of one kind."""

    place: str
    """slot of the lobby that holds them by name"""
    trait: str
    """slot of the traits with their prototype"""
    verb: str
    """command that adds one, for messages"""
    noun: str
    most: int

    def install(self, lobby: UvmObject, comments: tuple[str, str], **slots: Any) -> None:
        """Make the object that holds them, and their prototype. A step of genesis.

        :param comments: of the one, and of the other.
        """
        add_missing(lobby, **{self.place: lambda: lobby.genesis.derive(name=self.place, comment=comments[0])})
        add_missing(lobby.traits, **{self.trait: lambda: lobby.genesis.derive(comment=comments[1], number=0)})
        common = {"brief": "", **MissionTerms()._asdict(), "paused": False, "runs": "[]"}
        add_missing(lobby.traits._slots[self.trait], **common, **slots)

    def names(self, root: Root) -> list[str]:
        """Return the names of all."""
        return sorted(name for name, one in self._all(root).items() if self._is_one(root, one))

    def holder(self, root: Root) -> UvmObject:
        """Return the object that is written when one of them comes or goes."""
        return root["lobby"]._slots[self.place]  # type: ignore[no-any-return]

    def each(self, root: Root) -> list[tuple[str, UvmObject]]:
        """Return the objects of all, by name."""
        return [(name, one) for name, one in self._all(root).items() if self._is_one(root, one)]

    def is_empty(self, root: Root) -> bool:
        """Return True if there is none."""
        return not any(self._is_one(root, one) for one in self._all(root).values())

    def find(self, root: Root, name: str) -> UvmObject | None:
        """Return the object of a name; None if there is none."""
        found = self._all(root).get(name)
        return found if self._is_one(root, found) else None

    def held(self, root: Root, name: str) -> UvmObject:
        """Return the object of a name.

        :raises InvalidInput: if there is none.
        """
        if (found := self.find(root, name)) is None:
            there = self.names(root)
            shown = ", ".join(there[:20]) or f"none; `{self.verb}` makes one"
            raise InvalidInput(f"{name!r} is not a {self.noun}{nearest(name, there)}; there are: {shown}")
        return found

    def make(self, root: Root, name: str, slots: dict[str, Any]) -> UvmObject:
        """Part of a system transaction: make one. Its number is given once in an image.

        :raises InvalidInput: if the name is taken or not valid, or there are too many.
        """
        if not _NAME.match(name):
            raise InvalidInput(f"{name!r} is not a valid name of a {self.noun}; use up to 40 letters, digits, _ and -, a letter first")
        if name in self._all(root):
            raise InvalidInput(f"the name {name!r} is taken; choose another one, or remove the {self.noun} first")
        if len(self.names(root)) >= self.most:
            raise InvalidInput(f"there are {self.most} of them, which is the most; remove a {self.noun} first")
        prototype = root["lobby"].traits._slots[self.trait]
        made: UvmObject = prototype.derive(number=int(prototype.number) + 1, **slots)
        prototype._slots["number"] = made.number
        self._all(root)[name] = made
        return made

    def remove(self, root: Root, name: str) -> None:
        """System transaction: remove one. Its missions stay.

        :raises InvalidInput: if there is none of that name.
        """
        self.held(root, name)
        del self._all(root)[name]

    def _all(self, root: Root) -> Any:
        return root["lobby"]._slots[self.place]._slots

    def _is_one(self, root: Root, found: Any) -> bool:
        return isinstance(found, UvmObject) and found._slots.get("parent*") is root["lobby"].traits._slots[self.trait]


def terms_of(one: UvmObject) -> MissionTerms:
    """Return the terms of a trigger's missions."""
    return MissionTerms(str(one.persona), str(one.depth), int(one.priority))


def runs_of(one: UvmObject) -> tuple[TriggeredRun, ...]:
    """Return the last missions of a trigger, the newest last."""
    return tuple(TriggeredRun(str(mission), float(at)) for mission, at in json.loads(one.runs))


def note_run(one: UvmObject, run: TriggeredRun) -> None:
    """Part of a system transaction: note a mission of a trigger."""
    known = runs_of(one)
    if all(run.mission != other.mission for other in known):
        one._slots["runs"] = json.dumps([*known, run][-RUNS_KEPT:])


def outcome(root: Root, mission: str) -> tuple[str, str]:
    """Return the recorded state of a mission, and the code of its error; both empty for one that is not known."""
    if not ledger.is_known(root, mission):
        return "", ""
    record = ledger.record_of(root, mission)
    return record.state, str((record.error or {}).get("code", ""))


def failures_in_row(root: Root, missions: Sequence[str], forgiven: str) -> int:
    """Return the number of missions that failed one after the other, up to the last one that ended. A cancelled one does not count.

    :param missions: the newest last.
    :param forgiven: mission up to which failures do not count any more; empty: none.
    """
    count = 0
    for mission in reversed(missions):
        if mission == forgiven:
            break
        state, code = outcome(root, mission)
        if state == ledger.COMPLETE:
            break
        count += state == ledger.FAILED and code != "cancelled"
    return count


def check_terms(brief: str, terms: MissionTerms) -> None:
    """Refuse terms that are not valid.

    :raises InvalidInput: saying which.
    """
    if not brief.strip() or len(brief) > BRIEF_CHARS:
        raise InvalidInput(f"the brief has {len(brief)} characters; allowed are 1 to {BRIEF_CHARS}, not only blanks")
    if terms.depth not in DEPTHS:
        raise InvalidInput(f"{terms.depth!r} is not a depth{nearest(terms.depth, DEPTHS)}; allowed are {', '.join(DEPTHS[1:])}")
