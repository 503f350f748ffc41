"""Folder connections: what is read and changed, what is refused, and changes that are made once and can be taken back."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from batos.errors import InvalidInput, ToolFailed
from batos.tools import folder_changes
from batos.tools import folders as folders_module
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolCall, check_definitions
from batos.tools.folders import READING, WRITING, FolderConnector

AT_6: dict[str, Any] = {"from": 6}
AT_99: dict[str, Any] = {"from": 99}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.md").write_text("first line\nThe second LINE\n")
    (folder / "deep" / "b.md").write_text("nothing\n")
    return folder


class Hand:
    """Calls tools of one folder as effects do."""

    def __init__(self, place: Path, kept: Path, **options: Any) -> None:
        self.services = ConnectorServices(secret=str, folder=kept)
        self.connector = FolderConnector(ConnectionSpec("notes", "folder", str(place), options), self.services)

    async def prepare(self, name: str, **arguments: Any) -> ToolCall:
        tool = next(tool for tool in READING + WRITING if tool.name == name)
        return await self.connector.prepare(tool, arguments)

    async def call(self, tool: str, /, key: str = "", **arguments: Any) -> Any:
        return await (await self.prepare(tool, **arguments)).send(Delivery(key))


@pytest.fixture
def hand(place: Path, tmp_path: Path) -> Hand:
    return Hand(place, tmp_path / "kept", writable=True)


def content(place: Path) -> dict[str, str]:
    return {str(file.relative_to(place)): file.read_text() for file in sorted(place.rglob("*")) if file.is_file()}


# --- the connection


async def test_a_folder_for_reading_offers_reading_alone(place: Path, tmp_path: Path) -> None:
    hand = Hand(place, tmp_path / "kept")
    tools = await hand.connector.tools()
    check_definitions("notes", tools, hand.services.limits)
    assert [tool.name for tool in tools] == ["list", "read", "search"]
    assert all((tool.private, tool.untrusted, tool.outward) == (True, True, False) for tool in tools)
    with pytest.raises(ToolFailed, match="only read"):
        await hand.call("write", path="x", text="y")


async def test_a_writable_folder_offers_changes_too(hand: Hand) -> None:
    tools = await hand.connector.tools()
    check_definitions("notes", tools, hand.services.limits)
    kinds = {tool.name: tool.kind for tool in tools if tool.outward}
    assert kinds == {"write": "idempotent", "append": "keyed", "move": "verifiable", "delete": "verifiable", "restore": "idempotent"}
    assert (await hand.prepare("write", path="./deep//b.md", text="")).target == "notes/deep/b.md"


@pytest.mark.parametrize(
    ("where", "options"),
    [("notes", {}), ("~/notes", {}), ("", {}), ("/a\0b", {}), ("/a", {"writeable": True}), ("/a", {"writable": "yes"})],
)
def test_a_connection_that_is_not_valid_is_refused(where: str, options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        FolderConnector(ConnectionSpec("notes", "folder", where, options), ConnectorServices(secret=str, folder=tmp_path))


async def test_a_folder_that_is_gone_or_a_file_is_told(hand: Hand, place: Path) -> None:
    place.rename(place.with_name("away"))
    for name, arguments in (("list", {}), ("read", {"path": "a.md"}), ("write", {"path": "a.md", "text": "x"})):
        with pytest.raises(ToolFailed, match="not there; make it or bring it back") as failed:
            await hand.call(name, **arguments)
        assert failed.value.sure
    place.write_text("a file")
    with pytest.raises(ToolFailed, match="not a folder"):
        await hand.connector.tools()


# --- reading


async def test_a_list_shows_every_kind_and_names_that_are_not_text(hand: Hand, place: Path) -> None:
    os.mkfifo(place / "pipe")
    (place / "link").symlink_to("/etc/passwd")
    os.close(os.open(os.fsencode(place) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    found = await hand.call("list")
    json.dumps(found).encode()
    assert {entry["name"]: entry["kind"] for entry in found["entries"]} == {
        "a.md": "file", "caf\\xe9": "file", "deep": "folder", "link": "link", "pipe": "fifo",
    }  # fmt: skip
    assert next(entry["bytes"] for entry in found["entries"] if entry["name"] == "a.md") == 27
    assert [entry["name"] for entry in (await hand.call("list", path="deep"))["entries"]] == ["b.md", "er"]


async def test_a_list_is_bounded(hand: Hand, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders_module, "LISTED", 1)
    found = await hand.call("list")
    assert ([entry["name"] for entry in found["entries"]], found["left_out"]) == (["a.md"], 1)


async def test_a_text_is_read_in_parts(hand: Hand, place: Path) -> None:
    (place / "long").write_text("äbcdefgh")
    assert await hand.call("read", path="long", chars=3) == {"path": "long", "text": "äbc", "from": 0, "chars": 8, "next": 3}
    assert await hand.call("read", path="long", **AT_6) == {"path": "long", "text": "gh", "from": 6, "chars": 8}
    assert (await hand.call("read", path="long", **AT_99))["text"] == ""


async def test_what_is_not_a_plain_text_file_is_refused_without_waiting(hand: Hand, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(place / "fifo")
    (place / "link").symlink_to("a.md")
    (place / "binary").write_bytes(b"a\0b")
    monkeypatch.chdir(place)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path, why in (
            ("fifo", "is a fifo"), ("link", "is a link"), ("socket", "is a socket"), ("binary", "not a text file"), ("deep", "is a folder"),
            ("missing", "nothing of that name"), ("a.md/x", "a file or a link"), ("link/x", "a file or a link"), ("x" * 300, "too long"),
        ):  # fmt: skip
            with pytest.raises(ToolFailed, match=why):
                await hand.call("read", path=path)
        for path in ("fifo", "link", "socket"):
            for name, more in (("write", {"text": "x"}), ("append", {"text": "x"}), ("delete", {}), ("move", {"to": "new"})):
                with pytest.raises(ToolFailed) as failed:
                    await hand.call(name, path=path, **more)
                assert failed.value.sure
    (place / "large").write_bytes(b"x" * (folders_module.FILE_BYTES + 1))
    with pytest.raises(ToolFailed, match="larger than"):
        await hand.call("read", path="large")
    assert (place / "a.md").read_text() == "first line\nThe second LINE\n"


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "../x", "deep/../../x", "a\0b", "x/" * 65 + "y", "y" * 5000, "\ud800"])
async def test_a_path_out_of_the_folder_is_refused(hand: Hand, path: str) -> None:
    for name, more in (("list", {}), ("read", {}), ("write", {"text": ""}), ("delete", {})):
        with pytest.raises(InvalidInput, match="path"):
            await hand.call(name, path=path, **more)
    with pytest.raises(InvalidInput, match="path"):
        await hand.call("move", path="a.md", to=path)


async def test_a_search_finds_lines_and_follows_no_link(hand: Hand, place: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("a line outside")
    (place / "link").symlink_to(tmp_path / "outside")
    (place / "up").symlink_to(tmp_path)
    (place / "binary").write_bytes(b"line\0")
    os.mkfifo(place / "fifo")
    (place / "deep" / "er" / "c").write_text("x" * 1000 + " Line " + "y" * 1000)
    found = await hand.call("search", text="LINE")
    assert [(hit["path"], hit["line"]) for hit in found["hits"]] == [("a.md", 1), ("a.md", 2), ("deep/er/c", 1)]
    assert "Line" in found["hits"][2]["text"]
    assert len(found["hits"][2]["text"]) == 300
    assert len((await hand.call("search", text="line", path="deep"))["hits"]) == 1
    with pytest.raises(ToolFailed, match="empty"):
        await hand.call("search", text="")


async def test_a_search_is_bounded(hand: Hand, place: Path) -> None:
    (place / "many").write_text("line\n" * 500)
    found = await hand.call("search", text="line")
    assert len(found["hits"]) == folders_module.HITS
    assert "stopped" in found


async def test_the_daemons_own_folders_are_not_entered(tmp_path: Path, place: Path) -> None:
    data = place / "batos"
    (data / "tools").mkdir(parents=True)
    (data / "secrets.json").write_text("s3cret line")
    hand = Hand(place, data / "tools", writable=True)
    for path in ("batos", "batos/tools"):
        with pytest.raises(ToolFailed, match="belongs to BAT OS"):
            await hand.call("list", path=path)
    with pytest.raises(ToolFailed, match="belongs to BAT OS"):
        await hand.call("read", path="batos/secrets.json")
    assert (await hand.call("search", text="s3cret"))["hits"] == []


# --- changing


async def test_a_file_is_written_anew_or_replaced_with_its_mode(hand: Hand, place: Path) -> None:
    (place / "a.md").chmod(0o640)
    found = await hand.call("write", "k1", path="a.md", text="new ü")
    assert found == {"path": "a.md", "bytes": 6, "replaced": True, "change": "k1"}
    assert ((place / "a.md").read_text(), (place / "a.md").stat().st_mode & 0o777) == ("new ü", 0o640)
    assert (await hand.call("write", "k2", path="new/folder/c.md", text="c"))["replaced"] is False
    assert content(place)["new/folder/c.md"] == "c"
    assert not [name for name in os.listdir(place) if name.endswith("batos-part")]


async def test_a_hard_link_is_replaced_and_its_other_name_stays(hand: Hand, place: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    os.link(outside, place / "hard")
    await hand.call("write", path="hard", text="theirs")
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("text", ["x" * (folders_module.TEXT_BYTES + 1), "\ud800"])
async def test_a_text_that_no_file_can_hold_is_refused(hand: Hand, place: Path, text: str) -> None:
    for name in ("write", "append"):
        with pytest.raises(InvalidInput):
            await hand.call(name, path="a.md", text=text)
    assert (place / "a.md").read_text().startswith("first")


async def test_a_read_only_file_stays(hand: Hand, place: Path) -> None:
    (place / "a.md").chmod(0o444)
    for name, more in (("write", {"text": "x"}), ("append", {"text": "x"}), ("delete", {})):
        with pytest.raises(ToolFailed, match="read-only"):
            await hand.call(name, path="a.md", **more)


async def test_an_append_that_is_sent_again_adds_once(hand: Hand, place: Path) -> None:
    for _ in range(3):
        found = await hand.call("append", "k", path="log", text="one\n")
    assert found["size"] == 4
    await hand.call("append", "other", path="log", text="one\n")
    assert (place / "log").read_text() == "one\none\n"


@pytest.mark.parametrize(
    ("tail", "after"),
    [("", "old-new"), ("-n", "old-new"), ("-new", "old-new"), ("x-new", "oldx-new"), ("x", "oldx-new")],
)
async def test_an_append_that_was_cut_off_is_completed(hand: Hand, place: Path, tail: str, after: str) -> None:
    (place / "log").write_text("old")
    await hand.call("append", "k", path="log", text="-new")
    (place / "log").write_text("old" + tail)
    await hand.call("append", "k", path="log", text="-new")
    assert (place / "log").read_text() == after


@pytest.mark.parametrize("now", ["ol", "old-nXX"])
async def test_an_append_of_which_nobody_can_tell_is_left_open(hand: Hand, place: Path, now: str) -> None:
    (place / "log").write_text("old")
    await hand.call("append", "k", path="log", text="-new")
    (place / "log").write_text(now)
    with pytest.raises(OSError, match="another program"):
        await hand.call("append", "k", path="log", text="-new")
    assert (place / "log").read_text() == now


async def test_a_move_replaces_nothing_and_is_made_once(hand: Hand, place: Path) -> None:
    with pytest.raises(ToolFailed, match="is there already"):
        await hand.call("move", path="a.md", to="deep/b.md")
    call = await hand.prepare("move", path="a.md", to="new/c.md")
    assert call.look is not None
    assert await call.look() is None
    for _ in range(2):
        await call.send(Delivery("k"))
    assert await call.look() == {"path": "a.md", "to": "new/c.md"}
    assert content(place) == {"deep/b.md": "nothing\n", "new/c.md": "first line\nThe second LINE\n"}
    (place / "a.md").write_text("another")
    await call.send(Delivery("k"))
    assert (place / "a.md").read_text() == "another"
    with pytest.raises(ToolFailed, match="nothing of that name"):
        await hand.call("move", path="missing", to="x")


async def test_a_folder_is_moved_but_not_into_itself(hand: Hand, place: Path) -> None:
    with pytest.raises(ToolFailed):
        await hand.call("move", path="deep", to="deep/er/x")
    await hand.call("move", path="deep", to="shallow")
    assert (place / "shallow" / "b.md").exists()


async def test_a_deletion_is_made_once(hand: Hand, place: Path) -> None:
    call = await hand.prepare("delete", path="a.md")
    assert call.look is not None
    assert await call.look() is None
    await call.send(Delivery("k"))
    assert await call.look() == {"path": "a.md"}
    (place / "a.md").write_text("another of that name")
    await call.send(Delivery("k"))
    assert (place / "a.md").read_text() == "another of that name"
    with pytest.raises(ToolFailed, match="not empty"):
        await hand.call("delete", path="deep")
    await hand.call("delete", path="deep/er")
    assert not (place / "deep" / "er").exists()


# --- taking back


@pytest.mark.parametrize(
    ("tool", "path", "more"),
    [
        ("write", "a.md", {"text": "new"}),
        ("write", "fresh/new.md", {"text": "new"}),
        ("append", "a.md", {"text": "more"}),
        ("append", "fresh/new.md", {"text": "more"}),
        ("delete", "a.md", {}),
        ("move", "a.md", {"to": "deep/c.md"}),
    ],
)
async def test_a_change_is_taken_back(hand: Hand, place: Path, tool: str, path: str, more: dict[str, Any]) -> None:
    before = content(place)
    await hand.call(tool, "k", path=path, **more)
    assert content(place) != before
    for _ in range(2):  # the second is the same sending again
        assert (await hand.call("restore", "back", path=path))["restored"] == "k"
        assert content(place) == before
    with pytest.raises(ToolFailed, match="no change"):
        await hand.call("restore", "once more", path=path)
    with pytest.raises(ToolFailed, match="already"):
        await hand.call("restore", "once more", path=path, change="k")


async def test_changes_are_taken_back_one_after_the_other(hand: Hand, place: Path) -> None:
    for text in ("1", "2", "3"):
        await hand.call("write", f"k{text}", path="f", text=text)
    for left in ("2", "1"):
        await hand.call("restore", path="f")
        assert (place / "f").read_text() == left
    await hand.call("restore", path="f")
    assert not (place / "f").exists()


async def test_a_file_that_changed_since_is_not_taken_back(hand: Hand, place: Path) -> None:
    await hand.call("write", "k", path="a.md", text="new")
    (place / "a.md").write_text("edited by its user")
    with pytest.raises(ToolFailed, match="changed since"):
        await hand.call("restore", path="a.md")
    assert (place / "a.md").read_text() == "edited by its user"


async def test_a_deleted_folder_comes_back(hand: Hand, place: Path) -> None:
    await hand.call("delete", path="deep/er")
    await hand.call("restore", path="deep/er")
    assert (place / "deep" / "er").is_dir()


async def test_what_could_not_be_kept_is_told(hand: Hand, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders_module, "FILE_BYTES", 5)
    found = await hand.call("write", path="a.md", text="x")
    assert "larger than" in found["not_kept"]
    with pytest.raises(ToolFailed, match="as it was before is not kept"):
        await hand.call("restore", path="a.md")


async def test_kept_files_are_bounded_and_the_oldest_go(hand: Hand, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_changes, "COPIES", 3)
    for n in range(6):
        await hand.call("write", f"k{n}", path="a.md", text=str(n))
    for n in (4, 3):
        await hand.call("restore", path="a.md", change=f"k{n + 1}")
        assert (place / "a.md").read_text() == str(n)
        monkeypatch.setattr(folder_changes, "COPIES", 99)
    with pytest.raises(ToolFailed, match="not kept any more"):
        await hand.call("restore", path="a.md")


# --- failures of the disk


async def test_a_full_disk_leaves_the_file_as_it_was(hand: Hand, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await hand.call("write", "first", path="warm", text="x")
    real = os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(place)):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolFailed, match="disk is full") as failed:
        await hand.call("write", path="a.md", text="x" * 100)
    assert failed.value.sure
    assert (place / "a.md").read_text().startswith("first")
    assert sorted(os.listdir(place)) == ["a.md", "deep", "warm"]


async def test_an_append_that_meets_a_full_disk_is_taken_back(hand: Hand, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def short(descriptor: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}") != str(place / "a.md"):
            return real(descriptor, data)
        if len(data) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:3])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(ToolFailed, match="disk is full"):
        await hand.call("append", path="a.md", text="12345")
    assert (place / "a.md").read_text() == "first line\nThe second LINE\n"


async def test_a_change_that_cannot_be_noted_is_not_made_where_it_could_be_made_twice(hand: Hand, place: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file where the folder should be")
    assert "could not be kept" in (await hand.call("write", path="a.md", text="x"))["not_kept"]
    for name, more in (("append", {"text": "x"}), ("delete", {}), ("move", {"to": "y"})):
        with pytest.raises(ToolFailed, match="cannot be noted"):
            await hand.call(name, path="a.md", **more)
    assert (place / "a.md").read_text() == "x"


async def test_an_error_after_the_replacement_leaves_it_open(hand: Hand, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, target = os.fsync, str(place)

    def broken(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == target:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        await hand.call("write", path="a.md", text="x")


async def test_a_move_falls_back_where_the_file_system_does_not_know_the_flag(
    hand: Hand, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    await hand.call("move", path="a.md", to="c.md")
    assert (place / "c.md").exists()


async def test_writers_at_the_same_time_take_turns(hand: Hand, place: Path) -> None:
    await asyncio.gather(*(hand.call("append", f"k{n}", path="log", text=f"{n}\n") for n in range(20)))
    assert sorted((place / "log").read_text().split(), key=int) == [str(n) for n in range(20)]
