"""Watch of named records in the image: which of them others have changed since the last look. A look costs what was changed.

ZODB tells a connection which objects others wrote when it takes a new view of the image. `log_changes` keeps these names for the connection
that looks; a connection without a log is looked through as a whole.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ZODB.Connection import Connection

from batos.image.zodb_patches import hear_views
from batos.objects import Root

KEPT = 10_000
"""Changed objects that a log keeps, the last ones. Who looks more seldom looks through all records."""


class ChangeLog:
    """Objects that others wrote, as one connection learns with each new view."""

    def __init__(self, connection: Connection) -> None:
        self._views = self._floor = 0
        self._written: OrderedDict[bytes, int] = OrderedDict()
        hear_views(connection, self._heard)

    @property
    def mark(self) -> int:
        """Return the number of the present view."""
        return self._views

    def since(self, mark: int) -> list[bytes] | None:
        """Return the objects that were written after the view of that number; None where that is not known any more."""
        if mark < self._floor:
            return None
        found = []
        for oid in reversed(self._written):
            if self._written[oid] <= mark:
                break
            found.append(oid)
        return found

    def _heard(self, oids: Iterable[bytes] | None) -> Iterable[bytes] | None:
        self._views += 1
        if oids is None:  # all may have been written
            self._floor = self._views
            self._written.clear()
            return None
        oids = list(oids)
        for oid in oids:
            self._written[oid] = self._views
            self._written.move_to_end(oid)
        while len(self._written) > KEPT:
            self._floor = self._written.popitem(last=False)[1]
        return oids


_logs: weakref.WeakKeyDictionary[Any, ChangeLog] = weakref.WeakKeyDictionary()


def log_changes(connection: Connection) -> None:
    """Keep from now on which objects others write, as a connection learns of them."""
    _logs[connection] = ChangeLog(connection)


class RecordWatch:
    """Compares what the records say now with what they said. A record that was not written again is not read."""

    def __init__(
        self, holder: Callable[[Root], Any], records: Callable[[Root], Iterable[tuple[str, Any]]], said: Callable[[Root, str], Hashable]
    ) -> None:
        """
        :param holder: returns the object that is written when a record comes or goes.
        :param records: returns all records by name.
        :param said: returns that part of the record of a name whose change matters.
        """
        self._holder, self._records, self._said = holder, records, said
        self._known: dict[str, tuple[bytes, Hashable]] = {}
        self._names: dict[bytes, str] = {}
        self._mark: int | None = None

    def changed(self, root: Root) -> set[str]:
        """Return the names of the records that came, changed or went since the last call; at the first call those of all."""
        log = _logs.get(root._p_jar)
        mark, self._mark = self._mark, None if log is None else log.mark
        oids = None if log is None or mark is None else log.since(mark)
        if oids is None or self._holder(root)._p_oid in oids:
            return self._looked_through(root)
        return {name for oid in oids if (name := self._names.get(oid)) is not None and self._is_changed(root, name, root._p_jar.get(oid))}

    def _looked_through(self, root: Root) -> set[str]:
        before, self._known, self._names = self._known, {}, {}
        changed = set()
        for name, record in self._records(root):
            if name in before:
                self._known[name] = before[name]
            self._names[record._p_oid] = name
            if self._is_changed(root, name, record):
                changed.add(name)
        return changed | (before.keys() - self._known.keys())

    def _is_changed(self, root: Root, name: str, record: Any) -> bool:
        """Read a record if it was written again; return True if it says something else than before."""
        record._p_activate()
        known = self._known.get(name)
        if known is not None and known[0] == record._p_serial:
            return False
        self._known[name] = (record._p_serial, self._said(root, name))
        return known is None or known[1] != self._known[name][1]
