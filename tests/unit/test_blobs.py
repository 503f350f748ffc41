"""Blobs: durable before what refers to them, whole in backups and forks, gone once nothing refers to them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import ImageDamaged, ImageError
from batos.image import LivingImage, blobs
from batos.image.backup import FORK_NAME, restore
from batos.image.scrubber import Walk
from batos.image.upkeep import Upkeep, UpkeepPlan
from tests.support import forked

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    opened = await LivingImage.open(f"file://{tmp_path / 'data' / FORK_NAME}")
    yield opened
    await opened.close()


@pytest.fixture
def kept(image: LivingImage, tmp_path: Path) -> Upkeep:
    return Upkeep(image, None, UpkeepPlan(0, 1, interval_s=1, first_s=1), backups=tmp_path / "backups")  # type: ignore[arg-type]


def keep(root: Any, data: bytes) -> None:
    root["lobby"].blob = blobs.write(root._p_jar, data)


def held(root: Any) -> bytes:
    return blobs.read(root["lobby"].blob)


def drop(root: Any) -> None:
    root["lobby"].blob = None


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.blob"))


def damage(path: Path) -> None:
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


async def reopened(folder: Path) -> Any:
    """What the image of a folder holds."""
    again = await LivingImage.open(f"file://{folder / FORK_NAME}")
    try:
        return again.read(held)
    finally:
        await again.close()


async def test_a_blob_is_kept_beside_the_image_and_its_folder_is_made_with_the_first(image: LivingImage, tmp_path: Path) -> None:
    assert blobs.kept_by(image.db)
    assert not blobs.folder_of(tmp_path / "data" / FORK_NAME).exists()
    before = image.db.getSize()
    data = os.urandom(100_000)
    await image.system(keep, data)
    assert image.read(held) == data
    assert image.db.getSize() - before < 1000
    await image.close()
    assert await reopened(tmp_path / "data") == data


async def test_file_and_name_are_synced_before_the_commit_is(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    await image.system(keep, b"much")
    last = max(i for i, name in enumerate(synced) if name.endswith(FORK_NAME))
    (blob,) = files(Path(blobs.folder_of(Path(image.uri.removeprefix("file://")))))
    assert any("BUC" in name for name in synced[:last])  # the file, under the name that it has at first
    for folder in (blob.parent, blob.parent.parent, blob.parents[9]):
        assert str(folder) in synced[:last]


async def test_a_transaction_that_fails_leaves_none(image: LivingImage, tmp_path: Path) -> None:
    def fails(root: Any) -> None:
        keep(root, b"never")
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        await image.system(fails)
    await image.system(keep, b"this one")
    assert len(files(tmp_path)) == 1
    assert not list((blobs.folder_of(tmp_path / "data" / FORK_NAME) / "tmp").iterdir())


async def test_a_pack_takes_those_that_nothing_refers_to(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    await image.system(keep, b"old")
    with image.snapshot() as root:
        await image.system(keep, b"new")
        await kept.pack(0)  # never past what somebody sees
        assert blobs.read(root["lobby"].blob) == b"old"
    assert len(files(tmp_path)) == 2
    await kept.pack(0)
    assert len(files(tmp_path)) == 1
    assert image.read(held) == b"new"
    await image.system(drop)
    await kept.pack(0)
    assert files(tmp_path) == []


async def test_the_past_is_read_as_long_as_its_history_is_kept(image: LivingImage) -> None:
    await image.system(keep, b"old")
    then = image.db.lastTransaction()
    await image.system(keep, b"new")
    with image.snapshot(at=then) as root:
        assert blobs.read(root["lobby"].blob) == b"old"


KILLED_IN_A_COMMIT = """
import asyncio, os, signal, sys
from batos.image import LivingImage, blobs
from batos.image.checksummed_storage import CheckedStorage

store = CheckedStorage.storeBlob

