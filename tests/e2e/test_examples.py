"""The programs in examples/ run as they are, against a daemon: Python, Node, a line of shell."""

from __future__ import annotations

import importlib
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
from batos.wire import Client
from tests.support.daemon import END_S, ROOT, Daemon, daemon, provisioned

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


@pytest.mark.parametrize(
    ("environment", "written", "found"),
    [
        ({"BATOS_WIRE_LISTEN": "tcp://*:7,ipc://x"}, "", "tcp://127.0.0.1:7"),
        ({}, 'wire.listen = "tcp://0.0.0.0:8"', "tcp://127.0.0.1:8"),
        ({}, 'listen = "tcp://10.0.0.1:7"', "tcp://10.0.0.1:7"),
        ({}, 'wire.listen = ["tcp://10.0.0.1:9"]', "tcp://10.0.0.1:9"),
        ({}, 'inference.profile = "embedded"', "ipc://{home}/.local/share/batos/wire.sock"),
    ],
)
def test_the_examples_mean_the_same_endpoint_as_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], written: str, found: str
) -> None:
    for name in ("BATOS_WIRE_LISTEN", "BATOS_CONFIG", "BATOS_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "batos.toml").write_text(written)
    own = importlib.import_module("endpoint").own
    assert own() == Client().endpoint == found.format(home=tmp_path)


@pytest.mark.parametrize("name", ["send_mission.py", "send_mission_req.py"])
def test_python_finds_the_daemon_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BATOS_WIRE_LISTEN", raising=False)
    with ScriptedOllama() as server:
        provisioned(server).say(ANSWER, when="Write the answer to the request")
        with daemon(tmp_path / "var", listen=local_endpoint(), ollama_host=server.host) as running:
            completed(ran(sys.executable, f"examples/{name}", BRIEF))
            monkeypatch.setenv("HOME", "/nowhere")
            monkeypatch.setenv("BATOS_WIRE_LISTEN", running.endpoint)
            completed(ran(sys.executable, f"examples/{name}", BRIEF))
            monkeypatch.delenv("BATOS_WIRE_LISTEN")
            (tmp_path / "elsewhere").mkdir()
            for written in (f'"{running.endpoint}"', f'["{running.endpoint}", "tcp://*:5757"]'):
                (tmp_path / "elsewhere" / "batos.toml").write_text(f"[wire]\nlisten = {written}\n")
                completed(ran(sys.executable, ROOT / "examples" / name, BRIEF, cwd=tmp_path / "elsewhere"))


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm on PATH")
@pytest.mark.timeout(300)
def test_node(running: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "node"
    shutil.copytree(ROOT / "examples" / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    ran("npm", "ci", "--no-audit", "--no-fund", cwd=folder)
    completed(ran("node", "send_mission.mjs", BRIEF, running.endpoint, cwd=folder))
    monkeypatch.setenv("BATOS_WIRE_LISTEN", running.endpoint)
    completed(ran("node", "send_mission.mjs", BRIEF, cwd=folder))


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq on PATH")
def test_a_line_of_shell(running: Daemon, tmp_path: Path) -> None:
    batos = tmp_path / "bin" / "batos"
    batos.parent.mkdir()
    batos.write_text(f'#!/bin/sh\nexec {sys.executable} -m batos "$@"\n')
    batos.chmod(0o755)
    assert ran("sh", "examples/send_mission.sh", BRIEF, running.endpoint, path=batos.parent) == ANSWER + "\n"
