"""Watched folders: new, changed and deleted files; a folder that is away takes nothing with it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from batos.errors import Unreadable
from tests.support.memory import memory


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "garden.md").write_text("The tomatoes stand on the balcony.\n")
    return folder


async def test_what_happens_in_a_folder_happens_in_the_memory(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        assert (await held.read(follow=[notes]))["added"] == 1
        (notes / "deeper").mkdir()
        (notes / "deeper" / "cat.txt").write_text("The cat sleeps on the piano.\n")
        (notes / "picture.png").write_bytes(b"\x89PNG")
        (notes / ".hidden.md").write_text("A hidden walrus.\n")
        await held.until(lambda: held.found("cat piano"))
        (notes / "garden.md").write_text("The potatoes stand in the cellar.\n")
        await held.until(lambda: held.found("potatoes") and not held.found("tomatoes"))
        (notes / "deeper" / "cat.txt").unlink()
        await held.until(lambda: not held.found("cat piano"))
        assert held.look(lambda library: list(library.by_source)) == [str(notes / "garden.md")]
        assert (await held.recollection.tell())["refused"] == []
        await held.embedded()
        await held.whole()


async def test_a_folder_is_watched_after_a_restart_and_what_went_meanwhile_is_forgotten(tmp_path: Path, notes: Path) -> None:
    (notes / "cat.txt").write_text("The cat sleeps on the piano.\n")
    async with memory(tmp_path) as held:
        await held.read(follow=[notes])
    (notes / "cat.txt").unlink()
    (notes / "dog.txt").write_text("The dog has no piano.\n")
    os.utime(notes / "dog.txt", (1_000_000, 1_000_000))
    async with memory(tmp_path) as held:
        await held.until(lambda: held.found("dog") and not held.found("cat"))
        assert held.found("tomatoes")
        await held.recollection.tell(unfollow=str(notes))
        assert (await held.recollection.tell())["followed"] == []
        with pytest.raises(Unreadable, match="not watched"):
            await held.recollection.tell(unfollow=str(notes))


async def test_what_was_read_before_its_folder_was_watched_is_looked_after_from_then_on(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        await held.read(notes / "garden.md")
        assert held.look(lambda library: list(library.stamps)) == []  # of use below watched folders only
        assert (await held.read(follow=[notes]))["unchanged"] == 1
        assert held.look(lambda library: list(library.stamps)) == [str(notes / "garden.md")]
        (notes / "garden.md").unlink()
        await held.until(lambda: not held.found("tomatoes"))


async def test_the_last_file_of_a_folder_is_forgotten_too(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        await held.read(follow=[notes])
        (notes / "garden.md").unlink()
        await held.until(lambda: not held.found("tomatoes"))


async def test_a_folder_that_vanishes_takes_nothing_with_it(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        await held.read(follow=[notes])
        notes.rename(tmp_path / "elsewhere")
        await held.until(lambda: held.recollection.watcher.away)
        assert (await held.recollection.tell())["followed"] == [{"folder": str(notes), "away": f"the folder {notes} is away"}]
        notes.mkdir()  # as where a disk is not mounted
        await held.until(lambda: "is its disk mounted" in held.recollection.watcher.away.get(str(notes), ""))
        assert held.found("tomatoes")
        shutil.copy(tmp_path / "elsewhere" / "garden.md", notes)
        await held.until(lambda: not held.recollection.watcher.away)
        assert held.found("tomatoes")


@pytest.mark.parametrize("what", ["folder", "file"])
async def test_what_cannot_be_looked_at_is_not_taken_for_gone(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A network share that is away for a moment, a folder that was closed to the daemon."""
    deeper, away = notes / "deeper", False
    deeper.mkdir()
    (deeper / "cat.txt").write_text("The cat sleeps on the piano.\n")
    scandir, stat = os.scandir, os.stat

    def scanned(path: Any) -> Any:
        if away and what == "folder" and str(path) == str(deeper):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return scandir(path)

    def stated(path: Any, *args: Any, **more: Any) -> Any:
        if away and what == "file" and str(path) == str(deeper / "cat.txt"):
            raise OSError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *args, **more)

    async with memory(tmp_path) as held:
        await held.read(follow=[notes])
        assert held.found("cat piano")
        monkeypatch.setattr(os, "scandir", scanned)
        monkeypatch.setattr(os, "stat", stated)
        away = True
        for name in ("walrus", "zebra", "otter"):  # each is read at the second look at it
            (notes / f"{name}.md").write_text(f"The {name} swims.\n")
            await held.until(lambda name=name: held.found(name))  # type: ignore[misc]
        assert held.found("cat piano")
        away = False
        (deeper / "cat.txt").unlink()
        await held.until(lambda: not held.found("cat piano"))


async def test_only_a_folder_can_be_watched(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        for path, why in (
            (notes / "garden.md", "no folder, but a file"),
            (tmp_path / "nothing", "not there"),
            (Path("notes"), "not an absolute"),
        ):
            with pytest.raises(Unreadable, match=why):
                await held.read(follow=[path])


async def test_a_file_that_cannot_be_read_is_not_tried_again_until_it_changes(tmp_path: Path, notes: Path) -> None:
    (notes / "junk.txt").write_bytes(bytes(range(256)) * 4)
    async with memory(tmp_path) as held:
        heard: list[str] = []
        held.recollection.ingest.listen(lambda event: heard.append(f"{Path(event['path']).name} {event['state']}"))
        await held.read(follow=[notes])
        (notes / "later.txt").write_text("Later there was more.\n")
        await held.until(lambda: held.found("later"))
        assert heard.count("junk.txt refused") == 1
        (notes / "junk.txt").write_text("A text at last.\n")
        await held.until(lambda: held.found("text at last"))
        assert (await held.recollection.tell())["refused"] == []


async def test_what_is_forgotten_in_a_watched_folder_comes_back_when_it_changes(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        await held.read(follow=[notes])
        await held.recollection.tell(forget=str(notes / "garden.md"))
        (notes / "later.txt").write_text("Later there was more.\n")
        await held.until(lambda: held.found("later"))  # the folder was looked through meanwhile
        assert held.found("tomatoes") == []
        (notes / "garden.md").write_text("The tomatoes are back.\n")
        await held.until(lambda: held.found("tomatoes"))
