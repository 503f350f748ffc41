"""Pack, backup, restore, replay, failures and costs as a user has them: a process, a socket, the command line."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support import forked
from tests.support.daemon import END_S, ROOT, Daemon, Peer, daemon

A_CYCLE = 5  # inferences of ROBIN's: plan, three facets, answer


def batos(*words: str, code: int = 0) -> dict[str, Any]:
    """The document that a command prints."""
    done = forked.run([sys.executable, "-m", "batos", *words, "--json"], capture_output=True, text=True, timeout=END_S, cwd=ROOT)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def think(peer: Peer, *ids: str) -> None:
    for id in ids:
        peer.ask("submit", id=id, brief=f"I feel stuck with {id}")
    for id in ids:
        assert peer.result(id)["state"] == "COMPLETE"


def test_a_backup_is_restored_into_another_daemon(tmp_path: Path, scripted: ScriptedOllama) -> None:
    data, new, folder = tmp_path / "data", tmp_path / "new", tmp_path / "my backups"
    with daemon(data, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        think(peer, "m1", "m2")
        full = batos("backup", str(folder), "--connect", running.endpoint)
        assert (full["type"], full["kind"], full["folder"], full["damaged"]) == ("backup", "full", str(folder), [])
        think(peer, "m3")
        more = peer.ask("backup", folder=str(folder), ref="b")
        assert (more["kind"], more["ref"]) == ("incremental", "b")
        assert batos("backup", "--connect", running.endpoint)["folder"] == str(data / "backups")
        refused = batos("restore", str(folder), "--data", str(data), code=4)
        assert (refused["code"], "overwrites nothing" in refused["message"]) == ("image", True)
        running.kill()
    found = batos("restore", str(folder), "--data", str(new))
    assert (found["type"], found["image"], found["tid"]) == ("restore", str(new / "live_image.fs"), more["tid"])
    with daemon(new, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        assert [mission["id"] for mission in peer.ask("missions")["missions"]] == ["m3", "m2", "m1"]
        assert peer.result("m3")["state"] == "COMPLETE"
        think(peer, "m4")
        assert running.terminate() == 0
    assert batos("restore", str(tmp_path / "nowhere"), "--data", str(tmp_path / "other"), code=4)["code"] == "image"
    assert not (tmp_path / "other").exists()


def told_of(peer: Peer, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What `info` says of the plan of backups, once it is enough."""
    deadline = time.monotonic() + END_S
    while not enough(told := peer.ask("info")["upkeep"]["backups"]):
        assert time.monotonic() < deadline, told
        assert not told["failures"], told
    return dict(told)


def test_the_plan_of_backups_holds_over_a_kill(tmp_path: Path, scripted: ScriptedOllama) -> None:
    data, often = tmp_path / "data", {"backup_every_h": 1e-6, "backup_full_h": 0, "backup_first_s": 0, "backup_keep_fulls": 2}
    with daemon(data, ollama_host=scripted.host, **often) as running, Peer(running.endpoint) as peer:
        for number in range(3):
            think(peer, f"m{number}")
            told_of(peer, lambda told: told["kept"] >= 2)
        running.kill()
    with daemon(data, ollama_host=scripted.host, backup_every_h=24, backup_first_s=0) as running, Peer(running.endpoint) as peer:
        told = told_of(peer, lambda told: bool(told["last"]))
        assert told["next"] == pytest.approx(told["last"] + 86400)
        metrics = {one["name"]: one["samples"][0]["value"] for one in peer.ask("metrics")["metrics"] if one["samples"]}
        assert 0 <= metrics["batos_backup_age_seconds"] < 60
        assert metrics["batos_backup_failures"] == 0
        assert running.terminate() == 0
    assert batos("restore", str(data / "backups"), "--data", str(tmp_path / "new"))["damaged"] == []


