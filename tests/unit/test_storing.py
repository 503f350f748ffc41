"""Storing a record without asking the file: what FileStorage would have written, and each conflict is still one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ZODB
from BTrees.OOBTree import OOBTree
from persistent.mapping import PersistentMapping
from transaction import TransactionManager
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError, ReadConflictError
from ZODB.utils import p64

from batos.image.checksummed_storage import CheckedStorage
from batos.image.checksums import summed
from batos.image.record_pickler import Storing
from batos.image.storage import open_database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ZODB.DB]:
    db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=400, pool_size=7)
    with db.transaction() as connection:
        connection.root()["it"] = PersistentMapping(n=0)
        connection.root()["tree"] = OOBTree({f"k{i:04}": i for i in range(500)})
    yield db
    db.close()


def view(db: ZODB.DB) -> tuple[TransactionManager, Any]:
    tm = TransactionManager(explicit=True)
    tm.begin()
    return tm, db.open(transaction_manager=tm).root()


def change(db: ZODB.DB, **values: Any) -> None:
    tm, root = view(db)
    root["it"].update(values)
    tm.commit()
    root._p_jar.close()


def assert_conflict(db: ZODB.DB) -> None:
    """Of two that change the same object one is refused."""
    tm, root = view(db)
    root["it"]["late"] = 1
    change(db, early=time.time())
    with pytest.raises(ConflictError):
        tm.commit()
    tm.abort()
    root._p_jar.close()


def headers_read(db: ZODB.DB, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    base, read = db.storage.base, []
    known = base._read_data_header
    monkeypatch.setattr(base, "_read_data_header", lambda pos, *args: read.append(pos) or known(pos, *args))
    return read


def test_what_was_written_a_moment_ago_is_not_read(db: ZODB.DB, monkeypatch: pytest.MonkeyPatch) -> None:
    change(db, n=1)
    read = headers_read(db, monkeypatch)
    for n in range(10):
        change(db, n=n)
    tm, root = view(db)
    for n in range(50):
        root["tree"][f"k{n:04}x"] = n  # nodes by whose way it goes are checked, too
        tm.commit()
        tm.begin()
    tm.abort()
    assert len(read) < 10
    root._p_jar.close()


def test_conflicts_are_seen(db: ZODB.DB) -> None:
    assert_conflict(db)
    assert_conflict(db)


def test_a_node_that_was_changed_meanwhile_is_seen(db: ZODB.DB) -> None:
    tm, root = view(db)
    root._p_jar.readCurrent(root["it"])
    root["other"] = 1
    change(db, n=2)
    with pytest.raises(ReadConflictError):
        tm.commit()
    tm.abort()
    root._p_jar.readCurrent(root["it"])
    root._p_jar.close()


def test_what_was_aborted_is_forgotten(db: ZODB.DB) -> None:
    change(db, n=1)
    tm, root = view(db)
    root["it"]["n"] = "to be aborted"
    storage, transaction = db.storage, TransactionMetaData()
    storage.tpc_begin(transaction)
    storage.store(root["it"]._p_oid, root["it"]._p_serial, b"aborted.", "", transaction)
    storage.tpc_abort(transaction)
    tm.commit()
    root._p_jar.close()
    assert_conflict(db)
    with db.transaction() as connection:
        assert connection.root()["it"]["n"] == "to be aborted"


def test_after_a_pack_places_are_others(db: ZODB.DB) -> None:
    for n in range(20):
        change(db, n=n)
    db.pack(time.time() + 1)
    assert_conflict(db)
    change(db, n="packed")
    db.pack(time.time() + 1)
    change(db, n="and again")
    with db.transaction() as connection:
        assert connection.root()["it"]["n"] == "and again"


def test_after_an_undo(db: ZODB.DB) -> None:
    change(db, n=1)
    change(db, n=2)
    tm = TransactionManager(explicit=True)
    tm.begin()
    db.undo(db.undoLog(0, 1)[0]["id"], tm.get())
    tm.commit()
    assert_conflict(db)
    change(db, m=3)
    with db.transaction() as connection:
        assert (connection.root()["it"]["n"], connection.root()["it"]["m"]) == (1, 3)


def test_the_file_is_what_filestorage_makes_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def filled(name: str) -> bytes:
        path = tmp_path / name
        storage = CheckedStorage(FileStorage(str(path)), name)
        serials: dict[bytes, bytes] = {}
        for n in range(1, 30):
            transaction, tid = TransactionMetaData("user", "what was done"), p64((1 << 60) + n)
            storage.tpc_begin(transaction, tid)
            for oid in {p64(n), p64(n // 2), storage.new_oid()}:
                storage.store(oid, serials.get(oid, p64(0)), b"x" * n + b".", "", transaction)
                serials[oid] = tid
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
        storage.close()
        return path.read_bytes()

    ours = filled("ours.fs")
    monkeypatch.setattr(Storing, "store", lambda self, oid, serial, data, *more: self._storage.store(oid, serial, summed(data), *more))
    assert ours == filled("theirs.fs")
    assert len(ours) > 29 * 3 * 42


def test_ids_go_on(tmp_path: Path) -> None:
    storage = CheckedStorage(FileStorage(str(tmp_path / "ids.fs")), "ids.fs")
    assert [storage.new_oid() for _ in range(600)] == [p64(n) for n in range(1, 601)]
    assert storage.base.new_oid() == p64(601)
    storage.close()
