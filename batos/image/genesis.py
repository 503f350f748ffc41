"""The Prototypal Awakening: what every image holds from its first moment.

One transaction, idempotent and versioned. Each layer that needs objects of its own hands in a *step*, a function of
the lobby; a newer genesis runs the steps again, and they add what is missing and never overwrite what the image changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from batos.image import ledger
from batos.image.ledger import DEFAULTS, Ledger
from batos.image.storage import CHECKED_AFTER, FORMAT
from batos.objects import Primitive, UvmObject

VERSION = 1
Step = Callable[[UvmObject], None]


def awaken(root: Any, steps: Sequence[Step]) -> bool:
    """Make sure that the image holds what this version of BAT OS begins with; whether anything was added."""
    new = "lobby" not in root
    if new:
        root["genesis"] = VERSION
        root["lobby"] = _lobby()
    if root.get("format", 0) < FORMAT:  # an earlier version must not write to it any more
        root["format"] = FORMAT
    if CHECKED_AFTER not in root:
        root[CHECKED_AFTER] = root._p_jar.db().lastTransaction()
    lobby = root["lobby"]
    add_missing(lobby.traits.mission, **DEFAULTS)  # an image of an earlier version lacks the newer ones
    if "ledger" not in root:
        root["ledger"] = Ledger(lobby.traits.mission)
    ledger.add_missing_indexes(root)
    for step in steps:
        step(lobby)
    if root["genesis"] < VERSION:
        root["genesis"] = VERSION
    return new


def add_missing(target: UvmObject, **slots: Any) -> None:
    """Give `target` those of the slots that it does not have itself; nothing it has is touched."""
    for name, value in slots.items():
        if name not in target._slots:
            target._slots[name] = value() if callable(value) and not isinstance(value, UvmObject | Primitive) else value


def _lobby() -> UvmObject:
    genesis = UvmObject(
        comment="I am the first object. All others that answer messages inherit from me, by however long a way.", name="genesis"
    )
    traits = genesis.derive(
        comment="I hold the prototypes that give objects of one kind their common slots.",
        name="traits",
    )
    traits.mission = genesis.derive(
        comment="I am the prototype of missions. A mission holds its brief, what differs from my slots, and in the end its result.",
        **DEFAULTS,
    )
    return genesis.derive(
        comment="I am the lobby: what is to be found by name in this image is a slot of mine, or of an object that is.",
        name="lobby",
        genesis=genesis,
        traits=traits,
    )
