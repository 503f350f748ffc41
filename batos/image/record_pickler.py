"""The pickler of records: writes what ZODB's writes, in fewer bytes and less time.

ZODB's pickler asks a Python function about every value, each name and number too, whether it has a record of its own. For each
changed object it makes a new pickler, looks up the class and writes it anew. Here plain values, and objects of classes that had a
record before, are answered at once. A thread has one pickler, and the beginning of a class's record is written once. A whole mission takes
a tenth more computing time without it (docs/rationale.md, decision 5).

A pickler numbers each value, for what may refer to it later: two bytes a value. Most records hold plain values and references only,
among which hardly any comes twice. They are written here with the numbers that are used, a tenth shorter.
"""

from __future__ import annotations

import functools
import io
import itertools
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any

from persistent import Persistent
from ZODB.serialize import ObjectWriter, PersistentPickler, binary

from batos.image import zodb_patches

_PROTOCOL = 3
_plain: set[type] = {type(None), bool, int, float, str, bytes, binary, dict, list, tuple, set, frozenset, type}
"""Types whose values have no record. `type` is the type of the classes that references name. The classes of BTrees have types of their own,
which are added as they are met."""
_BEGIN, _BYTES, _ID, _REFERRED = b"\x80\x03", struct.Struct("<sI"), b"C\x08", b"\x86Q"
"""Opcodes of a pickle: its beginning; a number of bytes; an id; a reference, made of the id and class before it."""
_SMALL, _KEY = range(-(1 << 31), 1 << 31), struct.Struct("<si2s")
"""Numbers of 32 bits; opcodes of such a number and of the id that follows."""
_MANY, _TEXTS = 4, {str}
"""The fewest texts of a tuple that are written in one call; their types."""
_PLAIN = {None: b"N", True: b"\x88", False: b"\x89"}
_FLOAT, _TEXT, _SHORT = struct.Struct(">sd"), struct.Struct("<sI"), struct.Struct("<si")
_TUPLES = {0: b")", 1: b"\x85", 2: b"\x86", 3: b"\x87"}
"""Opcodes that make a tuple of the values before them, by their number; of more, a mark before them and `t`."""
_MOST_NUMBERS = 255
"""The greatest number of a value to which a byte can refer."""
_heads: dict[type, tuple[bytes, dict[int, Any]] | None] = {}
"""By class: its part of a record, and the pickler's memo of it; None if that differs from object to object."""
_thread = threading.local()


class _Pickling:
    """Pickler and caches of one thread."""

    def __init__(self) -> None:
        self.file = io.BytesIO()
        self.pickler = PersistentPickler(self.reference, self.file, _PROTOCOL)
        self.writer: Any = None
        """Writer at work."""
        self._row = io.BytesIO()
        self._rows = type(self.pickler)(self._row, _PROTOCOL)
        self._rows.fast = True  # it numbers nothing, and looks for nothing that comes twice

    def texts(self, row: tuple[str, ...]) -> bytes:
        """Return the opcodes of a tuple of more than three texts, without numbers."""
        self._row.seek(0)
        self._rows.dump(row)
        self._row.truncate()
        return self._row.getvalue()[len(_BEGIN) : -1]

    def reference(self, obj: Any) -> Any:
        """Return the reference to an object that has a record of its own; None for any other value."""
        kind = type(obj)
        if kind in _plain:
            return None
        writer = self.writer
        if _by_class(kind):  # type: ignore[arg-type]  # classes are hashable
            oid = obj._p_oid
            if oid is None:  # new: its record is written after this one
                oid = obj._p_oid = writer._jar.new_oid()
                obj._p_jar = writer._jar
                writer._stack.append(obj)
                return binary(oid), kind
            if obj._p_jar is writer._jar:
                return binary(oid), kind
        return writer.persistent_id(obj)


