"""ZODB's internals are reached in one module: what it replaces is as that module takes it to be."""

from __future__ import annotations

import os
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ZODB
from persistent.mapping import PersistentMapping
from transaction import TransactionManager
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import p64

from batos.image import zodb_patches

HOUSE = Path(zodb_patches.__file__).parents[1]
_INTERNAL = re.compile(r"\b_?(?:storage|base|connection|db|jar|p_jar|tm|manager)\._[a-z]\w*")


@pytest.fixture
def storage(tmp_path: Path) -> Any:
    made = FileStorage(str(tmp_path / "it.fs"))
    yield made
    made.close()


@pytest.fixture
def connection(storage: Any) -> Any:
    db = ZODB.DB(storage)
    tm = TransactionManager(explicit=True)
    tm.begin()
    opened = db.open(transaction_manager=tm)
    opened.root()["it"] = PersistentMapping(n=1)
    tm.commit()
    tm.begin()
    yield opened
    tm.abort()
    opened.close()


def test_no_other_module_reaches_into_zodb() -> None:
    found = {
        f"{path.relative_to(HOUSE)}: {match[0]}"
        for path in HOUSE.rglob("*.py")
        if path.name != "zodb_patches.py"
        for match in _INTERNAL.finditer(path.read_text("utf-8"))
    }
    assert {one for one in found if not re.search(r"_storage\._checked", one)} == set()


def test_zodb_is_pinned_below_the_version_that_nobody_has_tried() -> None:
    project = tomllib.loads((HOUSE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert [line for line in project["dependencies"] if line.startswith("ZODB>")] == ["ZODB>=6,<7"]


def test_a_thread_may_leave_syncs_out_and_make_up_for_them_at_once(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    syncer = zodb_patches.Syncer(storage)
    db = ZODB.DB(storage)

    def commit(n: int) -> None:
        with db.transaction() as opened:
            opened.root()["n"] = n

    def commit_without_syncs() -> None:
        zodb_patches.leave_out_syncs()
        commit(2)

    with ThreadPoolExecutor(1) as syncing, ThreadPoolExecutor(1) as grouping:
        syncing.submit(commit, 1).result()
        assert synced
        synced.clear()
        grouping.submit(commit_without_syncs).result()
    assert (synced, syncer.behind) == ([], True)
    assert syncer.sync()
    assert len(synced) == 1
    assert not syncer.behind
    assert not syncer.sync()


def test_the_end_of_the_file_belongs_to_the_file(storage: Any, connection: Any) -> None:
    file, end = zodb_patches.open_committed(storage)
    with file:
        inode = os.fstat(file.fileno()).st_ino
        assert end == os.fstat(file.fileno()).st_size
    assert zodb_patches.committed_end(storage, inode) == end
    assert zodb_patches.committed_end(storage, inode + 1) is None
    oid = connection.root()["it"]._p_oid
    assert 0 < zodb_patches.index_position(storage, oid) < end
    assert zodb_patches.index_position(storage, p64(999)) == 0
    assert zodb_patches.index_is_behind(storage, oid, end, inode)
    assert not zodb_patches.index_is_behind(storage, oid, 1, inode)


def test_what_was_not_voted_on_is_cut_off(storage: Any, connection: Any) -> None:
    file, end = zodb_patches.open_committed(storage)
    file.close()
    with open(storage.getName(), "ab") as file:
        file.write(b"half a transaction")
    zodb_patches.truncate_unwritten(storage)
    assert os.path.getsize(storage.getName()) == end
    connection.root()["it"]["n"] = 2
    connection.transaction_manager.commit()
    connection.transaction_manager.begin()
    assert connection.root()["it"]["n"] == 2
    assert not zodb_patches.is_closed(storage)


def test_an_index_that_was_dropped_is_not_saved(storage: Any, connection: Any) -> None:
    storage._save_index()
    saved = Path(storage.getName() + ".index")
    assert saved.exists()
    assert zodb_patches.drop_index(storage)
    assert not zodb_patches.drop_index(storage)
    storage._save_index()
    assert not saved.exists()


def test_an_object_comes_back_under_its_id(connection: Any) -> None:
    tm = connection.transaction_manager
    oid = connection.root()["it"]._p_oid
    del connection.root()["it"]
    tm.commit()
    connection.db().pack()
    connection.cacheMinimize()
    tm.begin()
    with pytest.raises(POSKeyError):
        zodb_patches.load_record(connection, oid)
    made = PersistentMapping(n=2)
    zodb_patches.revive(connection, made, oid)
    connection.root()["again"] = made
    tm.commit()
    tm.begin()
    zodb_patches.load_record(connection, oid)
    assert connection.get(oid)["n"] == 2
    assert oid in zodb_patches.loaded_oids(connection)
    assert zodb_patches.first_unseen(connection) > connection.root()["again"]._p_serial


def test_a_database_is_closed_beside_a_thread_that_has_just_opened_a_connection(tmp_path: Path) -> None:
    db = ZODB.DB(FileStorage(str(tmp_path / "x.fs")))
    tm = zodb_patches.Transactions()
    db.open(transaction_manager=tm)  # and did not begin yet
    db.close()
    tm.abort()  # as its `finally` does
