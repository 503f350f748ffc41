"""Watch of named records in the image: which of them others have changed since the last look."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from batos.objects import Root


class RecordWatch:
    """Compares what the records say now with what they said. A record that was not written again is not read."""

    def __init__(self, records: Callable[[Root], Iterable[tuple[str, Any]]], said: Callable[[Root, str], Hashable]) -> None:
        """
        :param records: returns all records by name.
        :param said: returns that part of the record of a name whose change matters.
        """
        self._records, self._said = records, said
        self._known: dict[str, tuple[bytes, Hashable]] = {}

    def changed(self, root: Root) -> set[str]:
        """Return the names of the records that came, changed or went since the last call; at the first call those of all."""
        found: dict[str, tuple[bytes, Hashable]] = {}
        for name, record in self._records(root):
            record._p_activate()
            serial, known = record._p_serial, self._known.get(name)
            found[name] = known if known is not None and known[0] == serial else (serial, self._said(root, name))
        before, self._known = self._known, found
        return {name for name in found.keys() | before.keys() if _said(found, name) != _said(before, name)}


_ABSENT = object()


def _said(known: dict[str, tuple[bytes, Hashable]], name: str) -> Any:
    return known[name][1] if name in known else _ABSENT
