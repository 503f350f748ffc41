"""kill -9 between any two steps of providing a mission with a model: it is provided once, pulled once, and an undo takes all of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import changes, schema
from batos.image import journal
from batos.testing import ScriptedOllama
from tests.support import daemon_child
from tests.support.crash import completions, on_disk, provision, thinned
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned

SEER = "seer:9b"
VOICES = {f"batos/{name}:seer-9b" for name in ("robin", "brick", "babs", "alfred")}
CATALOGUE = f"""[models."{SEER}"]
bytes = 1000
parameters = 9_000_000_000
context = 32768
can = ["vision"]
"""
QUICK: dict[str, Any] = {
    "autotelic": "on", "heartbeat_first_s": 3600, "crash_limit": 100, "evidence_passages": 0, "remember": "off", "mission_attempts": 1,
    "profile": "embedded", "provision_retry_s": 1,
}  # fmt: skip
BY_ITSELF = {**QUICK, "autotelic_models": SEER}


class Library(ScriptedOllama):
    """An Ollama that can pull a model which sees images."""

    def __enter__(self) -> Library:
        super().__enter__()
        provisioned(self)
        self.say("Take one small step and look where it led.")
        self.pullable.add(SEER)
        seeing = replace(self.models["robin:embedded"], can=("completion", "vision"), weights=f"{7:064x}")
        self.pulled[SEER] = replace(seeing, info=(("llama.context_length", 32_768),))
        return self

    def forget(self) -> int:
        """Let nothing be there that was pulled or made on it; how many requests there were so far."""
        for name in {SEER, *VOICES} & self.models.keys():
            del self.models[name]
        return len(self.requests)

    def asked(self, path: str, since: int) -> list[dict[str, Any]]:
        return [request.body for request in self.requests[since:] if request.path == path]


@pytest.fixture(scope="module")
def server() -> Iterator[Library]:
    with Library() as server:
        yield server


@pytest.fixture(scope="module")
def home_of(server: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    provision(folder, server)
    (folder / "catalogue.toml").write_text(CATALOGUE)
    return folder


@pytest.fixture
def folder(home_of: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(home_of, tmp_path / "data", ignore=shutil.ignore_patterns("*.lock")))


def killed_at(folder: Path, point: str, number: str, server: Library, say: Any, **settings: Any) -> None:
    """Start a daemon that dies at a point, and say something to it."""
    process = Daemon(folder, program=(daemon_child.__file__, point, number), ollama_host=server.host, **settings)
    process.started()
    with Peer(process.endpoint) as peer:
        say(peer)
        assert process.ended(END_S) == -9, process.noise


def submit(peer: Peer) -> None:
    peer.send("submit", id="m1", brief="What is in it?", persona="robin", needs=["vision"])


def standing(root: Any) -> tuple[list[tuple[str, Any]], list[str], str, int]:
    """The changes with their states, the models that are provided, how far the mission is, and the bytes that count as pulled."""
    pulled = sum(row[4] for row in schema.part_of(root, "budget").rows)
    listed = [(one["state"], one["comparison"].get(changes.PREPARED, {}).get("cleared", False)) for one in changes.listed(root)]
    return listed, list(schema.part_of(root, "provided").models), journal.provided_of(root, "m1").get("state", ""), pulled


@pytest.mark.parametrize("point", thinned(daemon_child.PROVIDE_POINTS))
def test_killed_between_any_two_steps(folder: Path, server: Library, point: str) -> None:
    since = server.forget()
    killed_at(folder, point, "1", server, submit, **BY_ITSELF)
    listed, models, _, _ = on_disk(folder, standing)
    assert len(listed) <= 1
    assert (models == [SEER]) == (listed == [("kept", False)]), "kept and provided are one transaction"
    with daemon(folder, ollama_host=server.host, **BY_ITSELF) as running, Peer(running.endpoint) as peer:
        end = peer.result("m1")
        assert end["state"] == "COMPLETE", end
        assert end["result"]["provided"]["model"] == SEER
        assert end["result"]["provided"]["change"] == 1
        assert server.models.keys() >= {SEER, *VOICES}
        assert sorted(peer.ask("undo_change", number=1)["models"]) == sorted({SEER, *VOICES})
        assert running.terminate() == 0
        assert running.noise == []
    listed, models, state, pulled = on_disk(folder, standing)
    assert (listed, models, state) == ([("undone", True)], [], "ready")
    assert pulled == 1000, "what was to be pulled is counted once"
    assert on_disk(folder, completions) == {"m1": 1}
    assert not server.models.keys() & {SEER, *VOICES}
    assert len(server.asked("/api/pull", since)) == 1, "what is there is not pulled again"


@pytest.mark.parametrize("point", ["a question is recorded", "a question was recorded", "an answer is recorded"])
def test_killed_around_the_question(folder: Path, server: Library, point: str) -> None:
    since = server.forget()

    def say(peer: Peer) -> None:
        peer.send("submit", id="m1", brief="What is in it?", persona="robin", needs=["vision"], may_ask=True, watch=True)
        if point == "an answer is recorded":
            while peer.reply()["type"] != "needs_input":
                pass
            peer.send("answer", id="m1", text="yes")

    killed_at(folder, point, "1", server, say, **QUICK)
    assert server.asked("/api/pull", since) == []
    with daemon(folder, ollama_host=server.host, **QUICK) as running, Peer(running.endpoint) as peer:
        peer.send("watch", id="m1")
        told = peer.reply()
        while told["type"] != "needs_input" and "question" not in told:
            told = peer.reply()
        peer.send("answer", id="m1", text="yes", ref="answer")
        while (told := peer.reply())["type"] != "result":
            pass
        assert told["state"] == "COMPLETE", told
        assert running.terminate() == 0
    assert on_disk(folder, lambda root: [one["answer"] for one in json.loads(root["ledger"].missions["m1"].questions)]) == ["yes"]
    assert len(server.asked("/api/pull", since)) == 1


@pytest.mark.parametrize("point", thinned(daemon_child.WITHDRAW_POINTS))
def test_killed_while_it_goes_again(folder: Path, server: Library, point: str) -> None:
    server.forget()

    def say(peer: Peer) -> None:
        submit(peer)
        assert peer.reply()["type"] == "accepted"
        assert peer.result("m1")["state"] == "COMPLETE"
        peer.send("undo_change", number=1)

    killed_at(folder, point, "1", server, say, **BY_ITSELF)
    with daemon(folder, ollama_host=server.host, **BY_ITSELF) as running, Peer(running.endpoint) as peer:
        if on_disk_states(running, peer) != [True]:
            running.logged("model_cleared")
        assert peer.ask("undo_change", number=1)["already"]
        assert running.terminate() == 0
    assert on_disk(folder, standing)[:2] == ([("undone", True)], [])
    assert not server.models.keys() & {SEER, *VOICES}


def on_disk_states(running: Daemon, peer: Peer) -> list[bool]:
    [change] = peer.ask("changes", number=1)["changes"]
    return [bool(change["comparison"][changes.PREPARED].get("cleared"))]


def test_a_mission_that_was_cancelled_by_a_kill_in_its_pull_leaves_nothing(folder: Path, server: Library) -> None:
    """The pull is under way at the kill; the next daemon is told to cancel, before or while it goes on."""
    server.forget()
    killed_at(folder, "in the middle of the pull", "1", server, submit, **BY_ITSELF)
    with daemon(folder, ollama_host=server.host, **{**BY_ITSELF, "concurrent_missions": 1}) as running, Peer(running.endpoint) as peer:
        peer.ask("cancel", id="m1")
        end = peer.result("m1")
        if end["state"] == "FAILED":
            running.logged("model_cleared")
            assert not server.models.keys() & {SEER, *VOICES}
        assert running.terminate() == 0
