"""Forks: the image as of a moment in a folder of its own, made while the image is used."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import Busy, HistoryGone, ImageDamaged, ImageError, InvalidInput
from batos.image import LivingImage, history, ledger
from batos.image.backup import FORK_NAME
from batos.image.storage import probe
from batos.image.upkeep import Upkeep, UpkeepPlan
from tests.support.image import change, step


class Kept:
    """An open image with its upkeep."""

    def __init__(self, image: LivingImage, folder: Path) -> None:
        self.image = image
        self.upkeep = Upkeep(image, None, UpkeepPlan(0, 1, interval_s=1, first_s=1), backups=folder)  # type: ignore[arg-type]


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    image = await LivingImage.open(f"file://{tmp_path / 'data' / FORK_NAME}", steps=(step,))
    yield Kept(image, tmp_path)
    await image.close()


async def n_of(folder: Path) -> Any:
    """ROBIN's n in the image of a folder, opened for writing and written to."""
    image = await LivingImage.open(f"file://{folder / FORK_NAME}", steps=(step,))
    try:
        found = image.read(lambda root: root["lobby"].robin.n)
        await change(image, "experiment", n=-1)
        return found
    finally:
        await image.close()


async def test_a_fork_is_the_image_as_it_was_with_its_history_and_a_life_of_its_own(kept: Kept, tmp_path: Path) -> None:
    tids = [await change(kept.image, f"m{n}", n=n) for n in range(1, 4)]
    now = await kept.upkeep.fork(str(tmp_path / "now"))
    then = await kept.upkeep.fork(str(tmp_path / "then"), tids[1])
    assert (now["tid"], then["tid"]) == (tids[2], tids[1])
    assert (now["image"], now["unfinished"]) == (str(tmp_path / "now" / FORK_NAME), 0)
    assert await n_of(tmp_path / "now") == 3
    assert await n_of(tmp_path / "then") == 2
    assert kept.image.read(lambda root: root["lobby"].robin.n) == 3
    fork = await LivingImage.open(f"file://{tmp_path / 'then' / FORK_NAME}")
    oid = fork.read(lambda root: root["lobby"].robin._p_oid)
    assert [one["mission"] for one in history.revisions(fork.db, oid, 9)] == ["experiment", "m2", "m1", "genesis"]
    await fork.close()
    assert sorted(path.name for path in (tmp_path / "now").iterdir() if ".part" in path.name) == []


async def test_every_transaction_of_an_image_can_be_forked_at(kept: Kept, tmp_path: Path) -> None:
    tids = [await change(kept.image, f"m{n}", n=n) for n in range(1, 6)]
    for n, tid in enumerate(tids, 1):
        made = await kept.upkeep.fork(str(tmp_path / f"f{n}"), tid)
        assert (made["tid"], made["bytes"]) == (tid, (tmp_path / f"f{n}" / FORK_NAME).stat().st_size)
        assert await n_of(tmp_path / f"f{n}") == n


async def test_commits_go_on_while_it_is_made(kept: Kept, tmp_path: Path) -> None:
    going, commits = True, 0

    async def work() -> None:
        nonlocal commits
        while going:
            commits += 1
            await change(kept.image, f"m{commits}", n=commits, filling="x" * 20_000)

    worker = asyncio.create_task(work())
    made = []
    for number in range(8):
        made.append(await kept.upkeep.fork(str(tmp_path / f"f{number}")))
    assert commits > 8
    going = False
    await worker
    found = [await n_of(tmp_path / f"f{number}") for number in range(8)]
    assert found == sorted(found)
    assert len({one["tid"] for one in made}) > 1
    assert kept.image.read(lambda root: root["lobby"].robin.n) == commits


async def test_missions_that_were_unfinished_then_are_counted(kept: Kept, tmp_path: Path) -> None:
    await kept.image.system(ledger.accept, "job", "b", {}, True, mission="job")
    tid = kept.image.db.lastTransaction().hex()
    await kept.image.system(ledger.fail, "job", {"code": "x", "message": "y"}, {}, True, mission="job")
    assert (await kept.upkeep.fork(str(tmp_path / "f"), tid))["unfinished"] == 1
    assert (await kept.upkeep.fork(str(tmp_path / "g")))["unfinished"] == 0


