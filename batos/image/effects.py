"""Effects: what missions did outside the image, in the journals of these missions.

An effect is durable before its first byte leaves (state INTENDED; not for effects that only read). Its result is durable before it is used
(DONE, FAILED). What is INTENDED when a process begins was cut off by the end of another one: whether it happened is in doubt. Effects stand
outside of the transaction of a thought: a mission that FAILED, or was undone, leaves them where they are.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from BTrees.LOBTree import LOBTree
from BTrees.OOBTree import OOBTree
from persistent import Persistent

from batos.errors import InvalidInput, ToolFailed, ToolsTied
from batos.image import journal, kernels, ownership

INTENDED, DONE, FAILED, IN_DOUBT, SETTLED = "INTENDED", "DONE", "FAILED", "IN_DOUBT", "SETTLED"
"""States that are durable. SETTLED: its user said what became of it."""
ENDED = frozenset({DONE, FAILED, SETTLED})
READS, KEYED, IDEMPOTENT, VERIFIABLE, ACTS = "reads", "keyed", "idempotent", "verifiable", "acts"
CLASSES = (READS, KEYED, IDEMPOTENT, VERIFIABLE, ACTS)
"""Consequence of a repetition: nothing; the same answer by its key; the same state; what a look can rule out; a second act."""
HAPPENED, AGAIN, LEAVE = "happened", "again", "leave"
SETTLEMENTS = (HAPPENED, AGAIN, LEAVE)
_KEY_CHARS = 32
NO_ARGUMENTS = "{}"
_ACTED = "acted"  # key in the root


class EffectRecord(NamedTuple):
    """One effect, as plain values. Times are seconds since the epoch."""

    key: str
    """derived from image, mission, tool, arguments and occurrence; 32 hexadecimal digits"""
    tool: str
    kind: str
    """one of `CLASSES`"""
    arguments: str
    """canonical JSON"""
    occurrence: int
    state: str
    at: float
    """when it was intended, or, if it only reads, when it ended"""
    until: float = 0.0
    """until when the world may still act on it"""
    attempts: int = 1
    result: str | None = None
    """JSON of what came of it"""
    grant: str = ""
    """by whose leave"""
    target: str = ""
    """the thing that it changes, for those that come later"""
    ended: float = 0.0
    why: str = ""
    """why it failed or is in doubt, or who settled it"""
    process: str = ""
    """the process that carries it out on this machine, as `PID START`, so that a restart can end what is left of it"""
    label: str = ""
    """cycle, state, persona and part that asked, as in the journal of inferences"""
    failed: bool = False
    """True if the result is an error, as the wire shows errors"""
    pending: str = ""
    """JSON of what a tool asked before it goes on: its question, and what the next sending needs; empty where it asked nothing"""
    undo: str = ""
    """the tool that takes it back, as `CONNECTION.TOOL`; empty where there is none"""
    serial: int = 0
    """its place in the index of effects; 0: it has none"""
    # Fields are only ever added at the end.


class RecordedEffect(Persistent):
    """The record of one effect."""

    __module__ = "batos.image"

    def __init__(self, record: EffectRecord) -> None:
        self.record = record

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(self.record)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.record = EffectRecord(*state)


class EffectIndex(Persistent):
    """Effects of the image that act, in the order in which they were last intended, and those in doubt; not those of folded missions."""

    __module__ = "batos.image"

    def __init__(self) -> None:
        self.missions = LOBTree()
        """Serial number -> (mission, key)."""
        self.open = OOBTree()
        """Key -> mission, of what has not ended."""
        self.targets = OOBTree()
        """Target -> serial number of the last effect on it."""


def key_of(image: str, mission: str, tool: str, arguments: str, occurrence: int) -> str:
    """Return the key of an effect: the same for each replay, never made by a model."""
    content = json.dumps([image, mission, tool, arguments, occurrence], ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_CHARS]


def canonical(arguments: Mapping[str, Any]) -> str:
    """Return arguments as JSON that is the same for equal arguments.

    :raises InvalidInput: if JSON cannot hold them.
    """
    try:
        return json.dumps(arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as e:
        raise InvalidInput(f"arguments of a tool are JSON; these are not: {e}") from None


def index_of(root: Any) -> EffectIndex | None:
    """Return the index of effects, or None where there never was one."""
    return root.get("effects")  # type: ignore[no-any-return]


def load(root: Any, mission: str) -> list[EffectRecord]:
    """Return the effects of a mission, in the order in which they were recorded."""
    found = root["ledger"].missions.get(mission)
    return [] if found is None else [effect.record for effect in journal.of(found).effects]


def intend(root: Any, mission: str, record: EffectRecord, known: Mapping[str, int] | None = None) -> EffectRecord:
    """System transaction: record that an effect that acts is about to leave; again, where an earlier try is to be repeated. Return the
    record; one that has ended meanwhile, since its user settled it, stays as it is, and nothing may leave then.

    :param known: acts of each machine that the image must have (`acted`), and this one is counted with them; None: they are not counted.
    :raises ToolsTied: if the image lacks one of them, since it was put back to an older state.
    """
    _own(root, mission)
    if known is not None:
        if why := put_back(root, known):
            raise ToolsTied(f"{record.tool} is not called: {why}")
        counts, machine = root.setdefault(_ACTED, OOBTree()), kernels.host_of(kernels.me(root))
        counts[machine] = counts.get(machine, 0) + 1
    held = _find(root, mission, record.key)
    if held is not None and held.record.state in ENDED:
        return held.record
    index = index_of(root) or _new_index(root)
    serial = index.missions.maxKey() + 1 if index.missions else 1
    record = record._replace(state=INTENDED, serial=serial)
    if held is not None:
        index.missions.pop(held.record.serial, None)
        held.record = record
    else:
        _add(root, mission, record)
    index.missions[serial] = (mission, record.key)
    index.open[record.key] = mission
    if record.target:
        index.targets[record.target] = serial
    return record


def acted(root: Any) -> dict[str, int]:
    """Return the number of acts that each machine intended on an image of a server; "" is a daemon that had it to itself."""
    return dict(root.get(_ACTED) or {})


def put_back(root: Any, known: Mapping[str, int]) -> str:
    """Return why an image is not the one in which these acts were recorded; empty if it is."""
    there = acted(root)
    for machine, count in known.items():
        if (left := count - there.get(machine, 0)) > 0:
            of = f" of {machine}" if machine else ""
            return f"the image was put back to a state before the last {left} acts{of}, so they could be done twice"
    return ""


def end(root: Any, mission: str, record: EffectRecord) -> EffectRecord:
    """System transaction: record what became of an effect; return the record. What has ended stays as it is.

    :raises Overtaken: if the mission is another kernel's: that one resolves the effect.
    """
    _own(root, mission)
    held = _find(root, mission, record.key)
    if held is None:
        _add(root, mission, record)
    elif held.record.state not in ENDED:
        held.record = record = record._replace(serial=held.record.serial)
    else:
        return held.record
    index = index_of(root)
    if index is not None and record.state in ENDED and record.key in index.open:
        del index.open[record.key]
    return record


def end_each(root: Any, mission: str, records: Sequence[EffectRecord]) -> None:
    """System transaction: record what became of several effects; see `end`."""
    for record in records:
        end(root, mission, record)


def settle(root: Any, key: str, how: str, who: str, seen: EffectRecord | None = None) -> EffectRecord:
    """System transaction: record what its user says became of an effect in doubt.

    :param key: of the effect, or an unambiguous beginning.
    :param how: one of `SETTLEMENTS`.
    :param seen: the record that the user's word is about. None: as it is now.
    :raises InvalidInput: if no effect of that key is in doubt. Also if its mission may be at it: another kernel has that one, or the effect
        is not as it was seen.
    """
    if how not in SETTLEMENTS:
        raise InvalidInput(f"{how!r} is not a valid settlement; choose one of {', '.join(SETTLEMENTS)}")
    index = index_of(root)
    found = [] if index is None or not key else [full for full in index.open if full.startswith(key)]
    if len(found) != 1:
        there = ", ".join(list(index.open)[:5]) if index is not None and index.open else "none"
        which = "no effect" if not found else "more than one effect"
        raise InvalidInput(f"{which} of the key {key!r} is in doubt; in doubt are: {there}")
    assert index is not None
    mission = index.open[found[0]]
    held = _find(root, mission, found[0])
    assert held is not None
    if _is_elsewhere(root, mission) or (seen is not None and held.record != seen):
        raise InvalidInput(f"mission {mission!r} is at the effect {found[0][:8]} now, and asks if it cannot tell what became of it")
    held.record = settled(held.record, how, who)
    if held.record.state in ENDED:
        del index.open[found[0]]
    return held.record


def settled(record: EffectRecord, how: str, who: str) -> EffectRecord:
    """Return an effect in doubt as its user says that it ended; one that is to be done again stays in doubt and says so."""
    if how == AGAIN:
        return record._replace(state=IN_DOUBT, why=f"{AGAIN}: {who}", until=0.0)
    result = json.dumps({"happened": how == HAPPENED, "said_by": who})
    return record._replace(state=SETTLED, result=result, ended=now(), why=f"{how}: {who}")


def last_on(root: Any, target: str) -> str:
    """Return the key of the last effect on a target; empty where there was none."""
    index = index_of(root)
    serial = None if index is None else index.targets.get(target)
    return "" if serial is None or index is None else str(index.missions.get(serial, ("", ""))[1])


def recent(root: Any, most: int) -> Iterator[tuple[str, EffectRecord]]:
    """Yield the last acting effects of the image, each with its mission, the newest first. Those of folded missions are left out."""
    index = index_of(root)
    seen: set[str] = set()
    for serial in [] if index is None else reversed(index.missions.keys()):
        mission, key = index.missions[serial]  # type: ignore[union-attr]
        if key not in seen and (held := _find(root, mission, key)) is not None:
            seen.add(key)
            yield mission, held.record
        if len(seen) == most:
            return


def in_doubt(root: Any) -> list[tuple[str, EffectRecord]]:
    """Return the effects that have not ended, each with its mission."""
    index = index_of(root)
    found = [] if index is None else [(mission, _find(root, mission, key)) for key, mission in index.open.items()]
    return [(mission, held.record) for mission, held in found if held is not None]


def standing(root: Any, mission: str, most: int = 20) -> list[dict[str, Any]]:
    """Return the effects of a mission that an undo or a failure of it leaves in the world, the last first. They are the effects that act
    and did not surely fail.

    :returns: each with `key`, `tool`, `state`, `at`, and `compensation`, the tool that takes it back, where one is named.
    """
    found = [one for one in load(root, mission) if one.kind != READS and one.state != FAILED]
    return [
        {"key": one.key, "tool": one.tool, "state": one.state, "at": one.at, **({"compensation": one.undo} if one.undo else {})}
        for one in sorted(found, key=lambda one: -one.at)[:most]
    ]


def are_ended(mission: Any) -> bool:
    """Return True if no effect of a mission, given as its record in the ledger, is in doubt."""
    return all(effect.record.state in ENDED for effect in journal.of(mission).effects)


def drop_texts(mission: Any) -> bool:
    """Part of a system transaction: drop arguments and results of a mission's ended effects; return True if there were any. What was done,
    when, and by whose leave stays."""
    dropped = False
    for effect in journal.of(mission).effects:
        if effect.record.state in ENDED and (effect.record.result is not None or effect.record.arguments != NO_ARGUMENTS):
            effect.record = effect.record._replace(arguments=NO_ARGUMENTS, result=None)
            dropped = True
    return dropped


def forget(root: Any, mission: Any) -> None:
    """Part of a system transaction: take the effects of a mission, given as its record, out of the index."""
    index = index_of(root)
    if index is None:
        return
    for record in (effect.record for effect in journal.of(mission).effects):
        index.missions.pop(record.serial, None)
        index.open.pop(record.key, None)
        if record.target and index.targets.get(record.target) == record.serial:
            del index.targets[record.target]


def end_unsent(root: Any, mission: str) -> None:
    """Part of a system transaction: end what the tools of a mission that has ended only asked for. It surely did not happen."""
    index = index_of(root)
    for key in [] if index is None else [key for key, of in index.open.items() if of == mission]:
        held = _find(root, mission, key)
        if held is not None and held.record.pending:
            error = ToolFailed(f"{held.record.tool} asked, and its mission ended before it was answered")
            result = json.dumps(error.to_wire())
            held.record = held.record._replace(state=FAILED, result=result, failed=True, ended=now(), why=error.message, pending="")
            del index.open[key]  # type: ignore[union-attr]


def doubt_open(root: Any, why: str) -> None:
    """Part of a system transaction: put all that has not ended in doubt, so that its user is asked. No process here carries it out."""
    for mission, record in in_doubt(root):
        held = _find(root, mission, record.key)
        if held is not None:
            held.record = record._replace(state=IN_DOUBT, why=why, until=record.at, process="", pending="")


def to_wire(record: EffectRecord, *, chars: int | None = None) -> dict[str, Any]:
    """Return an effect as JSON values.

    :param chars: greatest number of characters of arguments and result; longer ones are texts that end in `…`. None: all.
    """
    facts: dict[str, Any] = {
        "key": record.key,
        "tool": record.tool,
        "class": record.kind,
        "state": record.state,
        "arguments": _within(record.arguments, chars),
        "at": record.at or record.ended,
        "ended": record.ended or None,
        "grant": record.grant,
        "attempts": record.attempts,
    }
    if record.result is not None:
        facts["error" if record.failed else "result"] = _within(record.result, chars)
    if record.pending:
        facts["question"] = json.loads(record.pending)["question"]
    return {**facts, **{name: value for name, value in (("target", record.target), ("why", record.why)) if value}}


def _within(text: str, chars: int | None) -> Any:
    return json.loads(text) if chars is None or len(text) <= chars else text[: chars - 1] + "…"


def now() -> float:
    """Return the time that an effect carries, in seconds since the epoch."""
    return round(time.time(), 3)


def _own(root: Any, mission: str) -> None:
    found = root["ledger"].missions.get(mission)
    if found is not None:
        ownership.own(root, found)


def _is_elsewhere(root: Any, mission: str) -> bool:
    """Return True if another kernel thinks a mission through, and may be at an effect of it."""
    found = root["ledger"].missions[mission]
    return found.finished is None and not ownership.free(root, found)


def _find(root: Any, mission: str, key: str) -> RecordedEffect | None:
    found = root["ledger"].missions.get(mission)
    return None if found is None else next((one for one in journal.of(found).effects if one.record.key == key), None)


def _add(root: Any, mission: str, record: EffectRecord) -> None:
    journal.opened(root["ledger"].missions[mission]).effects += (RecordedEffect(record),)


def _new_index(root: Any) -> EffectIndex:
    root["effects"] = made = EffectIndex()
    return made
