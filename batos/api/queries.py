"""Read-only queries of an image: a daemon answers its clients with them, and the command line uses them on a file when no daemon runs."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ZODB
from persistent import Persistent

from batos.api.dispatcher import handles
from batos.autotelic import changes, telemetry
from batos.concurrency import answering
from batos.config import MIB
from batos.errors import UnknownTarget, UnknownTool
from batos.forge import versions
from batos.image import history, ledger
from batos.image.history import Moment, Snapshot, looking_at, require_history, seconds_of, tid_of
from batos.image.mission_record import described
from batos.methods import inventory
from batos.missions import report
from batos.objects import Root, UvmObject
from batos.tools import connections, operation_messages
from batos.wire import schemas

if TYPE_CHECKING:
    from batos.wire.outbox import Recipient

Reply = dict[str, Any]
_OF_ONE = ("content", "comparison", "effect", "digest", "missions")
"""Fields that a list of changes omits."""
_IN_LIST = ("origin", "accepted", "finished", "undone", "context")
_LIST_BYTES = 4 * MIB  # bytes of a list of failures, which contain sources of methods; a thousand failures would delay all other answers


class Queries:
    """Queries, one method for each operation of the wire, with its replies. Any thread may call them."""

    def __init__(
        self,
        db: ZODB.DB,
        snapshot: Snapshot,
        state: Callable[[str, str], str] = lambda id, recorded: recorded,
        assessed: Callable[[Any, int], Reply | None] = lambda root, number: None,
    ) -> None:
        """
        :param state: of the mission of an id, given the state on record.
        :param assessed: the entropy of the mission of a number, if it was measured.
        """
        self._db, self._snapshot, self._state, self._assessed = db, snapshot, state, assessed

    def show(self, target: str, at: Moment | None = None) -> Reply:
        """Return an object; for a mission, its record too, with the state that it is in: in its slots is the state on record."""
        with looking_at(self._db, self._snapshot, at) as root:
            if (left := report.folded_report(root, target)) is not None:
                return {"type": "show", "oid": None, "slots": {}, "tid": None, "record": left}
            if (operation := _operation(root, target)) is not None:
                return {"type": "show", "oid": None, "slots": operation, "tid": None}
            found = history.resolve(root, target)
            if not report.is_mission(found):
                understood = _operations(root, found)
                return {"type": "show", **history.show(found), **({"understands": understood} if understood else {})}
            entropy = self._assessed(root, found.number)
            told = {**report.report_of(root, found.id), **({"entropy": entropy} if entropy else {})}
            if at is None:
                told["state"] = self._state(found.id, told["state"])
            return {"type": "show", **history.show(found), "record": told}

    def ls(self, target: str | None, at: Moment | None = None) -> Reply:
        """Return the entries of an object."""
        with looking_at(self._db, self._snapshot, at) as root:
            if (operation := _operation(root, target or "lobby")) is not None:
                facts = [{"name": name, "kind": "data", "about": history.in_list(_as_text(value))} for name, value in operation.items()]
                return {"type": "ls", "target": target, "oid": None, "entries": facts}
            found = history.resolve(root, target or "lobby")
            operations = [
                {"name": one["message"], "kind": "operation", "about": f"{one['line']} ({one['class']})"}
                for one in _operations(root, found)
            ]
            listed = [*history.entries(found), *operations]
            return {"type": "ls", "target": target or "lobby", "oid": history.oid_of(found), "entries": listed}

    def history(self, target: str, limit: int) -> Reply:
        """Return the revisions of an object, the newest first."""
        with self._snapshot() as root:
            oid = history.resolve(root, target)._p_oid
        return {"type": "history", "target": target, "revisions": history.revisions(self._db, oid, limit)}

    def diff(self, target: str, a: Moment, b: Moment | None) -> Reply:
        """Return the differences of an object between two moments; an object that did not exist yet counts as without slots.

        :raises UnknownTarget: if the object exists neither now nor at either moment.
        """
        require_history(self._db)
        moments = [a, self._db.lastTransaction().hex() if b is None else b]
        oid = self._oid(target, [None, *moments])
        with looking_at(self._db, self._snapshot, moments[0]) as was, looking_at(self._db, self._snapshot, moments[1]) as now:
            sides = [_object_or_none(root, oid) for root in (was, now)]
            told = [{"at": seconds_of(tid_of(self._db, m)), **self._revision(one)} for m, one in zip(moments, sides, strict=True)]
            return {"type": "diff", "target": target, "oid": oid, "a": told[0], "b": told[1], "changes": history.changes(*sides)}

    def missions(
        self, state: str | None, limit: int, at: Moment | None = None, before: str | None = None, words: str = "", system: bool = True
    ) -> Reply:
        """Return the missions, the newest first, all or those in a state; for a past moment, with their states at that moment.

        :param before: only those that were accepted before the mission of that id.
        :param words: only those whose brief has all of these, or whose id begins so.
        :param system: list the system's own, too.
        :raises UnknownMission: if `before` is not the id of a mission.
        """
        with looking_at(self._db, self._snapshot, at) as root:
            missions = ledger.listed(root, state) if state is None or state in ledger.FINAL else ledger.unfinished(root)
            if before is not None:
                number = (ledger.line_of(root, before) or ledger.mission_of(root, before)).number
                missions = (m for m in missions if m.number < number)
            if not system:
                missions = (m for m in missions if m.origin != "system")
            if wanted := words.casefold().split():
                missions = (m for m in missions if _has(m, wanted))
            rows = ((m, self._state(m.id, m.state) if at is None else m.state) for m in missions)
            chosen = (row for row in rows if state is None or row[1] == state)
            listed = [_listed(*row) for row in itertools.islice(chosen, limit)]
        return {"type": "missions", "missions": listed}

    def failures(self, id: str | None, code: str | None, selector: str | None, limit: int, at: Moment | None = None) -> Reply:
        """Return the failed attempts that match, the newest first, within the size limit; see `batos.image.ledger.failures`."""
        with looking_at(self._db, self._snapshot, at) as root:
            found = ledger.failures(root, id=id, code=code, selector=selector, limit=limit)
        sizes = itertools.accumulate(len(json.dumps(one)) for one in found)
        told = found[: max(1, sum(size <= _LIST_BYTES for size in sizes))]
        return {"type": "failures", "failures": told, **({"more": True} if len(told) < len(found) else {})}

    def changes(self, number: int | None, state: str | None, limit: int) -> Reply:
        """Return the changes that the loop proposed and made, the newest first, all or those in a state; or the one of a number, whole.

        :raises UnknownChange: if there is none of that number.
        """
        with self._snapshot() as root:
            told = changes.listed(root, limit, state) if number is None else [changes.of(root, number)]
        left_out = () if number is not None else _OF_ONE
        return {"type": "changes", "changes": [{name: value for name, value in one.items() if name not in left_out} for one in told]}

    def method(self, target: str, selector: str, at: Moment | None = None) -> Reply:
        """Return the value that an object holds under a selector; see `batos.forge.versions.describe`."""
        with looking_at(self._db, self._snapshot, at) as root:
            return {"type": "method", "target": target, **versions.describe(root, history.resolve(root, target), selector)}

    def methods(self, target: str | None = None, at: Moment | None = None) -> Reply:
        """Return the generated methods of the image, or those that one object holds itself; see `batos.methods.inventory.methods_held`."""
        with looking_at(self._db, self._snapshot, at) as root:
            if target is not None:
                return {"type": "methods", "methods": inventory.methods_held([(target, history.resolve(root, target))], {})}
            uses = _uses(root)
            return {"type": "methods", "methods": inventory.methods_held(inventory.holders(root, uses), uses)}

    def _oid(self, target: str, moments: list[Moment | None]) -> str:
        """Return the id of an object, by a path that leads to it at one of the moments."""
        refusal: UnknownTarget | None = None
        for moment in moments:
            with looking_at(self._db, self._snapshot, moment) as root:
                try:
                    return history.oid_of(history.resolve(root, target)) or ""
                except UnknownTarget as e:
                    refusal = refusal or e
        assert refusal is not None
        raise refusal

    def _revision(self, one: Persistent | None) -> Reply:
        return {"tid": None} if one is None else history.revision(self._db, one)


class QueryRequests:
    """Handlers of the read-only requests. A query that may take long runs in a thread of its own."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    @handles(schemas.ShowRequest)
    async def show(self, request: schemas.ShowRequest, client: Recipient) -> Reply:
        """Return an object."""
        return await self._query_at(request.at, self._queries.show, request.target)

    @handles(schemas.LsRequest)
    async def ls(self, request: schemas.LsRequest, client: Recipient) -> Reply:
        """Return the entries of an object."""
        return await self._query_at(request.at, self._queries.ls, request.target)

    async def _query_at(self, at: Moment | None, query: Callable[..., Reply], target: str | None) -> Reply:
        """Query the past in a thread, since none of it is loaded yet."""
        return query(target) if at is None else await answering(query, target, at)

    @handles(schemas.DiffRequest)
    async def diff(self, request: schemas.DiffRequest, client: Recipient) -> Reply:
        """Return the differences of an object between two moments."""
        return await answering(self._queries.diff, request.target, request.a, request.b)

    @handles(schemas.HistoryRequest)
    async def history(self, request: schemas.HistoryRequest, client: Recipient) -> Reply:
        """Return the revisions of an object."""
        return await answering(self._queries.history, request.target, request.limit)

    @handles(schemas.MissionsRequest)
    async def missions(self, request: schemas.MissionsRequest, client: Recipient) -> Reply:
        """Return the matching missions; in a thread if a filter may scan all missions."""
        if request.state is request.at is request.before is None and not request.words and request.system:
            return self._queries.missions(None, request.limit)
        fits = (request.state, request.limit, request.at, request.before, request.words or "", request.system)
        return await answering(self._queries.missions, *fits)

    @handles(schemas.FailuresRequest)
    async def failures(self, request: schemas.FailuresRequest, client: Recipient) -> Reply:
        """Return the failed attempts that fit."""
        sought = (request.id, request.code, request.selector, request.limit, request.at)
        return await answering(self._queries.failures, *sought)

    @handles(schemas.ChangesRequest)
    async def changes(self, request: schemas.ChangesRequest, client: Recipient) -> Reply:
        """Return the changes of the loop."""
        return self._queries.changes(request.number, request.state, request.limit)

    @handles(schemas.MethodRequest)
    async def method(self, request: schemas.MethodRequest, client: Recipient) -> Reply:
        """Return a method of an object."""
        return await answering(self._queries.method, request.target, request.selector, request.at)

    @handles(schemas.MethodsRequest)
    async def methods(self, request: schemas.MethodsRequest, client: Recipient) -> Reply:
        """Return the generated methods."""
        return await answering(self._queries.methods, request.target, request.at)


