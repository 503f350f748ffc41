"""Copy of an image from a file to a server and back: all of it, or nothing that a daemon takes for an image; and missions go on there."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from persistent.mapping import PersistentMapping

from batos.cli import main
from batos.errors import ConfigError, ImageError, ImageLocked
from batos.image import blobs, identity, ledger
from batos.image.image_copy import CopyFacts, CopyProgress, copy_image
from batos.image.living_image import LivingImage
from batos.image.storage import open_database
from tests.support import forked
from tests.support.kernels import daemon, kernel
from tests.support.missions import FakeInference, mind, submit
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401

ROOT = Path(__file__).parents[2]
CHANGES = 12
WAIT_S = 60


@pytest.fixture(params=["zeo", "postgres"])
def at(request: pytest.FixtureRequest) -> Postgres | Zeo:
    found: Postgres | Zeo = request.getfixturevalue(request.param)
    return found


def put(root: Any, n: int) -> None:
    root["lobby"].n = n
    root[f"n{n}"] = PersistentMapping({"text": "x" * 100 * n})


async def made(uri: str, data: Path, picture: bytes = b"") -> None:
    """An image with some history, which may act from a data folder."""
    image = await LivingImage.open(uri)
    assert not (await identity.begin(image, identity.epoch_path(uri, data))).suspended
    for n in range(CHANGES):
        await image.system(put, n, mission=f"m{n}")
    if picture:
        about = {"type": "png", "width": 1, "height": 1, "bytes": len(picture)}
        await image.system(blobs.add_picture, hashlib.sha256(picture).hexdigest(), picture, about)
    await image.close()


def file(folder: Path, name: str = "live_image") -> str:
    return f"file://{folder}/{name}.fs"


def path(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


async def why_suspended(uri: str, data: Path) -> str:
    image = await LivingImage.open(uri)
    try:
        return (await identity.begin(image, identity.epoch_path(uri, data))).suspended
    finally:
        await image.close()


def same(*found: CopyFacts) -> bool:
    return len({(one.transactions, one.records, one.digest, one.history) for one in found}) == 1


# --- all of it


async def test_a_copy_to_a_server_and_back_is_the_same(at: Postgres | Zeo, tmp_path: Path) -> None:
    source, server, back, again = file(tmp_path), at.image(), file(tmp_path, "back"), file(tmp_path, "again")
    await made(source, tmp_path)
    there = copy_image(source, server, tmp_path)
    assert there.transactions > CHANGES
    assert not there.resumed
    home = copy_image(server, back, tmp_path)
    assert same(there, home, copy_image(back, again, tmp_path))
    assert path(again).read_bytes() == path(back).read_bytes(), "byte for byte, once a server has ordered the records"
    assert not list(tmp_path.glob("*.copying*"))


async def test_history_and_identity_come_along(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    source, server = file(tmp_path), postgres.image()
    image = await LivingImage.open(source)
    await image.system(put, 1)
    then = image.db.lastTransaction()
    await image.system(put, 2)
    known = await identity.begin(image, identity.epoch_path(source, tmp_path))
    await image.close()
    copy_image(source, server, tmp_path)
    copied = await LivingImage.open(server)
    with copied.snapshot(at=then) as root:
        assert root["lobby"].n == 1
    with copied.snapshot() as root:
        assert root["lobby"].n == 2
        assert identity.identity_of(root).id == known.identity  # type: ignore[union-attr]
    await copied.system(put, 3)  # and new objects get ids of their own
    assert copied.read(lambda root: (root["n1"]["text"], len(root["n3"]["text"]))) == ("x" * 100, 300)
    await copied.close()


async def test_pictures_come_along_where_the_server_keeps_them(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    picture, source, back = os.urandom(3000), file(tmp_path), file(tmp_path, "back")
    await made(source, tmp_path, picture)
    with pytest.raises(ImageError, match=r"keeps pictures, and .* takes none: .*blob_dir"):
        copy_image(source, postgres.image(), tmp_path)
    server = f"{postgres.image()}&blob_dir={tmp_path}/cache&shared_blob_dir=0"
    assert copy_image(source, server, tmp_path).blob_bytes > len(picture)
    copy_image(server, back, tmp_path)
    image = await LivingImage.open(back)
    assert image.read(blobs.read_picture, hashlib.sha256(picture).hexdigest()) == picture
    await image.close()


async def test_a_damaged_picture_is_not_copied(tmp_path: Path) -> None:
    source, target = file(tmp_path), file(tmp_path, "copy")
    await made(source, tmp_path, b"picture" * 100)
    (kept,) = blobs.folder_of(path(source)).rglob("*.blob")
    kept.chmod(0o600)
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    with pytest.raises(ImageError, match="its blob is not what was written"):
        copy_image(source, target, tmp_path)
    assert not path(target).exists()


async def test_a_server_without_history_gets_the_present(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    source, back = file(tmp_path), file(tmp_path, "back")
    await made(source, tmp_path)
    server = postgres.image().replace("keep_history=1", "keep_history=0")
    there = copy_image(source, server, tmp_path)
    assert (there.transactions, there.history) == (0, "")
    assert copy_image(server, back, tmp_path).digest == there.digest


async def test_pending_missions_go_on_at_the_copy_which_may_act(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    server, inference = postgres.image(), FakeInference()
    async with mind(tmp_path, inference, shutdown_s=0.1) as kernel:
        inference.hold()
        for n in range(3):
            await submit(kernel, f"m{n}", depth="direct")
        await inference.came(3)
        source = kernel.image.uri
    found = copy_image(source, server, tmp_path)
    assert (found.pending, found.suspended) == (3, "")
    inference.release()
    async with mind(tmp_path, inference, image=server) as kernel:
        async with asyncio.timeout(WAIT_S):
            while kernel.image.read(ledger.unfinished):
                await asyncio.sleep(0.01)
        assert kernel.image.read(lambda root: {ledger.record_of(root, f"m{n}").state for n in range(3)}) == {"COMPLETE"}
    assert await why_suspended(server, tmp_path) == ""
    assert "an original of which a copy goes on at postgres://" in await why_suspended(source, tmp_path)


async def test_missions_of_kernels_that_were_killed_go_on_at_a_copy_for_one_daemon(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    server, back, inference = postgres.image(), file(tmp_path, "back"), FakeInference()
    inference.hold()
    async with daemon(tmp_path, server, inference) as of_many:
        await submit(of_many, "m1", depth="direct")
        await inference.came(1)
        owner = of_many.image.kernel

    def killed_in_the_middle(root: Any) -> None:
        ledger.mission_of(root, "m1").kernel = owner
        root["kernels"].runs[owner].gone = ""

    db = open_database(server, cache_size=400, pool_size=7)
    with db.transaction() as connection:
        killed_in_the_middle(connection.root())
    db.close()
    assert copy_image(server, back, tmp_path / "k").pending == 1
    inference.release()
    async with mind(tmp_path / "k", inference, image=back) as kernel_alone:
        async with asyncio.timeout(WAIT_S):
            while kernel_alone.image.read(ledger.unfinished):
                await asyncio.sleep(0.01)
        assert kernel_alone.image.read(lambda root: ledger.record_of(root, "m1").state) == "COMPLETE"
    assert await why_suspended(back, tmp_path / "k") == ""


# --- who may act


async def test_the_right_to_act_goes_over_and_comes_back(at: Postgres | Zeo, tmp_path: Path) -> None:
    source, server, back = file(tmp_path), at.image(), file(tmp_path, "back")
    await made(source, tmp_path)
    copy_image(source, server, tmp_path)
    assert "a copy goes on at" in await why_suspended(source, tmp_path)
    assert await why_suspended(server, tmp_path) == ""
    copy_image(server, back, tmp_path)
    assert await why_suspended(back, tmp_path) == ""
    assert "a copy goes on at" in await why_suspended(server, tmp_path)


async def test_a_copy_of_what_may_not_act_may_not_act(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    source, server = file(tmp_path), postgres.image()
    await made(source, tmp_path)
    identity.mark_copied(path(source).with_name(path(source).name + ".epoch"), "a fork of another")
    assert "a fork of another" in copy_image(source, server, tmp_path).suspended
    assert "which may not act itself" in await why_suspended(server, tmp_path)


@pytest.mark.parametrize("dies_at", [1, 2])
async def test_a_hand_over_that_died_is_ended_by_the_next_run(
    at: Postgres | Zeo, tmp_path: Path, dies_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, server = file(tmp_path), at.image()
    await made(source, tmp_path)
    write, writes = identity.write_file, []

    def dying(*args: Any) -> None:
        writes.append(args)
        if len(writes) == dies_at:
            raise KeyboardInterrupt
        write(*args)

    monkeypatch.setattr(identity, "write_file", dying)
    with pytest.raises(KeyboardInterrupt):
        copy_image(source, server, tmp_path)
    monkeypatch.undo()
    found = copy_image(source, server, tmp_path)
    assert (found.resumed, found.suspended) == (True, "")
    assert await why_suspended(server, tmp_path) == ""
    assert "a copy goes on at" in await why_suspended(source, tmp_path)


# --- killed, and run again

DYING = """
import os, signal, sys
from pathlib import Path
from batos.image.image_copy import CopyProgress, copy_image

