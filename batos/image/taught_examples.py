"""Examples that users gave for methods: the expected answers of a message. They become trial cases when the method is
written.

They are kept beside the objects and not in their slots, so that teaching an object changes nothing that it does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from BTrees.OOBTree import OOBTree
from persistent import Persistent

from batos.objects import Example, Root, UvmObject


class Taught(Persistent):
    """Examples of one message of one object, oldest first, as JSON texts."""

    __module__ = "batos.image"
    examples: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()
    """Ids of the missions that brought the examples; those of an earlier version, which come first, have none."""
    intent: str = ""
    """Purpose of the message, in the user's words; empty if not given."""
    intents: tuple[tuple[str, str], ...] = ()
    """Each mission that gave a purpose, with it; the last one is the intent."""

    tools: tuple[str, ...] = ()
    """Missions by which the user let the method of the message use tools."""

    def held(self) -> list[tuple[str, str]]:
        """Return the examples, each with the mission that brought it; an empty id if that is not known."""
        unknown = len(self.examples) - len(self.brought)
        return list(zip(self.examples, ("",) * unknown + self.brought, strict=True))

    def hold(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Set the examples, in the form of `held`."""
        self.examples, self.brought = tuple(text for text, _ in pairs), tuple(mission for _, mission in pairs)

    def mean(self, intents: Sequence[tuple[str, str]]) -> None:
        """Set the intents; the last one is in force."""
        self.intents, self.intent = tuple(intents), intents[-1][1] if intents else ""


def allow_tools(root: Root, oid: bytes, selector: str, mission: str) -> None:
    """Let the method that is written for a message use tools. Part of a system transaction.

    :param mission: id of the mission by which the user says so.
    """
    found = _found_or_new(root, oid, selector)
    if mission not in found.tools:
        found.tools = (*found.tools, mission)


def allows_tools(root: Root, obj: UvmObject, selector: str) -> bool:
    """Return True if the user lets the method of a message use tools."""
    found = _of(root, obj._p_oid, selector)
    return found is not None and bool(found.tools)


def teach(root: Root, oid: bytes, selector: str, examples: list[dict[str, Any]], intent: str, limit: int, mission: str = "") -> int:
    """Add examples to those of a message, and return their number: at most `limit`, the newest kept. A system
    transaction.

    :param mission: id of the mission that brings them.
    """
    found = _found_or_new(root, oid, selector)
    new = [text for text in dict.fromkeys(map(example_text, examples)) if text not in found.examples]
    if new:
        found.hold([*found.held(), *((text, mission) for text in new)][-limit:])
    if intent:
        before = found.intents or ((("", found.intent),) if found.intent else ())
        found.mean((*before, (mission, intent))[-limit:])
    return len(found.examples)


def take_back(root: Root, oid: bytes, selector: str, mission: str) -> bool:
    """Remove the examples, the intent and the leave to use tools that a mission brought; return True if there were any."""
    found = _of(root, oid, selector)
    if found is None:
        return False
    held, intents = found.held(), found.intents
    examples_left = [pair for pair in held if pair[1] != mission]
    intents_left = [pair for pair in intents if pair[0] != mission]
    if len(examples_left) < len(held):
        found.hold(examples_left)
    if len(intents_left) < len(intents):
        found.mean(intents_left)
    had_tools = mission in found.tools
    if had_tools:
        found.tools = tuple(one for one in found.tools if one != mission)
    return len(examples_left) < len(held) or len(intents_left) < len(intents) or had_tools


def example_text(told: dict[str, Any]) -> str:
    """Return an example as it is kept. The order of a record may matter."""
    return json.dumps(Example.from_json(told).to_json(), ensure_ascii=False)


def examples_of(root: Root, obj: UvmObject, selector: str) -> tuple[list[Example], str]:
    """Return the examples and the intent of a message that an object was taught; none for an object that is not
    stored yet."""
    found = _of(root, obj._p_oid, selector)
    return ([], "") if found is None else ([_read(text) for text in found.examples], found.intent)


def examples_with_missions(root: Root, oid: bytes | None, selector: str) -> list[tuple[Example, str]]:
    """Return the examples of a message that an object was taught, each with the mission that brought it. Its id is empty
    if that is not known."""
    found = _of(root, oid, selector)
    return [] if found is None else [(_read(text), mission) for text, mission in found.held()]


def taught_objects(root: Root, selector: str) -> list[bytes]:
    """Return the oids of all objects that were taught a message."""
    return [oid for oid, name in root.get("examples", ()) if name == selector]


def _found_or_new(root: Root, oid: bytes, selector: str) -> Taught:
    taught = root.setdefault("examples", OOBTree())
    found = taught.get((oid, selector))
    if found is None:
        found = taught[oid, selector] = Taught()
    return found  # type: ignore[no-any-return]


def _of(root: Root, oid: bytes | None, selector: str) -> Taught | None:
    taught = root.get("examples")
    return None if taught is None or not oid else taught.get((oid, selector))


def _read(text: str) -> Example:
    return Example.from_json(json.loads(text))


def all_constant(taught: Sequence[Example]) -> bool:
    """Return True if a method that always answers true, false or nothing passes the examples: they prove little about
    any other."""
    answers = [one.result for one in taught if (one.result is None or isinstance(one.result, bool)) and not one.after]
    return bool(taught) and len(answers) == len(taught) and len(set(answers)) == 1


def examples_digest(taught: Sequence[Example]) -> str:
    """Return a digest that changes when anything is taught."""
    told = json.dumps([one.to_json() for one in taught], ensure_ascii=False)
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
