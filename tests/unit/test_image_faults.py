"""Faults of the file and of its world: flipped bytes, indexes that lie, locks left behind, folders that may not be written, clocks."""

from __future__ import annotations

import collections
import ctypes
import gc
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ZODB

from batos.errors import ImageDamaged
from batos.image import LivingImage, journal, ledger
from batos.image.checksummed_storage import base_of
from batos.image.checksums import SummedIndex
from batos.image.packing import pack
from batos.image.scrubber import Walk
from batos.image.storage import check_format, open_database
from batos.objects import Method, UvmObject
from tests.support.image import Store

# FileStorage does not close its files when its constructor fails; they are closed when the error is forgotten.
leaves_files_open = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
ANSWER = journal.InferenceRecord(b"k" * 16, 0, "an answer that was paid for", "m", "d", 1, 1, 0.0, 0.0, "stop", 0.0)


def opened(path: Path, **options: Any) -> ZODB.DB:
    return open_database(f"file://{path}", cache_size=400, pool_size=7, **options)


def number(db: ZODB.DB) -> int:
    with db.transaction() as connection:
        return int(connection.root()["obj"].n)


def commit(path: Path, *numbers: int) -> None:
    db = opened(path)
    for n in numbers:
        with db.transaction() as connection:
            root = connection.root()
            root.setdefault("obj", UvmObject()).n = n
            root[f"other{n}"] = UvmObject(text="x" * n)
    db.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "i.fs"
    commit(path, 1, 2, 3)
    return path


# --- indexes: they are a cache, and no index is ever a reason to refuse an image


def _ahead(path: Path) -> None:
    """The index of a file that was longer: the file is of a backup."""
    short = path.read_bytes()
    commit(path, 4, 5)
    path.write_bytes(short)


def _behind(path: Path) -> None:
    old = Path(f"{path}.index").read_bytes()
    commit(path, 3)
    Path(f"{path}.index").write_bytes(old)


def _of_another(path: Path) -> None:
    other = path.with_name("other.fs")
    store = Store(other)
    for i in range(20):
        store.put(**{f"a{i}": UvmObject(n=i)}, obj=UvmObject(n=77))
    store.close()
    shutil.copy(f"{other}.index", f"{path}.index")


def _shifted(path: Path) -> None:
    """Of the right length, and every position in it a little wrong."""
    from ZODB.fsIndex import fsIndex

    info = fsIndex.load(f"{path}.index")
    wrong = fsIndex({oid: position + 1 for oid, position in info["index"].items()})
    wrong.save(info["pos"], f"{path}.index")


def _garbage(path: Path) -> None:
    Path(f"{path}.index").write_bytes(os.urandom(2000))


def _empty(path: Path) -> None:
    Path(f"{path}.index").write_bytes(b"")


