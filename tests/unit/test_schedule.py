"""Backups by a plan: when they are due, which go, what is said of one that failed, and that missions wait for none of it."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from batos.config import Settings
from batos.errors import Busy, ImageError
from batos.image import LivingImage, backup, backup_schedule, blobs
from batos.image.backup_schedule import BackupPlan, Backups, BackupSet, outdated, plan_of, sets_of
from batos.image.upkeep import Upkeep, UpkeepPlan
from batos.image.usage_totals import CostMeter
from batos.objects import UvmObject

HOUR, DAY = 3600.0, 86400.0
PLAN = BackupPlan(every_s=HOUR, full_s=7 * DAY, keep_s=30 * DAY, keep_fulls=3, retry_s=600)
WAIT_S = 90


@pytest.fixture
async def upkeep(image: LivingImage, tmp_path: Path) -> AsyncIterator[Upkeep]:
    made = Upkeep(image, CostMeter(image), UpkeepPlan(0, 0, interval_s=1e6, first_s=1e6), backups=tmp_path / "b")
    yield made
    await made.stop()


def backups(upkeep: Upkeep, tmp_path: Path, plan: BackupPlan = PLAN, **more: Any) -> Backups:
    return Backups(upkeep, tmp_path / "b", plan, **{"size": lambda: 1000, "reserve": 0, "first_s": 0.0, **more})


def name(seconds: float, kind: str) -> str:
    return time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime(seconds)) + f".{kind}"


def put(folder: Path, *made: tuple[float, str]) -> None:
    folder.mkdir(exist_ok=True)
    for seconds, kind in made:
        path = folder / name(seconds, kind)
        path.touch()
        os.utime(path, (seconds, seconds))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def change(image: LivingImage, number: int) -> None:
    def write(root: Any) -> None:
        root["lobby"]._slots["thing"] = UvmObject(number=number)

    await image.system(write)


# --- which there are, and which go


def test_the_files_of_a_folder_are_sets(tmp_path: Path) -> None:
    put(tmp_path, (0, "deltafs"), (100, "fs"), (100, "dat"), (100, "index"), (200, "deltafs"), (300, "fs"), (300, "dat"), (400, "fs"))
    (tmp_path / "notes.txt").touch()
    (tmp_path / "2026-01-01.fs").touch()
    lost, first, second = sets_of(tmp_path)
    assert (lost.begun, lost.newest, [path.name for path in lost.files]) == (0.0, 0.0, [name(0, "deltafs")])
    assert (first.begun, first.newest) == (100.0, 200.0)
    assert first.files[0].name == name(200, "deltafs"), "the newest goes first: what is half gone still is a set"
    assert len(first.files) == 4
    assert (second.begun, second.newest, len(second.files)) == (300.0, 400.0, 3), "one without its list of sums is none"
    assert sets_of(tmp_path / "none") == []


def a_set(begun: float, newest: float | None = None) -> BackupSet:
    return BackupSet(begun, begun if newest is None else newest, ())


@pytest.mark.parametrize(
    ("days", "kept"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1, 2, 3, 4, 5], [3, 4, 5]),
        ([61, 62, 100], [100]),
        ([1, 2], [2]),
        ([], []),
    ],
)
def test_so_many_whole_ones_and_so_many_days_are_kept_and_the_newest_always(days: list[int], kept: list[int]) -> None:
    now = {5: 5, 3: 3, 100: 100, 2: 1000}[days[-1]] * DAY if days else 0.0
    sets = [a_set(day * DAY) for day in days]
    gone = outdated(sets, PLAN, now)
    assert [one.begun / DAY for one in sets if one not in gone] == kept


def test_an_increment_of_yesterday_keeps_its_old_whole_one() -> None:
    sets = [a_set(1 * DAY, 99 * DAY), a_set(100 * DAY)]
    assert outdated(sets, PLAN, 101 * DAY) == []


def test_increments_without_their_whole_one_go_but_never_before_there_is_a_whole_one() -> None:
    assert outdated([a_set(0.0, 5 * DAY)], PLAN, 6 * DAY) == []
    lost = a_set(0.0, 5 * DAY)
    assert outdated([lost, a_set(5.5 * DAY)], PLAN, 6 * DAY) == [lost]


# --- when


async def test_what_is_due_follows_from_the_folder_and_so_over_restarts(upkeep: Upkeep, tmp_path: Path) -> None:
    made, now = backups(upkeep, tmp_path), time.time()
    await made.look()
    assert made.due() <= now + 1, "there is none yet"
    put(tmp_path / "b", (now - 600, "fs"), (now - 600, "dat"), (now + 30 * DAY, "fs"), (now + 30 * DAY, "dat"))
    await made.look()
    assert made.due() == pytest.approx(now + HOUR - 600, abs=2), "and one of a clock that was wrong counts for nothing"
    assert backups(upkeep, tmp_path, first_s=900.0).due() == pytest.approx(now + 900, abs=2)
    none = backups(upkeep, tmp_path, PLAN._replace(every_s=0))
    assert none.due() == math.inf
    assert none.facts()["next"] is None


def test_the_plan_of_the_settings() -> None:
    settings = Settings(backup_every_h=2, backup_full_h=3, backup_keep_days=4, backup_keep_fulls=5, backup_retry_s=6)
    assert plan_of(settings, "file:///x.fs") == BackupPlan(2 * HOUR, 3 * HOUR, 4 * DAY, 5, 6)
    assert plan_of(settings, "zeo://h:1").every_s == 0, "looked after where its server runs"


async def test_whole_then_incremental_then_the_old_ones_go(upkeep: Upkeep, tmp_path: Path, image: LivingImage) -> None:
    plan = BackupPlan(every_s=0.1, full_s=1.5, keep_s=1e6, keep_fulls=1, retry_s=1e6)
    made = backups(upkeep, tmp_path, plan)
    await change(image, 0)
    task = asyncio.create_task(made.run())
    try:
        await until(lambda: made.facts()["kept"] == 1)
        first = next((tmp_path / "b").glob("*.fs"))
        await change(image, 1)
        await until(lambda: bool([*(tmp_path / "b").glob("*.deltafs")]) or not first.exists())
        await change(image, 2)
        await until(lambda: not [*(tmp_path / "b").glob(f"{first.stem}*")])  # its sums and increments, too
    finally:
        task.cancel()
        await asyncio.wait([task])
    await upkeep.stop()
    found = backup.restore(tmp_path / "b", tmp_path / "new.fs")
    assert found["damaged"] == []


async def test_blobs_go_with_the_last_backup_that_needed_them(upkeep: Upkeep, tmp_path: Path, image: LivingImage) -> None:
    async def write(data: bytes) -> None:
        await image.system(lambda root: setattr(root["lobby"], "picture", blobs.write(root._p_jar, data)))

    await write(b"first")
    made = backups(upkeep, tmp_path, PLAN._replace(keep_fulls=1))
    await made.make()
    [first] = (tmp_path / "b" / "blobs").rglob("*.blob")
    await write(b"second")
    await upkeep.pack()
    os.utime(first, (1, 1))  # it was long ago that one needed it
    await made.make()
    left = [path.read_bytes() for path in (tmp_path / "b" / "blobs").rglob("*.blob")]
    assert [data[-6:] for data in left] == [b"second"]
    assert backup.restore(tmp_path / "b", tmp_path / "new.fs")["damaged"] == []


async def test_a_backup_from_when_the_clock_was_ahead_takes_no_blobs_with_it(
    upkeep: Upkeep, tmp_path: Path, image: LivingImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await image.system(lambda root: setattr(root["lobby"], "picture", blobs.write(root._p_jar, b"a picture")))
    made, ahead = backups(upkeep, tmp_path, PLAN._replace(keep_fulls=1)), time.time() + 3650 * DAY
    with monkeypatch.context() as clock:
        clock.setattr(backup.time, "time", lambda: ahead)
        await made.make()
    for path in (tmp_path / "b").rglob("*.*"):
        os.utime(path, (ahead, ahead))
    await made.look()
    await made.make()
    await made.look()
    assert made.facts()["kept"] == 1
    assert made.due() == pytest.approx(time.time() + HOUR, abs=60), "its name is later, since it is newer; it was made now"
    assert backup.restore(tmp_path / "b", tmp_path / "new.fs")["damaged"] == []
    await change(image, 1)
    await made.make()
    assert len([*(tmp_path / "b").glob("*.deltafs")]) == 1, "it need not be whole ones from then on"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_clock_that_is_set_back_holds_up_no_backup(
    upkeep: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    made, ahead = backups(upkeep, tmp_path), time.time() + 365 * DAY
    with monkeypatch.context() as clock:
        clock.setattr(backup_schedule.time, "time", lambda: ahead)
        if fails:
            made.note_failure(ImageError("no"))
        else:
            await made.make()
    await made.look()
    assert made.due() <= time.time() + max(HOUR, PLAN.retry_s)


# --- when it fails


async def test_a_failure_is_told_and_tried_again(upkeep: Upkeep, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("a file where the folder should be")
    made = backups(upkeep, tmp_path, PLAN._replace(retry_s=0.05))
    with capture_logs() as logged:
        task = asyncio.create_task(made.run())
        try:
            await until(lambda: made.facts()["failures"] >= 2)
            assert made.facts()["error"]
            os.unlink(tmp_path / "b")
            await until(lambda: made.facts()["kept"] == 1)
        finally:
            task.cancel()
            await asyncio.wait([task])
    facts = made.facts()
    assert (facts["failures"], facts["error"]) == (0, None)
    assert facts["failed"] >= 2
    assert [line["log_level"] for line in logged if line["event"] == "backup_failed"][:2] == ["error", "error"]


async def test_a_disk_without_room_is_left_alone(upkeep: Upkeep, tmp_path: Path) -> None:
    made = backups(upkeep, tmp_path, size=lambda: 2**60, reserve=1)
    task = asyncio.create_task(made.run())
    await until(lambda: made.facts()["failures"] == 1)
    task.cancel()
    await asyncio.wait([task])
    assert "backup.folder" in made.facts()["error"]
    assert not (tmp_path / "b").exists()
    assert made.due() == pytest.approx(time.time() + PLAN.retry_s, abs=5)


async def test_other_upkeep_is_no_failure(upkeep: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup, refused = upkeep.backup, []

    async def busy_once(*, full: bool) -> Any:
        if not refused:
            refused.append(full)
            raise Busy("a pack is under way")
        return await backup(full=full)

    monkeypatch.setattr(upkeep, "backup", busy_once)
    monkeypatch.setattr(backup_schedule, "BUSY_S", 0.01)
    made = backups(upkeep, tmp_path)
    task = asyncio.create_task(made.run())
    await until(lambda: made.facts()["kept"] == 1)
    task.cancel()
    await asyncio.wait([task])
    assert made.facts()["failed"] == 0


async def test_good_old_backups_stay_while_the_newest_has_damage(upkeep: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for days in (60, 50):
        put(tmp_path / "b", (time.time() - days * DAY, "fs"), (time.time() - days * DAY, "dat"))

    async def found(*, full: bool) -> Any:
        assert full, "the last whole one is older than the plan wants"
        return {"damaged": ["koan_ (oid:1f)"]}

    monkeypatch.setattr(upkeep, "backup", found)
    made = backups(upkeep, tmp_path)
    await made.look()
    with capture_logs() as logged:
        await made.make()
    assert len([*(tmp_path / "b").iterdir()]) == 4
    assert [line["event"] for line in logged] == ["backups_kept"]


async def test_a_folder_that_cannot_be_read_does_not_end_the_looking(
    upkeep: Upkeep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> Any:
        raise OSError("stale file handle")

    monkeypatch.setattr(backup_schedule, "sets_of", broken)
    made = backups(upkeep, tmp_path, PLAN._replace(retry_s=0.05))
    task = asyncio.create_task(made.run())
    try:
        await until(lambda: made.facts()["failures"] >= 2)
        assert "stale file handle" in made.facts()["error"]
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_folder_that_is_a_file_is_told_of_at_the_start(upkeep: Upkeep, tmp_path: Path) -> None:
    """And not when the first backup is due, which is in the night."""
    (tmp_path / "b").touch()
    made = backups(upkeep, tmp_path, first_s=1e6)
    with capture_logs() as logged:
        running = asyncio.create_task(made.run())
        await until(lambda: made.facts()["error"] is not None)
        running.cancel()
        await asyncio.wait([running])
    [told] = [line for line in logged if line["event"] == "backup_failed"]
    assert told["error"] == f"{tmp_path}/b is a file, not a folder; name another backup.folder"


async def test_a_folder_that_is_a_file_is_tried_again_when_that_is_due(upkeep: Upkeep, tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    made = backups(upkeep, tmp_path)
    await made.look()
    with pytest.raises(ImageError, match="is a file, not a folder"):
        await made.make()


def test_a_folder_that_is_not_there_can_be_made(tmp_path: Path) -> None:
    assert backup_schedule.hindrance(tmp_path / "a" / "b") == ""


def test_a_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_schedule.os, "access", lambda *_: False)  # root, as whom tests may run, may write everywhere
    assert "cannot be written by this user; change its owner" in backup_schedule.hindrance(tmp_path / "a")
