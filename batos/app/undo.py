"""Undo of missions: objects, trees in slots, memory, examples and records, in one transaction.

image.transaction_undo (objects) ────┐
trees in slots, by keys ─────────────┼─ one unit of work, annotated `undo:ID` ─ commit ─ search index
memory.archiver (documents) ─────────┤
forge.lessons (taught examples) ─────┤
records of the missions: marked ─────┘

A change that the autotelic loop made (`change:N`) is undone in the same way, and its record says so.
"""

from __future__ import annotations

import json
import time
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import structlog
from transaction.interfaces import TransientError
from ZODB.POSException import POSKeyError
from ZODB.utils import p64, u64

from batos.autotelic import changes, provided_models
from batos.concurrency import Background, in_helper
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import Busy, Conflicted, HistoryGone, InferenceFailed, UndoConflict
from batos.forge import lessons
from batos.forge.method_prompts import SynthesisLimits
from batos.image import continuations, effects, history, ledger, transaction_undo
from batos.image.living_image import LivingImage
from batos.image.unit_of_work import Unit
from batos.missions import execution
from batos.missions.mission_queue import AttemptLimits
from batos.objects import Root, UvmObject
from batos.tools import known_places
from batos.wire.admin_schemas import UndoRequest

if TYPE_CHECKING:
    from batos.app.memory import MemoryRuntime
    from batos.memory.archiver import UndoneMemory

log = structlog.get_logger("batos")
Reply = dict[str, Any]
_NOTHING: Mapping[str, Any] = types.MappingProxyType({})
_NAMED = 3  # conflicts that a message names


@dataclass(frozen=True, slots=True)
class UndoLimits(Limits):
    """Limits of an undo."""

    missions: int = limit(100, ge=1, le=100_000)
    """Most missions that one undo takes back, with all that depends on the undone mission."""


class UndoObserver(Protocol):
    """Learns from what becomes of missions."""

    async def settled(self) -> None:
        """Return when all measurements of missions so far are in the image."""

    def undone(self, root: Root, number: int, redo: bool) -> None:
        """Learn from an undo of the mission of that number, or with `redo` from its redo. Runs in a helper thread, in the transaction of
        the undo.
        """


