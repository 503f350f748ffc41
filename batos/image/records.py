"""How the data of a record is written: as ZODB writes it, to the byte, in less time.

Its pickler asks of everything that it meets, each name and number too, whether that has a record of its own; and it looks up
each object's class, and writes it, anew. Here it is answered at once for what is plain and for objects of classes that had a
record before, and how the record of a class begins is written once. What it saves is in docs/decisions.md.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from persistent import Persistent
from ZODB.serialize import ObjectWriter, binary

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, binary, dict, list, tuple, set, frozenset, type})
"""Types whose values have no record. `type` is of the classes that references name; persistent classes have another."""
_heads: dict[type, tuple[bytes, dict[int, Any]] | None] = {}
"""By class: its part of a record, and what the pickler remembers of it; None where that differs from object to object."""


class RecordWriter(ObjectWriter):
    """ZODB's writer of records, quicker."""

    def __init__(self, obj: Any = None) -> None:
        super().__init__(obj)
        jar, found, ask = self._jar, self._stack, self.persistent_id

        def reference(obj: Any) -> Any:
            kind = type(obj)
            if kind in _PLAIN:
                return None
            if _by_class(kind):  # type: ignore[arg-type]  # classes are hashable
                oid = obj._p_oid
                if oid is None:  # new: its record is written after this one
                    oid = obj._p_oid = jar.new_oid()
                    obj._p_jar = jar
                    found.append(obj)
                    return binary(oid), kind
                if obj._p_jar is jar:
                    return binary(oid), kind
            return ask(obj)

        self._p.persistent_id = reference

    def serialize(self, obj: Any) -> bytes:
        """The data of an object's record."""
        kind = type(obj)
        head = _heads[kind] if kind in _heads else self._learn(kind)
        if head is None:
            return super().serialize(obj)  # type: ignore[no-any-return]
        state = obj.__getstate__()
        file, pickler = self._file, self._p
        file.seek(0)
        file.write(head[0])
        pickler.memo = head[1]  # copied by it
        pickler.dump(state)
        file.truncate()
        return file.getvalue()  # type: ignore[no-any-return]

    def _learn(self, kind: type) -> tuple[bytes, dict[int, Any]] | None:
        found = None
        if type(kind) is type and not hasattr(kind, "__getnewargs__"):
            self._file.seek(0)
            self._p.clear_memo()
            self._p.dump(kind)
            self._file.truncate()
            found = self._file.getvalue(), self._p.memo.copy()
        _heads[kind] = found
        return found


@functools.cache
def _by_class(kind: type) -> bool:
    """Whether references to the objects of a class are their id and the class."""
    return issubclass(kind, Persistent) and not hasattr(kind, "__getnewargs__")


_connection = importlib.import_module("ZODB.Connection")  # the module, in which a commit looks up its `ObjectWriter`
assert vars(_connection)["ObjectWriter"] is ObjectWriter, "this ZODB writes records in another way"


def use() -> None:
    """Have every commit of this process write its records so."""
    vars(_connection)["ObjectWriter"] = RecordWriter
