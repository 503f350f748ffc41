"""Upkeep: pack, backup, restore, retention and the count of costs, on real files, while commits go on."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.errors import Busy, ImageError
from batos.image import LivingImage, backup, journal, ledger, mission_index, packing, retention, storage, upkeep, usage_totals
from batos.image.journal import InferenceRecord
from batos.image.upkeep import Upkeep, UpkeepPlan
from batos.image.usage_totals import CostMeter
from batos.objects import Method, UvmObject
from tests.support import forked

ROOT = Path(__file__).parents[2]
WAIT_S = 90


def keeper(image: LivingImage, folder: Path, meter: CostMeter | None = None, **more: Any) -> Upkeep:
    chosen = {"history_days": 0, "journal_days": 0, "interval_s": 1e6, "first_s": 1e6, **more}
    return Upkeep(image, meter or CostMeter(image), UpkeepPlan(**chosen), backups=folder / "backups")


@pytest.fixture
async def kept(image: LivingImage, tmp_path: Path) -> AsyncIterator[Upkeep]:
    made = keeper(image, tmp_path)
    yield made
    await made.stop()


def write(root: Any, number: int) -> None:
    lobby = root["lobby"]
    lobby._slots["thing"] = lobby._slots.get("thing") or UvmObject(number=0)
    lobby.thing.number = number
    lobby.thing.text = f"{number} " + "x" * 500


def number_in(root: Any) -> int:
    return int(root["lobby"].thing.number)


async def revise(image: LivingImage, times: int) -> None:
    for number in range(1, times + 1):
        await image.system(write, number)


def revisions(image: LivingImage) -> int:
    return len(image.db.history(image.read(lambda root: root["lobby"].thing._p_oid), 1000))


# --- pack


async def test_a_pack_drops_history_and_nothing_else(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    await revise(image, 50)
    assert revisions(image) == 50
    found = await kept.pack()
    assert found["bytes_after"] < found["bytes_before"] / 2
    assert found["bytes_after"] == (tmp_path / "i.fs").stat().st_size
    assert found["took_s"] > 0
    assert revisions(image) == 1
    assert image.read(number_in) == 50
    assert not {"i.fs.old", "i.fs.pack"} & set(os.listdir(tmp_path))
    await revise(image, 3)
    assert image.read(number_in) == 3
    assert kept.facts()["pack"]["bytes_after"] == found["bytes_after"]


async def test_history_younger_than_the_setting_stays(image: LivingImage, tmp_path: Path) -> None:
    await revise(image, 20)
    made = keeper(image, tmp_path, history_days=1)
    await made.pack()
    assert revisions(image) == 20
    await made.pack(0)
    assert revisions(image) == 1


async def test_after_a_clock_was_ahead_all_history_can_be_packed(image: LivingImage, kept: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions are named after the last one then, until that time has come: none of them is ever old."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 1e8)
    await revise(image, 1)
    monkeypatch.undo()
    await revise(image, 20)
    await kept.pack(1)
    assert revisions(image) == 21, "how old they are is not known"
    for _ in range(8):  # their names are closer together than a float tells apart
        await kept.pack(0)
        assert revisions(image) == 1
        await revise(image, 2)
        assert revisions(image) == 3


async def test_a_pack_leaves_what_the_oldest_open_unit_sees(image: LivingImage, kept: Upkeep) -> None:
    await revise(image, 10)
    async with image.unit() as unit:
        await revise(image, 20)
        await kept.pack(0)
        assert number_in(unit.root) == 10  # loaded only now
        assert revisions(image) == 22  # what the unit sees, the one before it, and all since
        unit.doom()
    await kept.pack(0)
    assert revisions(image) == 1
    with image.snapshot() as root:
        await revise(image, 5)
        await kept.pack(0)
        assert number_in(root) == 20
    assert image.oldest_view() is None


@pytest.mark.parametrize("days", [0, 2.5])
def test_the_moment_of_a_pack(days: float) -> None:
    from persistent.timestamp import TimeStamp

    assert packing.pack_time(days, None, lambda: 1e9) == 1e9 - days * 86400
    view = TimeStamp(2001, 1, 1, 0, 0, 0.0)
    assert packing.pack_time(days, view.raw(), lambda: 1e9) == view.timeTime() - packing._MARGIN_S
    assert packing.pack_time(days, view.raw(), lambda: view.timeTime() - 100) == view.timeTime() - 100 - days * 86400


@pytest.mark.parametrize("when", ["copyToPacktime", "pack"])
async def test_a_full_disk_leaves_the_image_as_it_was(image: LivingImage, kept: Upkeep, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    await revise(image, 20)
    synced = packing.Packer.sync
    calls = []

    def full(self: Any) -> None:
        calls.append(1)
        if when == "copyToPacktime" or len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synced(self)

    monkeypatch.setattr(packing.Packer, "sync", full)
    with pytest.raises(ImageError, match="not packed: No space left"):
        await kept.pack()
    assert revisions(image) == 20
    await revise(image, 21)  # nothing holds the commit lock
    monkeypatch.undo()
    await kept.pack()
    assert revisions(image) == 1
    assert image.read(number_in) == 21


async def test_a_stop_ends_a_pack_that_is_under_way(image: LivingImage, kept: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    await revise(image, 20)
    reached, go = threading.Event(), threading.Event()
    copied = packing.Packer.copyToPacktime

    def slow(self: Any) -> Any:
        found = copied(self)
        reached.set()
        assert go.wait(WAIT_S)
        return found

    monkeypatch.setattr(packing.Packer, "copyToPacktime", slow)
    async with image.unit() as unit:  # there is something after the time of the pack, and so something left to copy
        await revise(image, 20)
        packed = asyncio.ensure_future(kept.pack())
        assert await asyncio.to_thread(reached.wait, WAIT_S)
        stopped = asyncio.ensure_future(kept.stop())
        await asyncio.sleep(0)
        go.set()
        await stopped
        with pytest.raises(Busy, match="stops"):
            await packed
        unit.doom()
    with pytest.raises(Busy, match="stopping"):
        await kept.pack()
    await revise(image, 3)
    assert image.read(number_in) == 3


async def test_one_at_a_time(image: LivingImage, kept: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go = threading.Event(), threading.Event()

    def held(*_: Any) -> None:
        reached.set()
        assert go.wait(WAIT_S)

    monkeypatch.setattr(packing, "pack", held)
    first = asyncio.ensure_future(kept.pack())
    assert await asyncio.to_thread(reached.wait, WAIT_S)
    for other in (kept.pack, kept.backup, kept.retain):
        with pytest.raises(Busy, match="a pack is under way"):
            await other()
    assert kept.facts()["under_way"] == "pack"
    first.cancel()  # who asked goes away; the pack goes on
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(Busy):
        await kept.pack()
    go.set()
    await kept.stop()
    assert kept.facts()["under_way"] is None


async def test_storages_that_are_no_file_are_refused(tmp_path: Path) -> None:
    image = await LivingImage.open("memory://")
    made = keeper(image, tmp_path)
    for work in (made.pack, made.backup):
        with pytest.raises(ImageError, match="where its server runs"):
            await work()
    assert await made.retain()
    await image.close()


async def test_the_storage_is_not_taken_for_broken_while_a_pack_changes_its_file(image: LivingImage) -> None:
    store = image.db.storage
    file = store._file
    with store._lock:
        store._file = open(os.devnull)  # noqa: SIM115  closed at once, as by the pack
        store._file.close()
        asked = asyncio.ensure_future(asyncio.to_thread(storage.is_broken, image.db))
        done, _ = await asyncio.wait([asked], timeout=0.2)
        assert not done
        store._file = file
    assert await asked is False


KILLED_BETWEEN_THE_RENAMES = """
import asyncio, os, signal, sys
from pathlib import Path
from batos.image import LivingImage
from batos.image.usage_totals import CostMeter
from batos.image.upkeep import Upkeep, UpkeepPlan
import ZODB.FileStorage.FileStorage as module

