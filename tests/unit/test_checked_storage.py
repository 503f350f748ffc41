"""The storage with checksums, held against what ZODB asks of a storage: undo, conflicts, the past, copies, packs, other storages."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transaction
import ZODB
from BTrees.Length import Length
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.tests.MVCCMappingStorage import MVCCMappingStorage

from batos.errors import ImageDamaged, ImageError
from batos.image import checksums
from batos.image.checksummed_storage import CheckedStorage, base_of
from batos.image.packing import pack
from batos.image.scrubber import Walk
from batos.image.storage import open_database
from batos.objects import UvmObject


def opened(path: Path, **options: Any) -> ZODB.DB:
    return open_database(f"file://{path}", cache_size=400, pool_size=7, **options)


def put(db: ZODB.DB, **slots: Any) -> None:
    with db.transaction("a note") as connection:
        root = connection.root()
        for name, value in slots.items():
            root.setdefault(name, UvmObject()).value = value


def value(db: ZODB.DB, name: str) -> Any:
    with db.transaction() as connection:
        return connection.root()[name].value


def raw(db: ZODB.DB) -> list[bytes]:
    """The data of all revisions, as it is stored."""
    return [record.data for entry in base_of(db.storage).iterator() for record in entry if record.data]


def walked(db: ZODB.DB) -> dict[str, str]:
    walk = Walk(db)
    walk.step(100_000, 1 << 30)
    return walk.damaged


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "i.fs"


@pytest.fixture
def db(path: Path) -> Iterator[ZODB.DB]:
    db = opened(path)
    db.storage.required_after = b"\0" * 8
    yield db
    db.close()


def damage(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


def test_every_record_carries_a_checksum_and_nobody_sees_it(db: ZODB.DB) -> None:
    put(db, a="one")
    assert all(checksums.carries_sum(data) for data in raw(db))
    for entry in db.storage.iterator():
        assert not any(checksums.carries_sum(record.data) for record in entry)
    oid, tid, data, _ = db.storage.record_iternext()
    for found in (db.storage.load(oid)[0], db.storage.loadSerial(oid, tid), db.storage.loadBefore(oid, b"\xff" * 8)[0]):
        assert found == data
    assert walked(db) == {}


def test_the_past_is_checked_too(path: Path, db: ZODB.DB) -> None:
    put(db, a="first value")
    before = db.lastTransaction()
    put(db, a="second value")
    damage(path, b"first value", b"first Value")
    assert value(db, "a") == "second value"
    connection = db.open(transaction.TransactionManager(explicit=True), at=before)
    connection.transaction_manager.begin()
    with pytest.raises(ImageDamaged, match=r"a batos.objects.UvmObject.*checksum is wrong; restore a backup"):
        _ = connection.root()["a"].value
    connection.transaction_manager.abort()
    connection.close()
    with pytest.raises(ImageDamaged):
        list(map(list, db.storage.iterator()))


@pytest.mark.parametrize(("number", "raised"), [(errno.EIO, ImageDamaged), (errno.EMFILE, OSError)])
def test_a_record_that_the_disk_does_not_give_is_damaged(db: ZODB.DB, monkeypatch: pytest.MonkeyPatch, number: int, raised: type) -> None:
    """Where there are only too many open files, it is not."""
    put(db, a="one")

    def unread(*args: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(base_of(db.storage), "loadBefore", unread)
    db.cacheMinimize()
    with pytest.raises(raised, match=os.strerror(number)):
        value(db, "a")
    monkeypatch.undo()
    assert value(db, "a") == "one"


@pytest.mark.parametrize("how", ["load", "loadBefore"])
def test_a_close_that_overtakes_a_read_is_no_damage(path: Path, db: ZODB.DB, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    put(db, a="one")
    storage, read, oid = db.storage, base_of(db.storage)._read_data_header, (1).to_bytes(8, "big")

    def closed_meanwhile(*args: Any) -> Any:
        db.close()
        return read(*args)

    monkeypatch.setattr(storage.base, "_read_data_header", closed_meanwhile)
    with pytest.raises(ImageError, match="is closed") as caught:
        getattr(storage, how)(oid, b"\x7f" * 8) if how == "loadBefore" else storage.load(oid)
    assert not isinstance(caught.value, ImageDamaged)
    assert path.with_name("i.fs.index").exists()


def test_undo(db: ZODB.DB) -> None:
    put(db, a=1)
    put(db, a=2)
    db.undo(db.undoLog(0, 1)[0]["id"])
    transaction.commit()
    assert value(db, "a") == 1
    put(db, a=3)
    assert db.undoLog(0, 1)[0]["description"] == "a note"
    assert walked(db) == {}


def test_undo_of_what_was_written_before_there_were_checksums_survives_packs(path: Path) -> None:
    plain = ZODB.DB(str(path))
    put(plain, a=1, b=1)
    put(plain, a=2)
    plain.close()
    db = opened(path)
    db.storage.required_after = db.lastTransaction()
    moment = time.time()
    db.undo(db.undoLog(0, 1)[0]["id"])
    transaction.commit()
    put(db, b=2)
    assert value(db, "a") == 1, "its data was written before"
    assert not all(checksums.carries_sum(data) for data in raw(db))
    assert walked(db) == {}
    pack(db, path, moment, threading.Event())
    assert all(checksums.carries_sum(data) for data in raw(db)), "a pack gives what it picks a checksum"
    assert (value(db, "a"), value(db, "b")) == (1, 2)
    db.storage.required_after = b"\0" * 8
    assert walked(db) == {}
    db.close()


def test_a_conflict_that_is_resolved_is_stored_with_a_checksum(db: ZODB.DB) -> None:
    with db.transaction() as connection:
        connection.root()["count"] = Length()
    pairs = []
    for _ in range(2):
        tm = transaction.TransactionManager(explicit=True)
        pairs.append((tm, db.open(tm)))
        tm.begin()
        pairs[-1][1].root()["count"].change(1)
    for tm, _ in pairs:
        tm.commit()
    with db.transaction() as connection:
        assert connection.root()["count"]() == 2
    assert all(checksums.carries_sum(data) for data in raw(db))
    assert walked(db) == {}
    for _, connection in pairs:
        connection.close()


def test_a_pack_keeps_checksums_and_seals(path: Path, db: ZODB.DB) -> None:
    for n in range(20):
        put(db, **{f"a{n % 5}": n, "b": UvmObject(n=n)})
    moment = time.time()
    for n in range(20, 30):
        put(db, **{f"a{n % 5}": n})
    size = db.getSize()
    pack(db, path, moment, threading.Event())
    assert db.getSize() < size
    put(db, a0=0)
    assert walked(db) == {}
    assert [value(db, f"a{n}") for n in range(5)] == [0, 26, 27, 28, 29]


@pytest.mark.parametrize("old", [b"a text", b"a note"], ids=["record", "metadata"])
def test_a_pack_does_not_bless_damage(path: Path, old: bytes) -> None:
    """References of a record that changed say nothing of what is garbage; a new seal would hide what the old one shows."""
    db = opened(path)
    with db.transaction("a note") as connection:
        connection.root()["a"] = UvmObject(text="a text")
    put(db, b=1, c=2)
    put(db, b=2)
    moment = time.time()
    with db.transaction() as connection:
        connection.root()["d"] = UvmObject(text="later")
    db.close()
    data = path.read_bytes()
    at = data.index(old)
    path.write_bytes(data[:at] + b"A" + data[at + 1 :])
    damaged = path.read_bytes()
    db = opened(path)
    for _ in range(2):
        with pytest.raises(ImageDamaged, match=r"was not packed: .* damaged.*restore a backup"):
            pack(db, path, moment, threading.Event())
    assert len(walked(db)) >= 1
    put(db, b=3)  # its locks are let go
    db.close()
    assert path.read_bytes().startswith(damaged)
    assert not path.with_name("i.fs.pack").exists()


@pytest.mark.parametrize("at", [0, 3, 8, 14, 16, 18], ids=["id", "time", "length", "lower length", "status", "user"])
def test_a_pack_that_meets_a_damaged_header_is_refused(path: Path, at: int) -> None:
    db = opened(path)
    for n in range(20):
        put(db, a=n)
    db.close()
    data, begin = bytearray(path.read_bytes()), 4
    for _ in range(10):
        begin += int.from_bytes(data[begin + 8 : begin + 16], "big") + 8
    data[begin + at] ^= 1
    path.write_bytes(data)
    db = opened(path)
    with pytest.raises(ImageDamaged, match=r"was not packed.*restore a backup"):
        pack(db, path, time.time() + 10, threading.Event())
    assert path.read_bytes() == data
    assert not path.with_name("i.fs.pack").exists()
    put(db, b=1)
    db.close()


def test_copies(path: Path, tmp_path: Path, db: ZODB.DB) -> None:
    put(db, a=1)
    put(db, a=2)
    other = CheckedStorage(FileStorage(str(tmp_path / "other.fs")), "other")
    other.copyTransactionsFrom(db.storage)
    copy = ZODB.DB(other)
    assert value(copy, "a") == 2
    assert raw(copy) == raw(db)
    assert walked(copy) == {}
    copy.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_what_fsrecover_salvages_has_its_checksums_and_seals(path: Path, tmp_path: Path) -> None:
    """The remedy that a refusal names: the transactions that are whole come out of it, at other places in the file."""
    db = opened(path)
    for n in range(6):
        put(db, a=n, b="x" * n)
    db.close()
    path.with_name("i.fs.index").unlink()
    whole = path.read_bytes()
    at = whole.index(b"a note", len(whole) // 2)
    path.write_bytes(whole[: at - 20] + bytes(18) + whole[at - 2 :])
    with pytest.raises(ImageDamaged, match="fsrecover"):
        opened(path)
    gc.collect()  # FileStorage does not close its files when its constructor fails
    salvaged = tmp_path / "salvaged.fs"
    subprocess.run([sys.executable, "-m", "ZODB.fsrecover", str(path), str(salvaged)], check=True, capture_output=True)
    db = opened(salvaged)
    db.storage.required_after = b"\0" * 8
    assert value(db, "a") == 5
    assert walked(db) == {}
    db.close()


def test_an_image_without_checksums_is_read_by_a_plain_zodb_and_back(path: Path) -> None:
    """What is behind a pickle disturbs no reader: any tool of ZODB reads the file."""
    db = opened(path)
    put(db, a=1)
    db.close()
    plain = ZODB.DB(str(path))
    assert value(plain, "a") == 1
    put(plain, a=2)
    assert plain.undoLog(0, 1)[0]["description"] == "a note"
    plain.pack(time.time())
    plain.close()
    db = opened(path)
    assert value(db, "a") == 2
    db.close()


@pytest.mark.parametrize("make", [MappingStorage, MVCCMappingStorage])
def test_storages_that_are_no_files(make: Any) -> None:
    db = ZODB.DB(CheckedStorage(make(), "memory"))
    put(db, a=1)
    put(db, a=2)
    assert value(db, "a") == 2
    storage = base_of(db.storage)
    oid = max(storage._data)
    assert checksums.carries_sum(storage.load(oid)[0])
    revisions = storage._data[oid]
    tid = max(revisions)
    revisions[tid] = revisions[tid].replace(b"value", b"Value")
    for connection in (db.open(), db.open()):
        connection.cacheMinimize()
        with pytest.raises(ImageDamaged):
            connection.root()["a"]._p_activate()
        connection.close()
    db.close()


def test_over_a_server(tmp_path: Path) -> None:
    """ZEO: its clients put the checksums in; the server needs to know nothing of them, also when it resolves a conflict."""
    import ZEO

    address, stop = ZEO.server(str(tmp_path / "server.fs"))
    try:
        db = open_database(f"zeo://{address[0]}:{address[1]}?wait_timeout=10", cache_size=400, pool_size=7)
        put(db, a=1)
        with db.transaction() as connection:
            connection.root()["count"] = Length()
        tms = [transaction.TransactionManager(explicit=True) for _ in range(2)]
        connections = [db.open(tm) for tm in tms]
        for tm, connection in zip(tms, connections, strict=True):
            tm.begin()
            connection.root()["count"].change(1)
        for tm in tms:
            tm.commit()
        for connection in connections:
            connection.close()
        with db.transaction() as connection:
            assert connection.root()["count"]() == 2
        assert value(db, "a") == 1
        assert walked(db) == {}
        db.close()
    finally:
        stop()


@pytest.mark.parametrize(
    ("data", "ok"),
    [
        (b"N.N.", True),
        (checksums.summed(b"N.N."), True),
        (checksums.summed(b"N.N.")[:-1] + b"/", False),
        (checksums.summed(b"N.N.")[:-2] + b"..", False),
        (b"N.M." + checksums.summed(b"N.N.")[4:], False),
        (b"N.", False),
        (b"N.N.N.", False),
        (b"N", False),
        (b"N.N.\0", False),
        (b"", False),
    ],
)
def test_what_counts_as_whole(data: bytes, ok: bool) -> None:
    if ok:
        assert checksums.without_sum(data).startswith(b"N.")
    else:
        with pytest.raises(checksums.Mismatch):
            checksums.without_sum(data)
    if not checksums.carries_sum(data):
        with pytest.raises(checksums.Mismatch):
            checksums.without_sum(data, required=True)


# --- iterating while others commit


@pytest.mark.parametrize("size", [1, 2_000_000])
def test_transactions_are_iterated_over_while_one_is_being_written(path: Path, size: int) -> None:
    """In small files and large ones ZODB's own iterator fails at that, each in its own way."""
    db = opened(path)
    tids = []
    for n in range(6):
        put(db, a=n, b="x" * size)
        tids.append(db.lastTransaction())
    with path.open("ab") as file:  # as a commit that has not come to its end leaves it
        file.write(b"half a transaction")
    assert [one.tid for one in db.storage.iterator(tids[2], tids[4])] == tids[2:5]
    assert [one.tid for one in db.storage.iterator(tids[4], None)] == tids[4:]
    assert [one.tid for one in db.storage.iterator(None, None)][-6:] == tids
    assert list(db.storage.iterator(bytes([255] * 8), None)) == []
    db.close()


def test_what_is_iterated_over_is_whole_whatever_is_committed_meanwhile(path: Path) -> None:
    db = opened(path)
    put(db, a=0)
    first, ended = db.lastTransaction(), threading.Event()

    def commit() -> None:
        for n in range(300):
            put(db, a=n, b="x" * 5000)
        ended.set()

    writer = threading.Thread(target=commit)
    writer.start()
    seen = 0
    while not ended.is_set():
        last = db.lastTransaction()
        found = [one.tid for one in db.storage.iterator(first, last)]
        assert (found[0], found[-1]) == (first, last)
        assert len(found) >= seen
        seen = len(found)
    writer.join()
    assert len(list(db.storage.iterator(first, None))) == 301
    db.close()


def test_what_a_server_says_before_a_database_listens_is_no_fault() -> None:
    """ZEO notes a transaction as seen only after this: with an error here, its client would show an older state."""
    storage = CheckedStorage(MappingStorage(), "image")
    storage.invalidate(b"\0" * 8, [b"\0" * 8])
    storage.invalidateCache()
    db = ZODB.DB(storage)
    put(db, name=1)
    assert value(db, "name") == 1
    db.close()
