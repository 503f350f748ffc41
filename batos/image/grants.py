"""Grants: the user's rules about which mission may call which tool, in the image, with the use of each by day.

All functions that write are system transactions; no cycle writes here, so a grant never meets a conflict. A use is counted before the
call leaves: a process that dies in between has counted one use too many, never one too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from BTrees.LOBTree import LOBTree
from persistent import Persistent

from batos.errors import InvalidInput
from batos.image.mission_index import FINAL

DENY, ASK, ALLOW = "deny", "ask", "allow"
VERDICTS = (DENY, ASK, ALLOW)
"""In the order in which they count: one deny outweighs every allow."""
MOST_GRANTS = 1000
_DAY_S = 86400.0


class GrantRecord(NamedTuple):
    """One grant, as plain values. Times are seconds since the epoch."""

    id: int
    verdict: str
    """one of `VERDICTS`"""
    pattern: str
    """over `CONNECTION.TOOL`; `*` stands for any characters"""
    created: float = 0.0
    persona: str = ""
    """only for missions of this persona; empty: any"""
    mission: str = ""
    """only for this mission; empty: any"""
    args: str = ""
    """JSON of a constraint for each argument (`batos.tools.grant_arguments`); empty: any arguments"""
    until: float = 0.0
    """until when it counts; 0: no end"""
    uses: int = 0
    """uses a day (UTC); 0: no limit"""
    bytes: int = 0
    """bytes of payload a day (UTC); 0: no limit"""
    leaks: bool = False
    """True if a mission that read untrusted text and private data may act outward without a question"""
    system: bool = False
    """True if an allow also counts for missions of the system's own, which may only read"""
    origin: str = "user"
    """`user`, or the answer that made it: `answer to mission ID`"""
    effect: str = ""
    """only for the effect of this key; empty: any"""
    # Fields are only ever added at the end.


class GrantUse(NamedTuple):
    """Use of a grant on one day."""

    day: int
    """days since the epoch"""
    uses: int = 0
    bytes: int = 0


class CurrentGrant(NamedTuple):
    """A grant, with its use on the day that is asked about."""

    grant: GrantRecord
    use: GrantUse


class GrantTable(Persistent):
    """All grants of the image, and the last day's use of each that has a limit."""

    __module__ = "batos.image"

    def __init__(self) -> None:
        self.grants = LOBTree()
        """Id -> the values of a `GrantRecord`."""
        self.used = LOBTree()
        """Id -> the values of a `GrantUse`, of the last day on which it was used."""
        self.last = 0
        """The last id that was given; none is given twice."""


def all_grants(root: Any, at: float) -> list[CurrentGrant]:
    """Return the grants in the order in which they were made, each with its use on the day of a time."""
    table = root.get("grants")
    return [] if table is None else [_current(table, id, at) for id in table.grants]


def connections_for(root: Any, mission: str) -> list[str]:
    """Return the connections that grants for one mission alone let it use, as far as they name one exactly."""
    table = root.get("grants")
    records = [] if table is None else [one for one in _records(table) if one.mission == mission and one.verdict == ALLOW]
    names = dict.fromkeys(one.pattern.partition(".")[0] for one in records)
    return [name for name in names if "*" not in name]


def add(root: Any, grant: GrantRecord, at: float) -> GrantRecord:
    """System transaction: add a grant; return it with its id. One that says the same, and still counts, is returned instead.

    Grants of missions that ended go first, and expired ones where the table is full.

    :raises InvalidInput: if there are `MOST_GRANTS` already.
    """
    table = root.get("grants")
    if table is None:
        root["grants"] = table = GrantTable()
    _drop(table, [one.id for one in _records(table) if one.mission and _has_ended(root, one.mission)])
    for known in _records(table):
        if known._replace(id=0, created=0.0) == grant._replace(id=0, created=0.0) and not has_expired(known, at):
            return known
    if len(table.grants) >= MOST_GRANTS:
        _drop(table, [one.id for one in _records(table) if has_expired(one, at)])
    if len(table.grants) >= MOST_GRANTS:
        raise InvalidInput(f"there are {MOST_GRANTS} grants, which is the most; remove some (`batos grants remove ID`)")
    table.last += 1
    made = grant._replace(id=table.last, created=at)
    table.grants[made.id] = tuple(made)
    return made


def add_all(root: Any, grants: Sequence[GrantRecord], at: float) -> None:
    """System transaction: add several grants, all or none."""
    for grant in grants:
        add(root, grant, at)


def remove(root: Any, id: int) -> GrantRecord:
    """System transaction: remove a grant; return it. What was done by its leave stands.

    :raises InvalidInput: if there is no grant of that id.
    """
    table = root.get("grants")
    values = None if table is None else table.grants.get(id)
    if values is None:
        there = [] if table is None else list(table.grants)
        shown = ", ".join(map(str, there[-10:])) or "none"
        raise InvalidInput(f"the grant {id} is not there; there are {len(there)}, the last of them: {shown}; `batos grants` lists them")
    _drop(table, [id])
    return GrantRecord(*values)


def spend(root: Any, id: int, size: int, at: float) -> bool:
    """System transaction: count one use of a grant, before the call leaves. Return False, and count nothing, if the grant was removed,
    expired or was used up since it was asked. The caller then asks all grants anew.

    :param size: bytes of the payload.
    """
    table = root.get("grants")
    if table is None or id not in table.grants:
        return False
    grant, use = _current(table, id, at)
    if has_expired(grant, at) or is_used_up(grant, use, size):
        return False
    if grant.uses or grant.bytes:
        table.used[id] = tuple(use._replace(uses=use.uses + 1, bytes=use.bytes + size))
    return True


def has_expired(grant: GrantRecord, at: float) -> bool:
    """Return True if a grant does not count any more at a time."""
    return bool(grant.until) and at >= grant.until


def is_used_up(grant: GrantRecord, use: GrantUse, size: int) -> bool:
    """Return True if a grant has no use left on this day for a payload of `size` bytes."""
    return (bool(grant.uses) and use.uses >= grant.uses) or (bool(grant.bytes) and use.bytes + size > grant.bytes)


def _current(table: GrantTable, id: int, at: float) -> CurrentGrant:
    today = int(at // _DAY_S)
    use = GrantUse(*table.used.get(id, (today,)))
    if use.day < today:
        use = GrantUse(today)
    return CurrentGrant(GrantRecord(*table.grants[id]), use._replace(day=today))  # a clock that was set back gives no new uses


def _records(table: GrantTable) -> list[GrantRecord]:
    return [GrantRecord(*values) for values in table.grants.values()]


def _drop(table: GrantTable, ids: list[int]) -> None:
    for id in ids:
        del table.grants[id]
        table.used.pop(id, None)


def _has_ended(root: Any, mission: str) -> bool:
    known = root["ledger"].missions.get(mission)
    return known is None or known.state in FINAL