class RecordWriter(ObjectWriter):
    """ZODB's writer of records, faster."""

    _p = None  # ZODB's own pickler, made when there is something for it

    def __init__(self, obj: Any = None) -> None:
        self._stack = []
        if obj is not None:
            self._stack.append(obj)
            self._jar = obj._p_jar

    def serialize(self, obj: Any) -> bytes:
        """Return the data of an object's record."""
        kind = type(obj)
        head = _heads[kind] if kind in _heads else _learn(kind)
        if head is None:
            return super().serialize(obj)  # type: ignore[no-any-return]
        state = obj.__getstate__()
        try:
            mine = _thread.pickling
        except AttributeError:
            mine = _thread.pickling = _Pickling()
        file, pickler, mine.writer = mine.file, mine.pickler, self
        try:
            if type(state) is tuple:
                if _is_row(state):
                    return head[0] + self._row(*state, memo=len(head[1]), reference=mine.reference)
                if _is_leaf(state):
                    return head[0] + self._leaf(*state, memo=len(head[1]), reference=mine.reference)
            if (flat := _Flat(kind, self._jar, head[1], mine).pickled(state)) is not None:
                return head[0] + flat
            file.seek(0)
            file.write(head[0])
            pickler.memo = head[1]  # copied by it
            pickler.dump(state)
            file.truncate()
            return file.getvalue()  # type: ignore[no-any-return]
        finally:
            mine.writer = None

    def _row(self, data: bytes, objects: tuple[Any, ...], *, memo: int, reference: Callable[[Any], Any]) -> bytes:
        """Return the pickle of bytes and a row of objects, as the newest parts of a log are.

        The pickler would ask for each object's id and class, too, and number each id, to which nothing points back.
        """
        found = self._references(itertools.repeat(_ID), objects, memo, reference)
        return b"".join((_BEGIN, _BYTES.pack(b"B", len(data)), data, b"(", *found, b"t\x86."))

    def _leaf(self, row: tuple[Any, ...], *after: Any, memo: int, reference: Callable[[Any], Any]) -> bytes:
        """Return the pickle of a leaf of a tree from numbers to objects, and of the leaf after it, as of a row."""
        numbers = row[::2]
        least, most = min(numbers), max(numbers)
        if least in _SMALL and most in _SMALL:
            keys = [_KEY.pack(b"J", number, _ID) for number in numbers]
        else:
            size = max(least.bit_length(), most.bit_length()) // 8 + 1
            keys = [b"\x8a%c%b%b" % (size, number.to_bytes(size, "little", signed=True), _ID) for number in numbers]
        keys.append(b"t" + _ID)
        found = self._references(keys, row[1::2] + after, memo, reference)
        return b"".join((_BEGIN, b"(", *found, b"\x86." if after else b"t\x85."))

    def _references(self, before: Iterable[bytes], objects: tuple[Any, ...], memo: int, reference: Callable[[Any], Any]) -> list[bytes]:
        """Return the pickles of references to objects, in pieces.

        :param before: opcodes before each reference, which an id follows.
        :param memo: number of memoized values in the pickle of the class before them.
        """
        jar = self._jar
        found: list[bytes] = []
        kinds: dict[type, bytes] = {}
        for start, obj in zip(before, objects, strict=False):
            kind = type(obj)
            oid = obj._p_oid if obj._p_jar is jar else reference(obj)[0]
            if kind in kinds:
                found += (start, oid, kinds[kind])
            else:
                at = bytes((memo + len(kinds),))
                kinds[kind] = b"h" + at + _REFERRED
                found += (start, oid, f"c{kind.__module__}\n{kind.__qualname__}\n".encode(), b"q", at, _REFERRED)
        return found

    def _dump(self, classmeta: Any, state: Any) -> bytes:
        if self._p is None:
            found = self._stack
            super().__init__()
            self._stack = found
        return super()._dump(classmeta, state)  # type: ignore[no-any-return]


