"""Connections in the image: objects under `lobby.tools`, with history and undo like all others.

A connection holds what its user said (`ConnectionSpec`), and the definitions of its tools as they were when he added it: they are pinned.
What the place says later is compared with them. A tool that is gone, new or different is suspended, and shown as a difference, until its
user accepts it. So a server cannot put another tool into the place of the one that was allowed (CVE-2025-54136).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from BTrees.OOBTree import OOBTree

from batos.config import nearest
from batos.errors import InvalidInput, UnknownTool
from batos.guardian.policy import ReachableTool
from batos.image import method_doubts
from batos.image.effects import ACTS, READS
from batos.image.living_image import add_missing
from batos.image.method_doubts import Doubt
from batos.objects import Method, Root, UvmObject, parents_of
from batos.tools import schema_changes
from batos.tools.definitions import KINDS, NAME, ConnectionSpec, ToolDefinition, identifier, named

SLOTS = ("kind", "place", "options", "pinned", "offered", "changes", "sought_by", "on", "read_as")
"""Slots in which a connection is kept."""
_DIFF_LINES = 40
_WORD = re.compile(r"\w+")
_REMEMBERED = 50  # removed connections


class PinnedConnection(NamedTuple):
    """A connection with its pinned tools, as plain values."""

    spec: ConnectionSpec
    tools: tuple[ToolDefinition, ...]
    """Tools that may be called: pinned and unchanged."""
    suspended: tuple[ToolDefinition, ...] = ()
    """Tools as their place describes them now, where that differs from what was pinned, or is new."""
    changes: str = ""
    """Difference between what was pinned and what the place says now; empty without one."""
    notes: tuple[str, ...] = ()
    """Lines for its user on what the place has just said; empty where nothing was asked."""

    def tool(self, name: str) -> ToolDefinition:
        """Return the tool of a name.

        :raises UnknownTool: for another name, or one that is suspended.
        """
        for one in self.tools:
            if one.name == name:
                return one
        if any(one.name == name for one in self.suspended):
            accept = f"`batos tools test {self.spec.name}` shows the change, `batos tools accept {self.spec.name}` accepts it"
            raise UnknownTool(f"the tool {self.spec.name}.{name} has changed since it was allowed and is suspended; {accept}")
        names = [one.name for one in self.tools]
        there = ", ".join(names[:20]) or "none"
        raise UnknownTool(f"{name!r} is not a tool of {self.spec.name}{nearest(name, names)}; its tools are: {there}")


def install(lobby: UvmObject) -> None:
    """Make the object that holds the connections. A step of genesis."""
    comment = "I hold the connections through which missions act outside; each knows its place and its tools."
    add_missing(lobby, tools=lambda: lobby.genesis.derive(name="tools", comment=comment))
    prototype = "I am the prototype of connections: one place outside, and the tools that it offers."
    add_missing(lobby.traits, connection=lambda: lobby.genesis.derive(comment=prototype, kind="", place="", options="{}"))
    add_missing(lobby.traits.connection, pinned="[]", offered="[]", changes="", on="")


def load(root: Root) -> dict[str, PinnedConnection]:
    """Return all connections, by name."""
    held = root["lobby"].tools._slots
    return {name: _connection(name, one) for name, one in sorted(held.items()) if is_connection(root, one)}


_PLACES = {"folder": frozenset({"path", "to"}), "http": frozenset({"path"}), "web": frozenset({"url"})}
"""Arguments of tools that say where, by the kind of the connection."""


def places_of(kind: str) -> frozenset[str]:
    """Return the arguments that say where, of tools of a kind of connection."""
    return _PLACES.get(kind, frozenset())


def reachable_tools(root: Root) -> dict[str, dict[str, ReachableTool]]:
    """Return the tools that methods may call, by the names by which they reach the connection and the tool."""
    connected = load(root)
    found = reachable(connected)
    for alias, name in _aliases(connected).items():
        found[alias].update(_methods_of(root["lobby"].tools._slots[name]))
    return found


def _methods_of(holder: UvmObject) -> dict[str, ReachableTool]:
    """Return the methods that a connection itself holds: a method that sends one acts as that one does."""
    held = [one for one in holder._slots.values() if isinstance(one, Method)]
    return {one.selector: ReachableTool(f"{holder.name}.{one.selector}", READS if _only_reads(one) else ACTS) for one in held}


def _only_reads(method: Method) -> bool:
    reaches = dict(method.contract).get("reaches")
    return reaches is not None and all(one.endswith(f"={READS}") for one in reaches)


def reachable(held: Mapping[str, PinnedConnection]) -> dict[str, dict[str, ReachableTool]]:
    """Return the tools of some connections, by the names by which methods reach them."""
    return {alias: _reachable(held[name]) for alias, name in _aliases(held).items()}


def _reachable(connection: PinnedConnection) -> dict[str, ReachableTool]:
    spec, tools = connection.spec, {tool.name: tool for tool in connection.tools}
    places = places_of(spec.kind)
    known = {
        name: ReachableTool(f"{spec.name}.{name}", tool.kind, tuple(map(identifier, tool.parameters.get("properties") or {})), places)
        for name, tool in tools.items()
    }
    return {alias: known[name] for alias, name in _aliases(tools).items()}


def _aliases(names: Collection[str]) -> dict[str, str]:
    found = {alias: named(alias, names) for name in names for alias in (name, identifier(name))}
    return {alias: name for alias, name in found.items() if name is not None}


def find(holder: UvmObject, wanted: str) -> UvmObject:
    """Return the connection that a method means by a name.

    :param holder: the object that holds the connections.
    :raises UnknownTool: if there is none.
    """
    root = holder._p_jar.root()
    there: dict[str, UvmObject] = {name: one for name, one in holder._slots.items() if is_connection(root, one)}
    name = named(wanted, there)
    if name is None:
        known = ", ".join(sorted(there)) or "none; `batos tools add` makes one"
        raise UnknownTool(f"{wanted!r} is not a connection{nearest(wanted, list(there))}; connections are: {known}")
    found: UvmObject = there[name]
    return found


def pinned(connection: UvmObject) -> PinnedConnection:
    """Return a connection's object as plain values."""
    return _connection(connection.name, connection)