def killed(*args):
    store(*args)
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    image = await LivingImage.open(sys.argv[1])
    CheckedStorage.storeBlob = killed
    await image.system(lambda root: setattr(root["lobby"], "blob", blobs.write(root._p_jar, b"stray")))

asyncio.run(main())
"""


async def test_what_a_kill_in_a_commit_left_is_swept(tmp_path: Path) -> None:
    uri = f"file://{tmp_path / FORK_NAME}"
    child = forked.run([sys.executable, "-c", KILLED_IN_A_COMMIT, uri], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    assert child.returncode == -9
    assert len(files(tmp_path)) == 1
    (blobs.folder_of(tmp_path / FORK_NAME) / "tmp" / "BUCleft").write_bytes(b"of a mission that was under way")
    image = await LivingImage.open(uri)
    assert not list((blobs.folder_of(tmp_path / FORK_NAME) / "tmp").iterdir())
    await image.system(keep, b"kept")
    assert blobs.sweep(image.db) == 1
    assert image.read(held) == b"kept"
    assert len(files(tmp_path)) == 1
    await image.close()


async def test_backup_and_restore_carry_them(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    await image.system(keep, b"old" * 1000)
    first = await kept.backup()
    assert first["blob_bytes"] == files(tmp_path / "backups")[0].stat().st_size
    await image.system(keep, b"new" * 1000)
    assert (await kept.backup())["kind"] == "incremental"
    assert len(files(tmp_path / "backups")) == 2
    restore(tmp_path / "backups", tmp_path / "again" / FORK_NAME)
    assert await reopened(tmp_path / "again") == b"new" * 1000


async def test_a_blob_that_is_not_what_was_written_is_named_everywhere(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    await image.system(keep, b"precious" * 1000)
    await kept.backup()
    (ours,) = files(tmp_path / "data")
    oid = image.read(lambda root: f"oid:{int.from_bytes(root['lobby'].blob._p_oid, 'big'):x}")
    damage(ours)
    with pytest.raises(ImageDamaged, match="is not what was written"):
        image.read(held)
    walk = Walk(image.db)
    assert [(one.record, one.what) for one in walk.step(1000)] == [(oid, "its blob is not what was written")]
    with pytest.raises(ImageDamaged, match="was not forked"):
        await kept.fork(str(tmp_path / "fork"))
    assert not list((tmp_path / "fork").iterdir())
    assert (await kept.backup(full=True))["damaged"] == []  # the folder has it whole, from before
    ours.unlink()
    with pytest.raises(ImageDamaged, match="cannot be read"):
        image.read(held)
    assert "cannot be read" in Walk(image.db).step(1000)[0].what
    restore(tmp_path / "backups", tmp_path / "again" / FORK_NAME)
    assert await reopened(tmp_path / "again") == b"precious" * 1000


async def test_a_backup_says_which_of_its_blobs_are_damaged(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    await image.system(keep, b"precious")
    damage(files(tmp_path / "data")[0])
    assert "its blob is not what was written" in (await kept.backup())["damaged"][0]


async def test_a_fork_has_its_own_and_shares_the_bytes(image: LivingImage, kept: Upkeep, tmp_path: Path) -> None:
    await image.system(keep, b"shared" * 1000)
    await kept.fork(str(tmp_path / "fork"))
    (theirs,) = files(tmp_path / "fork")
    assert theirs.stat().st_nlink == 2
    await image.system(drop)
    await kept.pack(0)
    assert files(tmp_path / "data") == []
    assert await reopened(tmp_path / "fork") == b"shared" * 1000


async def test_an_image_with_a_blob_folder_of_its_own_is_looked_after_by_who_set_it_up(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / FORK_NAME}?blobstorage_dir={tmp_path / 'theirs'}")
    await image.system(keep, b"theirs")
    assert image.read(held) == b"theirs"
    upkeep = Upkeep(image, None, UpkeepPlan(0, 1, interval_s=1, first_s=1), backups=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ImageError, match="blobstorage_dir"):
        await upkeep.pack()
    await image.close()