async def test_nothing_is_overwritten_and_no_folder_is_guessed(kept: Kept, tmp_path: Path) -> None:
    await kept.upkeep.fork(str(tmp_path / "f"))
    before = (tmp_path / "f" / FORK_NAME).read_bytes()
    with pytest.raises(ImageError, match="nothing is overwritten"):
        await kept.upkeep.fork(str(tmp_path / "f"))
    with pytest.raises(ImageError, match="nothing is overwritten"):
        await kept.upkeep.fork(str(tmp_path / "data"))
    assert (tmp_path / "f" / FORK_NAME).read_bytes() == before
    with pytest.raises(InvalidInput, match="absolute"):
        await kept.upkeep.fork("elsewhere")
    (tmp_path / "file").touch()
    with pytest.raises(ImageError, match=r"file is a file, not a folder; name another"):
        await kept.upkeep.fork(str(tmp_path / "file"))
    with pytest.raises(ImageError, match=r"cannot be written: Not a directory"):
        await kept.upkeep.fork(str(tmp_path / "file" / "below"))


async def test_moments_that_are_not_kept_are_refused(kept: Kept, tmp_path: Path) -> None:
    first = await change(kept.image, "m1", n=1)
    await change(kept.image, "m2", n=2)
    for at in (1.0, "0" * 16):
        with pytest.raises(HistoryGone):
            await kept.upkeep.fork(str(tmp_path / "f"), at)
    await kept.upkeep.pack(0)
    last = await change(kept.image, "m3", n=3)
    with pytest.raises(HistoryGone):
        await kept.upkeep.fork(str(tmp_path / "f"), first)
    assert not (tmp_path / "f" / FORK_NAME).exists()
    await kept.upkeep.fork(str(tmp_path / "f"), last)
    assert await n_of(tmp_path / "f") == 3


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS])
async def test_where_the_system_cannot_copy_it_is_copied_by_hand(
    kept: Kept, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change(kept.image, "m1", n=1)

    def refused(*args: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", refused)
    await kept.upkeep.fork(str(tmp_path / "f"))
    assert (tmp_path / "f" / FORK_NAME).read_bytes() == (tmp_path / "data" / FORK_NAME).read_bytes()


async def test_a_full_disk_leaves_nothing_behind(kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(ImageError, match="No space left"):
        await kept.upkeep.fork(str(tmp_path / "f"))
    assert list((tmp_path / "f").iterdir()) == []
    monkeypatch.undo()
    assert (await kept.upkeep.fork(str(tmp_path / "f")))["objects"] == len(kept.image.db.storage)


async def test_what_a_kill_left_half_done_is_made_anew(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / (FORK_NAME + ".part")).write_bytes(b"x" * 1_000_000)
    await kept.upkeep.fork(str(tmp_path / "f"))
    assert await n_of(tmp_path / "f") == 0
    assert not (tmp_path / "f" / (FORK_NAME + ".part")).exists()
    assert probe(f"file://{tmp_path / 'f' / FORK_NAME}")["exists"]


async def test_the_blobs_of_an_image_that_is_elsewhere_stay(kept: Kept, tmp_path: Path) -> None:
    blobs = tmp_path / "f" / (FORK_NAME + ".blobs")
    blobs.mkdir(parents=True)
    (blobs / "x.blob").write_bytes(b"of somebody")
    with pytest.raises(ImageError, match=r"blobs of another image .* name another folder"):
        await kept.upkeep.fork(str(tmp_path / "f"))
    assert (blobs / "x.blob").read_bytes() == b"of somebody"
    assert [one.name for one in (tmp_path / "f").iterdir()] == [blobs.name]
    (tmp_path / "f" / (FORK_NAME + ".part")).touch()  # with it they are what a kill left half done
    await kept.upkeep.fork(str(tmp_path / "f"))
    assert await n_of(tmp_path / "f") == 0


async def test_one_at_a_time_and_a_stop_ends_it(kept: Kept, tmp_path: Path) -> None:
    first, second = await asyncio.gather(
        kept.upkeep.fork(str(tmp_path / "f")), kept.upkeep.fork(str(tmp_path / "g")), return_exceptions=True
    )
    assert isinstance(first, dict)
    assert isinstance(second, Busy)
    forking = asyncio.create_task(kept.upkeep.fork(str(tmp_path / "h")))
    await asyncio.sleep(0)
    await kept.upkeep.stop()
    with pytest.raises(Busy, match="stopping"):
        await forking
    assert not (tmp_path / "h" / FORK_NAME).exists()


async def test_damage_is_named(kept: Kept, tmp_path: Path) -> None:
    first = await change(kept.image, "m1", n=1)
    await change(kept.image, "m2", n=2)
    path = tmp_path / "data" / FORK_NAME
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"\xff" * 8)
    with pytest.raises(ImageDamaged):
        await kept.upkeep.fork(str(tmp_path / "f"), first)
    assert list((tmp_path / "f").iterdir()) == []


async def test_only_files_are_forked(kept: Kept, tmp_path: Path) -> None:
    kept.image.uri = "postgres://somewhere"
    with pytest.raises(ImageError, match="only images in a file"):
        await kept.upkeep.fork(str(tmp_path / "f"))