def _operations(root: Root, found: UvmObject) -> list[Reply]:
    """Return the operations that a connection performs as messages: message, tool, class, and one line about it. None for other objects."""
    if not connections.is_connection(root, found):
        return []
    understood = operation_messages.understood(found)
    return [{"message": name, "tool": one.name, "class": one.kind, "line": one.line()} for name, one in understood.items()]


def _operation(root: Root, target: str) -> Reply | None:
    """Return the operation of a connection that a path such as `tools.shop.order` names; None for other paths."""
    lobby, name, operation = ([*re.split(r"[./]", target, maxsplit=2), "", ""])[:3]
    holder = root["lobby"]._slots.get("tools")
    found = holder._slots.get(name) if lobby == "tools" and operation and isinstance(holder, UvmObject) else None
    if not isinstance(found, UvmObject) or not connections.is_connection(root, found) or operation in found._slots:
        return None
    pinned = connections.pinned(found)
    try:
        tool = operation_messages.tool_named(pinned, operation)
    except UnknownTool:
        return None
    facts = {"message": operation_messages.message_of(found, tool), "tool": tool.name, "class": tool.kind, "line": tool.line()}
    sent = {"description": tool.description, **operation_messages.request_of(pinned.spec, tool)}
    return {**facts, **sent, "parameters": tool.parameters, "result": tool.result, "suspended": tool in pinned.suspended}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _listed(mission: UvmObject | ledger.Line, state: str) -> Reply:
    """Return a row of the list of missions."""
    folded = isinstance(mission, ledger.Line)
    facts = described(mission).to_wire(_IN_LIST) if isinstance(mission, ledger.Line) else {n: getattr(mission, n) for n in _IN_LIST}
    return {
        "id": mission.id,
        "state": state,
        "brief": history.in_list(mission.brief),
        **{name: facts[name] for name in ("origin", "accepted", "finished")},
        **({"undone": True} if facts["undone"] else {}),
        **({"context": facts["context"]} if facts["context"] else {}),
        **({"folded": True} if folded else {}),
    }


def _uses(root: Root) -> dict[str, telemetry.MethodUse]:
    """Return the use of methods; empty in an image from before it was counted."""
    home = root["lobby"]._slots.get("autotelic")
    return {use.method: use for use in telemetry.used_methods(root)} if home is not None and "usage" in home._slots else {}


def _object_or_none(root: Root, oid: str) -> Any:
    try:
        return history.resolve(root, oid)
    except UnknownTarget:
        return None


def _has(mission: UvmObject | ledger.Line, wanted: list[str]) -> bool:
    """Return True if a mission matches the words of a search."""
    brief = str(mission.brief).casefold()
    return all(word in brief for word in wanted) or (len(wanted) == 1 and str(mission.id).casefold().startswith(wanted[0]))
