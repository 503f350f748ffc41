"""What of a folder is read: patterns, links, what is left out and told. And what was refused is tried again once it may be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from batos.config import Settings
from batos.image.daemon_files import DaemonFiles
from batos.memory.files import IgnoreRules, LeftOut, files_in
from batos.memory.store import library_of
from tests.support.memory import memory


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    for name in (
        "a.md",
        "b.log",
        "deep/c.md",
        "deep/build/d.md",
        "node_modules/e.md",
        "photo.jpg",
        "song.mp3",
        "x.jpg",
        ".hidden/f.md",
        "Makefile2.xyz",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Words of {name}.\n")
    return folder


def listed(folder: Path, *exclude: str) -> tuple[list[str], LeftOut]:
    left = LeftOut()
    premises = DaemonFiles(Settings(data=folder.parent / "data"))
    found = files_in(str(folder), 1000, premises, exclude=exclude, left=left)
    return [os.path.relpath(path, folder) for path in found], left


@pytest.mark.parametrize(
    ("pattern", "paths", "others"),
    [
        ("*.log", ["a.log", "d/a.log"], ["a.logs", "log"]),
        ("/a", ["a"], ["d/a"]),
        ("d/a", ["d/a"], ["x/d/a"]),
        ("**/a", ["a", "d/a", "d/e/a"], ["ab"]),
        ("d/**", ["d/a", "d/e/a"], ["d", "e"]),
        ("d/**/a", ["d/a", "d/e/a", "d/e/f/a"], ["a", "d/b"]),
        ("a?c", ["abc"], ["ac", "abbc"]),
        ("[a-c]x", ["ax", "cx"], ["dx"]),
        ("[!a-c]x", ["dx"], ["ax"]),
        ("\\#a", ["#a"], ["a"]),
        ("a\\*", ["a*"], ["ab"]),
        ("a ", ["a"], ["a "]),
        ("# a", [], ["a", "# a"]),
        ("a[[:digit:]]", ["a1"], ["ab", "a:"]),
        ("a[![:alpha:]x-z.]", ["a1"], ["ab", "ax", "a."]),
        ("a[]b]", ["a]", "ab"], ["a["]),
        ("[[]a", ["[a"], ["]a"]),
        ("[a", ["[a"], ["a"]),
        ("", [], ["a"]),
    ],
)
def test_patterns_are_those_of_git(pattern: str, paths: list[str], others: list[str]) -> None:
    rules = IgnoreRules([pattern])
    assert [path for path in (*paths, *others) if rules.says(path, False)] == paths


def test_later_patterns_take_back_and_some_are_for_folders() -> None:
    rules = IgnoreRules(["*.md", "!keep.md", "d/"])
    asked = (("a.md", False), ("keep.md", False), ("d", True), ("d", False), ("x", False))
    assert [rules.says(path, folder) for path, folder in asked] == [True, False, True, None, None]


def test_an_ignore_file_may_begin_with_a_byte_order_mark(notes: Path) -> None:
    (notes / ".gitignore").write_text("*.log\r\nnode_modules\r\n", "utf-8-sig")
    assert "b.log" not in listed(notes)[0]


def test_a_pattern_of_many_stars_is_soon_done() -> None:
    assert IgnoreRules(["*a" * 200 + "b"]).says("a" * 255, False) is None
    assert IgnoreRules(["/".join(["**", "a"] * 60) + "/b"]).says("/".join(["a"] * 500), False) is None


def test_what_is_not_read_is_counted(notes: Path) -> None:
    found, left = listed(notes)
    assert found == ["a.md", "b.log", "deep/c.md", "deep/build/d.md", "node_modules/e.md"]
    assert left.facts() == {"files": 4, "kinds": {".jpg": 2, ".xyz": 1, ".mp3": 1}, "ignored": 0, "links": [], "hidden": 1}


def test_patterns_of_the_folder_and_of_its_user(notes: Path) -> None:
    (notes / ".gitignore").write_text("*.log\nnode_modules/\n")
    (notes / "deep" / ".gitignore").write_text("/build\n!b.log\n")
    (notes / "deep" / "b.log").write_text("Words\n")
    found, left = listed(notes)
    assert (found, left.ignored) == (["a.md", "deep/b.log", "deep/c.md"], 3)
    assert listed(notes, "a.*", "!node_modules")[0] == ["deep/b.log", "deep/c.md", "node_modules/e.md"]


def test_links_are_followed_within_the_folder_and_told_where_not(notes: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("A secret.\n")
    (notes / "again.md").symlink_to(notes / "a.md")
    (notes / "hidden").symlink_to(notes / ".hidden")
    (notes / "hidden2").symlink_to(notes / ".hidden")
    (notes / "round").symlink_to(notes)
    (notes / "deep" / "up").symlink_to("..")
    (notes / "out").symlink_to(outside)
    (notes / "secret.md").symlink_to(outside / "secret.md")
    (notes / "dangling.md").symlink_to(notes / "nowhere.md")
    found, left = listed(notes)
    assert found == ["a.md", "b.log", "deep/c.md", "deep/build/d.md", "node_modules/e.md", "hidden/f.md"]
    assert {os.path.basename(path) for path in left.links} == {"out", "secret.md", "dangling.md"}


def test_a_link_that_cannot_be_read_spoils_no_look_at_its_folder(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def readlink(path: str, **more: Any) -> str:
        if str(path).endswith("cwd"):  # as of another user's process in /proc
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, **more)

    real = os.readlink
    (notes / "cwd").symlink_to(notes / "deep")
    (notes / "again.md").symlink_to(notes / "a.md")
    monkeypatch.setattr(os, "readlink", readlink)
    assert listed(notes)[0] == ["a.md", "b.log", "deep/c.md", "deep/build/d.md", "node_modules/e.md"]


async def test_a_watch_tells_what_it_leaves_out_and_keeps_to_its_patterns(notes: Path, tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        told = await held.read(follow=[notes], exclude=["*.log", "node_modules/"])
        assert (told["added"], told["left_out"]["files"], told["left_out"]["ignored"]) == (3, 4, 2)
    (notes / "new.log").write_text("A walrus.\n")
    (notes / "new.md").write_text("A narwhal.\n")
    async with memory(tmp_path) as held:
        await held.until(lambda: held.found("narwhal"))
        (followed,) = (await held.recollection.tell())["followed"]
        assert (followed["exclude"], followed["left_out"]["ignored"]) == (["*.log", "node_modules/"], 3)
        assert not held.found("walrus")


async def test_what_a_pattern_leaves_out_later_stays_until_it_is_gone(notes: Path, tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await held.read(follow=[notes])
        (notes / ".gitignore").write_text("b.log\ndeep/c.md\n")
        (notes / "b.log").unlink()
        await held.until(lambda: not held.found("log"))
        assert held.found("c")
        (notes / "deep" / "c.md").unlink()
        await held.until(lambda: not [text for text in held.found("words") if "deep/c.md" in text])


# --- refused, and tried again


def refused(held: Any) -> list[str]:
    return held.image.read(lambda root: [path for path, _ in library_of(root).refused.items()])  # type: ignore[no-any-return]


async def test_a_file_whose_rights_were_in_the_way_is_read_once_they_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("The walrus sleeps.\n")
    shut = {"now": True}
    real = os.open

    def guarded(path: Any, *args: Any, **more: Any) -> int:
        if shut["now"] and str(path).endswith("a.md"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", guarded)  # the tests run as root, whom no rights keep out
    async with memory(tmp_path) as held:
        told = await held.read(follow=[notes])
        assert "Permission denied" in told["refused"][0]["message"]
        shut["now"] = False
        await held.until(lambda: held.found("walrus"))
        assert refused(held) == []


async def test_a_file_that_was_too_large_is_read_once_the_setting_lets_it(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("The walrus sleeps. " * 100)
    (notes / "b.pdf").write_bytes(b"no PDF at all")
    async with memory(tmp_path, ingest_file_bytes=1000) as held:
        assert len((await held.read(follow=[notes]))["refused"]) == 2
    async with memory(tmp_path, ingest_file_bytes=1000) as held:
        first = held.image.read(lambda root: dict(library_of(root).refused))
        (notes / "c.md").write_text("A narwhal.\n")
        await held.until(lambda: held.found("narwhal"))
        assert held.image.read(lambda root: dict(library_of(root).refused)) == first  # nothing is another: neither is tried again
    async with memory(tmp_path) as held:
        await held.until(lambda: held.found("walrus"))
        await held.until(lambda: refused(held) == [str(notes / "b.pdf")])


async def test_a_file_that_needed_a_package_is_read_once_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.html").write_text("<p>The walrus sleeps.</p>")
    with monkeypatch.context() as patched:
        patched.setattr("batos.memory.ingest.find_spec", lambda name: None)
        async with memory(tmp_path) as held:
            refuse = "reading .html needs the package 'selectolax': pip install 'batos[documents]'"
            patched.setattr(
                held.recollection.ingest.reading,
                "read",
                lambda *_: (_ for _ in ()).throw(__import__("batos.errors").errors.Unreadable(refuse)),
            )
            assert refuse in (await held.read(follow=[notes]))["refused"][0]["message"]
    async with memory(tmp_path) as held:
        await held.until(lambda: held.found("walrus"))


async def test_what_an_earlier_version_refused_is_tried_again(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("The walrus sleeps.\n")
    os.utime(notes / "a.md", (1_000_000, 1_000_000))

    def as_it_was(root: Any) -> None:
        library = library_of(root)
        library.refused[str(notes / "a.md")] = ("unreadable", "it cannot be read: Input/output error", 1.0)
        library.stamps[str(notes / "a.md")] = (1_000_000 * 10**9, (notes / "a.md").stat().st_size)

    (tmp_path / "empty").mkdir()
    async with memory(tmp_path) as held:
        await held.image.system(as_it_was, mission="test")
        assert (await held.recollection.tell())["refused"][0]["at"] == 1.0
        await held.recollection.watcher.add(str(notes))
        await held.until(lambda: held.found("walrus"))
        assert refused(held) == []
