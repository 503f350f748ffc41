"""Links, folders and files that somebody else planted where the daemon writes: they are not followed, and what they lead to is as it was.

The other user is real where the tests run as root; elsewhere only this user's own links are tried.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from batos import doctor
from batos.bridge.lora import gguf
from batos.bridge.ollama_server import ProcessNote
from batos.config import Settings
from batos.console.access import token_of
from batos.errors import ConfigError, ImageError
from batos.image import LivingImage, backup, blobs
from batos.image.backup import FORK_NAME
from batos.image.backup_schedule import hindrance
from batos.image.upkeep import Upkeep, UpkeepPlan
from batos.testing import ScriptedOllama
from batos.wire import keys
from tests.support.daemon import daemon, provisioned

OTHER = 65534
VICTIM = b"ssh-ed25519 AAAA the daemon user's own\n"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can enter, as those below pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="batos-planted-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "authorized_keys"
    file.write_bytes(VICTIM)
    return file


class Kept:
    def __init__(self, image: LivingImage, folder: Path) -> None:
        self.image, self.folder = image, folder
        self.upkeep = Upkeep(image, None, UpkeepPlan(0, 1, interval_s=1, first_s=1), backups=folder / "backups")  # type: ignore[arg-type]


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    image = await LivingImage.open(f"file://{tmp_path / 'data' / FORK_NAME}")
    await image.system(lambda root: setattr(root["lobby"], "blob", blobs.write(root._p_jar, b"a blob")))
    await image.system(lambda root: setattr(root["lobby"], "brief", "\nssh-ed25519 BBBB of somebody else\n"))
    yield Kept(image, tmp_path)
    await image.close()


def linked(at: Path, to: Path, uid: int | None = None) -> Path:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)
    if uid is not None:
        os.lchown(at, uid, uid)
    return at


def given(folder: Path, mode: int, uid: int | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(mode)
    if uid is not None:
        os.chown(folder, uid, uid)
    return folder


def stamps(names: str) -> list[str]:
    """The names that a backup in the next minute may take."""
    return [time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime(time.time() + n)) + names for n in range(60)]


# --- forks


async def test_a_fork_follows_no_link_under_the_name_of_its_copy(kept: Kept, victim: Path) -> None:
    linked(kept.folder / "f" / (FORK_NAME + ".part"), victim)
    made = await kept.upkeep.fork(str(kept.folder / "f"))
    assert victim.read_bytes() == VICTIM
    assert not Path(made["image"]).is_symlink()
    assert stat.S_IMODE(Path(made["image"]).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", ".blobs"])
async def test_a_link_to_nothing_is_taken_too(kept: Kept, name: str) -> None:
    linked(kept.folder / "f" / (FORK_NAME + name), kept.folder / "elsewhere")
    with pytest.raises(ImageError, match="nothing is overwritten"):
        await kept.upkeep.fork(str(kept.folder / "f"))
    assert not (kept.folder / "elsewhere").exists()


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda folder: given(folder / "f", 0o777), r"f is of mode 0777, so that others may write into it; `chmod go-w"),
        (lambda folder: given(folder / "f", 0o1777), r"f is of mode 1777"),
        (lambda folder: given(folder, 0o777), r"so that others may put another f there|so that others may write into it"),
        (lambda folder: (given(folder, 0o777), given(folder / "f", 0o700)), r"so that others may put another f there"),
        pytest.param(lambda folder: given(folder / "f", 0o700, OTHER), r"f belongs to \w+, who could put links there", marks=as_root),
        pytest.param(lambda folder: (given(folder / "f", 0o700), given(folder, 0o755, OTHER)), r"belongs to \w+", marks=as_root),
        pytest.param(
            lambda folder: (given(folder, 0o1777), linked(folder / "f", given(folder.parent / "home" / ".ssh", 0o700), OTHER)),
            r"f is a link of \w+'s, which is not followed",
            marks=as_root,
        ),
    ],
)
async def test_neither_fork_nor_backup_goes_where_others_may_write(
    kept: Kept, tmp_path: Path, prepare: Callable[[Path], object], says: str
) -> None:
    folder = tmp_path / "shared"
    prepare(folder)
    for work in (kept.upkeep.fork, kept.upkeep.backup):
        with pytest.raises(ImageError, match=says):
            await work(str(folder / "f"))
    assert hindrance(folder / "f"), "told before one is due"
    assert not list(folder.rglob("*.fs*"))
    assert not list((tmp_path / "home").rglob("*.fs*")) if (tmp_path / "home").exists() else True


@as_root
async def test_a_link_in_the_middle_that_another_planted_leads_nowhere(kept: Kept, tmp_path: Path) -> None:
    home = given(tmp_path / "home" / ".ssh", 0o700)
    linked(given(tmp_path / "shared", 0o1777) / "sub", home, OTHER)
    for work in (kept.upkeep.fork, kept.upkeep.backup):
        with pytest.raises(ImageError, match=r"sub is a link of \w+'s"):
            await work(str(tmp_path / "shared" / "sub" / "below"))
    assert list(home.iterdir()) == []


async def test_below_a_sticky_folder_and_through_own_links_it_goes(kept: Kept, tmp_path: Path) -> None:
    given(tmp_path / "shared", 0o1777)
    linked(tmp_path / "shared" / "mine", given(tmp_path / "elsewhere", 0o755))
    await kept.upkeep.fork(str(tmp_path / "shared" / "f"))
    await kept.upkeep.fork(str(tmp_path / "shared" / "mine" / "f"))
    await kept.upkeep.backup(str(tmp_path / "shared" / "mine" / ".." / "b"))
    assert (tmp_path / "elsewhere" / "f" / FORK_NAME).exists()
    assert (tmp_path / "b").is_dir(), "as the system itself goes"
    for made in (*tmp_path.glob("shared/f/*"), tmp_path / "shared" / "f", tmp_path / "b"):
        assert stat.S_IMODE(made.stat().st_mode) & 0o077 == 0, made


@as_root
async def test_a_group_in_which_this_user_is_alone_is_no_other(kept: Kept, tmp_path: Path) -> None:
    """Where each user has one, the usual umask is 002."""
    folder = given(tmp_path / "f", 0o775)
    await kept.upkeep.backup(str(folder))
    os.chown(folder, -1, OTHER)
    with pytest.raises(ImageError, match="so that others may write into it"):
        await kept.upkeep.backup(str(folder))


def test_links_that_lead_to_each_other_are_said(tmp_path: Path) -> None:
    linked(tmp_path / "a", linked(tmp_path / "b", tmp_path / "a"))
    assert "cannot be looked at" in hindrance(tmp_path / "a")


# --- backups


@pytest.mark.parametrize("name", [".index", ".dat", "tmp.tmp"])
async def test_a_backup_writes_through_no_link(kept: Kept, victim: Path, name: str) -> None:
    """By names that can be known before: repozo's own, of the second in which it is made."""
    for planted in [name] if name == "tmp.tmp" else stamps(name):
        linked(kept.folder / "backups" / planted, victim)
    with contextlib.suppress(ImageError):  # where a name is taken, there is none
        await kept.upkeep.backup()
    assert victim.read_bytes() == VICTIM