def _cut(path: Path) -> None:
    whole = Path(f"{path}.index").read_bytes()
    Path(f"{path}.index").write_bytes(whole[: len(whole) // 2])


def _other_pickle(path: Path) -> None:
    Path(f"{path}.index").write_bytes(pickle.dumps({"index": None, "pos": "somewhere"}))


def _a_folder(path: Path) -> None:
    Path(f"{path}.index").unlink()
    Path(f"{path}.index").mkdir()


@pytest.mark.parametrize("lie", [_ahead, _behind, _of_another, _shifted, _garbage, _empty, _cut, _other_pickle, _a_folder])
def test_an_index_that_lies_costs_a_scan_and_nothing_else(path: Path, lie: Callable[[Path], None]) -> None:
    lie(path)
    for _ in range(2):
        db = opened(path)
        assert number(db) == 3
        db.close()
    commit(path, 50)
    db = opened(path)
    assert number(db) == 50
    db.close()


def test_a_flipped_byte_anywhere_in_the_index(path: Path) -> None:
    index = Path(f"{path}.index")
    whole = index.read_bytes()
    for position in range(len(whole)):
        index.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        db = opened(path)
        assert not base_of(db.storage)._used_index, position
        assert number(db) == 3
        db.close()
    db = opened(path)
    assert base_of(db.storage)._used_index
    db.close()


def _wrong(path: Path, change: Callable[[Any, bytes, Any], None]) -> bytes:
    """One wrong entry in an index whose checksum is right: that of an object of before the last few; its id."""
    commit(path, 3)
    db = opened(path)
    with db.transaction() as connection:
        oid: bytes = connection.root()["obj"]._p_oid
    commit_in(db, 6)
    [old, *_] = [record.pos for entry in base_of(db.storage).iterator() for record in entry if record.oid == oid]
    for n in range(7, 13):
        with db.transaction() as connection:
            connection.root()["other3"].n = n
    db.close()
    info = SummedIndex.load(f"{path}.index")
    change(info["index"], oid, old)
    info["index"].save(info["pos"], f"{path}.index")
    return oid


def commit_in(db: ZODB.DB, n: int) -> None:
    with db.transaction() as connection:
        connection.root()["obj"].n = n


def test_an_index_entry_that_leads_to_nothing_is_refused_and_mended_by_a_restart(path: Path) -> None:
    _wrong(path, lambda index, oid, old: index.__setitem__(oid, old + 3))
    db = opened(path)
    with pytest.raises(ImageDamaged, match=r"i\.fs\.index says; the index was dropped and is built anew when the daemon is started again"):
        number(db)
    assert not Path(f"{path}.index").exists()
    commit_elsewhere(db)
    db.close()
    assert not Path(f"{path}.index").exists(), "what is wrong is not saved again"
    db = opened(path)
    assert number(db) == 6
    assert walked(db) == {}
    db.close()
    assert Path(f"{path}.index").exists()


@pytest.mark.parametrize("change", [lambda index, oid, old: index.__setitem__(oid, old), lambda index, oid, old: index.__delitem__(oid)])
def test_an_index_that_knows_an_old_revision_or_none_is_found_by_the_walk(path: Path, change: Any) -> None:
    oid = _wrong(path, change)
    db = opened(path)
    assert base_of(db.storage)._used_index, "ZODB itself notices nothing"
    assert f"oid:{int.from_bytes(oid, 'big'):x}" in walked(db)["the index"]
    assert not Path(f"{path}.index").exists()
    db.close()
    db = opened(path)
    assert number(db) == 6
    assert walked(db) == {}
    db.close()


def test_a_pack_mends_an_index_at_once(path: Path) -> None:
    _wrong(path, lambda index, oid, old: index.__setitem__(oid, old))
    db = opened(path)
    assert walked(db)
    pack(db, path, time.time(), threading.Event())
    assert number(db) == 6
    assert walked(db) == {}
    db.close()
    assert Path(f"{path}.index").exists()


def commit_elsewhere(db: ZODB.DB) -> None:
    with db.transaction() as connection:
        connection.root()["other2"].n = 99


def walked(db: ZODB.DB) -> dict[str, str]:
    walk = Walk(db)
    walk.step(10_000, 1 << 30)
    return walk.damaged


# --- locks, permissions


def test_a_lock_file_that_a_dead_process_left(path: Path) -> None:
    Path(f"{path}.lock").write_text(" 999999\n")
    db = opened(path)
    assert number(db) == 3
    db.close()


_WITHOUT_ROOTS_RIGHTS = """
import sys
from batos.errors import ImageError
from batos.image.storage import check_format, open_database
try:
    open_database("file://" + sys.argv[1], cache_size=9, pool_size=7).close()
except ImageError as e:
    print(e)
db = open_database("file://" + sys.argv[1], cache_size=9, pool_size=7, read_only=True)
print(len(db.storage))
db.close()
"""
_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2


def _drop_rights() -> None:
    """Root may write anywhere; a child of it that lost these two rights may not."""
    for right in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(_CAPBSET_DROP, right, 0, 0, 0)


@pytest.mark.parametrize("what", ["file", "folder", "both"])
def test_a_file_or_folder_that_may_not_be_written(path: Path, what: str) -> None:
    before = path.read_bytes()
    Path(f"{path}.lock").unlink()
    if what != "folder":
        path.chmod(0o444)
    if what != "file":
        path.parent.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _WITHOUT_ROOTS_RIGHTS, str(path)], capture_output=True, text=True, preexec_fn=_drop_rights,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    finally:
        path.parent.chmod(0o755)
        path.chmod(0o644)
    assert done.returncode == 0, done.stderr
    refusal, objects = done.stdout.splitlines()
    assert refusal.endswith("Permission denied; check owner, permissions and free space")
    assert str(path) in refusal
    assert int(objects) > 3, "reading goes on"
    assert path.read_bytes() == before


# --- damage, at every byte


async def small_image(path: Path) -> None:
    """One of each: mission, inference, result, failure, method."""
    image = await LivingImage.open(f"file://{path}", steps=(lambda lobby: lobby._slots.setdefault("effects", ()),))
    await image.system(ledger.accept, "m1", "brief of m1", {}, True, mission="m1")
    await image.system(journal.add, "m1", ANSWER, mission="m1")
    async with image.unit() as unit:
        lobby = unit.root["lobby"]
        lobby.effects = ("m1",)
        lobby.greet_ = Method("greet_", "def greet_(self):\n    return 'hello'\n")
        ledger.complete(ledger.mission_of(unit.root, "m1"), {"text": "m1"}, None)
        unit.note("m1", "COMPLETE")
    await image.close()
    Path(f"{path}.index").unlink()


def content(root: Any) -> Any:
    """All that can be asked of the small image."""
    lobby = root["lobby"]
    mission = ledger.mission_of(root, "m1")
    return (
        root["format"], root["genesis"], sorted(root), sorted(lobby._slots), lobby.effects, ledger.describe(mission),
        journal.load(root, "m1"), lobby.greet_.source, lobby.greet_.selector, ledger.counts(root), lobby.comment,
        lobby.traits.comment, lobby.genesis.comment, [m.id for m in ledger.newest_first(root)], list(ledger.ledger_of(root).failures),
    )  # fmt: skip


@leaves_files_open
async def test_a_flipped_byte_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused with the remedy, or found by the walk: there is no byte whose change goes unnoticed."""
    path = tmp_path / "i.fs"
    await small_image(path)
    whole = path.read_bytes()
    db = opened(path)
    with db.transaction() as connection:
        expected = content(connection.root())
    db.close()
    found: collections.Counter[str] = collections.Counter()
    for position in range(0, len(whole), int(os.environ.get("CRASH_FLIP") or 3)):
        found[outcome := after_a_flip(path, whole, position, expected)] += 1
        assert outcome in ("refused", "found by the walk"), position
    gc.collect()  # else another test would be told of the open files
    with capsys.disabled():
        print(f" {sum(found.values())} of {len(whole)} bytes: {dict(found)} ", end="")
    assert found["refused"] > 0
    assert found["found by the walk"] > 0


def after_a_flip(path: Path, whole: bytes, position: int, expected: Any) -> str:
    for left in path.parent.glob("i.fs*"):
        left.unlink()
    data = bytearray(whole)
    data[position] ^= 0x41
    path.write_bytes(data)
    try:
        db = opened(path)
    except ImageDamaged as e:
        return "refused" if "restore a backup" in e.message and path.read_bytes() == data else "refused, and no remedy"
    try:
        with db.transaction() as connection:
            check_format(connection.root(), str(path))
            walk = Walk(db)
            walk.step(10_000, len(data))
            assert (walk.rounds, walk.file and walk.file.rounds) == (1, 1)
            if walk.damaged:
                return "found by the walk"
            return "of no consequence" if content(connection.root()) == expected else "not noticed"
    except ImageDamaged as e:
        return "refused" if "restore a backup" in e.message else "refused, and no remedy"
    finally:
        db.close()
        assert len(path.read_bytes()) == len(data), "nothing is cut off"


# --- clocks


async def test_a_clock_that_goes_backwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back between two commits and again between two starts: order, failures and history are as they happened."""
    real, shift = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + shift[0])
    uri = f"file://{tmp_path / 'i.fs'}"
    image = await LivingImage.open(uri)
    await image.system(ledger.accept, "m1", "first", {}, True, mission="m1")
    shift[0] -= 3600
    for attempt in range(2):
        await image.system(ledger.fail, "m1", {"code": "x", "message": str(attempt)}, {}, False, mission="m1")
    await image.system(ledger.accept, "m2", "second", {}, True, mission="m2")
    await image.close()
    shift[0] -= 3600
    image = await LivingImage.open(uri)
    await image.system(ledger.fail, "m1", {"code": "x", "message": "2"}, {}, True, mission="m1")
    with image.snapshot() as root:
        assert [m.id for m in ledger.newest_first(root)] == ["m2", "m1"]
        assert [failure["error"]["message"] for failure in ledger.failures_of(root, "m1")] == ["0", "1", "2"]
        assert ledger.mission_of(root, "m1").state == ledger.FAILED
        tids = [bytes.fromhex(entry["tid"]) for entry in history_of(image, root)]
    assert tids == sorted(tids, reverse=True)
    assert [record.id for record in await image.system(ledger.recover, 64)] == ["m2"]
    await image.close()


def history_of(image: LivingImage, root: Any) -> list[dict[str, Any]]:
    from batos.image.history import revisions

    return revisions(image.db, ledger.mission_of(root, "m1")._p_oid, 10)
