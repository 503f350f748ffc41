"""What is the daemon's own: closed to others at the start, and never read into the memory, by whatever name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from batos import private_files
from batos.config import Settings
from batos.errors import Unreadable
from batos.image import daemon_files
from batos.image.backup import FORK_NAME
from tests.support.memory import QUICK, memory

OTHER = 65534
SECRET = "The combination of the safe is walrus.\n"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def laid(folder: Path, mode: int = 0o644) -> Settings:
    """The files of an earlier version, open to all."""
    for name in (
        FORK_NAME,
        f"{FORK_NAME}.index",
        f"{FORK_NAME}.blobs/0x1/a.blob",
        "backups/a.fs",
        "backups/blobs/0x1/a.blob",
        "keys/clients/anna.key",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(SECRET)
        (folder / name).chmod(mode)
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    return Settings(data=folder)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}


# --- closed to others


def test_what_is_open_is_closed_and_said_once(tmp_path: Path) -> None:
    settings = laid(tmp_path / "data")
    above = tmp_path.stat().st_mode
    with capture_logs() as lines:
        done = daemon_files.close_files(settings)
    assert {name: oct(mode) for name, mode in modes(settings.data).items() if mode & 0o077 and "keys/" not in name} == {}
    assert tmp_path.stat().st_mode == above
    (line,) = lines
    assert (line["event"], line["count"]) == ("closed_to_others", len(done.closed))
    assert str(settings.data) in line["files"]
    assert str(settings.data / FORK_NAME) in done.closed
    with capture_logs() as lines:
        assert daemon_files.close_files(settings) == ([], {})
    assert lines == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    settings, outside = laid(tmp_path / "data"), tmp_path / "outside"
    (outside / "in").mkdir(parents=True)
    (outside / "page.html").write_text("of everybody")
    for path in (outside, outside / "in", outside / "page.html"):
        path.chmod(0o755)
    (settings.data / "logs").symlink_to(outside)
    (settings.data / "backups" / "in").symlink_to(outside / "in")
    (settings.data / f"{FORK_NAME}.old").symlink_to(outside / "page.html")
    before = modes(outside)
    daemon_files.close_files(settings)
    assert modes(outside) == before


def test_a_data_folder_that_is_a_link_of_ones_own_is_closed_where_it_is(tmp_path: Path) -> None:
    laid(tmp_path / "disk")
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    daemon_files.close_files(Settings(data=tmp_path / "data"))
    assert (tmp_path / "disk").stat().st_mode & 0o077 == 0
    assert (tmp_path / "disk" / FORK_NAME).stat().st_mode & 0o077 == 0


@as_root
def test_what_is_of_another_is_said_and_keeps_nobody_from_starting(tmp_path: Path) -> None:
    settings = laid(tmp_path / "data")
    os.chown(settings.data / FORK_NAME, OTHER, OTHER)
    with capture_logs() as lines:
        done = daemon_files.close_files(settings)
    assert list(done.left) == [str(settings.data / FORK_NAME)]
    assert "belongs to" in done.left[str(settings.data / FORK_NAME)]
    assert [line["event"] for line in lines] == ["closed_to_others", "open_to_others"]
    assert (settings.data / FORK_NAME).stat().st_mode & 0o777 == 0o644


def test_a_file_system_that_keeps_no_modes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = laid(tmp_path / "data")
    monkeypatch.setattr(private_files.os, "fchmod", lambda descriptor, mode: None)
    with capture_logs() as lines:
        done = daemon_files.close_files(settings)
    assert not done.closed
    assert len(done.left) > 8
    (line,) = lines
    assert (line["event"], line["count"], len(line["files"])) == ("open_to_others", len(done.left), 8)
    assert "keeps no modes" in done.left[str(settings.data)]


@pytest.mark.parametrize("shared", ["home", "sticky"])
def test_a_folder_that_is_there_for_more_than_the_data_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str) -> None:
    settings = laid(tmp_path / "data")
    settings.data.chmod(0o1777 if shared == "sticky" else 0o755)
    if shared == "home":
        monkeypatch.setenv("HOME", str(settings.data))
    before = settings.data.stat().st_mode
    daemon_files.close_files(settings)
    assert settings.data.stat().st_mode == before
    assert (settings.data / FORK_NAME).stat().st_mode & 0o077 == 0, "its own files are closed"


def test_backups_in_a_folder_of_ones_own_choice_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2020-01-01-00-00-00.fs").write_text(SECRET)
    before = modes(tmp_path / "b")
    daemon_files.close_files(laid(tmp_path / "data").model_copy(update={"backup_folder": str(tmp_path / "b")}))
    assert modes(tmp_path / "b") == before


# --- not read into the memory


def by_name(data: Path, notes: Path) -> Path:
    return data / "logs" / "diary.md"


def below(data: Path, notes: Path) -> Path:
    return data / "backups" / "deep" / "diary.md"


def by_dots(data: Path, notes: Path) -> Path:
    return notes / ".." / "data" / "logs" / "diary.md"


def by_link(data: Path, notes: Path) -> Path:
    (notes / "link.md").symlink_to(data / "logs" / "diary.md")
    return notes / "link.md"


def by_folder(data: Path, notes: Path) -> Path:
    (notes / "way").symlink_to(data)
    return notes / "way" / "logs" / "diary.md"


def by_hard_link(data: Path, notes: Path) -> Path:
    os.link(data / "logs" / "diary.md", notes / "other.md")
    return notes / "other.md"


def the_folder(data: Path, notes: Path) -> Path:
    return data


def a_folder_of_it(data: Path, notes: Path) -> Path:
    return data / "backups"


def a_link_to_the_folder(data: Path, notes: Path) -> Path:
    (notes / "way").symlink_to(data)
    return notes / "way"


def a_secret_elsewhere(data: Path, notes: Path) -> Path:
    return notes / "server.txt"


def a_client_s_key(data: Path, notes: Path) -> Path:
    (notes / "anna.key_secret").write_text(SECRET)
    return notes / "anna.key_secret"


FOLDERS = [the_folder, a_folder_of_it, a_link_to_the_folder]
FILES = [by_name, below, by_dots, by_link, by_folder, by_hard_link, a_secret_elsewhere, a_client_s_key]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    for folder in (tmp_path / "notes", tmp_path / "data" / "logs", tmp_path / "data" / "backups" / "deep"):
        folder.mkdir(parents=True)
        (folder / "diary.md").write_text(SECRET)
    (tmp_path / "notes" / "server.txt").write_text(SECRET)
    (tmp_path / "notes" / "diary.md").write_text("The tomatoes stand on the balcony.\n")
    return tmp_path / "notes"


@pytest.mark.parametrize("way", FOLDERS + FILES)
async def test_it_is_refused_by_whatever_name_it_has(tmp_path: Path, notes: Path, way: Callable[[Path, Path], Path]) -> None:
    path = way(tmp_path / "data", notes)
    async with memory(tmp_path, curve_secret=str(notes / "server.txt")) as held:
        told = await held.read(path, notes / "diary.md")
        assert [(one["code"], "daemon's own" in one["message"]) for one in told["refused"]] == [("unreadable", True)]
        assert held.found("walrus") == []
        assert len(held.found("tomatoes")) == 1
        if way is not by_hard_link:  # of that it is known once it is open
            with pytest.raises(Unreadable, match="the daemon's own"):
                await held.read(path)


async def test_notes_that_a_user_put_into_the_data_folder_are_read_by_their_own_name(tmp_path: Path, notes: Path) -> None:
    mine = tmp_path / "data" / "notes"
    mine.mkdir()
    (mine / "garden.md").write_text("The herons stand by the pond.\n")
    async with memory(tmp_path) as held:
        assert (await held.read(mine))["added"] == 1
        assert len(held.found("herons")) == 1


async def test_in_a_folder_that_is_read_it_is_skipped_and_told(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path, curve_secret=str(notes / "server.txt")) as held:
        told = await held.read(tmp_path)
        assert {one["path"] for one in told["refused"]} == {str(tmp_path / "data"), str(notes / "server.txt")}
        assert told["added"] == 1
        assert held.found("walrus") == []
        assert (await held.read(f"{tmp_path}/"))["unchanged"] == 1


async def test_in_a_watched_folder_it_is_skipped_also_what_comes_later(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path, **QUICK) as held:
        told = await held.read(follow=[tmp_path])
        assert str(tmp_path / "data") in {one["path"] for one in told["refused"]}
        (tmp_path / "data" / "logs" / "later.md").write_text(SECRET)
        os.link(tmp_path / "data" / "logs" / "later.md", notes / "later.md")
        (notes / "new.md").write_text("The heron stands by the pond.\n")
        await held.until(lambda: held.found("heron") and str(notes / "later.md") in held.look(lambda library: dict(library.refused)))
        assert [text for text in held.found("walrus") if text] == [SECRET], "of notes/server.txt alone, no secret here"
        with pytest.raises(Unreadable, match="the daemon's own"):
            await held.recollection.watcher.add(str(tmp_path / "data"))


async def test_what_becomes_a_link_while_it_waits_is_not_read(tmp_path: Path, notes: Path) -> None:
    """Looked at again when it is open: between the asking and the reading it may be replaced."""
    async with memory(tmp_path) as held, held.recollection.ingest.alone:
        (notes / "later.md").write_text("Nothing yet.\n")
        asked = await held.recollection.ask([str(notes / "later.md")], [])
        (notes / "later.md").unlink()
        (notes / "later.md").symlink_to(tmp_path / "data" / "logs" / "diary.md")
        held.recollection.ingest.alone.release()
        told = await asked.done(lambda event: None)
        await held.recollection.ingest.alone.acquire()
        assert [one["path"] for one in told["refused"]] == [str(notes / "later.md")]
        assert held.found("walrus") == []


async def test_a_file_of_many_names_that_is_none_of_ours_is_read(tmp_path: Path, notes: Path) -> None:
    os.link(notes / "diary.md", notes / "twin.md")
    async with memory(tmp_path) as held:
        told = await held.read(notes / "twin.md")
        assert (told["added"], told["refused"]) == (1, [])