def add(root: Root, spec: ConnectionSpec, tools: Sequence[ToolDefinition]) -> None:
    """System transaction: add a connection, with its tools pinned.

    :raises InvalidInput: if its name is not valid or taken.
    """
    holder = root["lobby"].tools
    if not NAME.match(spec.name):
        raise InvalidInput(f"{spec.name!r} is not a valid name of a connection; use up to 40 letters, digits, _ and -, a letter first")
    if spec.name in holder._slots:
        raise InvalidInput(f"the name {spec.name!r} is taken; choose another, or `batos tools remove {spec.name}` first")
    if spec.kind not in KINDS:
        raise InvalidInput(f"{spec.kind!r} is not a kind of connection; allowed are {', '.join(KINDS)}")
    made = root["lobby"].traits.connection.derive(name=spec.name, kind=spec.kind, place=spec.place)
    made._slots["options"] = json.dumps(dict(spec.options), ensure_ascii=False, sort_keys=True)
    made._slots["pinned"] = _text_of(tools)
    if spec.on:
        made._slots["on"] = spec.on
    if spec.kind == "openapi":
        made._slots["read_as"] = schema_changes.READING
    holder._slots[spec.name] = made


def remove(root: Root, name: str) -> None:
    """System transaction: remove a connection. What was done with it stays in the missions' journals, and it is remembered as it was, with
    its methods. The last few may be put back where a message wants one (`batos.tools.known_places`).

    :raises UnknownTool: if there is none of that name.
    """
    held, table = _held(root, name), root.setdefault("removed_connections", OOBTree())
    del root["lobby"].tools._slots[name]
    table[name] = held
    while len(table) > _REMEMBERED:
        del table[min((one for one in table if one != name), key=lambda one: table[one]._p_serial)]


def offer(root: Root, name: str, tools: Sequence[ToolDefinition]) -> str:
    """System transaction: record what a connection offers now. Return the difference from what was pinned; "" if there is none."""
    one = _held(root, name)
    if one.kind == "openapi" and one._slots.get("read_as", 1) != schema_changes.READING:
        _pin_as_read_now(root, one, {tool.name: tool for tool in tools})
    changes = _difference(_definitions(one.pinned), tools)
    offered = _text_of(tools) if changes else "[]"
    if (one.offered, one.changes) != (offered, changes):
        one._slots["offered"], one._slots["changes"] = offered, changes
    return changes


def _pin_as_read_now(root: Root, one: UvmObject, offered: Mapping[str, ToolDefinition]) -> None:
    """Pin anew what an earlier version read otherwise out of the same document: its user has accepted that document.

    A method is doubted where it needs an argument now that its text does not even name.
    """
    pinned = {tool.name: tool for tool in _definitions(one.pinned)}
    again = {
        name: offered[name] for name, tool in pinned.items() if name in offered and schema_changes.differs_by_reading(tool, offered[name])
    }
    if again:
        _doubt_methods(root, one.name, {name: pinned[name] for name in again}, list(again.values()), unless_named=True)
        one._slots["pinned"] = _text_of([again.get(name, tool) for name, tool in pinned.items()])
    one._slots["read_as"] = schema_changes.READING


