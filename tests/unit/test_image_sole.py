"""The transactions of a connection that is the only one in them: as those of the package `transaction`, as far as they go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from BTrees.LOBTree import LOBTree
from transaction.interfaces import AlreadyInTransaction, NoTransaction
from ZODB.POSException import ConflictError, ReadConflictError

from batos.image import sole
from batos.image.checked import base_of
from batos.image.storage import open_database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=100, pool_size=3)
    yield db
    db.close()


@pytest.fixture
def manager(db: Any) -> Iterator[sole.Manager]:
    manager = sole.Manager()
    connection = db.open(transaction_manager=manager)
    manager.begin()
    connection.root()["tree"] = LOBTree({n: n for n in range(1000)})
    connection.root()["n"] = 0
    manager.commit()
    yield manager
    connection.close()


def root_of(manager: sole.Manager) -> Any:
    return manager._connection.root()


def counted(db: Any, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The objects of which it is asked whether they are current."""
    base, asked = base_of(db.storage), []
    get = base.getTid
    monkeypatch.setattr(base, "getTid", lambda oid: asked.append(oid) or get(oid))
    return asked


def other(db: Any, change: Any) -> None:
    with db.transaction() as connection:
        change(connection.root())


def test_what_was_committed_is_seen_by_others_with_its_note(db: Any, manager: sole.Manager) -> None:
    manager.begin().user = "m1"
    root_of(manager)["n"] = 1
    manager.commit()
    with db.transaction() as connection:
        assert connection.root()["n"] == 1
    assert db.history(root_of(manager)._p_oid)[0]["user_name"] == "m1"


def test_it_begins_and_ends_where_that_was_said(manager: sole.Manager) -> None:
    with pytest.raises(NoTransaction):
        manager.commit()
    with pytest.raises(NoTransaction):
        manager.abort()
    manager.begin()
    with pytest.raises(AlreadyInTransaction):
        manager.begin()
    manager.commit()  # of nothing
    with pytest.raises(NoTransaction):
        manager.get()


def test_what_was_aborted_is_forgotten(manager: sole.Manager) -> None:
    manager.begin()
    root_of(manager)["n"] = 7
    root_of(manager)["tree"][5000] = 1
    manager.abort()
    manager.begin()
    assert root_of(manager)["n"] == 0
    assert 5000 not in root_of(manager)["tree"]
    manager.abort()


def test_two_that_change_the_same_conflict(db: Any, manager: sole.Manager) -> None:
    manager.begin()
    root_of(manager)["n"] = 7
    other(db, lambda root: root.update(n=8))
    with pytest.raises(ConflictError):
        manager.commit()
    manager.abort()
    manager.begin()
    assert root_of(manager)["n"] == 8
    root_of(manager)["n"] = 9
    manager.commit()


@pytest.mark.parametrize("step", ["tpc_begin", "store", "tpc_vote", "tpc_finish"])
def test_a_commit_that_fails_at_any_step_leaves_nothing(db: Any, manager: sole.Manager, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise OSError("no")

    manager.begin()
    root_of(manager)["n"] = 7
    with monkeypatch.context() as patch:
        patch.setattr(manager._connection._storage, step, fail)
        with pytest.raises(OSError, match="no"):
            manager.commit()
        with pytest.raises(AlreadyInTransaction):
            manager.begin()
        manager.abort()
    manager.begin()
    assert root_of(manager)["n"] == 0
    root_of(manager)["n"] = 1
    manager.commit()
    other(db, lambda root: root.update(n=root["n"] + 1))  # nobody holds the storage's lock
    manager.begin()
    assert root_of(manager)["n"] == 2
    manager.abort()


def test_that_what_was_read_is_current_is_asked_only_where_somebody_committed(
    db: Any, manager: sole.Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted(db, monkeypatch)
    manager.begin()
    root_of(manager)["tree"][5] = 50
    assert manager._connection._readCurrent
    manager.commit()
    assert not asked
    manager.begin()
    root_of(manager)["tree"][5] = 51
    other(db, lambda root: root.update(n=3))
    manager.commit()
    assert asked == [root_of(manager)["tree"]._p_oid]


def test_what_was_read_as_current_and_is_not_is_a_conflict(db: Any, manager: sole.Manager) -> None:
    manager.begin()
    root = root_of(manager)
    manager._connection.readCurrent(root)
    root["tree"][5] = 50
    other(db, lambda root: root.update(n=3))
    with pytest.raises(ReadConflictError):
        manager.commit()
    manager.abort()
