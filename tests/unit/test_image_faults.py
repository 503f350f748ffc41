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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ZODB

from batos.errors import ImageDamaged
from batos.image import LivingImage, journal, ledger
from batos.image.integrity import Walk
from batos.image.storage import open_database
from batos.objects import Method, UvmObject
from tests.image_store import Store

# FileStorage does not close its files when its constructor fails; they are closed when the error is forgotten.
leaves_files_open = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
ANSWER = journal.Inference(b"k" * 16, 0, "an answer that was paid for", "m", "d", 1, 1, 0.0, 0.0, "stop", 0.0)


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


# --- locks, permissions


def test_a_lock_file_that_a_dead_process_left(path: Path) -> None:
    Path(f"{path}.lock").write_text(" 999999\n")
    db = opened(path)
    assert number(db) == 3
    db.close()


_WITHOUT_ROOTS_RIGHTS = """
import sys
from batos.errors import ImageError
from batos.image.storage import open_database
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
    """Refused with the remedy, found by the walk, of no consequence, or not noticed: this counts which."""
    path = tmp_path / "i.fs"
    await small_image(path)
    whole = path.read_bytes()
    db = opened(path)
    with db.transaction() as connection:
        expected = content(connection.root())
    db.close()
    found: collections.Counter[str] = collections.Counter()
    for position in range(0, len(whole), int(os.environ.get("CRASH_FLIP") or 5)):
        found[after_a_flip(path, whole, position, expected)] += 1
    gc.collect()  # else another test would be told of the open files
    with capsys.disabled():
        print(f" {sum(found.values())} bytes: {dict(found)} ", end="")
    assert found["lost"] == 0, "no flip makes it forget in silence what was acknowledged"
    assert found["refused, and how"] == 0, "the remedy is told, and the file is as it was"
    assert found["crashed"] == 0, "no flip ends in an error without a remedy"
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
        return "refused" if "fsrecover" in e.message and path.read_bytes() == data else "refused, and how"
    except Exception as e:
        print("crashed", position, repr(e))
        return "crashed"
    try:
        walk = Walk(db)
        walk.step(10_000)
        if walk.damaged:
            return "found by the walk"
        with db.transaction() as connection:
            try:
                same = content(connection.root()) == expected
            except Exception:
                return "found when read"
            if same:
                return "of no consequence"
            if "m1" not in ledger.ledger_of(connection.root()).missions:
                return "lost"
        return "not noticed"
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
    assert [record["id"] for record in await image.system(ledger.recover)] == ["m2"]
    await image.close()


def history_of(image: LivingImage, root: Any) -> list[dict[str, Any]]:
    from batos.image.history import revisions

    return revisions(image.db, ledger.mission_of(root, "m1")._p_oid, 10)