class UndoRunner:
    """Undoes missions, one after the other. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        memory: MemoryRuntime,
        settings: Settings,
        learning: UndoObserver | None = None,
        withdraw: Callable[[int], Awaitable[list[str]]] | None = None,
    ) -> None:
        """
        :param learning: learns from undone missions; None: no part does.
        :param withdraw: deletes the models of an undone change of the kind `provide`, and returns their names.
        """
        self._image, self._memory, self._settings, self._learning, self._withdraw = image, memory, settings, learning, withdraw
        self._background = Background()
        self._stopping = False

    async def undo(self, asked: UndoRequest) -> Reply:
        """Undo a mission, or redo it. The undo goes on even if its caller is cancelled.

        :returns: all undone `missions`, newest first; `objects`; the `documents` that come or go; `already`, if there was nothing to do.
            Also `effects`, if any stand in the world; no undo takes them back.
        :raises UndoConflict: if later work depends on the mission, without `cascade`, or other missions than expected would be undone.
        :raises InvalidInput: if the mission is not COMPLETE and is not a lesson that left examples.
        :raises HistoryGone: if the changes are older than the last pack.
        """
        if self._learning is not None:
            await self._learning.settled()
        kind = transaction_undo.REDO if asked.redo else transaction_undo.UNDO
        reply = await self._start(
            _Job(asked.id, kind + asked.id, kind.rstrip(":").upper(), asked.dry, lambda unit: self._done(unit, asked))
        )
        return {"id": asked.id, "redo": asked.redo, "dry": asked.dry, **reply}

    async def undo_change(
        self, number: int, why: str, *, state: str = changes.UNDONE, effect: Mapping[str, Any] = _NOTHING, dry: bool = False
    ) -> Reply:
        """Undo a change that the autotelic loop made, and record the undo and its reason. The undo goes on even if its caller is cancelled.

        :param state: the new state of the change, `UNDONE` or `DISABLED`.
        :param effect: figures of the change's watch.
        :returns: `number` and `objects`; `already`, if there was nothing to do; `refused`, if the change was only proposed and is refused
            now. For a change of the kind `provide`, also the deleted `models`, or the reason why that `waits`.
        :raises UndoConflict: if later work depends on the change.
        :raises UnknownChange: if no change has that number.
        :raises InvalidInput: if the change was refused.
        :raises HistoryGone: if the changes are older than the last pack.
        """
        name = changes.name_of(number)
        job = _Job(name, transaction_undo.UNDO + name, "UNDO", dry, lambda unit: self._reverse_change(unit, number, why, state, effect))
        done = await self._start(job)
        if (
            not dry
            and self._withdraw is not None
            and self._image.read(lambda root: changes.record_of(root, number).kind) == provided_models.KIND
        ):
            try:
                done["models"] = await self._withdraw(number)
            except InferenceFailed as e:
                log.warning("not_cleared", change=number, error=e.message)
                done["waits"] = f"what was pulled and made for it goes when its Ollama answers: {e.message}"
        return {"number": number, "dry": dry, **done}

    async def _start(self, job: _Job) -> Reply:
        if self._stopping:
            raise Busy("the daemon is stopping")
        return await self._background.run(self._retried(job), f"undo {job.name}")

    async def stop(self) -> None:
        """Let undos under way end. Return when they no longer use the image."""
        self._stopping = True
        await self._background.drain()

    async def _retried(self, job: _Job) -> Reply:
        async with self._image.reach:  # one after the other, and all that wait for a pack before the next pack
            for _ in range(AttemptLimits.of(self._settings).conflict_retries + 1):
                try:
                    return await self._undo_once(job)
                except TransientError as e:
                    log.info("undo_conflict", of=job.name, error=str(e)[:200])
        raise Conflicted(f"the undo of {job.name!r} met conflicts with missions under way too often; try again when they have ended")

    async def _undo_once(self, job: _Job) -> Reply:
        async with self._image.unit() as unit:
            try:
                done = await in_helper(job.work, unit)
            except POSKeyError:
                unit.doom()
                raise HistoryGone(f"the change of {job.name!r} is no longer kept: history goes back to the last pack") from None
            except BaseException:
                unit.doom()
                raise
            if job.dry or not done.lot:
                unit.doom()
            else:
                unit.note(job.annotation, f"{job.verb} of {', '.join(done.lot)}")
        if not (job.dry or not done.lot):
            self._memory.moved(done.moved)
            log.info("undone" if job.verb == "UNDO" else "redone", of=job.name, lot=done.lot)
        return done.told

    # --- in a helper thread, on the unit's connection

    def _done(self, unit: Unit, asked: UndoRequest) -> _Done:
        mission = ledger.mission_of(unit.root, asked.id)
        if not ledger.failed_lesson(mission):
            transaction_undo.commit_of(self._image.db, unit.root, asked.id)  # raises an error if there is nothing to undo
        if (mission.undone is None) is asked.redo:
            return _Done([], [], {"missions": [], "objects": [], "documents": {"gone": [], "back": []}, "already": True})
        changes, plan = self._planned(unit.root, asked)
        lot = [change.mission for change in changes]
        if asked.expect is not None and set(lot) != set(asked.expect):
            raise UndoConflict(
                f"by now {len(lot)} missions would be undone, not the {len(asked.expect)} that were agreed to; look again with a dry run",
                conflicts=[],
                missions=lot,
            )
        transaction_undo.write_undo(unit.root, plan)
        trees, moved = [], []
        for change in changes:
            found, more = self._by_layer(unit.root, change, asked.redo)
            trees += found + self._examples(unit.root, change.mission, asked.redo)
            trees += known_places.take_back(unit.root, change.mission, redo=asked.redo)
            moved.append(more)
        told = self._reply_of(unit.root, plan, lot, moved, trees)
        stand = [] if asked.redo else [{"mission": id, **effect} for id in lot for effect in effects.standing(unit.root, id)]
        if stand:
            told["effects"] = stand
        for id in lot:
            if continuations.is_mending(ledger.mission_of(unit.root, id)):
                continuations.turn_back(unit.root, id, redo=asked.redo)
            self._mark(unit.root, id, asked, lot)
            execution.settle_unvouched_again(ledger.mission_of(unit.root, id), redo=asked.redo)
        return _Done(lot, moved, told)

    def _reverse_change(self, unit: Unit, number: int, why: str, state: str, effect: Mapping[str, Any]) -> _Done:
        from batos.memory.archiver import managed_slots

        root, record = unit.root, changes.record_of(unit.root, number)
        name = changes.name_of(number)
        if record.state in (changes.UNDONE, changes.DISABLED):
            return _Done([], [], {"objects": [], "already": True})
        if record.state == changes.PROPOSED:  # the task that tries the change notices the refusal
            changes.refuse(root, number, why, changes.described(record)["comparison"])
            return _Done([name], [], {"objects": [], "refused": True})
        changes.take_back(root, number, state, why, effect)
        tid = transaction_undo.annotated(self._image.db, record._p_oid, name, changes.NOTE)
        change = transaction_undo.change_in(self._image.db, root, name, tid, managed_slots, lambda obj: changes.is_record(root, obj))
        plan = transaction_undo.plan_undo(self._image.db, root, [change])
        if plan.conflicts:
            missions = sorted({conflict.mission for conflict in plan.conflicts} - {""})
            raise _refusal(f"undo of {name!r}", plan.conflicts, missions, _remedy(plan.conflicts, "undo that first"))
        transaction_undo.write_undo(root, plan)
        trees, moved = self._by_layer(root, change, redo=False)
        return _Done([name], [moved], {"objects": _objects(plan) + trees})

    def _planned(self, root: Root, asked: UndoRequest) -> tuple[list[transaction_undo.TransactionChange], transaction_undo.UndoPlan]:
        """Return the changes of all missions to undo, newest first, and the records to write."""
        from batos.memory.archiver import managed_slots

        def change_of(id: str) -> transaction_undo.TransactionChange:
            if ledger.failed_lesson(ledger.mission_of(root, id)):
                return transaction_undo.no_change(id)
            change = transaction_undo.change_of(self._image.db, root, id, managed_slots)
            # what else that transaction wrote is of the ledger: the records of missions
            return change._replace(others=()) if continuations.is_mending(ledger.mission_of(root, id)) else change

        changes = {asked.id: change_of(asked.id)}
        while True:
            ordered = sorted(changes.values(), key=lambda change: change.since, reverse=not asked.redo)
            plan = transaction_undo.plan_undo(self._image.db, root, ordered, redo=asked.redo)
            more = {conflict.mission for conflict in plan.conflicts} - changes.keys()
            if not plan.conflicts:
                return ordered, plan
            if asked.redo or not asked.cascade or "" in more or not more:
                again = "what it started from has changed since; first redo what it was based on"
                remedy = again if asked.redo else _remedy(plan.conflicts, "undo that first, or all of it with --cascade")
                raise _refusal(f"{'redo' if asked.redo else 'undo'} of {asked.id!r}", plan.conflicts, sorted(more - {""}), remedy)
            if len(changes) + len(more) > (limit := UndoLimits.of(self._settings).missions):
                raise _impossible(f"more than {limit} missions depend on {asked.id!r}")
            for id in more:
                changes[id] = change_of(id)

    def _by_layer(self, root: Root, change: transaction_undo.TransactionChange, redo: bool) -> tuple[list[Reply], UndoneMemory]:
        """Merge trees in slots and documents. Both need views of the image from before the mission and after it."""
        from batos.memory.archiver import UndoneMemory, document_differences, undo_documents

        if not change.others:
            episode = _episode(root, change.mission, redo)
            return [], undo_documents(root, None, episode, (), self._memory.shelver) if episode else UndoneMemory(None, [], [], [])
        image = self._image
        with image.snapshot(at=p64(u64(change.tid) - 1)) as before, image.snapshot(at=change.tid) as at:
            trees = _merge_trees(root, change, before, at, redo)
            came, went = document_differences(before, at, change.others)
            if not (trees or came or went):
                kinds = sorted({type(root._p_jar.get(oid)).__name__ for oid in change.others})
                raise UndoConflict(
                    f"mission {change.mission!r} wrote records that cannot be undone one by one: {', '.join(kinds)}",
                    conflicts=[],
                    missions=[],
                )
            out, back = (went, came) if redo else (came, went)
            past = at if redo else before
            return trees, undo_documents(root, past, out | set(_episode(root, change.mission, redo)), back, self._memory.shelver)

    def _examples(self, root: Root, id: str, redo: bool) -> list[Reply]:
        """Take back the examples of a lesson; with `redo` teach them again.

        They were stored with its acceptance, so they are not among the changes of its cycle.
        """
        mission = ledger.mission_of(root, id)
        return lessons.teach_again(root, mission, SynthesisLimits.of(self._settings).examples) if redo else lessons.take_back(root, mission)

    def _mark(self, root: Root, id: str, asked: UndoRequest, lot: list[str]) -> None:
        mission = ledger.mission_of(root, id)
        facts = {"at": round(time.time(), 3), "with": asked.id, "missions": len(lot)}
        mission.undone = None if asked.redo else json.dumps(facts)
        if self._learning is not None and not ledger.failed_lesson(mission):
            self._learning.undone(root, mission.number, asked.redo)
        if asked.redo and f"mission:{id}" not in root["lobby"].memory.library.by_source:
            from batos.missions.memory_writer import remember_again  # imported late: it brings numpy, which a running daemon has already

            remember_again(root, mission)

    def _reply_of(
        self, root: Root, plan: transaction_undo.UndoPlan, lot: list[str], moved: Sequence[UndoneMemory], trees: list[Reply]
    ) -> Reply:
        missions = [ledger.describe(ledger.mission_of(root, id)) for id in lot]
        return {
            "missions": [{"id": one.id, "brief": history.in_list(one.brief), "finished": one.finished} for one in missions],
            "objects": _objects(plan) + trees,
            "documents": {side: [title for one in moved for title in getattr(one, side)] for side in ("gone", "back")},
        }


class _Job(NamedTuple):
    """One undo, or redo."""

    name: str
    annotation: str
    verb: str
    dry: bool
    work: Callable[[Unit], _Done]
    """Undoes or redoes the work, in a helper thread, on the unit's connection."""