def accept(root: Root, name: str) -> int:
    """System transaction: pin the tools of a connection as their place describes them now. Return how many there are."""
    one = _held(root, name)
    if one.changes:
        _doubt_methods(root, name, {tool.name: tool for tool in _definitions(one.pinned)}, _definitions(one.offered))
        one._slots["pinned"], one._slots["offered"], one._slots["changes"] = one.offered, "[]", ""
    return len(_definitions(one.pinned))


def _doubt_methods(
    root: Root, name: str, before: Mapping[str, ToolDefinition], after: Sequence[ToolDefinition], unless_named: bool = False
) -> None:
    """Record a doubt about each connection's method that was written for an operation which changed so that its calls may not fit any
    more.

    :param unless_named: True to leave out methods whose text names all arguments that are needed now.
    """
    now = {tool.name: tool for tool in after}
    why = {f"{name}.{tool}": schema_changes.why_unfit(one, now.get(tool)) for tool, one in before.items()}
    for holder in root["lobby"].tools._slots.values():
        held = list(holder._slots.items()) if is_connection(root, holder) else []
        for selector, method in held:
            if not isinstance(method, Method):
                continue
            for tool, _ in dict(method.provenance).get("operations", ()):
                reason = why.get(tool, "")
                if reason and not (unless_named and _names_needed(method, before[tool.partition(".")[2]], now[tool.partition(".")[2]])):
                    doubt = Doubt(method.version, method.digest, time.time(), f"{tool} changed", f"{tool} has changed: {reason}")
                    method_doubts.record(root, holder._p_oid, selector, doubt)


def _names_needed(method: Method, before: ToolDefinition, after: ToolDefinition) -> bool:
    asked = set(after.parameters.get("required") or ()) - set(before.parameters.get("required") or ())
    return set(_WORD.findall(method.source)) >= {identifier(one) for one in asked}


def _held(root: Root, name: str) -> UvmObject:
    found = root["lobby"].tools._slots.get(name)
    if not is_connection(root, found):
        there = ", ".join(load(root)) or "none; `batos tools add` makes one"
        raise UnknownTool(f"{name!r} is not a connection; connections are: {there}")
    assert isinstance(found, UvmObject)
    return found


def is_connection(root: Root, found: Any) -> bool:
    """Return True if an object is a connection."""
    prototype = _prototype(root)
    return prototype is not None and isinstance(found, UvmObject) and found._slots.get("parent*") is prototype


def _prototype(root: Root) -> UvmObject | None:
    """Return the parent of all connections; None in an image, or at a moment of it, that is older than they are."""
    found = root["lobby"].traits._slots.get("connection")
    return found if isinstance(found, UvmObject) else None


def reaches_outside(root: Root, found: UvmObject) -> bool:
    """Return True if an object answers messages by calls of tools: a connection, or what inherits from one."""
    prototype, seen, waiting = _prototype(root), set[int](), [found]
    while waiting and prototype is not None:
        one = waiting.pop()
        if one is prototype:
            return True
        if id(one) not in seen:
            seen.add(id(one))
            waiting += parents_of(one)
    return False


def _connection(name: str, one: UvmObject) -> PinnedConnection:
    on = getattr(one, "on", "")  # an image that is only looked at may be older than the slot
    spec = ConnectionSpec(name, one.kind, one.place, json.loads(one.options), on)
    held, offered = _definitions(one.pinned), _definitions(one.offered)
    if not one.changes:
        return PinnedConnection(spec, held)
    now = {tool.name: tool.pin() for tool in offered}
    same = tuple(tool for tool in held if now.get(tool.name) == tool.pin())
    known = {tool.name for tool in same}
    return PinnedConnection(spec, same, tuple(tool for tool in offered if tool.name not in known), one.changes)


def _definitions(text: str) -> tuple[ToolDefinition, ...]:
    return tuple(ToolDefinition.of(wire) for wire in json.loads(text))


def _text_of(tools: Sequence[ToolDefinition]) -> str:
    return json.dumps([tool.to_wire() for tool in tools], ensure_ascii=False)


def _difference(before: Sequence[ToolDefinition], after: Sequence[ToolDefinition]) -> str:
    """Return what differs between two sets of definitions, as a unified difference; "" where nothing does."""
    pins = [{tool.name: tool.pin() for tool in tools} for tools in (before, after)]
    if pins[0] == pins[1]:
        return ""
    import difflib  # late: only definitions that changed need it

    lines = list(difflib.unified_diff(_lines(before), _lines(after), "pinned", "offered", lineterm="", n=1))
    return "\n".join([*lines[:_DIFF_LINES], f"… {len(lines) - _DIFF_LINES} lines more"] if len(lines) > _DIFF_LINES else lines)


def _lines(tools: Sequence[ToolDefinition]) -> list[str]:
    ordered = sorted(tools, key=lambda tool: tool.name)
    return [line for tool in ordered for line in json.dumps(tool.to_wire(), indent=1, sort_keys=True, ensure_ascii=False).split("\n")]
