"""Known places: those that may be proposed where a message wants a connection that is not there.

Known are the places that the user listed (`batos tools offer`), connections that he removed, and those that are there under another name.
Known are also a few that need nothing but a yes (`SHIPPED`). None of them is asked or started before its user agrees. What was listed or
removed is kept in the image: `root["known_places"]`, `root["removed_connections"]`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from BTrees.OOBTree import OOBTree

from batos.config import nearest, shown
from batos.errors import InvalidInput, UnknownTool
from batos.image import grants as image_grants
from batos.image.grants import GrantRecord
from batos.objects import Root, UvmObject
from batos.tools import connections
from batos.tools.connections import PinnedConnection
from batos.tools.definitions import KINDS, NAME, ConnectionSpec, ToolDefinition

LISTED, REMOVED, CONNECTED, OWN = "listed", "removed", "connected", "shipped"
"""Origins of known places: the user listed it, removed it, has it under another name, or it comes with BAT OS."""
MOST = 200
"""Greatest number of places that are listed."""
LINE_CHARS = 200
_TOLD = 12  # tools whose names stand for a connection
_PATH = re.compile(r"tools[./]([A-Za-z][A-Za-z0-9_-]{0,39})\Z")
SOUGHT_BY = "sought_by"
"""Slot of a connection that was added because a message wanted it: the id of that mission."""


class KnownPlace(NamedTuple):
    """A place that may be proposed."""

    spec: ConnectionSpec
    line: str
    """one line on what it does"""
    origin: str
    """`LISTED`, `REMOVED`, `CONNECTED` or `OWN`"""

    @property
    def name(self) -> str:
        """Return the name under which it is known."""
        return self.spec.name

    def to_wire(self) -> dict[str, Any]:
        """Return the place as JSON values."""
        name, kind, place, options, _ = self.spec
        return {"name": name, "line": self.line, "kind": kind, "place": place, "options": dict(options), "origin": self.origin}


SHIPPED = (KnownPlace(ConnectionSpec("web", "web", ""), "Fetches a public web page and reads it as text.", OWN),)
"""Places that come with BAT OS: nothing has to be installed for them."""


def meant_name(target: str) -> str | None:
    """Return the name of the connection that a path means (`tools.NAME`); None for any other path."""
    found = _PATH.match(target)
    return None if found is None else found[1]


def wanted_name(root: Root, target: str) -> str | None:
    """Return the name of the connection that a path means, if none of that name is there; None for any other path."""
    name, holder = meant_name(target), root["lobby"]._slots.get("tools")
    return None if not isinstance(holder, UvmObject) or name in holder._slots else name


def offer(root: Root, place: KnownPlace) -> None:
    """System transaction: list a place that may be proposed; one of the same name is replaced.

    :raises InvalidInput: for a name, kind or line that is not valid, and past `MOST`.
    """
    table, spec = root.setdefault("known_places", OOBTree()), place.spec
    line = " ".join(place.line.split())
    if not NAME.match(spec.name):
        raise InvalidInput(f"{shown(spec.name)} is not a valid name; use up to 40 letters, digits, _ and -, a letter first")
    if spec.kind not in KINDS:
        raise InvalidInput(f"{shown(spec.kind)} is not a kind of connection; allowed are {', '.join(KINDS)}")
    if not line or len(line) > LINE_CHARS:
        raise InvalidInput(
            f"an offer has a line of 1 to {LINE_CHARS} characters that says what it does; this one has {len(line)}: "
            "`batos tools offer NAME --line 'searches the web' --mcp 'COMMAND'`"
        )
    if spec.name not in table and len(table) >= MOST:
        raise InvalidInput(f"{MOST} places are listed, which is the most; `batos tools withdraw NAME` takes one off the list")
    table[spec.name] = json.dumps(place._replace(line=line, origin=LISTED).to_wire(), ensure_ascii=False)


def withdraw(root: Root, name: str) -> None:
    """System transaction: take a place off the list; a connection that was removed is not remembered any more.

    :raises UnknownTool: if no such place is listed or remembered.
    """
    tables = [root.get("known_places") or {}, root.get("removed_connections") or {}]
    if not any(name in table for table in tables):
        there = sorted({*tables[0], *tables[1]})
        known = ", ".join(there) or "none"
        raise UnknownTool(f"{shown(name)} is not listed{nearest(name, there)}; listed or removed are: {known}")
    for table in tables:
        if name in table:
            del table[name]


def listed(root: Root) -> list[KnownPlace]:
    """Return the places that may be proposed, but for connections that are there. They are listed ones, removed ones, and those that come
    with BAT OS; each name once."""
    wires = [json.loads(text) for text in (root.get("known_places") or {}).values()]
    found = [KnownPlace(ConnectionSpec(one["name"], one["kind"], one["place"], one["options"]), one["line"], LISTED) for one in wires]
    for name, obj in (root.get("removed_connections") or {}).items():
        found.append(_by_tools(connections.pinned(obj), REMOVED)._replace(spec=connections.pinned(obj).spec._replace(name=name)))
    names = {one.name for one in found}
    return [*found, *(one for one in SHIPPED if one.name not in names)]


def known(root: Root) -> list[KnownPlace]:
    """Return all places that may be proposed."""
    there = connections.load(root)
    same = {(held.spec.kind, held.spec.place) for held in there.values()}
    more = [one for one in listed(root) if one.origin != OWN or (one.spec.kind, one.spec.place) not in same]
    return [*more, *(_by_tools(held, CONNECTED) for held in there.values())]


def _by_tools(held: PinnedConnection, origin: str) -> KnownPlace:
    tools = (*held.tools, *held.suspended)
    said = "; ".join(tool.line() for tool in tools[:_TOLD]) or held.spec.kind
    return KnownPlace(held.spec, said if len(said) <= LINE_CHARS else f"{said[: LINE_CHARS - 1]}…", origin)


# --- a connection that was sought


def add_sought(root: Root, spec: ConnectionSpec, tools: Sequence[ToolDefinition], mission: str) -> None:
    """System transaction: add a connection that a mission wants.

    :raises InvalidInput: as `connections.add`, and if the mission added it before, and it was removed since.
    """
    if (before := _removed(root, spec.name)) is not None and before._slots.get(SOUGHT_BY) == mission:
        raise InvalidInput(f"the connection {spec.name!r} was added for this mission, and removed since; `batos tools add` makes it anew")
    connections.add(root, spec, tools)
    root["lobby"].tools._slots[spec.name]._slots[SOUGHT_BY] = mission


def put_back(root: Root, name: str, tools: Sequence[ToolDefinition], mission: str) -> None:
    """System transaction: put back a connection that was removed, with its methods. What its place says now is compared with what was
    pinned: a tool that is new or different is suspended.

    :raises UnknownTool: if it is not remembered.
    :raises InvalidInput: if its name is taken by now, or the mission put it back before.
    """
    obj, holder = _removed(root, name), root["lobby"].tools
    if obj is None:
        raise UnknownTool(f"the removed connection {name!r} is not remembered any more")
    if obj._slots.get(SOUGHT_BY) == mission:
        raise InvalidInput(f"the connection {name!r} was put back for this mission, and removed since; `batos tools add` makes it anew")
    if name in holder._slots:
        raise InvalidInput(f"the name {name!r} is taken by now")
    obj._slots[SOUGHT_BY] = mission
    holder._slots[name] = obj
    del root["removed_connections"][name]
    connections.offer(root, name, tools)


def take_back(root: Root, mission: str, *, redo: bool = False) -> list[dict[str, Any]]:
    """Remove the connection that was added because a mission wanted it; with `redo` put it back. Part of the undo of that mission.
    Return what changed, as objects and parts."""
    holder = root["lobby"]._slots.get("tools")
    if not isinstance(holder, UvmObject):
        return []
    changed = []
    if redo:
        for name, obj in list((root.get("removed_connections") or {}).items()):
            if obj._slots.get(SOUGHT_BY) == mission and name not in holder._slots:
                holder._slots[name] = obj
                del root["removed_connections"][name]
                changed.append(name)
    else:
        for name, obj in list(holder._slots.items()):
            if connections.is_connection(root, obj) and obj._slots.get(SOUGHT_BY) == mission:
                connections.remove(root, name)
                changed.append(name)
    oid = int.from_bytes(holder._p_oid, "big")
    return [{"oid": f"oid:{oid:x}", "parts": changed}] if changed else []


def let_once(root: Root, mission: str, tool: str, args: str) -> None:
    """System transaction: let a mission make the call that its user agreed to when he was asked for the connection.

    :param tool: `CONNECTION.TOOL`
    :param args: constraint that only its arguments meet.
    """
    made = GrantRecord(0, image_grants.ALLOW, tool, mission=mission, args=args, leaks=True, origin=f"answer to mission {mission}")
    image_grants.add(root, made, time.time())


def let_use(root: Root, mission: str, connection: str) -> None:
    """System transaction: let a mission use a connection that its user agreed to."""
    made = GrantRecord(0, image_grants.ALLOW, f"{connection}.*", mission=mission, origin=f"answer to mission {mission}")
    image_grants.add(root, made, time.time())


def _removed(root: Root, name: str) -> UvmObject | None:
    found = (root.get("removed_connections") or {}).get(name)
    return found if isinstance(found, UvmObject) else None
