"""The programs in examples/ run as they are, against a daemon: Python, Node, a line of shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batos.config import local_endpoint
from batos.testing import ScriptedOllama
from tests.daemon import END_S, ROOT, Daemon, daemon, provisioned

BRIEF = "Plan a birthday party for a cat lover on a budget"
ANSWER = "Bake a cake in the form of a cat."


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Daemon]:
    with ScriptedOllama() as server:
        provisioned(server).say(ANSWER, when="Write the answer to the request")
        with daemon(tmp_path / "var", ollama_host=server.host) as process:
            yield process


def ran(*command: str | Path, cwd: Path = ROOT, path: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": os.pathsep.join([*([str(path)] if path else []), os.environ["PATH"]])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * END_S, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def completed(output: str) -> None:
    last = json.loads(output.splitlines()[-1])
    assert (last["type"], last["state"], last["result"]["text"]) == ("result", "COMPLETE", ANSWER)


@pytest.mark.parametrize("name", ["send_mission.py", "send_mission_req.py"])
def test_python(running: Daemon, name: str) -> None:
    completed(ran(sys.executable, f"examples/{name}", BRIEF, running.endpoint))


@pytest.mark.parametrize("name", ["send_mission.py", "send_mission_req.py"])
def test_python_finds_the_daemon_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BATOS_LISTEN", raising=False)
    with ScriptedOllama() as server:
        provisioned(server).say(ANSWER, when="Write the answer to the request")
        with daemon(tmp_path / "var", listen=local_endpoint(), ollama_host=server.host) as running:
            completed(ran(sys.executable, f"examples/{name}", BRIEF))
            monkeypatch.setenv("HOME", "/nowhere")
            monkeypatch.setenv("BATOS_LISTEN", running.endpoint)
            completed(ran(sys.executable, f"examples/{name}", BRIEF))


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm on PATH")
@pytest.mark.timeout(300)
def test_node(running: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "node"
    shutil.copytree(ROOT / "examples" / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    ran("npm", "ci", "--no-audit", "--no-fund", cwd=folder)
    completed(ran("node", "send_mission.mjs", BRIEF, running.endpoint, cwd=folder))
    monkeypatch.setenv("BATOS_LISTEN", running.endpoint)
    completed(ran("node", "send_mission.mjs", BRIEF, cwd=folder))


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq on PATH")
def test_a_line_of_shell(running: Daemon, tmp_path: Path) -> None:
    batos = tmp_path / "bin" / "batos"
    batos.parent.mkdir()
    batos.write_text(f'#!/bin/sh\nexec {sys.executable} -m batos "$@"\n')
    batos.chmod(0o755)
    assert ran("sh", "examples/send_mission.sh", BRIEF, running.endpoint, path=batos.parent) == ANSWER + "\n"