async def test_the_files_of_a_backup_are_for_this_user_alone(kept: Kept) -> None:
    await kept.upkeep.backup()
    await kept.image.system(lambda root: setattr(root["lobby"], "brief", "another"))
    await kept.upkeep.backup()
    folder = kept.folder / "backups"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


@as_root
@pytest.mark.parametrize("plant", [lambda at, to: given(at, 0o777, OTHER), lambda at, to: linked(at, to, OTHER)])
async def test_what_others_put_among_the_backups_is_named_and_not_written_to(
    kept: Kept, tmp_path: Path, plant: Callable[[Path, Path], object]
) -> None:
    elsewhere = given(tmp_path / "elsewhere", 0o700)
    given(tmp_path / "backups", 0o700)
    plant(tmp_path / "backups" / "blobs", elsewhere)
    with pytest.raises(ImageError, match=r"blobs belongs to \w+; move it away"):
        await kept.upkeep.backup()
    assert list(elsewhere.iterdir()) == []


async def test_nothing_is_restored_into_a_folder_that_others_may_write_into(kept: Kept, tmp_path: Path) -> None:
    await kept.upkeep.backup()
    linked(given(tmp_path / "new", 0o700) / FORK_NAME, tmp_path / "elsewhere.fs")
    with pytest.raises(ImageError, match="exists; a restore overwrites nothing"):
        backup.restore(tmp_path / "backups", tmp_path / "new" / FORK_NAME)
    given(tmp_path / "open", 0o777)
    with pytest.raises(ImageError, match="so that others may write into it"):
        backup.restore(tmp_path / "backups", tmp_path / "open" / FORK_NAME)
    assert not (tmp_path / "elsewhere.fs").exists()
    assert list((tmp_path / "open").iterdir()) == []


# --- the image


@as_root
@pytest.mark.parametrize("name", ["", ".lock", ".index", ".tmp", ".pack", ".blobs"])
async def test_an_image_beside_links_of_others_is_not_opened(tmp_path: Path, victim: Path, name: str) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "precious").touch()
    linked(tmp_path / "data" / (FORK_NAME + name), tmp_path if name == ".blobs" else victim, OTHER)
    with pytest.raises(ImageError, match=r"is a link of \w+'s"):
        await LivingImage.open(f"file://{tmp_path / 'data' / FORK_NAME}")
    assert victim.read_bytes() == VICTIM
    assert (tmp_path / "tmp" / "precious").exists()


async def test_an_image_is_made_for_this_user_alone_and_where_its_own_link_says(tmp_path: Path) -> None:
    await (await LivingImage.open(f"file://{tmp_path / 'data' / FORK_NAME}")).close()
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data" / FORK_NAME).stat().st_mode) == 0o600
    given(tmp_path / "disk", 0o700)
    linked(tmp_path / "moved" / FORK_NAME, tmp_path / "disk" / FORK_NAME)
    await (await LivingImage.open(f"file://{tmp_path / 'moved' / FORK_NAME}")).close()
    assert (tmp_path / "disk" / FORK_NAME).stat().st_size > 0


