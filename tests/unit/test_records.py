"""Records say what those that ZODB writes say, in no more bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from BTrees.LOBTree import LOBTree
from BTrees.OOBTree import OOBTree
from hypothesis import given, settings
from hypothesis import strategies as st
from persistent import Persistent
from persistent.mapping import PersistentMapping
from persistent.wref import WeakRef
from transaction import TransactionManager
from ZODB._compat import Unpickler
from ZODB.serialize import ObjectWriter, referencesf

from batos.image import checksums, ledger
from batos.image.living_image import LivingImage
from batos.image.record_pickler import RecordWriter
from batos.image.storage import open_database
from batos.objects import Intent, UvmObject

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9) | st.binary(max_size=9)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.just({1, 2})
    ),
    max_leaves=8,
)
NAMES = st.text("abc_é", min_size=1, max_size=6).filter(lambda name: name[0] != "_" and name.isidentifier())


class Other(Persistent):
    """A class with arguments of its own in each record."""

    def __new__(cls, *args: Any) -> Other:
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[int]:
        return (7,)


def told(data: bytes) -> str:
    """What a record says, whatever its opcodes: its class and its state, with types, as Python writes them."""
    pickles = Unpickler(io.BytesIO(data))
    pickles.persistent_load = lambda reference: ("to", reference)
    return repr((pickles.load(), pickles.load()))


def holds(data: bytes, obj: Any) -> None:
    """Hold a record of an object against what ZODB makes of it."""
    theirs, data = ObjectWriter(obj).serialize(obj), checksums.without_sum(data)
    assert told(data) == told(theirs)
    assert referencesf(data) == referencesf(theirs)
    assert len(data) <= len(theirs)


def written_as_zodb_writes(image: LivingImage) -> int:
    """Hold each record of an image against what ZODB makes of its object; how many there were."""
    count = 0
    with image.snapshot() as root:
        connection, oid = root._p_jar, None
        while True:
            oid, _, data, oid_after = image.db.storage.record_iternext(oid)
            obj = connection.get(oid)
            obj._p_activate()
            holds(data, obj)
            assert checksums.without_sum(data) == RecordWriter(obj).serialize(obj), obj
            count += 1
            if oid_after is None:
                return count
            oid = oid_after


async def test_each_record_of_an_image_says_what_zodb_would_have_written(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'live_image.fs'}")

    def change(root: Any) -> None:
        lobby = root["lobby"]
        lobby.one = lobby.derive(name="one", intent=Intent("to be kept"))
        lobby.two = UvmObject(**{"parent*": (lobby.one, lobby), "again": lobby.one})
        lobby.two.items = [lobby.two, {"a": lobby.one}, (lobby.one, 1)]
        lobby.tree = OOBTree({f"k{i}": UvmObject(n=i) for i in range(100)})
        lobby.other, lobby.mapping = Other(), PersistentMapping(a=lobby.one, b=Other())
        lobby.lots = LOBTree({n: (n, lobby.one) for n in range(200)})
        root["odd"] = [WeakRef(lobby.one), UvmObject, b"\x00", lobby.other]  # no slot holds such

    for i in range(40):
        await image.system(ledger.accept, f"m{i}", "a brief", {"persona": "robin"}, i % 2 == 0)
    await image.system(change)
    await image.system(lambda root: setattr(root["lobby"].other, "more", root["lobby"].two))
    assert written_as_zodb_writes(image) > 180
    await image.close()


@settings(max_examples=30, deadline=None)
@given(slots=st.dictionaries(NAMES, VALUES, max_size=6))
def test_whatever_the_slots_hold(slots: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    db = open_database(f"file://{tmp_path_factory.mktemp('image') / 'live_image.fs'}", cache_size=100, pool_size=2)
    try:
        tm = TransactionManager(explicit=True)
        connection = db.open(transaction_manager=tm)
        tm.begin()
        obj = connection.root()["it"] = UvmObject(**slots)
        tm.commit()
        data, _ = db.storage.load(obj._p_oid)
        tm.begin()
        holds(data, obj)
        tm.abort()
        connection.close()
    finally:
        db.close()


class Row(Persistent):
    """Its state is bytes and what stands in a row."""

    data: bytes
    row: tuple[Any, ...]

    def __getstate__(self) -> tuple[bytes, tuple[Any, ...]]:
        return self.data, self.row

    def __setstate__(self, state: tuple[bytes, tuple[Any, ...]]) -> None:
        self.data, self.row = state


def test_a_row_of_objects_says_the_same_in_fewer_bytes(tmp_path: Path) -> None:
    db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=100, pool_size=2)
    try:
        with db.transaction() as connection:
            root = connection.root()
            root["known"] = known = UvmObject(n=1)
            connection.add(known)
            root["row"] = row = Row()
            row.data, row.row = b"\x00." * 200, (known, PersistentMapping(a=1), row, Row(), known, *(UvmObject(n=i) for i in range(30)))
            row.row[3].data, row.row[3].row = b"", ()
            root["numbers"] = numbers = Row()
            numbers.data, numbers.row = b"12", (1, known)
            root["odd"] = odd = Row()
            odd.data, odd.row = b"12", (Other(), known)
        with db.transaction() as connection:
            root = connection.root()
            row = root["row"]
            data, theirs = checksums.without_sum(db.storage.load(row._p_oid)[0]), ObjectWriter(row).serialize(row)
            assert referencesf(data) == referencesf(theirs)
            assert len(data) < len(theirs)
            assert row.data == b"\x00." * 200
            known, mapping, itself, other, again, *more = row.row
            assert known is root["known"] is again
            assert itself is row
            assert (dict(mapping), other.data, other.row) == ({"a": 1}, b"", ())
            assert [one.n for one in more] == list(range(30))
            for name in ("numbers", "odd"):  # what stands there is no object, or one of which a reference says less
                holds(db.storage.load(root[name]._p_oid)[0], root[name])
    finally:
        db.close()


@pytest.mark.parametrize("first", [0, 255, 70_000, (1 << 31) - 5, 1 << 33, -(1 << 31) - 3, -(1 << 63), (1 << 63) - 100])
def test_a_leaf_of_numbers_and_objects_says_the_same_in_fewer_bytes(tmp_path: Path, first: int) -> None:
    db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=100, pool_size=2)
    try:
        with db.transaction() as connection:
            root = connection.root()
            root["tree"] = tree = LOBTree({first + n: UvmObject(n=n) for n in range(99)})
        with db.transaction() as connection:  # new objects, of several classes, among those that are there
            tree = connection.root()["tree"]
            tree[first + 98], tree[first + 99] = UvmObject(n=98), PersistentMapping(n=99)
            tree[first + 97] = tree[first + 1]
        leaves = 0
        with db.transaction() as connection:
            tree = connection.root()["tree"]
            assert list(tree) == list(range(first, first + 100))
            assert [obj["n"] if isinstance(obj, PersistentMapping) else obj.n for obj in tree.values()] == [*range(97), 1, 98, 99]
            leaf = tree._firstbucket
            while leaf is not None:
                leaf._p_activate()
                data, theirs = checksums.without_sum(db.storage.load(leaf._p_oid)[0]), ObjectWriter(leaf).serialize(leaf)
                assert referencesf(data) == referencesf(theirs)
                assert len(data) < len(theirs)
                assert data == RecordWriter(leaf).serialize(leaf)
                leaves, leaf = leaves + 1, leaf._next
        assert leaves > 2
    finally:
        db.close()


def test_leaves_of_anything_else_say_what_zodb_writes(tmp_path: Path) -> None:
    db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=100, pool_size=2)
    try:
        with db.transaction() as connection:
            root = connection.root()
            known = root["known"] = UvmObject(n=1)
            root["values"] = LOBTree({n: known if n % 2 else (n, "x") for n in range(200)})
            root["names"] = OOBTree({f"k{n}": known for n in range(200)})
            root["odd"] = LOBTree({n: known if n else Other() for n in range(200)})
        with db.transaction() as connection:
            for name in ("values", "names", "odd"):
                leaf = connection.root()[name]._firstbucket
                leaf._p_activate()
                holds(db.storage.load(leaf._p_oid)[0], leaf)
    finally:
        db.close()


def test_a_commit_that_fails_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=100, pool_size=2)
    try:
        tm = TransactionManager(explicit=True)
        connection = db.open(transaction_manager=tm)
        tm.begin()
        connection.root()["bad"] = PersistentMapping(a=PersistentMapping(b=1), c=lambda: None)  # no record can hold that
        with pytest.raises(Exception, match="pickle"):
            tm.commit()
        tm.abort()
        tm.begin()
        connection.root()["good"] = good = PersistentMapping(a=1)
        tm.commit()
        assert len(db.storage) == 2
        holds(db.storage.load(good._p_oid)[0], good)
        connection.close()
    finally:
        db.close()


SAID = "said more than once"
FLAT: dict[str, Any] = {
    "numbers": (0, 1, 255, 256, 65_535, 65_536, -1, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1, 1 << 63, -(1 << 63), 1 << 2030, 1 << 2100),
    "floats": (0.0, -0.0, 1.5, float("inf"), float("nan")),
    "texts": ("", "é", "\ud800", "x" * 300, "日本"),
    "bytes": (b"", b"\x00" * 255, b"\x00" * 256),
    "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, (2, (3, ())), 4, True, False, None)),
    "again": (SAID, (SAID, SAID), "".join(("said more", " than once"))),
    "many": tuple(f"word {n % 300}" for n in range(900)),
    "not flat": [(SAID, SAID), {"in": SAID}],
}


@pytest.mark.parametrize("name", FLAT)
def test_plain_values_are_read_as_they_were(name: str, tmp_path: Path) -> None:
    value = FLAT[name]
    db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=100, pool_size=2)
    try:
        with db.transaction() as connection:
            root = connection.root()
            root["it"] = it = Other()
            root["row"] = row = Row()
            it.value, row.data, row.row = value, b"", (value, value)
        with db.transaction() as connection:
            it, row = connection.root()["it"], connection.root()["row"]
            it._p_activate(), row._p_activate()
            for obj in (it, row):
                holds(db.storage.load(obj._p_oid)[0], obj)
            assert repr(it.value) == repr(value) == repr(row.row[1])
    finally:
        db.close()
