"""Schema of the loop in the image: `lobby.autotelic` and the objects in its slots. `batos show` displays all of it."""

from __future__ import annotations

from typing import Any

from BTrees.LOBTree import LOBTree
from BTrees.OOBTree import OOBTree

from batos.image import ledger
from batos.image.living_image import add_missing
from batos.objects import Root, UvmObject

COMMENTS = {
    "heartbeat": "I know when the next self_audit is due, and which was the last.",
    "entropy": "I know how diverse, new, relevant and well made the last thoughts were.",
    "triggers": "I know which triggers fired and have not recovered, and the missions that they became.",
    "usage": "I know when each generated method was last of use.",
    "weights": "I know what weighs how much in the entropy metric, and why. Sent weights_back_, I take steps of learning back.",
    "budget": "I know what the loop spent lately besides what its missions' journals say, by the hour.",
    "leash": "I know whether a daemon is at work on this image, and how often one died since the last change was made.",
    "changes": "I know which changes of itself the system proposed and made, each with its evidence and what became of it.",
    "rehearsals": "I know what was paid for while a change was tried, and how often that was begun; until it is decided.",
    "provided": "I know which models missions were provided with, because none here could do what they needed.",
    "senses": "I remember what happened lately, an interval in each object of my ring. My children are those intervals.",
}
"""Parts of the loop with stored data -> their comments."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "heartbeat": {"due": None, "last": "", "beats": 0, "quiet": 0, "seen": None},
    "entropy": {"missions": LOBTree, "watch": ()},
    "triggers": {"fired": OOBTree, "ever": 0, "last": ""},
    "usage": {"methods": OOBTree},
    "weights": {"weights": (0.25, 0.25, 0.25, 0.25), "log": ()},
    "budget": {"rows": (), "until": ""},
    "leash": {"running": False, "change": 0, "deaths": 0},
    "changes": {"log": LOBTree, "ever": 0, "last": 0},
    "rehearsals": {"paid": OOBTree, "begun": LOBTree},
    "provided": {"models": dict},
    "senses": {"ring": LOBTree, "written": 0},
}


def install(lobby: UvmObject) -> None:
    """Create the loop's objects. A step of genesis."""
    add_missing(
        lobby,
        autotelic=lambda: lobby.genesis.derive(name="autotelic", comment="I hold what the system knows of itself, and plans for itself."),
    )
    for name, comment in COMMENTS.items():
        add_missing(lobby.autotelic, **{name: lambda: lobby.genesis.derive()})
        add_missing(lobby.autotelic._slots[name], name=name, comment=comment, **DEFAULTS[name])


def part_of(root: Root, name: str) -> UvmObject:
    """Return a part of the loop, as the image has it."""
    return root["lobby"].autotelic._slots[name]  # type: ignore[no-any-return]


def is_known_mission(root: Root, mission: str) -> bool:
    """Return True if a mission with that id was ever accepted."""
    return ledger.is_known(root, mission)


def is_pending_mission(root: Root, mission: str) -> bool:
    """Return True if a mission was accepted and has not ended; also if it is paused, or waits for an answer."""
    found = ledger.ledger_of(root).missions.get(mission)
    return found is not None and found.state not in ledger.FINAL
