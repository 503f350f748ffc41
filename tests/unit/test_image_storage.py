"""Opening an image: every refusal names file, cause and remedy, and leaves the file as it is."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ZODB
from ZODB.utils import u64

from batos.errors import ConfigError, ImageDamaged, ImageError, ImageLocked, ImageTooNew
from batos.image import LivingImage, checksums, ledger, living_image
from batos.image.checksummed_storage import base_of
from batos.image.scrubber import Walk
from batos.image.storage import CHECKED_AFTER, FORMAT, check_format, file_path, open_database, probe
from batos.objects import UvmObject
from tests.support.image import Store

COMMITS = 5


def opened(path: Path, **options: Any) -> ZODB.DB:
    return open_database(f"file://{path}", cache_size=400, pool_size=7, **options)


def number(db: ZODB.DB) -> int:
    with db.transaction() as connection:
        return int(connection.root()["obj"].n)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An image of some commits, with the number of the last in it, and no index."""
    path = tmp_path / "i.fs"
    store = Store(path)
    store.put(obj=UvmObject(n=0))
    for i in range(1, COMMITS + 1):
        with store.open(commit=True) as root:
            root["obj"].n = i
            root["obj"].text = "x" * 200
    store.close()
    (tmp_path / "i.fs.index").unlink()
    return path


def transactions(data: bytes) -> list[int]:
    """Where the transactions begin."""
    found, position = [], 4
    while position < len(data):
        found.append(position)
        position += u64(data[position + 8 : position + 16]) + 8
    return found


def test_an_image_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "i.fs"
    opened(path).close()
    assert path.exists()


def test_the_path_of_an_image() -> None:
    assert file_path("file:///a/../b/i.fs?x=1") == Path("/b/i.fs")
    assert file_path("zeo://localhost:1") is None


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("/tmp/i.fs", "is not a valid URI"),
        ("file://", "does not name a file"),
        ("file:///?quota=1", "does not name a file"),
        ("nosql://x", "no storage answers to nosql://"),
        ("file://{}?speed=9", "unknown options speed"),
    ],
)
def test_uris_that_name_no_storage(tmp_path: Path, uri: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_database(uri.format(tmp_path / "i.fs"), cache_size=1, pool_size=1)


def test_an_image_that_another_process_has_open(path: Path) -> None:
    code = f"import sys, ZODB; db = ZODB.DB({str(path)!r}); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(ImageLocked, match=rf"{path} is open in another process \(process {child.pid}\).*--data"):
            opened(path)
        facts = probe(f"file://{path}")
        assert facts["locked"]
        assert facts["objects"] == 2
    assert not probe(f"file://{path}")["locked"]
    opened(path).close()


def test_probe_of_nothing_makes_nothing(tmp_path: Path) -> None:
    nothing = {"exists": False, "locked": False, "objects": 0, "bytes": 0, "format": FORMAT, "kernels": []}
    assert probe(f"file://{tmp_path / 'x' / 'i.fs'}") == nothing
    assert list(tmp_path.iterdir()) == []


def test_read_only_of_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "i.fs").touch()
    with pytest.raises(ImageError, match=r"the database .*i\.fs is empty and holds no image yet"):
        opened(tmp_path / "i.fs", read_only=True)


def test_read_only_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="there is no image at"):
        opened(tmp_path / "i.fs", read_only=True)


@pytest.mark.parametrize("found", [FORMAT + 1, "two", 1.5])
async def test_an_image_of_a_newer_version_is_refused_and_untouched(path: Path, found: Any) -> None:
    store = Store(path)
    store.put(format=found)
    store.close()
    before = path.read_bytes()
    with pytest.raises(ImageTooNew, match="upgrade BAT OS"):
        await LivingImage.open(f"file://{path}")
    with pytest.raises(ImageTooNew):
        probe(f"file://{path}")
    assert path.read_bytes() == before
    opened(path).close()  # and the lock was let go


async def test_an_image_of_before_there_were_checksums_opens_and_is_given_them(tmp_path: Path) -> None:
    path = tmp_path / "i.fs"
    db = ZODB.DB(str(path))
    with db.transaction() as connection:
        root = connection.root()
        living_image.awaken(root, ())
        root["format"] = 1
        del root[CHECKED_AFTER]
        ledger.accept(root, "m1", "a brief of before", {}, False)
    db.close()
    for _ in range(2):
        image = await LivingImage.open(f"file://{path}")
        with image.snapshot() as root:
            assert root["format"] == FORMAT
            mission = ledger.mission_of(root, "m1")
            assert mission.brief == "a brief of before"
            record = base_of(image.db.storage).load(mission._p_oid)[0]
            assert not checksums.carries_sum(record), "nothing is rewritten for it alone"
        assert probe(f"file://{path}")["format"] == FORMAT
        walk = Walk(image.db)
        walk.step(1000, 1 << 20)
        assert walk.damaged == {}
        await image.close()
    image = await LivingImage.open(f"file://{path}")
    assert await image.system(ledger.begin_attempt, "m1", 3) == 1
    with image.snapshot() as root:
        record = base_of(image.db.storage).load(ledger.mission_of(root, "m1")._p_oid)[0]
    assert checksums.carries_sum(record)
    await image.close()
    # From now on one without is damage: it was not there before, and this version writes none.
    store = Store(path)
    with store.open(commit=True) as root:
        root["lobby"].traits.number = 1
    store.close()
    with pytest.raises(ImageDamaged, match="UvmObject, is not what was written"):
        await LivingImage.open(f"file://{path}")