def write(root, number):
    root["lobby"].number = number

class Killing:
    def __getattr__(self, name):
        return getattr(os, name)
    renames = 0
    def rename(self, *args):
        self.renames += 1
        if self.renames == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        os.rename(*args)

async def main():
    image = await LivingImage.open("file://" + sys.argv[1])
    for number in range(20):
        await image.system(write, number)
    sys.modules["ZODB.FileStorage.FileStorage"].os = Killing()
    await Upkeep(image, CostMeter(image), UpkeepPlan(0, 0, interval_s=9, first_s=9), backups=Path(".")).pack()

asyncio.run(main())
"""


@pytest.mark.parametrize("rename", [1, 2])
async def test_a_kill_between_the_renames_of_a_pack_loses_nothing(tmp_path: Path, rename: int) -> None:
    path = tmp_path / "i.fs"
    command = [sys.executable, "-c", KILLED_BETWEEN_THE_RENAMES, str(path), str(rename)]
    child = forked.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60)
    assert child.returncode == -9, child.stderr
    assert path.exists() == (rename == 1)
    assert (tmp_path / "i.fs.pack").exists()
    image = await LivingImage.open(f"file://{path}")
    assert image.read(lambda root: root["lobby"].number) == 19
    assert not (tmp_path / "i.fs.pack").exists()
    await keeper(image, tmp_path).pack()
    assert image.read(lambda root: root["lobby"].number) == 19
    await image.close()


# --- backup and restore


async def restored(folder: Path, to: Path) -> LivingImage:
    backup.restore(folder, to)
    return await LivingImage.open(f"file://{to}")


async def test_backups_full_incremental_unchanged_and_restored(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    await revise(image, 5)
    full = await kept.backup()
    assert full["kind"] == "full"
    assert full["total_bytes"] == full["bytes"] == image.db.getSize()
    assert full["objects"] == len(image.db.storage)
    assert full["tid"] == image.db.lastTransaction().hex()
    await revise(image, 9)
    more = await kept.backup()
    assert more["kind"] == "incremental"
    assert more["bytes"] == image.db.getSize() - full["total_bytes"]
    assert (await kept.backup())["kind"] == "unchanged"
    assert (await kept.backup(full=True))["kind"] == "full"
    await kept.pack()
    await revise(image, 11)
    assert (await kept.backup())["kind"] == "full"  # the beginning of the file is another now
    again = await restored(tmp_path / "backups", tmp_path / "new" / "i.fs")
    assert again.read(number_in) == 11
    await again.close()
    assert not [name for name in os.listdir(tmp_path / "backups") if name.startswith(".")]


async def test_a_backup_goes_where_it_is_told_and_into_folders_with_blanks(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    await revise(image, 5)
    folder = tmp_path / "my own backups"
    assert (await kept.backup(str(folder)))["folder"] == str(folder)
    await revise(image, 6)
    assert (await kept.backup(str(folder)))["kind"] == "incremental"
    assert (await kept.backup("weekly"))["folder"] == str(tmp_path / "backups" / "weekly")
    moved = folder.rename(tmp_path / "moved")
    again = await restored(moved, tmp_path / "new.fs")
    assert again.read(number_in) == 6
    await again.close()


async def test_a_backup_that_cannot_be_written_or_proved_leaves_nothing(
    image: LivingImage, kept: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ImageError, match="no backup in"):
        await kept.backup(str(tmp_path / "file"))
    await revise(image, 2)
    await kept.backup()
    before = {file.name: file.read_bytes() for file in (tmp_path / "backups").iterdir()}
    await revise(image, 3)
    monkeypatch.setattr(backup, "_begins_with", lambda image, copy: False)
    with pytest.raises(ImageError, match="differs from the image"):
        await kept.backup()
    assert {file.name: file.read_bytes() for file in (tmp_path / "backups").iterdir()} == before
    monkeypatch.undo()

    def full_disk(options: Any) -> None:
        Path(options.repository, "tmp.tmp").write_bytes(b"the first part")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ZODB.scripts.repozo.do_backup", full_disk)
    with pytest.raises(ImageError, match="No space left on device"):
        await kept.backup()
    monkeypatch.undo()
    assert {file.name: file.read_bytes() for file in (tmp_path / "backups").iterdir()} == before
    assert (await kept.backup())["kind"] == "incremental"


@pytest.mark.parametrize("kind", ["fs", "deltafs"])
async def test_a_kill_before_a_backup_is_listed_hurts_neither_restore_nor_the_next(
    image: LivingImage, kept: Upkeep, tmp_path: Path, kind: str
) -> None:
    """Repozo writes a file, then the line with its sum: killed in between, a file is there that no list names."""
    await revise(image, 3)
    await kept.backup()
    folder = tmp_path / "backups"
    [whole] = folder.glob("*.fs")
    seconds, rest = int(whole.name[17:19]), whole.name[:17]
    left = folder / f"{rest}{seconds + 1:02}.{kind}"
    left.write_bytes((tmp_path / "i.fs").read_bytes() if kind == "fs" else b"half")
    left.with_suffix(".index").touch()
    assert backup.restore(folder, tmp_path / "new.fs")["damaged"] == []
    await revise(image, 5)
    added = await kept.backup()
    assert added["kind"] == "incremental"
    assert not left.exists() or left.name == added["file"], "what was left made room"
    again = await restored(folder, tmp_path / "newer.fs")
    assert again.read(number_in) == 5
    await again.close()


async def test_a_backup_names_what_is_damaged_in_the_image_too(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    """Its copy is as good as the image is, and better than none."""
    await image.system(lambda root: setattr(root["lobby"], "thing", UvmObject(text="the thing itself")))
    await image.system(lambda root: setattr(root["lobby"], "other", 1), mission="a mission of note")
    path = tmp_path / "i.fs"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"the thing itself", b"the Thing itself").replace(b"a mission of note", b"a Mission of note"))
    found = await kept.backup()
    assert len(found["damaged"]) == 2
    assert all(named.startswith("byte ") and "checksum is wrong" in named for named in found["damaged"])
    assert backup.restore(tmp_path / "backups", tmp_path / "new.fs")["damaged"] == found["damaged"]


async def test_a_damaged_method_is_named(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    def spoil(root: Any) -> None:
        root["lobby"].good_, root["lobby"].bad_ = Method("good_", "def good_(self): pass"), Method("bad_", "def bad_(self): pass")
        root["lobby"].bad_.source = "def bad_(self): return 1"
        root["lobby"].worse_ = Method("worse_", "def worse_(self): pass")
        del root["lobby"].worse_.digest

    await image.system(spoil)
    found = await kept.backup()
    assert found["methods"] == 3
    named = sorted(found["damaged"])
    assert len(named) == 2
    assert named[0].startswith("(oid:")
    assert named[1].startswith("bad_ (oid:")
    assert backup.restore(tmp_path / "backups", tmp_path / "new.fs")["damaged"] == found["damaged"]


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (flip, "checksum"),
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "bytes, should be"),
        (lambda file: file.unlink(), "No files in repository"),
        (lambda file: file.with_suffix(".dat").unlink(), "No such file"),
        (lambda file: file.with_suffix(".dat").write_text(""), "does not name"),
        (lambda file: os.truncate(file.with_suffix(".dat"), 40), "list of sums .* cannot be read"),
        (lambda file: file.with_suffix(".dat").write_bytes(b"\xff\0\0\n"), "list of sums .* cannot be read"),
    ],
)
async def test_a_bad_backup_is_refused_and_leaves_no_image(
    image: LivingImage, kept: Upkeep, tmp_path: Path, harm: Callable[[Path], object], says: str
) -> None:
    await revise(image, 5)
    found = await kept.backup()
    harm(tmp_path / "backups" / found["file"])
    with pytest.raises(ImageError, match=says):
        backup.restore(tmp_path / "backups", tmp_path / "new" / "i.fs")
    assert os.listdir(tmp_path / "new") == []


@pytest.mark.parametrize("left", [10, 60, 90])
async def test_a_list_of_sums_that_ends_in_half_a_line_costs_one_increment(
    image: LivingImage, kept: Upkeep, tmp_path: Path, left: int
) -> None:
    """A full disk can do that: the next backup went on behind it, and could not be read."""
    await kept.backup()
    [sums] = (tmp_path / "backups").glob("*.dat")
    whole = sums.stat().st_size
    await revise(image, 3)
    assert (await kept.backup())["kind"] == "incremental"
    os.truncate(sums, whole + left)
    assert (await kept.backup())["kind"] == "incremental"
    again = await restored(tmp_path / "backups", tmp_path / "new.fs")
    assert again.read(number_in) == 3
    await again.close()


@pytest.mark.parametrize("taken", ["new.fs", "new.fs.old"])
async def test_a_restore_overwrites_nothing(image: LivingImage, kept: Upkeep, tmp_path: Path, taken: str) -> None:
    await kept.backup()
    (tmp_path / taken).write_text("mine")
    with pytest.raises(ImageError, match="overwrites nothing"):
        backup.restore(tmp_path / "backups", tmp_path / "new.fs")
    assert (tmp_path / taken).read_text() == "mine"
    with pytest.raises(ImageError, match="does not exist"):
        backup.restore(tmp_path / "nowhere", tmp_path / "other.fs")


async def test_folders_that_are_none_for_backups_are_told_of(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    with pytest.raises(ImageError, match=r"no backup in .*file: it is a file, not a folder; name another"):
        await kept.backup(str(tmp_path / "file"))
    for folder in (tmp_path / "i.fs.blobs", tmp_path / "i.fs.blobs" / "mine"):
        with pytest.raises(ImageError, match=r"no backup in .*: it lies within .*, where the image keeps its blobs; name another folder"):
            await kept.backup(str(folder))
    with pytest.raises(ImageError, match=r"there is no backup in .*notes; name the folder that `batos backup` wrote to"):
        backup.restore(tmp_path / "notes", tmp_path / "new" / "i.fs")
    assert not (tmp_path / "new").exists()


# --- under load


async def test_nothing_is_lost_while_100_commits_a_second_go_on(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    acknowledged: list[str] = []
    done = asyncio.Event()

    async def accept() -> None:
        begun = time.monotonic()
        while not done.is_set():
            id = f"m{len(acknowledged)}"
            await image.system(ledger.accept, id, "brief " * 20, {}, False)
            async with image.unit() as unit:
                ledger.complete(ledger.mission_of(unit.root, id), {"text": id}, None)
            acknowledged.append(id)
            await asyncio.sleep(max(0.0, begun + len(acknowledged) * 0.02 - time.monotonic()))  # two commits each

    def many(root: Any) -> None:
        root["lobby"].many = [UvmObject(number=n) for n in range(5000)]

    await image.system(many)
    for n in range(3):
        await image.system(lambda root, n=n: [setattr(o, "text", f"{n}" * 100) for o in root["lobby"].many] and None)
    writer = asyncio.ensure_future(accept())
    at_backup: list[int] = []
    packed: list[dict[str, Any]] = []
    for _ in range(3):
        at_backup.append(len(acknowledged))
        await kept.backup()
        packed.append(await kept.pack())
    assert packed[0]["bytes_after"] < packed[0]["bytes_before"]
    await kept.backup()
    done.set()
    await writer
    assert len(acknowledged) > 20
    again = await restored(tmp_path / "backups", tmp_path / "new.fs")
    assert again.read(ledger.counts)["accepted"] >= at_backup[-1]
    await again.close()
    await kept.stop()
    await image.close()
    reopened = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    states = reopened.read(lambda root: {m.id: (m.state, m.result) for m in ledger.newest_first(root)})
    assert set(states) == set(acknowledged)
    assert all(state == "COMPLETE" and f'"{id}"' in result for id, (state, result) in states.items())
    await reopened.close()


# --- retention and costs


def inference(model: str = "model", text: str = "a text") -> InferenceRecord:
    return InferenceRecord(os.urandom(16), 0, text, model, "d", 10, 5, 0.5, 100.0, "stop", journal.now(), b"")


async def ended(image: LivingImage, id: str, *models: str) -> None:
    await image.system(ledger.accept, id, "b", {}, False)
    for model in models:
        await image.system(journal.add, id, inference(model, "secret " * 20))
    await image.system(lambda root: ledger.complete(ledger.mission_of(root, id), {"text": id}, None))


async def test_old_journals_lose_their_texts_and_keep_their_cost(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    await ended(image, "m1", "a", "b", "a")
    await ended(image, "m2", "b")
    await ended(image, "m3")
    before = image.read(usage_totals.total_spent)
    assert await retention.retain(image, 1) == {"missions": 0, "dropped": 0}
    found = await kept.retain()
    assert (found["missions"], found["dropped"]) == (3, 2)
    assert (
        image.read(usage_totals.total_spent)
        == before
        == [journal.ModelCost("a", 2, 20, 10, 200.0), journal.ModelCost("b", 2, 20, 10, 200.0)]
    )
    assert image.read(journal.load, "m1") == []
    assert (await kept.retain())["missions"] == 0
    assert b"secret" in (tmp_path / "i.fs").read_bytes()
    await kept.pack()
    assert b"secret" not in (tmp_path / "i.fs").read_bytes()


async def test_what_has_not_ended_is_passed_over_by_retention_until_it_has(image: LivingImage, kept: Upkeep) -> None:
    """It may be paused, or wait for an answer of its user's, for ever: those behind it must not."""
    await ended(image, "m1", "a")
    await image.system(ledger.accept, "m2", "b", {}, False)
    await image.system(journal.add, "m2", inference())
    await ended(image, "m3", "a")
    assert (await kept.retain())["missions"] == 2
    assert (await kept.retain())["missions"] == 0
    assert image.read(journal.load, "m3") == []
    assert len(image.read(journal.load, "m2")) == 1
    await image.system(ledger.fail, "m2", {"code": "failed", "message": ""}, {}, True)
    assert (await kept.retain())["missions"] == 1
    assert image.read(journal.load, "m2") == []
    assert (await kept.retain())["missions"] == 0


