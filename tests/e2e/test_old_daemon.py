"""An upgrade from 0.1.0, as docs/operations.md tells it: the new daemon is started on the data folder that the old one left.

`tools/old_daemon.py` says what is in it: missions of each state, methods, memory, a followed folder, an expert that speaks, a backup.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support.daemon import END_S, ROOT, Daemon, Peer, daemon, done, embedded, provisioned, result_of

PACKED = Path(__file__).parents[1] / "data" / "daemon-0.1.0.tar.gz"
STATES = {
    "plan": "COMPLETE", "walk": "COMPLETE", "lesson": "COMPLETE", "again": "COMPLETE", "greets": "COMPLETE", "remembers": "COMPLETE",
    "forgotten": "COMPLETE", "fails": "FAILED", "cancelled": "FAILED",
}  # fmt: skip


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The new daemon on the old one's folder."""
    folder = tmp_path_factory.mktemp("old") / "data"
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
    with ScriptedOllama() as server:
        provisioned(server)
        with daemon(folder, ollama_host=server.host) as running:
            running.folder = folder  # type: ignore[attr-defined]
            yield running


def mission(running: Daemon, id: str) -> dict[str, Any]:
    with Peer(running.endpoint) as peer:
        return peer.ask("status", id=id)


def test_missions_that_had_ended_are_as_they_were(upgraded: Daemon) -> None:
    assert {id: mission(upgraded, id)["state"] for id in STATES} == STATES
    assert mission(upgraded, "plan")["rating"]["rating"] == 1
    assert mission(upgraded, "forgotten")["undone"]
    assert result_of(upgraded, "greets")["result"]["value"] == "Hello Bob"
    assert {one["mission"] for one in done(upgraded, "failures")["failures"]} >= {"fails"}


def test_the_one_at_work_goes_on_and_then_the_one_that_follows_it(upgraded: Daemon) -> None:
    assert result_of(upgraded, "unfinished")["state"] == "COMPLETE"
    assert result_of(upgraded, "follows")["state"] == "COMPLETE"


def test_the_one_that_waits_for_its_user_takes_the_answer(upgraded: Daemon) -> None:
    assert mission(upgraded, "asks")["question"]["question"]
    done(upgraded, "answer", "asks", "Ten of us, in the garden.")
    assert result_of(upgraded, "asks")["state"] == "COMPLETE"


def test_the_paused_one_waits_until_it_is_resumed(upgraded: Daemon) -> None:
    assert mission(upgraded, "paused")["state"] == "PAUSED"
    done(upgraded, "resume", "paused")
    assert result_of(upgraded, "paused")["state"] == "COMPLETE"


def test_methods_memory_folder_and_voice_are_there(upgraded: Daemon) -> None:
    assert len(done(upgraded, "method", "brick", "greet_")["versions"]) == 2
    with Peer(upgraded.endpoint) as peer:
        embedded(peer)
        assert peer.ask("search", question="Where is the key?")["hits"][0]["text"] == "The key is under the third stone."
        assert [one["folder"] for one in peer.ask("memory")["followed"]] == ["/tmp/daemon-0.1.0/notes"]
    assert "babs:ships-log-v1" in str(done(upgraded, "experts"))
    done(upgraded, "undo", "remembers")


def test_its_backup_and_a_new_one_are_restored(upgraded: Daemon, tmp_path: Path) -> None:
    folder = upgraded.folder  # type: ignore[attr-defined]
    shutil.copytree(folder / "backups", tmp_path / "old")
    with Peer(upgraded.endpoint) as peer:
        assert peer.ask("backup", full=True)["damaged"] == []
    for source in (tmp_path / "old", folder / "backups"):
        command = [sys.executable, "-m", "batos", "restore", str(source), "--data", str(tmp_path / f"from-{source.name}"), "--json"]
        restored = subprocess.run(command, capture_output=True, text=True, timeout=END_S, cwd=ROOT)
        assert restored.returncode == 0, restored.stderr
        assert json.loads(restored.stdout)["damaged"] == []