# --- what else is written


def test_keys_are_put_only_where_nobody_else_writes(tmp_path: Path) -> None:
    given(tmp_path / "open", 0o777)
    with pytest.raises(ConfigError, match="so that others may write into it"):
        keys.create(tmp_path / "open", "server")
    linked(tmp_path / "keys" / "server.key_secret", tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        keys.create(tmp_path / "keys", "server")
    assert not (tmp_path / "elsewhere").exists()
    before = os.umask(0o077)
    try:
        _, public = keys.create(tmp_path / "keys", "anna")
    finally:
        os.umask(before)
    assert stat.S_IMODE(public.stat().st_mode) == 0o644, "a public key is for others"


@as_root
def test_a_token_that_another_put_there_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "doors.token"
    path.write_text("x" * 43)
    path.chmod(0o600)
    os.chown(path, OTHER, OTHER)
    with capture_logs() as lines:
        assert token_of(tmp_path) != "x" * 43
    assert [line["event"] for line in lines] == ["console_token_replaced"]
    assert path.stat().st_uid == os.geteuid()
    os.chown(path, OTHER, OTHER)
    os.chown(tmp_path, OTHER, OTHER)
    told = token_of(tmp_path)
    assert (path.stat().st_uid, path.read_text().strip()) == (OTHER, told), "root asks for the token of another's daemon"


def test_notes_and_weights_replace_a_link(tmp_path: Path, victim: Path) -> None:
    ProcessNote.of(os.getpid()).write(linked(tmp_path / "child.json", victim))
    gguf.write(linked(tmp_path / "w.gguf", victim), {"general.architecture": "llama"}, [])
    assert victim.read_bytes() == VICTIM
    assert ProcessNote.read(tmp_path / "child.json") == ProcessNote.of(os.getpid())


# --- a whole daemon


def other(command: str, path: Path) -> subprocess.CompletedProcess[str]:
    """What another user of the machine gets."""
    words = {"read": ["cat", str(path)], "list": ["ls", "-R", str(path)]}[command]
    return subprocess.run(words, user=OTHER, group=OTHER, extra_groups=[], capture_output=True, text=True)


@as_root
def test_no_other_user_reads_what_a_daemon_keeps(public: Path, tmp_path: Path) -> None:
    """Its umask is the usual one, its folder is there, open, with the files of an earlier version."""
    data, secret = given(public / "data", 0o755), "the combination is 4711"
    old = {data / "backups" / "2020-01-01-00-00-00.fs": secret, data / "logs" / "ollama.log": secret}
    for path, text in old.items():
        path.parent.mkdir()
        path.write_text(text)
        path.chmod(0o644)
    outside = public / "outside.txt"
    outside.write_text("of everybody")
    outside.chmod(0o644)
    (data / "backups" / "link").symlink_to(outside)
    assert other("read", next(iter(old))).stdout == secret
    options = {"console": "on", "console_listen": "127.0.0.1:0"}
    with ScriptedOllama() as server, daemon(data, ollama_host=provisioned(server).host, **options) as running:
        (told,) = [line for line in running.log if line["event"] == "closed_to_others"]
        assert str(data) in told["files"]
        assert other("list", data).returncode != 0
        for path in (*old, data / FORK_NAME, data / "doors.token"):
            assert other("read", path).stdout == ""
        assert running.terminate() == 0
    data.chmod(0o755)  # each for itself, too
    for path in (data / FORK_NAME, data / (FORK_NAME + ".index"), data / (FORK_NAME + ".lock"), next(iter(old)), data / "doors.token"):
        assert other("read", path).stdout == "", path
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert stat.S_IMODE(public.stat().st_mode) == 0o711, "a folder that it merely lies in"


def test_doctor_says_what_is_open_and_where_nothing_is(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    assert doctor.files(settings).state == "ok"
    (given(settings.data, 0o700) / FORK_NAME).touch(0o600)
    assert doctor.files(settings).state == "ok"
    given(settings.data, 0o755)
    (settings.data / FORK_NAME).chmod(0o644)
    check: Any = doctor.files(settings)
    assert check.state == "warn"
    assert f"{settings.data} (mode 0755), {settings.data / FORK_NAME} (mode 0644)" in check.finding
    assert "start the daemon" in check.remedy
    given(settings.data, 0o700)
    (settings.data / FORK_NAME).chmod(0o600)
    given(tmp_path, 0o777)
    check = doctor.files(settings)
    assert "others may put another data there" in check.finding
    assert "chmod go-w" in check.finding


def test_the_command_line_makes_files_for_its_user_alone(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "batos", "keys", "new", "--data", str(tmp_path / "data")]
    subprocess.run(words, check=True, capture_output=True, cwd=tmp_path, umask=0)
    made = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert [path for path in made if path.stat().st_mode & 0o077 and path.suffix != ".key"] == []