async def test_a_mission_from_the_future_holds_up_nobody(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock was wrong when it was accepted."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 1e9)
    await ended(image, "m1", "a")
    monkeypatch.undo()
    await ended(image, "m2", "a")
    assert await retention.retain(image, 1) == {"missions": 0, "dropped": 0}
    assert await retention.retain(image, 0) == {"missions": 1, "dropped": 1}
    assert image.read(journal.load, "m2") == []
    monkeypatch.setattr(time, "time", lambda: right() + 2e9)
    assert await retention.retain(image, 1) == {"missions": 1, "dropped": 1}


async def many_missions(image: LivingImage, count: int) -> None:
    def put(root: Any) -> None:
        first = ledger.counts(root)["accepted"]
        for i in range(first, first + count):
            ledger.accept(root, f"m{i}", "b", {}, False)
            journal.add(root, f"m{i}", inference(f"model {i % 3}"))
            ledger.complete(ledger.mission_of(root, f"m{i}"), {"text": ""}, None)

    await image.system(put)


async def test_missions_are_found_by_number(image: LivingImage) -> None:
    await many_missions(image, 600)
    for after, count in ((0, 256), (256, 256), (512, 256), (100, 3), (255, 2), (599, 5), (600, 9), (0, 1000)):
        found = image.read(lambda root, a=after, c=count: [m.number for m in ledger.numbered(root, a, c)])
        assert found == list(range(after + 1, min(after + count, 600) + 1))


async def test_an_image_of_an_earlier_version_gets_the_indexes_it_lacks(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await many_missions(image, 300)

    def strip(root: Any) -> None:
        del root["ledger"].milestones, root["ledger"].costs

    await image.system(strip)
    await image.close()
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    assert image.read(lambda root: list(root["ledger"].milestones)) == [256]
    assert sum(row.inferences for row in image.read(usage_totals.total_spent)) == 300
    await image.close()


async def test_retention_is_bounded_and_goes_on_where_it_stopped(image: LivingImage) -> None:
    await many_missions(image, 700)
    assert (await retention.retain(image, 0, limit=256))["missions"] == 256
    assert image.read(lambda root: root["ledger"].costs.retained) == 256
    assert (await retention.retain(image, 0))["dropped"] == 444
    assert sum(row.inferences for row in image.read(usage_totals.total_spent)) == 700


async def test_retention_looks_once_at_those_it_has_passed_over(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: the chain of missions is walked once for each stretch of it, and not for each of them."""

    def put(root: Any) -> None:
        for i in range(600):
            ledger.accept(root, f"w{i}", "b", {}, False)

    await image.system(put)
    assert (await retention.retain(image, 0))["missions"] == 0
    await many_missions(image, 600)
    walks, numbered = list[int](), mission_index.numbered

    def counted(root: Any, after: int, count: int) -> Any:
        walks.append(count)
        return numbered(root, after, count)

    monkeypatch.setattr(mission_index, "numbered", counted)
    await image.system(ledger.fail, "w300", {"code": "failed", "message": ""}, {}, True)
    assert await retention.retain(image, 0) == {"missions": 601, "dropped": 600}
    assert image.read(lambda root: root["ledger"].costs.passed_over) == tuple(n for n in range(1, 601) if n != 301)
    assert len(walks) <= 2 * 1200 / ledger.MILESTONE + 2


async def test_costs_are_exact_over_folds_restarts_and_retention(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    await many_missions(image, 300)
    meter = CostMeter(image)
    meter.begin()
    meter.add(inference("model 0"))  # paid while the earlier ones are being read
    assert meter.facts()["counting"]
    await meter.ready()
    assert meter.facts()["inferences"] == 301
    assert meter.facts()["by_model"]["model 0"] == {"inferences": 101, "prompt_tokens": 1010, "answer_tokens": 505, "model_s": 10.1}
    assert "counting" not in meter.facts()
    assert await meter.fold() == 256
    assert await meter.fold() == 0
    await retention.retain(image, 0)
    await image.close()
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    assert image.read(lambda root: root["ledger"].costs.until) == 256
    await many_missions(image, 300)
    meter = CostMeter(image)
    meter.begin()
    await meter.ready()
    assert meter.facts()["inferences"] == 600
    assert await meter.fold() == 512
    await meter.stop()
    await image.close()


async def test_costs_are_folded_past_what_does_not_end(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mission may be paused for ever: no start shall read all journals after it."""

    async def folded(meter: CostMeter) -> int:
        moved = await meter.fold()
        await image.system(lambda root: None)
        return moved

    await image.system(ledger.accept, "paused", "b", {}, False)
    await image.system(journal.add, "paused", inference("model 0"))
    await many_missions(image, 300)
    meter = CostMeter(image)
    assert await folded(meter) == 256
    found = image.read(lambda root: (root["ledger"].costs.until, root["ledger"].costs.apart))
    assert found == (256, (1,))
    await image.system(journal.add, "paused", inference("model 0"))  # what it costs meanwhile is counted, too
    assert sum(row.inferences for row in image.read(usage_totals.total_spent)) == 302
    await image.system(lambda root: ledger.complete(ledger.mission_of(root, "paused"), {"text": ""}, None))
    await many_missions(image, 256)
    assert await folded(meter) == 512
    assert image.read(lambda root: root["ledger"].costs.apart) == ()
    assert sum(row.inferences for row in image.read(usage_totals.total_spent)) == 558
    monkeypatch.setattr(usage_totals, "APART", 1)  # of more it waits until they have ended
    for id in ("p1", "p2"):
        await image.system(ledger.accept, id, "b", {}, False)
    await many_missions(image, 256)
    assert await folded(meter) == 0
    assert sum(row.inferences for row in image.read(usage_totals.total_spent)) == 814


async def test_upkeep_runs_by_itself(image: LivingImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FOLD_S", 0.01)
    await ended(image, "m1", "a")
    await revise(image, 20)
    made = keeper(image, tmp_path, interval_s=60, first_s=0.05)
    running = asyncio.ensure_future(made.run())
    async with asyncio.timeout(WAIT_S):
        while "pack" not in made.facts():
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    await made.stop()
    assert made.facts()["retention"]["dropped"] == 1
    assert revisions(image) == 1


async def test_upkeep_that_is_due_during_a_backup_waits_for_its_end(
    image: LivingImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not for the next day."""
    may_end, asked = threading.Event(), asyncio.Event()
    made = keeper(image, tmp_path, interval_s=1e6, first_s=0)
    monkeypatch.setattr(backup, "backup", lambda *_, **__: may_end.wait(WAIT_S) and {})
    wait = asyncio.wait

    async def waited(tasks: Any, **more: Any) -> Any:
        asked.set()
        return await wait(tasks, **more)

    saving = asyncio.ensure_future(made.backup())
    await asyncio.sleep(0)
    monkeypatch.setattr(upkeep.asyncio, "wait", waited)
    running = asyncio.ensure_future(made.run())
    async with asyncio.timeout(WAIT_S):
        await asked.wait()
        assert made.facts()["under_way"] == "backup"
        may_end.set()
        await saving
        while "pack" not in made.facts():
            await asyncio.sleep(0.01)
    running.cancel()
    await wait([running])
    await made.stop()
    assert "retention" in made.facts()


async def test_upkeep_outlives_a_full_disk(image: LivingImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FOLD_S", 0.01)
    await ended(image, "m1", "a")
    drop, full = retention.drop_journals, [True]

    def dropped(root: Any, missions: Any) -> int:
        if full.pop() if full else False:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return drop(root, missions)

    monkeypatch.setattr(retention, "drop_journals", dropped)
    made = keeper(image, tmp_path, interval_s=0.05, first_s=0.05)
    running = asyncio.ensure_future(made.run())
    async with asyncio.timeout(WAIT_S):
        while made.facts().get("retention", {}).get("dropped") != 1 and not running.done():
            await asyncio.sleep(0.01)
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    await made.stop()
