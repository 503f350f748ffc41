"""Changes that the user of a session makes: of the image, of what was answered, of the cycle, and of replies to questions.

One function applies a change of the image to the mirror at once, and to the real image when the mission is continued. Methods pass the
guardian each time. Other changes concern only this mission's own thought.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from batos.autotelic import change_types
from batos.autotelic.change_types import Ground
from batos.autotelic.changes import Proposal
from batos.errors import InvalidInput, UnknownTarget
from batos.image import history
from batos.image.history import uncut
from batos.mind.cycle_stepper import as_tuples
from batos.objects import Intent, Method, Primitive, Root, SlotDict, SlotList, UvmObject, find
from batos.tools import connections

CHARS = 100_000
"""Greatest number of characters of a new value as JSON."""
OF_IMAGE = ("slot", "prompt", "method", "facet", "intent", "model")
OF_MISSION = ("answer", "cycle", "reply")
_PROPOSED: Mapping[str, str] = {"prompt": "meta_prompt", "method": "method", "facet": "facet", "intent": "intent", "model": "model"}
"""Kind of an edit -> kind of change (`batos.autotelic.change_types`), which checks and applies it."""
_CHANGED = (str, int, float, bool, tuple, list, dict, SlotList, SlotDict, Intent, Method)
"""Classes of values of slots that may be changed: not the trees in which BAT OS itself keeps things."""
_FIXED = ("state*", "parent*", "persona", "number", "machine")  # slots of a cycle that make it the cycle that it is


class StepEdit(NamedTuple):
    """One change. `before` is the value in the mirror before the first change of that place, in its plain form."""

    number: int
    kind: str
    target: str
    value: Any
    remove: bool
    before: Any
    about: str = ""
    """As JSON: of an answer its key and occurrence, of a slot of the cycle that cycle and its number of states before. Of a reply its
    question."""

    @property
    def after(self) -> Any:
        """Return the new value; None for a slot that is removed."""
        return None if self.remove else self.value

    def to_wire(self) -> dict[str, Any]:
        """Return the change as the wire shows it."""
        return {"number": self.number, "kind": self.kind, "target": self.target, "before": self.before, "after": self.after}


def check_size(value: Any) -> None:
    """
    :raises InvalidInput: for a value that is too large.
    """
    if (size := len(json.dumps(value, ensure_ascii=False))) > CHARS:
        raise InvalidInput(f"the value takes {size} characters as JSON; at most {CHARS} are taken")


def value_at(root: Root, kind: str, target: str) -> Any:
    """Return the value that an edit of the image would change, in its plain form; None where there is none.

    :raises UnknownTarget: if its object is not there.
    :raises InvalidInput: for a target that names no such place.
    """
    if kind == "model":
        return getattr(history.resolve(root, target.lower()), "model", None)
    holder, slot = place_of(root, f"{state_target(target)}.meta_prompt" if kind == "prompt" else target)
    held = holder._slots.get(slot)
    if isinstance(held, Method):
        return held.source
    return held.text if isinstance(held, Intent) else uncut(held)


def apply_edit(root: Root, edit: StepEdit, ground: Ground, name: str) -> None:
    """Apply a change of the image, as part of a transaction.

    :param name: name of the change, for the provenance of methods.
    :raises InvalidInput: (or MethodRefused) where it is refused; the transaction is to be aborted then.
    """
    if edit.kind in _PROPOSED:
        target = state_target(edit.target) if edit.kind == "prompt" else edit.target
        change_types.apply(root, Proposal(_PROPOSED[edit.kind], target, edit.value, "its user stepped into a mission"), ground, name)
        return
    holder, slot = place_of(root, edit.target)
    held = holder._slots.get(slot)
    if edit.remove:
        if slot not in holder._slots:
            raise InvalidInput(f"{edit.target!r} is not a slot of this object itself, so it cannot be removed")
        del holder._slots[slot]
        return
    if isinstance(held, Method):
        raise InvalidInput(f"{edit.target!r} is a method; change it as a method, so that the guardian sees its source")
    inherited = find(holder, slot)
    like = held if held is not None or inherited is None else inherited[1]
    if isinstance(like, str) and not isinstance(edit.value, str):
        raise InvalidInput(f"{edit.target!r} holds a text; a text that looks like JSON is written in quotes: {json.dumps(str(edit.value))}")
    if isinstance(like, Intent):
        if not isinstance(edit.value, str):
            raise InvalidInput(f"{edit.target!r} is an intent, which is a text")
        holder._slots[slot] = Intent(edit.value)
    else:
        holder._slots[slot] = as_tuples(edit.value) if isinstance(like, tuple) else edit.value


def place_of(root: Root, target: str) -> tuple[UvmObject, str]:
    """Return the object and the slot that `OBJECT.SLOT` names.

    :raises InvalidInput: for one that a session does not change: records of missions, connections, parents, and what is not plain data.
    :raises UnknownTarget: if the object is not there.
    """
    path, _, slot = target.rpartition(".")
    if not path or not slot.isidentifier() or slot.startswith("_"):
        raise InvalidInput(f"{target!r} names no object and its slot, such as robin.core_mission; `show OBJECT` lists the slots")
    try:
        holder = history.resolve(root, path)
    except UnknownTarget:
        if path.lower() == path:
            raise
        holder = history.resolve(root, path.lower())
    if "brief" in holder._slots and "accepted" in holder._slots:
        raise InvalidInput(f"{path!r} is the record of a mission, which cannot be changed")
    if connections.is_connection(root, holder) or holder is root["lobby"]._slots.get("tools"):
        raise InvalidInput(f"{path!r} is a connection; `batos tools` changes it")
    held = holder._slots.get(slot)
    if held is not None and not isinstance(held, _CHANGED):
        code = "a behaviour of host code" if isinstance(held, Primitive) else "no plain data"
        raise InvalidInput(f"{target!r} holds {'an object' if isinstance(held, UvmObject) else code}, which is not changed here")
    return holder, slot


def state_target(target: str) -> str:
    """Return the path of a state of thought, from its path or its name: `psm.SYNTHESIZING`."""
    name = target.removeprefix("psm.").removesuffix(".meta_prompt")
    return f"psm.{name.upper()}"


def check_cycle_slot(cycle: UvmObject, slot: str) -> None:
    """
    :raises InvalidInput: for a slot of a cycle that may not be changed.
    """
    if slot in _FIXED or not slot.isidentifier() or slot.startswith("__"):
        raise InvalidInput(f"the slot {slot!r} of a cycle is not changed; others are: {', '.join(sorted(set(cycle._slots) - set(_FIXED)))}")
    if isinstance(cycle._slots.get(slot), UvmObject | Method | Primitive):
        raise InvalidInput(f"the slot {slot!r} of this cycle holds no plain data")
