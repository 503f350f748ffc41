"""Tools of folders and programs, killed at every step: a change is made once, whole or not at all; a program ends with its daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked

ROOT = Path(__file__).parents[2]
BEFORE = {"log": "old\n", "a": "a"}
CHANGES: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("write", {"path": "log", "text": "new\n"}, {"log": "new\n", "a": "a"}),
    ("append", {"path": "log", "text": "new\n"}, {"log": "old\nnew\n", "a": "a"}),
    ("append", {"path": "fresh", "text": "new\n"}, {"log": "old\n", "a": "a", "fresh": "new\n"}),
    ("move", {"path": "a", "to": "b"}, {"log": "old\n", "b": "a"}),
    ("delete", {"path": "a"}, {"log": "old\n"}),
]
MOST = {"fsync": 5, "write": 1, "unlink": 1, "replace": 1, "rename": 1}
POINTS = [f"{number}:{what}" for what, most in MOST.items() for number in range(1, most + 1)]


def child(folder: Path, kind: str, place: str, tool: str, arguments: Any, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.support.tool_child", str(folder), kind, place, tool, json.dumps(arguments), *more]
    return forked.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def attempt(folder: Path, place: Path, tool: str, arguments: Any, point: str) -> tuple[int, list[str], str]:
    with child(folder, "folder", str(place), tool, arguments, point) as running:
        said, errors = running.communicate(timeout=100)
    return running.returncode, said.splitlines(), errors


def content(place: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(place.iterdir()) if not file.name.endswith(".batos-part")}


@pytest.mark.parametrize(("tool", "arguments", "after"), CHANGES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_change_that_is_killed_anywhere_is_made_once(tmp_path: Path, tool: str, arguments: Any, after: dict[str, str]) -> None:
    killed = 0
    for point in POINTS:
        folder = tmp_path / point.replace(":", "-")
        place = folder / "place"
        place.mkdir(parents=True, mode=0o700)
        for name, text in BEFORE.items():
            (place / name).write_text(text)
        status, _, errors = attempt(folder, place, tool, arguments, point)
        assert status in (0, -signal.SIGKILL), errors
        if status == 0:
            continue  # it has no such step
        killed += 1
        halves = [BEFORE, after, {**BEFORE, "fresh": ""}] if arguments["path"] == "fresh" else [BEFORE, after]
        assert content(place) in halves, point
        _, said, errors = attempt(folder, place, tool, arguments, "never")
        assert said[-2].startswith("done"), f"{point}: {said} {errors}"
        assert said[-1] == "0"
        assert content(place) == after, point
        assert not list(place.glob(".*.batos-part")), point
    assert killed >= 2


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
def test_a_program_and_its_children_end_with_the_daemon_and_its_user_is_asked(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    place = f"sh -c 'trap \"\" TERM HUP INT; echo run >> {made}/runs; sleep 1000 & echo $! > {made}/part; mv {made}/part {made}/pid; wait'"
    options = json.dumps({"folders": [str(made)]})
    with child(tmp_path, "program", place, "run", {}, "never", options) as running:
        assert running.stdout is not None
        leader = int(next(line for line in running.stdout if line.startswith("process ")).split()[1])
        assert wait_for((made / "pid").exists)
        grandchild = int((made / "pid").read_text())
        os.kill(running.pid, signal.SIGKILL)
        assert wait_for(lambda: not alive(leader) and not alive(grandchild))
        running.communicate()
    with child(tmp_path, "program", place, "run", {}, "never", options) as running:
        said = running.communicate(timeout=100)[0]
    assert "asked local.run" in said
    assert (made / "runs").read_text() == "run\n"