def test_the_formats_that_are_known() -> None:
    check_format({}, "u")
    check_format({"format": FORMAT}, "u")


def test_a_folder_that_cannot_be_made_or_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ImageError, match=r"cannot be made: .*--data"):
        opened(tmp_path / "file" / "i.fs")
    (tmp_path / "folder.fs").mkdir()
    with pytest.raises(ImageError, match="cannot be opened: Is a directory"):
        opened(tmp_path / "folder.fs")


# --- tails


def test_a_tail_cut_at_any_byte_of_the_last_transaction_opens_at_the_one_before(path: Path) -> None:
    whole = path.read_bytes()
    last = transactions(whole)[-1]
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        (path.parent / "i.fs.index").unlink(missing_ok=True)
        db = opened(path)
        assert number(db) == COMMITS - 1, cut
        db.close()
    for saved in path.parent.glob("*.tr*"):
        saved.unlink()


def test_a_transaction_that_was_written_and_never_finished_is_cut_off(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[transactions(data)[-1] + 16 : transactions(data)[-1] + 17] = b"c"
    path.write_bytes(data)
    db = opened(path)
    assert number(db) == COMMITS - 1
    db.close()


@pytest.mark.parametrize("zeros", [1, 23, 4096])
def test_a_tail_of_zeros_after_a_power_cut_opens_and_goes_on(path: Path, zeros: int) -> None:
    with path.open("ab") as file:
        file.write(b"\0" * zeros)
    db = opened(path)
    assert number(db) == COMMITS
    with db.transaction() as connection:
        connection.root()["obj"].n = 99
    db.close()
    db = opened(path)
    assert number(db) == 99
    db.close()


# --- damage

# FileStorage does not close its files when its constructor fails; they are closed when the error is forgotten.
leaves_files_open = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def _zero_page(data: bytearray) -> None:
    at = transactions(data)[2]
    data[at + 30 : at + 130] = bytes(100)


def _flip(transaction: int, offset: int) -> Callable[[bytearray], None]:
    def flip(data: bytearray) -> None:
        data[transactions(data)[transaction] + offset] ^= 0x40

    return flip


DAMAGES: dict[str, Callable[[bytearray], None]] = {
    "magic": lambda data: data.__setitem__(slice(0, 4), b"XXXX"),
    "zero page": _zero_page,
    "length of an older transaction, huge": _flip(2, 9),
    "length of an older transaction, small": _flip(2, 15),
    "length of the last transaction": _flip(-1, 10),
    "an older transaction marked unfinished": lambda data: data.__setitem__(transactions(data)[2] + 16, ord("c")),
    "length of a user name": _flip(3, 17),
    "second length of an older transaction": lambda data: data.__setitem__(transactions(data)[3] - 1, 0xFF),
    "second length of the last": lambda data: data.__setitem__(len(data) - 1, 0xFF),
    "garbage": lambda data: data.__setitem__(slice(4, None), bytes(range(256)) * 8),
}


@leaves_files_open
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_image_is_refused_with_the_remedy_and_left_as_it_is(path: Path, damage: str) -> None:
    """Without this, FileStorage takes some of these for a torn tail and cuts off all that was acknowledged since."""
    data = bytearray(path.read_bytes())
    DAMAGES[damage](data)
    path.write_bytes(data)
    with pytest.raises(ImageDamaged, match=r"damaged .*fsrecover"):
        await LivingImage.open(f"file://{path}")
    assert path.read_bytes() == data
    assert not list(path.parent.glob("*.tr*"))
    gc.collect()  # else another test would be told of the open files


async def test_damage_behind_the_index_is_found_too(path: Path) -> None:
    """As after a kill: an index of some time ago, and transactions since."""
    opened(path).close()
    index = (path.parent / "i.fs.index").read_bytes()
    db = opened(path)
    for i in range(3):
        with db.transaction() as connection:
            connection.root()["obj"].n = 100 + i
    db.close()
    (path.parent / "i.fs.index").write_bytes(index)
    whole = path.read_bytes()
    path.write_bytes(bytes(_damaged(whole, _flip(-2, 9))))
    with pytest.raises(ImageDamaged):
        opened(path)
    path.write_bytes(whole)
    db = opened(path)
    assert number(db) == 102
    db.close()


def _damaged(data: bytes, damage: Callable[[bytearray], None]) -> bytearray:
    changed = bytearray(data)
    damage(changed)
    return changed


async def test_a_root_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "i.fs"
    Store(path).close()
    data = path.read_bytes().replace(b"PersistentMapping", b"PersistentMoppinG")
    path.write_bytes(data)
    with pytest.raises(ImageDamaged):
        await LivingImage.open(f"file://{path}")
    assert path.read_bytes() == data


def test_an_index_that_is_rubbish_is_built_anew(path: Path) -> None:
    for rubbish in (b"", b"rubbish", b"\x80\x02K\x07."):
        (path.parent / "i.fs.index").write_bytes(rubbish)
        db = opened(path)
        assert number(db) == COMMITS
        db.close()


def test_an_image_that_only_can_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a full or read-only file system; root may write anywhere, so the refusal comes from the system call."""
    module = importlib.import_module("ZODB.FileStorage.FileStorage")

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "LockFile", refuse)
    with pytest.raises(ImageError, match="Permission denied; check owner, permissions and free space"):
        opened(path)
    db = opened(path, read_only=True)
    assert number(db) == COMMITS
    db.close()