class Dying(CopyProgress):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "done" and value == int(sys.argv[4]) and self.step == sys.argv[5]:
            os.kill(os.getpid(), signal.SIGKILL)

copy_image(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Dying())
"""


def killed(source: str, target: str, data: Path, done: int, step: str = "copying transactions") -> None:
    words = [sys.executable, "-c", DYING, source, target, str(data), str(done), step]
    ended = forked.run(words, cwd=ROOT, timeout=60, check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.mark.parametrize(("done", "step"), [(1, "copying transactions"), (8, "copying transactions"), (3, "comparing all transactions")])
async def test_a_copy_that_was_killed_goes_on_and_is_no_image_until_then(at: Postgres | Zeo, tmp_path: Path, done: int, step: str) -> None:
    source, server = file(tmp_path), at.image()
    await made(source, tmp_path)
    killed(source, server, tmp_path, done, step)
    if step == "copying transactions" or isinstance(at, Postgres):
        for _ in range(2):
            with pytest.raises(ImageError, match=r"unfinished copy.*batos copy --to"):
                await LivingImage.open(server)
        with pytest.raises(ImageError, match="unfinished copy"):
            copy_image(server, file(tmp_path, "other"), tmp_path)
    found = copy_image(source, server, tmp_path)
    assert found.resumed
    assert same(found, copy_image(server, file(tmp_path, "back"), tmp_path))


@pytest.mark.parametrize("done", [1, 8])
async def test_a_copy_to_a_file_that_was_killed_begins_anew(tmp_path: Path, done: int) -> None:
    source, target = file(tmp_path), file(tmp_path, "copy")
    await made(source, tmp_path, b"picture")
    killed(source, target, tmp_path, done)
    assert not path(target).exists()
    copy_image(source, target, tmp_path)
    assert await why_suspended(target, tmp_path) == ""
    assert not list(tmp_path.glob("*.copying*"))


async def test_an_unfinished_copy_of_what_has_changed_begins_anew_where_that_can_be(at: Postgres | Zeo, tmp_path: Path) -> None:
    source, server = file(tmp_path), at.image()
    await made(source, tmp_path)
    killed(source, server, tmp_path, 8)
    await made(source, tmp_path)
    if isinstance(at, Zeo):
        with pytest.raises(ImageError, match="name an empty storage"):
            copy_image(source, server, tmp_path)
        return
    found = copy_image(source, server, tmp_path)
    assert not found.resumed
    assert same(found, copy_image(server, file(tmp_path, "back"), tmp_path))


def test_a_disk_that_is_full_is_said_and_the_next_run_makes_it(tmp_path: Path) -> None:
    source, target = file(tmp_path), file(tmp_path, "copy")
    asyncio.run(made(source, tmp_path))
    copying = (
        "import sys; from pathlib import Path; from batos.image.image_copy import copy_image; copy_image(*sys.argv[1:3], Path(sys.argv[3]))"
    )

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path(source).stat().st_size // 2,) * 2)

    words = [sys.executable, "-c", copying, source, target, str(tmp_path)]
    ended = subprocess.run(words, cwd=ROOT, timeout=60, check=False, capture_output=True, text=True, preexec_fn=small)
    assert ended.returncode
    assert "make room on its disk" in ended.stderr
    assert not path(target).exists()
    copy_image(source, target, tmp_path)


# --- refused


async def test_what_holds_an_image_is_not_overwritten(at: Postgres | Zeo, tmp_path: Path) -> None:
    source, server = file(tmp_path), at.image()
    await made(source, tmp_path)
    await made(server, tmp_path / "other")
    with pytest.raises(ImageError, match="holds an image already"):
        copy_image(source, server, tmp_path)
    with pytest.raises(ImageError, match="exists; a copy overwrites nothing"):
        copy_image(server, source, tmp_path)
    assert await why_suspended(source, tmp_path) == ""


async def test_an_image_in_use_is_not_copied(at: Postgres | Zeo, tmp_path: Path) -> None:
    source, server = file(tmp_path), at.image()
    await made(source, tmp_path)
    await made(server, tmp_path / "other")
    for uri, target in ((source, at.image()), (server, file(tmp_path, "copy"))):
        image = await LivingImage.open(uri)
        with pytest.raises(ImageLocked, match="stop that daemon"):
            copy_image(uri, target, tmp_path)
        await image.close()


async def test_an_image_that_kernels_serve_together_is_not_copied_and_not_copied_to(at: Postgres | Zeo, tmp_path: Path) -> None:
    server = at.image()
    async with kernel(server):
        with pytest.raises(ImageLocked, match="in use by"):
            await asyncio.to_thread(copy_image, server, file(tmp_path), tmp_path)
        assert not path(file(tmp_path)).exists()
        await made(file(tmp_path), tmp_path)
        with pytest.raises(ImageError, match=r"in use by|holds an image already"):
            await asyncio.to_thread(copy_image, file(tmp_path), server, tmp_path)
    assert copy_image(server, file(tmp_path, "copy"), tmp_path).records > 0, "once they have left"


async def test_an_image_that_is_written_to_meanwhile_is_told(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    source = zeo.image()
    await made(source, tmp_path)

    class Written(CopyProgress):
        def begin(self, step: str, total: int = 0) -> None:
            super().begin(step, total)
            if step == "comparing all transactions":
                other = open_database(source, cache_size=400, pool_size=7)
                with other.transaction() as connection:
                    connection.root()["counter"] = 1
                other.close()

    with pytest.raises(ImageError, match="was changed while it was copied"):
        copy_image(source, file(tmp_path, "copy"), tmp_path, Written())
    assert not path(file(tmp_path, "copy")).exists()


def test_wrong_addresses_are_refused(tmp_path: Path) -> None:
    source = file(tmp_path)
    for wrong, target, words in (
        (source, source, "onto itself"),
        (source, f"file://{tmp_path}/./live_image.fs", "onto itself"),
        (source, "nosuch://x", "no storage answers"),
        ("memory://x", source, "ends with its process|no storage answers"),
    ):
        with pytest.raises(ConfigError, match=words):
            copy_image(wrong, target, tmp_path)
    with pytest.raises(ImageError, match="there is no image at"):
        copy_image(source, file(tmp_path, "copy"), tmp_path)
    with pytest.raises(ImageError, match="check that its server runs") as raised:
        copy_image("postgres://me:hidden@127.0.0.1:1/none?keep_history=1", source, tmp_path)
    assert "hidden" not in str(raised.value)


async def test_an_empty_database_is_no_image(at: Postgres | Zeo, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="there is no image at"):
        copy_image(at.image(), file(tmp_path), tmp_path)
    assert not path(file(tmp_path)).exists()


def test_the_verb_says_what_was_copied(postgres: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    asyncio.run(made(file(tmp_path), tmp_path))
    server = postgres.image().replace("batos@", "batos:hidden@")
    assert main(["copy", "--data", str(tmp_path), "--to", server]) == 0
    said = "".join(capsys.readouterr())
    assert "records" in said
    assert "transactions, the same" in said
    assert "0 missions, which go on there" in said
    assert "hidden" not in said
    assert main(["copy", "--data", str(tmp_path), "--to", server]) != 0
    assert "holds an image already" in capsys.readouterr().err