class _Flat:
    """Writes the pickle of a state of plain values, references and tuples of such, with no more numbers than are used."""

    __slots__ = ("_count", "_jar", "_kinds", "_parts", "_pickling", "_places")

    def __init__(self, kind: type, jar: Any, memo: dict[int, Any], pickling: _Pickling) -> None:
        """
        :param kind: the class of the object, of which the part before this one has the number 0.
        :param memo: the pickler's memo of that part.
        """
        self._jar, self._pickling = jar, pickling
        self._kinds: dict[type, bytes] = {kind: _get(0)}
        self._count = len(memo)
        self._parts: list[bytes] = [_BEGIN]
        self._places: dict[str | bytes | int, int | bytes] = {}
        """By value, of a tuple by its id: the part that ends it; once it came again, the opcodes that refer to it."""

    def pickled(self, state: Any) -> bytes | None:
        """Return the pickle; None for a state that holds anything else, or too much of what comes again."""
        try:
            self._slots(state) if type(state) is dict else self._value(state)
        except _NotFlat:
            return None
        self._parts.append(b".")
        return b"".join(self._parts)

    def _slots(self, state: dict[Any, Any]) -> None:
        parts, places = self._parts, self._places
        parts.append(b"}(")
        for name, value in state.items():
            if type(name) is bytes:
                parts.append(_name(name))
            else:
                self._value(name)
            if type(value) is str and value not in places:  # most are, and a call for each is felt
                data = value.encode("utf-8", "surrogatepass")
                places[value] = len(parts)
                parts.append(_TEXT.pack(b"X", len(data)) + data)
            elif type(value) is int:
                parts.append(_number(value))
            else:
                self._value(value)
        parts.append(b"u")

    def _value(self, value: Any) -> None:
        kind, parts = type(value), self._parts
        if kind is str:
            if not self._came(value):
                data = value.encode("utf-8", "surrogatepass")
                parts.append(_TEXT.pack(b"X", len(data)) + data)
                self._places[value] = len(parts) - 1
        elif kind is int:
            parts.append(_number(value))
        elif value is None or kind is bool:
            parts.append(_PLAIN[value])
        elif kind is float:
            parts.append(_FLOAT.pack(b"G", value))
        elif kind is tuple:
            if value and self._came(id(value)):
                return
            length = len(value)
            texts = length >= _MANY and type(value[1]) is str and set(map(type, value)) == _TEXTS
            if texts and len(set(value)) == length:  # as the keys of a set
                parts.append(self._pickling.texts(value))
            else:
                if length > 3:
                    parts.append(b"(")
                self._parts_of(value)
                parts.append(_TUPLES[length] if length <= 3 else b"t")
            self._places[id(value)] = len(parts) - 1
        elif kind is bytes:
            if len(value) < 3 or not self._came(value):
                parts.append(b"C%c%b" % (len(value), value) if len(value) < 256 else _BYTES.pack(b"B", len(value)) + value)
                self._places[value] = len(parts) - 1
        elif kind not in _plain and _by_class(kind):  # type: ignore[arg-type]  # classes are hashable
            oid = value._p_oid if value._p_jar is self._jar else None
            oid = oid or self._pickling.reference(value)[0]
            if not self._came(oid):
                parts.append(_ID + oid)
                self._places[oid] = len(parts) - 1
            parts += (self._class(kind), _REFERRED)
        else:
            raise _NotFlat

    def _parts_of(self, row: tuple[Any, ...]) -> None:
        """Write the values of a tuple. Most are numbers, texts and references that come once, and a call for each would be felt."""
        parts, places, kinds, jar = self._parts, self._places, self._kinds, self._jar
        for one in row:
            kind = type(one)
            if kind is int:
                parts.append(_number(one))
            elif kind is str and one not in places:
                data = one.encode("utf-8", "surrogatepass")
                places[one] = len(parts)
                parts.append(_TEXT.pack(b"X", len(data)) + data)
            elif kind in kinds and one._p_jar is jar and (oid := one._p_oid) and oid not in places:
                places[oid] = len(parts)
                parts += (_ID + oid, kinds[kind], _REFERRED)
            else:
                self._value(one)

    def _came(self, key: str | bytes | int) -> bool:
        """Refer to a value that was written before; it is numbered when it comes the second time. Return False for another one.

        :param key: a text or bytes; the id of a tuple, which the state holds.
        """
        place = self._places.get(key)
        if place is None:
            return False
        if isinstance(place, int):
            number = self._next()
            self._parts[place] += b"q%c" % number
            place = self._places[key] = _get(number)
        self._parts.append(place)
        return True

    def _class(self, kind: type) -> bytes:
        known = self._kinds.get(kind)
        if known is not None:
            return known
        number = self._next()
        self._kinds[kind] = _get(number)
        return f"c{kind.__module__}\n{kind.__qualname__}\nq".encode() + bytes((number,))

    def _next(self) -> int:
        number, self._count = self._count, self._count + 1
        if number > _MOST_NUMBERS:
            raise _NotFlat
        return number


class _NotFlat(Exception):
    """A state that the pickler has to write."""


def _get(number: int) -> bytes:
    """Return the opcodes that refer to a value by its number."""
    return b"h%c" % number


@functools.lru_cache(4096)
def _name(name: bytes) -> bytes:
    return b"C%c%b" % (len(name), name) if len(name) < 256 else _BYTES.pack(b"B", len(name)) + name


def _number(value: int) -> bytes:
    """Return the shortest opcodes of a whole number."""
    if 0 <= value < 1 << 8:
        return b"K%c" % value
    if 0 <= value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if value in _SMALL:
        return _SHORT.pack(b"J", value)
    size = value.bit_length() // 8 + 1
    if size > _MOST_NUMBERS:
        raise _NotFlat
    return b"\x8a%c%b" % (size, value.to_bytes(size, "little", signed=True))


def _learn(kind: type) -> tuple[bytes, dict[int, Any]] | None:
    found = None
    if _by_class(kind):
        writer = ObjectWriter()
        writer._p.dump(kind)
        found = writer._file.getvalue(), writer._p.memo.copy()
    _heads[kind] = found
    return found


def _is_row(state: tuple[Any, ...]) -> bool:
    """Return True if a state is bytes and a row of objects, referred to by their ids and classes."""
    if len(state) != 2 or type(state[0]) is not bytes or type(state[1]) is not tuple:
        return False
    return all(map(_by_class, set(map(type, state[1]))))


def _is_leaf(state: tuple[Any, ...]) -> bool:
    """Return True if a state is numbers and such objects in turn, two pairs at least, maybe with an object behind
    them."""
    if not 0 < len(state) < 3 or type(state[0]) is not tuple:
        return False
    row = state[0]
    if len(row) < 4 or len(row) % 2 or type(row[0]) is not int or set(map(type, row[::2])) != {int}:
        return False
    return all(map(_by_class, {*map(type, row[1::2]), *map(type, state[1:])}))


@functools.cache
def _by_class(kind: Any) -> bool:
    """Return True if references to the objects of a class are their id and the class."""
    if not issubclass(kind, Persistent) or hasattr(kind, "__getnewargs__") or isinstance(kind._p_oid, bytes | None):
        return False  # the last: a class that has a record itself
    _plain.add(type(kind))
    return True


def use_record_writer() -> None:
    """Make every commit of this process write its records with `RecordWriter`."""
    zodb_patches.use_writer(RecordWriter)
