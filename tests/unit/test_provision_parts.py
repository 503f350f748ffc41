"""The parts of provisioning: what was built, room on disk, news, and which registries are on this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from ollama import ProgressResponse
from structlog.testing import capture_logs

from batos.bridge.downloads import DiskSpace, _Anew, _Transfer, on_loopback
from batos.bridge.model_builder import BuiltModels
from batos.bridge.model_status import (
    EVENT_GAP_S,
    LINE_BYTES,
    LINE_DUE_S,
    ModelProgress,
    ModelStatus,
    ModelUnavailable,
    PullAllowance,
    Reports,
)
from batos.config import MIB


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("127.0.0.1:5000/batos/m:1", True), ("127.8.9.1/a/b", True), ("localhost:5000/a/b:c", True), ("[::1]:5000/a/b", True),
        ("http://localhost:5000/a/b", True), ("localhost", False), ("llama3.1:8b", False), ("library/llama3", False),
        ("10.0.0.1:5000/a/b", False), ("localhost.example.com/a/b", False), ("registry.example.com/a/b", False),
    ],
)  # fmt: skip
def test_registries_on_this_machine(name: str, local: bool) -> None:
    assert on_loopback(name) == local


# --- what was built


def test_what_was_built_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a" / "built.json"
    built = BuiltModels(path)
    assert not built.knows("m", "d1")
    built.note("m", "d1", "f1")
    again = BuiltModels(path)
    assert again.knows("m", "d1")
    assert again.fits("m", "d1", "f1")
    assert not again.fits("m", "d1", "f2")
    assert not again.knows("m", "d2")


@pytest.mark.parametrize(
    "junk",
    ["", "{", "[]", '{"version": 1}', '{"version": 1, "models": {"m": 3}, "files": {}}', '{"version": 1, "models": [], "files": {}}'],
)
def test_a_damaged_memory_is_an_empty_one(tmp_path: Path, junk: str) -> None:
    path = tmp_path / "built.json"
    path.write_text(junk)
    with capture_logs() as logs:
        built = BuiltModels(path)
    assert "built again" in logs[0]["event"]
    built.note("m", "d", "f")
    assert BuiltModels(path).fits("m", "d", "f")


def test_a_memory_of_another_version_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "built.json"
    path.write_text('{"version": 99}')
    assert not BuiltModels(path).knows("m", "d")


def test_a_memory_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "built.json").mkdir()
    with capture_logs() as logs:
        built = BuiltModels(tmp_path / "built.json")
        built.note("m", "d", "f")
    assert built.fits("m", "d", "f")
    assert "cannot be kept" in logs[-1]["event"]


async def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "w"
    file.write_text("one")
    built = BuiltModels(tmp_path / "built.json")
    digest = await built.digest_of(file)
    built.note("m", "d", "f")
    stat = file.stat()
    file.write_text("two")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert await BuiltModels(tmp_path / "built.json").digest_of(file) == digest  # same size, same time: not read
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert await BuiltModels(tmp_path / "built.json").digest_of(file) != digest


async def test_files_are_read_while_others_are_noted(tmp_path: Path) -> None:
    """Reading is done in threads, and what is noted is written meanwhile."""
    built = BuiltModels(tmp_path / "built.json")
    files = [tmp_path / f"w{n}" for n in range(200)]
    for file in files:
        file.write_text(file.name)

    async def read(n: int) -> None:
        await built.digest_of(files[n])
        built.note(f"m{n}", "d", "f")

    await asyncio.gather(*map(read, range(len(files))))
    again = BuiltModels(tmp_path / "built.json")
    assert all(again.fits(f"m{n}", "d", "f") for n in range(len(files)))


# --- room on disk


def disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr("batos.bridge.downloads.shutil.disk_usage", lambda _: type("Usage", (), {"free": free}))


def test_room_counts_what_is_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, 100 * MIB)
    room = DiskSpace(tmp_path / "not" / "yet", reserve=10 * MIB)
    room.claim("a", 90 * MIB)
    with pytest.raises(
        ModelUnavailable, match=r"1 MiB are needed, .* has 100 MiB free, 90 MiB are on their way already, and 10 MiB stay free"
    ):
        room.claim("b", MIB)
    room.update("a", 80 * MIB)
    room.claim("b", 10 * MIB)
    room.release("a")
    room.claim("b", 90 * MIB)  # its own former claim does not stand in its way
    with pytest.raises(ModelUnavailable) as error:
        room.claim("c", 50 * MIB)
    assert "free 50 MiB there" in error.value.remedy


def test_nothing_needed_always_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, 0)
    DiskSpace(tmp_path, reserve=MIB).claim("a", 0)
    DiskSpace(None, reserve=MIB).claim("a", 2**60)  # not on this machine: not known


# --- news


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def steps(reports: Reports, clock: Clock, total: int, count: int, gap_s: float) -> None:
    for n in range(count + 1):
        reports.step(ModelProgress("m", "pulling", "sha256:1", total * n // count, total))
        clock.now += gap_s


def test_events_come_at_a_bounded_pace() -> None:
    clock, events = Clock(), []  # type: ignore[var-annotated]
    reports = Reports(clock)
    stop = reports.watch(events.append)
    steps(reports, clock, 1000, 1000, EVENT_GAP_S / 50)
    assert len(events) <= 1 + 1000 / 50 + 2
    assert [e["completed"] for e in (events[0], events[-1])] == [0, 1000]
    stop()
    reports.step(ModelProgress("m", "verifying"))
    assert events[-1]["status"] == "pulling"


def test_a_watch_begins_with_what_is_under_way() -> None:
    reports, events = Reports(Clock()), []  # type: ignore[var-annotated]
    reports.step(ModelProgress("m", "pulling", "sha256:1", 3, 9))
    reports.watch(events.append)
    assert events == [{"type": "progress", "model": "m", "status": "pulling", "layer": "sha256:1", "completed": 3, "total": 9}]
    reports.over("m")
    reports.status(ModelStatus("m", "pulled"))
    late: list[dict[str, Any]] = []
    reports.watch(late.append)
    assert late == []
    assert events[-1] == {"type": "model", "name": "m", "state": "pulled", "detail": "", "remedy": "", "cause": ""}


@pytest.mark.parametrize(("gap_s", "lines"), [(0.001, 2), (0.1, 11), (10.0, 1001)])
def test_lines_of_the_log_are_few(gap_s: float, lines: int) -> None:
    """A fast layer has its first and its last; one at a common pace one each tenth; a slow one a sign of life now and then."""
    assert LINE_DUE_S == 10.0
    clock = Clock()
    with capture_logs() as logs:
        steps(Reports(clock), clock, 10 * LINE_BYTES, 1000, gap_s)
        steps(Reports(clock), clock, LINE_BYTES - 1, 10, 1)  # too small to speak of
    assert len(logs) == lines
    assert (logs[0]["percent"], logs[-1]["percent"]) == (0, 100)


# --- a pull is begun anew now and then


def heard(transfer: _Transfer, completed: int, layer: str = "sha256:1", total: int = 100) -> bool:
    """Whether the transfer is broken off there."""
    try:
        transfer.hear(ProgressResponse(status="pulling", digest=layer, completed=completed, total=total))
    except _Anew:
        return True
    return False


def test_a_transfer_is_broken_off_where_that_costs_nothing() -> None:
    transfer = _Transfer("m", DiskSpace(), lambda step: None, note_s=0)
    assert [heard(transfer, n) for n in (0, 10)] == [False, True]
    transfer.again()
    assert [heard(transfer, n) for n in (10, 10, 20)] == [False, False, True]  # not before it got on
    transfer.again()
    assert [heard(transfer, n) for n in (20, 96, 100)] == [False, False, False]  # nor near its end
    assert [heard(transfer, n, "sha256:2") for n in (0, 50)] == [False, False]  # nor where a whole layer was not checked yet


def test_a_layer_is_told_of_once_when_it_is_whole_and_none_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "sha256-0").write_bytes(b"")
    told: list[int] = []
    transfer = _Transfer("m", DiskSpace(tmp_path), lambda step: None, note_s=60, allowance=PullAllowance(whole=told.append))
    for layer, completed, so_far in (
        ("0", 100, []),
        ("1", 40, []),
        ("1", 100, [100]),
        ("2", 30, [100]),
        ("1", 100, [100]),
        ("2", 100, [100, 100]),
    ):
        heard(transfer, completed, f"sha256:{layer}")
        assert [size for size in told if size] == so_far
    assert transfer.came == sum(told) == 200


def test_a_transfer_goes_on_until_it_is_time() -> None:
    transfer = _Transfer("m", DiskSpace(), lambda step: None, note_s=60)
    assert not any(heard(transfer, n) for n in range(100))