def test_a_mission_is_replayed_and_a_change_found(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        think(peer, "m1")
        asked = len(scripted.chats)
        assert batos("replay", "m1", "--connect", running.endpoint)["outcome"] == "same"
        assert peer.ask("replay", id="nobody")["code"] == "unknown_mission"
        running.terminate()
    with daemon(tmp_path, ollama_host=scripted.host, num_predict=17) as running:
        found = batos("replay", "m1", "--connect", running.endpoint, code=1)
        assert (found["outcome"], found["difference"]["changed"]) == ("different", ["options"])
        done = forked.run(
            [sys.executable, "-m", "batos", "replay", "m1", "--connect", running.endpoint],
            capture_output=True, text=True, timeout=END_S, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 1
        assert "options" in done.stdout
    assert len(scripted.chats) == asked


def test_failures_are_listed(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        peer.ask("send", id="s1", target="robin", selector="_no_such_")
        assert peer.result("s1")["state"] == "FAILED"
        think(peer, "m1")
        (row,) = batos("failures", "--selector", "_no_such_", "--code", "not_understood", "--connect", running.endpoint)["failures"]
        assert (row["mission"], row["context"]["target"], row["final"]) == ("s1", "robin", True)
        assert batos("failures", "--mission", "m1", "--connect", running.endpoint)["failures"] == []
        assert peer.ask("failures", code="no_such")["failures"] == []
        assert peer.ask("failures", id="nobody")["code"] == "unknown_mission"
        assert peer.ask("failures", code="two words")["code"] == "invalid_request"


def test_costs_are_exact_after_a_kill(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        think(peer, "m1", "m2")
        before = peer.ask("info")["costs"]
        running.kill()
    assert before["inferences"] == 2 * A_CYCLE == len(scripted.chats)
    assert before["by_model"]["robin:embedded"]["answer_tokens"] == before["answer_tokens"] > 0
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        deadline = time.monotonic() + END_S
        while (after := peer.ask("info")["costs"]).get("counting"):
            assert time.monotonic() < deadline
        assert after == before
        think(peer, "m3")
        assert peer.ask("info")["costs"]["inferences"] == 3 * A_CYCLE


class Load(threading.Thread):
    """Missions sent one after the other, and how long each was waited for."""

    def __init__(self, running: Daemon) -> None:
        super().__init__()
        self.endpoint, self.ids, self.waits, self.enough = running.endpoint, [], [], threading.Event()  # type: ignore[var-annotated]

    def run(self) -> None:
        with Peer(self.endpoint) as peer:
            while not self.enough.is_set():
                begun = time.monotonic()
                id = f"load-{len(self.ids)}"
                assert peer.ask("send", id=id, target="robin", selector="name")["type"] == "accepted"
                self.waits.append(time.monotonic() - begun)
                self.ids.append(id)


def test_missions_go_on_through_packs_and_backups(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        load = Load(running)
        load.start()
        try:
            first = batos("pack", "--days", "0", "--connect", running.endpoint)
            assert first["type"] == "pack"
            deadline, rounds = time.monotonic() + END_S, 0
            while rounds < 3 or len(load.ids) <= 50:  # how many missions come in a round is the machine's pace
                assert time.monotonic() < deadline
                packed = peer.ask("pack", days=0)
                assert peer.ask("backup")["type"] == "backup"
                rounds += 1
        finally:
            load.enough.set()
            load.join()
        info = peer.ask("info")
        assert info["upkeep"]["under_way"] is None
        assert info["upkeep"]["pack"]["bytes_after"] == packed["bytes_after"]
        running.kill()
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        results = [peer.result(id) for id in load.ids]
        assert {result["result"]["text"] for result in results} == {"ROBIN"}


def test_upkeep_comes_by_itself(tmp_path: Path, scripted: ScriptedOllama) -> None:
    settings = {"upkeep_s": 1, "upkeep_first_s": 1, "journal_days": 0, "history_days": 0}
    with daemon(tmp_path, ollama_host=scripted.host, **settings) as running, Peer(running.endpoint) as peer:
        think(peer, "m1")
        while running.logged("upkeep", what="retention")["dropped"] == 0:
            pass
        running.logged("upkeep", what="pack")
        assert peer.ask("replay", id="m1")["code"] == "invalid"
        assert peer.ask("info")["costs"]["inferences"] == A_CYCLE
        assert peer.result("m1")["state"] == "COMPLETE"
        assert running.terminate() == 0