class _Done(NamedTuple):
    lot: list[str]
    """Names of the undone or redone missions and changes. Empty if there was nothing to do."""
    moved: Sequence[UndoneMemory]
    told: Reply


def _objects(plan: transaction_undo.UndoPlan) -> list[Reply]:
    return [{"oid": transaction_undo.oid_name(oid), "parts": [str(part) for part in found]} for oid, found in plan.touched()]


def _impossible(why: str) -> UndoConflict:
    return UndoConflict(why, conflicts=[], missions=[])


def _refusal(what: str, conflicts: Sequence[transaction_undo.Conflict], missions: list[str], remedy: str) -> UndoConflict:
    told = [
        {"oid": transaction_undo.oid_name(one.oid), "part": one.part, "why": one.why, "mission": one.mission or None, "writer": one.writer}
        for one in conflicts
    ]
    named = "; ".join(
        f"{one['part']} of {one['oid']} {one['why']}, by {one['mission'] or one['writer'] or 'BAT OS itself'}" for one in told[:_NAMED]
    )
    more = f"; and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return UndoConflict(f"{what}: {named}{more}. {remedy}", conflicts=told, missions=missions)


def _remedy(conflicts: Sequence[transaction_undo.Conflict], by_missions: str) -> str:
    """Return what can be done about it."""
    others = [one.writer for one in conflicts if one.mission == ""]
    if not others:
        return by_missions
    own = next((number for writer in others if (number := changes.number_in(writer)) is not None), None)
    if own is not None:
        return f"that is a change that BAT OS made of itself: `batos changes undo {own}` first"
    return "no mission did that, so it stays; change it by hand"


