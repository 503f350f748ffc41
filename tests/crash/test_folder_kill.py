"""A daemon that is killed in the middle of a folder's burst: each file becomes one mission, none is lost and none is made twice."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from batos.testing import ScriptedOllama
from tests.support.crash import slow_ollama
from tests.support.daemon import Peer, batos, daemon, until

FILES = 24


def briefs(peer: Peer) -> Counter[str]:
    """The names of the files that missions are about."""
    found = peer.ask("missions", system=False, limit=1000)["missions"]
    return Counter(one["brief"].partition(".md")[0].rpartition("/")[2] for one in found if one["origin"] == "folder")


@pytest.mark.parametrize("seed", range(2))
def test_a_burst_over_kills(tmp_path: Path, seed: int) -> None:
    chance, inbox = random.Random(seed), tmp_path / "inbox"
    inbox.mkdir()
    names = [f"n{number:02}" for number in range(FILES)]
    with slow_ollama(chance) as scripted:
        given = {"ollama_host": scripted.host, "watch_s": 0.1, "remember": "off", "depth": "direct", "mission_attempts": 100}
        with daemon(tmp_path, **given) as running, Peer(running.endpoint) as peer:
            (inbox / "old.md").write_text("It was there before.\n")
            assert batos(running, "folders", "add", str(inbox), "Summarise {path}")[0] == 0
            for name in names:
                (inbox / f"{name}.md").write_text(f"This is the note {name}.\n")
            until(lambda: briefs(peer))
            running.kill()
        for _ in range(3):
            with daemon(tmp_path, **given) as running, Peer(running.endpoint) as peer:
                until(lambda held=peer: sum(briefs(held).values()) > 2)
                time.sleep(chance.uniform(0, 0.4))  # the kill comes at another point each time
                running.kill()
        with daemon(tmp_path, **given) as running, Peer(running.endpoint) as peer:
            until(lambda: len(briefs(peer)) == FILES)
            assert briefs(peer) == Counter(names)
            (inbox / "last.md").write_text("This is the last note.\n")
            until(lambda: "last" in briefs(peer))
            assert briefs(peer) == Counter([*names, "last"])


def test_the_verb_over_a_kill(tmp_path: Path, scripted: ScriptedOllama) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "old.md").write_text("It was there before.\n")
    given = {"ollama_host": scripted.host, "watch_s": 0.1, "remember": "off", "depth": "direct"}
    with daemon(tmp_path, **given) as running, Peer(running.endpoint) as peer:
        assert batos(running, "ingest", "--watch", str(inbox), "--each", "Summarise {path}")[0] == 0
        (listed,) = batos(running, "folders")[1]["folders"]
        assert (listed["name"], listed["folder"], listed["last"]) == ("inbox", str(inbox), None)
        (inbox / "new.md").write_text("It is new.\n")
        until(lambda: briefs(peer))
        (mission,) = [one["id"] for one in peer.ask("missions", system=False)["missions"]]
        assert peer.result(mission)["state"] == "COMPLETE"
        code, told = batos(running, "folders", "run", "inbox")
        assert (code, told["reopened"]) == (0, 1)
        until(lambda: len(briefs(peer)) == 2)
        running.kill()
    os.replace(inbox / "new.md", inbox / "moved.md")
    with daemon(tmp_path, **given) as running, Peer(running.endpoint) as peer:
        until(lambda: len(briefs(peer)) == 3)
        assert briefs(peer) == Counter(["old", "new", "moved"])
        assert batos(running, "folders", "pause", "inbox")[1]["folders"][0]["paused"] is True
        assert batos(running, "folders", "remove", "inbox")[1]["folders"] == []
        assert peer.ask("history", target="folders")["type"] == "history"
