"""Images from the command line to a real Ollama and back: a tiny model says whether what it is shown is bright or dark."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.daemon import ROOT, Daemon, Peer, daemon
from tests.support.pictures import JPEG, plain, png
from tests.support.tiny_models import BRIGHT, DARK, created

SAID = "Hello there"


@pytest.fixture(scope="module")
def names(ollama_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with created(ollama_host, tmp_path_factory.mktemp("tiny"), ["mistral3", "qwen3"]) as made:
        yield made


def batos(running: Daemon, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
    command = [sys.executable, "-m", "batos", *words, "--connect", running.endpoint]
    given = {**environment, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    return forked.run(command, env=given, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def answer(running: Daemon, *words: str, folder: Path) -> str:
    done = batos(running, "send", *words, "--depth", "direct", "--persona", "robin", folder=folder)
    assert done.returncode == 0, done.stderr
    found = batos(running, "result", words[words.index("--id") + 1], "--json", folder=folder)
    told: dict[str, Any] = json.loads(found.stdout)
    return str(told["result"]["text"])


@pytest.mark.long
def test_what_is_shown_is_seen_also_in_the_turn_after(tmp_path: Path, ollama_host: str, names: dict[str, str]) -> None:
    for name, data in (("white.png", plain(255)), ("black.png", plain(0)), ("white.jpg", JPEG), ("large.png", png(1100, 1000))):
        (tmp_path / name).write_bytes(data)
    given = {"ollama_host": ollama_host, "model": names["mistral3"], "num_thread": 1, "mission_attempts": 1}
    with daemon(tmp_path / "data", **given) as running:
        assert answer(running, "What is it?", "--id", "none", folder=tmp_path).startswith(SAID)
        for name, word in (("white.png", BRIGHT), ("black.png", DARK), ("white.jpg", BRIGHT)):
            assert answer(running, "What is it?", "--id", name, "--image", name, folder=tmp_path).startswith(word)
            assert answer(running, "And now?", "--id", f"after-{name}", "--context", name, folder=tmp_path).startswith(word)
        assert (tmp_path / "large.png").stat().st_size > 3_000_000  # four messages and more
        answer(running, "What are they?", "--id", "two", "--image", "large.png", "--image", "white.png", folder=tmp_path)
        shown = batos(running, "show", "two", folder=tmp_path).stdout
        assert "large.png, PNG, 1100 × 1000, 3.1 MiB" in shown
        assert "white.png, PNG, 64 × 64" in shown
        assert batos(running, "replay", "after-white.png", folder=tmp_path).returncode == 0
        refused = batos(running, "send", "What is it?", "--image", "gone.png", folder=tmp_path)
        assert refused.returncode == 4
        assert "the image 'gone.png' cannot be read: No such file or directory" in refused.stderr
        assert running.terminate() == 0
    assert running.noise == []


def test_one_that_does_not_see_says_so_and_the_other_is_one_command_away(tmp_path: Path, ollama_host: str, names: dict[str, str]) -> None:
    (tmp_path / "white.png").write_bytes(plain(255))
    given = {"ollama_host": ollama_host, "model": names["qwen3"], "num_thread": 1, "mission_attempts": 1}
    with daemon(tmp_path / "data", **given) as running:
        done = batos(running, "send", "What is it?", "--watch", "--persona", "robin", "--image", "white.png", folder=tmp_path)
        assert done.returncode == 1
        told = " ".join((done.stdout + done.stderr).split())
        assert "does not see; here see:" in told
        assert f"batos models use {names['mistral3']}" in told
        with Peer(running.endpoint) as peer:
            named = [{"digest": hashlib.sha256(plain(255)).hexdigest()}]  # it is there from before
            peer.send("submit", id="asks", brief="What is it?", persona="robin", depth="direct", may_ask=True, watch=True, images=named)
            asked = []
            while (event := peer.reply())["type"] not in ("result", "error"):
                if event["type"] == "needs_input":  # then the model itself asks what a grammar lets it
                    asked.append(event["question"])
                    peer.send("answer", id="asks", number=event["number"], text="no" if asked[1:] else names["mistral3"], ref="answer")
            assert f"here see: {names['mistral3']}" in asked[0]
            assert event["result"]["text"].startswith(BRIGHT), event
        assert batos(running, "models", "use", names["mistral3"], folder=tmp_path).returncode == 0
        assert answer(running, "What is it?", "--id", "again", "--image", "white.png", folder=tmp_path).startswith(BRIGHT)
