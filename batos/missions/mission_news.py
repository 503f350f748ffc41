"""News of missions that other kernels of the image think through: their ends, and the states in which they wait for their user.

A look reads what the others committed since the last one, and publishes it here as if it had happened here. So a watcher of a mission, a
client that waits for its result, and a count of ends need not know where it was thought. Each end is published once, by the kernel that
wrote it at its own commit, by the others at their next look.

    look ─ missions accepted since ─ missions that left the pending set ─ missions of others that were written ─ `Events.report`
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from batos.errors import ImageDamaged, UnknownMission
from batos.image import continuations, kernels, ledger
from batos.image.mission_record import MissionRecord
from batos.mind.events import Event, Events
from batos.missions.held_missions import held_state
from batos.objects import Root, UvmObject

log = structlog.get_logger("batos.cluster")

_WAITING_READ = 500  # missions without an owner that one look reads: a crowd of them is read in turns
_GRACE_S = 1.0  # seconds in which an end may still come from the kernel that wrote it, after the last of its text


class _Known:
    """Mission that has not ended, as it was seen last."""

    __slots__ = ("ended", "owner", "serial", "told")

    def __init__(self) -> None:
        self.serial, self.owner = b"", ""
        self.told: tuple[str | None, int] = (None, 0)
        self.ended = 0.0
        """Time at which its end was seen, on the monotonic clock; 0: it has not ended."""


class MissionNews:
    """News of others' missions. All methods are called on the loop's thread."""

    def __init__(
        self,
        events: Events,
        is_here: Callable[[str], bool],
        comes_live: Callable[[str], bool] = lambda id: False,
        on_change: Callable[[MissionRecord], object] = lambda record: None,
    ) -> None:
        """
        :param is_here: returns True for a mission that this kernel thinks through, or ends: it tells the end itself.
        :param comes_live: returns True for a mission whose events are being brought here from its kernel, with the end after the last text.
        :param on_change: called with the record of each mission that was written since, also of one that has ended.
        """
        self._events, self._is_here, self._comes_live, self._on_change = events, is_here, comes_live, on_change
        self._known: dict[str, _Known] = {}
        self._over: set[str] = set()  # pending ones that have ended, or cannot be read
        self._newest: int | None = None
        self._continued: tuple[bytes, dict[str, int]] = (b"", {})  # as `continuations.lately`, and how often each had been continued
        self._turn: Iterator[str] = iter(())
        events.tell_once()

    @property
    def owners(self) -> dict[str, str]:
        """Return the kernels that think missions through, by mission; those of this kernel are among them."""
        return {id: one.owner for id, one in self._known.items() if one.owner}

    def __len__(self) -> int:
        """Return the number of missions that have not ended, as of the last look."""
        return len(self._known)

    def look(self, root: Root) -> None:
        """Publish what others wrote since the last look.

        :param root: of a snapshot as of now.
        """
        held, first = ledger.ledger_of(root), self._newest is None
        pending = set(held.pending)
        self._reopen(root, quietly=first)
        for mission in self._accepted(root):
            self._known[mission.id] = _Known()
        self._over &= pending
        for id in held.pending:
            if id not in self._known and id not in self._over:  # it was there at first, or goes on after an end
                self._known[id] = _Known()
        for id in self._due(pending):
            try:
                self._read(root, id, quietly=first)
            except (ImageDamaged, UnknownMission) as e:  # the self-audit tells of it
                log.warning("mission_not_read", mission=id, error=e.message)
                self._known.pop(id, None)
            if id not in self._known and id in pending:
                self._over.add(id)

    def _reopen(self, root: Root, *, quietly: bool) -> None:
        """Await the end of each mission that another kernel continued, and thought through, since the last look."""
        serial, ids = continuations.lately(root)
        if serial == self._continued[0]:
            return
        me, before, times = kernels.me(root), self._continued[1], {}
        for id in ids:
            with contextlib.suppress(ImageDamaged, UnknownMission):  # the self-audit tells of it
                record = ledger.record_of(root, id)
                times[id] = len(record.continued)
                if record.is_final and not quietly and times[id] > before.get(id, 0) and not (me and record.kernel == me):
                    self._events.reopened(id)
                    self._known[id] = _Known()
        self._continued = serial, times

    def _accepted(self, root: Root) -> list[UvmObject]:
        """Return the missions that were accepted since the last look."""
        newest = ledger.ledger_of(root).newest.mission
        number = 0 if newest is None else int(newest.number)
        before, self._newest = self._newest, number
        return [] if before is None or number <= before else ledger.numbered(root, before, number - before)

    def _due(self, pending: set[str]) -> list[str]:
        """Return the missions to read. They are new ones, those that left the pending set, and those that a kernel thinks through or that
        have watchers here. Of those that wait some are read, in turns."""
        resting: list[str] = []
        due: list[str] = []
        for id, one in self._known.items():
            at_once = not one.serial or one.owner or one.ended or id not in pending or self._events.is_watched(id)
            (due if at_once else resting).append(id)
        return due + (resting if len(resting) <= _WAITING_READ else self._some(resting))

    def _some(self, waiting: list[str]) -> list[str]:
        """Return the next ones of a crowd, so that each has its turn."""
        known = set(waiting)
        found = list(itertools.islice((id for id in self._turn if id in known), _WAITING_READ))
        if not found:
            self._turn = iter(waiting)
            found = list(itertools.islice(self._turn, _WAITING_READ))
        return found

    def _read(self, root: Root, id: str, *, quietly: bool) -> None:
        one, mission = self._known[id], ledger.ledger_of(root).missions.get(id)
        if mission is not None:
            mission._p_activate()
            if mission._p_serial == one.serial and not one.ended:
                return
            one.serial = mission._p_serial
        record = ledger.record_of(root, id)  # of a folded one, too
        one.owner = record.kernel
        if record.is_final:
            if self._may_tell(id, one):
                del self._known[id]
                self._tell_end(record)
            return
        self._events.reopened(id)
        is_here = self._is_here(id)
        if not quietly and not is_here:
            self._tell_state(record, one)
        if not quietly or is_here:  # one under way here may have been cancelled elsewhere before the first look
            self._on_change(record)
        one.told = _waits(record)

    def _may_tell(self, id: str, one: _Known) -> bool:
        """Return True if an end is to be published now, or was. Return False while the part that knows more of it has yet to publish it."""
        one.ended = one.ended or time.monotonic()
        if self._events.is_told(id):
            return True
        if self._is_here(id):
            return False
        return not self._comes_live(id) or time.monotonic() - one.ended > _GRACE_S

    def _tell_end(self, record: MissionRecord) -> None:
        if not self._events.is_told(record.id):
            for event in end_events(record):
                self._events.report(record.id, event)
        self._on_change(record)

    def _tell_state(self, record: MissionRecord, one: _Known) -> None:
        now = _waits(record)
        if now == one.told or now[0] is None:
            return
        self._events.report(record.id, {**_begun(record), "type": "state", "state": now[0]})
        if question := record.open_question:
            self._events.report(record.id, {**_begun(record), "type": "needs_input", "state": now[0], **question})


def _waits(record: MissionRecord) -> tuple[str | None, int]:
    """Return the state in which a mission waits for its user, else None, and the number of its open question, else 0."""
    question = record.open_question
    return held_state(record), 0 if question is None else int(question["number"])


def end_events(record: MissionRecord) -> list[Event]:
    """Return the events of a mission's end, as its record tells them."""
    said: dict[str, Any] = {name: value for name, value in record.to_wire(("result", "error")).items() if value is not None}
    told = {**_begun(record), "state": record.state}
    return [{**told, "type": "state", **({"error": said["error"]} if "error" in said else {})}, {**told, "type": "result", **said}]


def _begun(record: MissionRecord) -> Event:
    until = record.finished or time.time()
    persona = (record.result or {}).get("persona") or record.persona
    return {"id": record.id, "persona": persona, "elapsed_s": round(max(0.0, until - record.accepted), 4)}
