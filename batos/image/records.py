"""How the data of a record is written: as ZODB writes it, to the byte but for rows of objects, in less time.

Its pickler asks of everything that it meets, each name and number too, whether that has a record of its own; and it looks up
each object's class, and writes it, anew. Here it is answered at once for what is plain and for objects of classes that had a
record before, and how the record of a class begins is written once. A connection keeps its writer: each is a cycle that only the
garbage collector takes away, and a commit would make one for every object that it changed. What it saves is in docs/decisions.md.
"""

from __future__ import annotations

import functools
import importlib
import struct
from typing import Any

from persistent import Persistent
from ZODB.serialize import ObjectWriter, binary

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, binary, dict, list, tuple, set, frozenset, type})
"""Types whose values have no record. `type` is of the classes that references name; persistent classes have another."""
_KEPT = "_batos_writer"
"""Where a connection keeps its writer."""
_BEGIN, _LONG, _REFERRED = b"\x80\x03B", struct.Struct("<I"), b"\x86Q"
"""Of a pickle: its beginning and that bytes follow; their length; that what was said last, an id and a class, is a reference."""
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

        self._p.persistent_id = self._reference = reference

    def serialize(self, obj: Any) -> bytes:
        """The data of an object's record."""
        kind = type(obj)
        head = _heads[kind] if kind in _heads else self._learn(kind)
        if head is None:
            return super().serialize(obj)  # type: ignore[no-any-return]
        state = obj.__getstate__()
        if _is_row(state):
            return head[0] + self._row(*state, memo=len(head[1]))
        file, pickler = self._file, self._p
        file.seek(0)
        file.write(head[0])
        pickler.memo = head[1]  # copied by it
        pickler.dump(state)
        file.truncate()
        return file.getvalue()  # type: ignore[no-any-return]

    def _row(self, data: bytes, objects: tuple[Any, ...], *, memo: int) -> bytes:
        """The pickle of bytes and a row of objects, as the newest parts of a log are: the pickler would ask of each object's id and
        class, too, and number each id, to which nothing points back."""
        jar, reference = self._jar, self._reference
        kinds: dict[type, bytes] = {}
        found = [_BEGIN, _LONG.pack(len(data)), data, b"("]
        for obj in objects:
            kind = type(obj)
            oid = obj._p_oid if obj._p_jar is jar else reference(obj)[0]
            if kind in kinds:
                found += (b"C\x08", oid, kinds[kind])
            else:
                at = bytes((memo + len(kinds),))
                kinds[kind] = b"h" + at + _REFERRED
                found += (b"C\x08", oid, f"c{kind.__module__}\n{kind.__qualname__}\n".encode(), b"q", at, _REFERRED)
        found.append(b"t\x86.")
        return b"".join(found)

    @classmethod
    def of(cls, obj: Any) -> RecordWriter:
        """The writer for an object that changed, and for those that are new with it: its connection's, unless that is at work."""
        kept: RecordWriter | None = vars(obj._p_jar).get(_KEPT)
        if kept is None or kept._stack:  # at work, or left there by a commit that failed
            kept = vars(obj._p_jar)[_KEPT] = cls(obj)
        else:
            kept._stack.append(obj)
        return kept

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


def _is_row(state: Any) -> bool:
    """Whether it is bytes and a row of objects, referred to by their ids and classes."""
    if type(state) is not tuple or len(state) != 2 or type(state[0]) is not bytes or type(state[1]) is not tuple:
        return False
    return all(map(_by_class, set(map(type, state[1]))))


@functools.cache
def _by_class(kind: type) -> bool:
    """Whether references to the objects of a class are their id and the class."""
    return issubclass(kind, Persistent) and not hasattr(kind, "__getnewargs__")


_connection = importlib.import_module("ZODB.Connection")  # the module, in which a commit looks up its `ObjectWriter`
assert vars(_connection)["ObjectWriter"] is ObjectWriter, "this ZODB writes records in another way"


def use() -> None:
    """Have every commit of this process write its records so."""
    vars(_connection)["ObjectWriter"] = RecordWriter.of