def _episode(root: Root, id: str, redo: bool) -> list[int]:
    """Return the documents that memory made of the mission and of the facts in its brief. An undo removes them. After a redo, memory
    makes them again.
    """
    if redo:
        return []
    memory = root["lobby"].memory
    memory.lived._p_activate()
    # another transaction may be making the document just now; that transaction writes this object, too
    root._p_jar.readCurrent(memory.lived)
    numbers = (memory.library.by_source.get(f"{kind}:{id}") for kind in ("mission", "said"))
    return [number for number in numbers if number is not None]


def _merge_trees(root: Root, change: transaction_undo.TransactionChange, before: Any, at: Any, redo: bool) -> list[Reply]:
    """Merge the trees that slots hold, of the objects in the lobby (except the memory) and of the objects that the mission wrote."""
    from batos.memory.archiver import managed_slots

    lobby, told = at["lobby"], []
    holders = {one._p_oid for name, one in lobby._slots.items() if name != "memory" and isinstance(one, UvmObject)} | change.at.keys()
    for oid in sorted(holders):
        holder = at._p_jar.get(oid)
        for name, tree in _trees(holder):
            if name in managed_slots(holder):
                continue
            was = dict(_trees(_get(before, oid))).get(name)
            live = dict(_trees(_get(root, oid))).get(name)
            if live is None or was is None or not was._p_oid == tree._p_oid == live._p_oid:
                continue  # another tree now: the slot itself has changed
            base, mine = (was, tree) if redo else (tree, was)
            changed = transaction_undo.merge_tree(live, _mapped(root, base), _mapped(root, mine))
            if changed.clashes:
                keys = ", ".join(map(repr, changed.clashes[:_NAMED]))
                raise _impossible(f"undo of {change.mission!r}: {keys} in {name} of {transaction_undo.oid_name(oid)} was changed since")
            if changed.differed:
                told.append({"oid": transaction_undo.oid_name(oid), "parts": [name]})
    return told


def _trees(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, UvmObject):
        for name, value in obj._slots.items():
            if type(value).__module__.startswith("BTrees.") and hasattr(value, "items"):
                yield name, value


def _get(root: Root, oid: bytes) -> Any:
    try:
        return root._p_jar.get(oid)
    except KeyError:  # the object did not exist yet at that time
        return None


def _mapped(root: Root, tree: Any) -> dict[Any, Any]:
    """Return a tree of the past with the objects of the present."""
    return {key: root._p_jar.get(value._p_oid) if getattr(value, "_p_oid", None) else value for key, value in tree.items()}
