"""The programs in examples/ run as they are, against a daemon: Python, Node, a line of shell; the pages show them as they are."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.config import local_endpoint
from batos.testing import DaemonProcess, ScriptedOllama
from batos.wire import Client
from tests.support import forked
from tests.support.daemon import END_S, ROOT, Daemon, daemon, provisioned

BRIEF = "Plan a birthday party for a cat lover on a budget"
ANSWER = "Bake a cake in the form of a cat."


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Daemon]:
    with ScriptedOllama() as server:
        provisioned(server).say(ANSWER, when="Write the answer to the request")
        with daemon(tmp_path / "var", ollama_host=server.host) as process:
            yield process


def ran(*command: str | Path, cwd: Path = ROOT, path: Path | None = None, typed: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": os.pathsep.join([*([str(path)] if path else []), os.environ["PATH"]])}
    run = subprocess.run if "pytest" in command else forked.run  # pytest in the template would find the plugins of this run
    done = run(command, capture_output=True, text=True, timeout=3 * END_S, cwd=cwd, env=environment, input=typed)
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


def uses_tools(request: dict[str, Any]) -> str:
    """Answer as a model that writes the file once, and then says so."""
    offered = [tool["function"]["name"] for tool in request.get("tools") or ()]
    if "desk_write" not in offered or "<desk.write>" in str(request["messages"]):
        return "What you need is in list.txt."
    return '<tool_call>{"name": "desk_write", "arguments": {"path": "list.txt", "text": "eggs, milk, flour"}}</tool_call>'


@pytest.mark.parametrize(("said", "written"), [("once", "eggs, milk, flour"), ("no", None)])
def test_a_question_is_answered_from_python(tmp_path: Path, said: str, written: str | None) -> None:
    desk = tmp_path / "desk"
    desk.mkdir()
    with ScriptedOllama(["qwen3:8b"]) as server:
        server.give_tools("qwen3:8b")
        server.say(uses_tools, when="list.txt")
        with DaemonProcess(tmp_path / "var", server.host, model="qwen3:8b") as process:
            brief = "Write the file list.txt with what I need for pancakes"
            output = ran(sys.executable, "examples/ask_me.py", desk, brief, process.endpoint, typed=f"{said}\n" * 3)
    assert "May this mission do the following?" in output
    assert "desk.write" in output
    file = desk / "list.txt"
    assert (file.read_text() if file.exists() else None) == written
    assert ("DONE desk.write" in output) == (said == "once")


def test_messages_are_sent_and_rated_from_python(tmp_path: Path) -> None:
    with ScriptedOllama() as server, daemon(tmp_path / "var", ollama_host=provisioned(server).host) as running:
        server.say("def count_words_(self, text):\n    return len(text.split())", when="count_words_")
        output = ran(sys.executable, "examples/message_and_rate.py", running.endpoint)
    assert "the quick brown fox: 4" in output
    assert "method_failed" in output
    assert "def count_words_(self" in output


def test_a_program_has_batos_in_its_own_process(tmp_path: Path) -> None:
    with ScriptedOllama(["qwen3:8b"]) as server:
        server.say("Hello, Anna.", when="Say hello to Anna")
        output = ran(sys.executable, ROOT / "examples" / "own_process.py", tmp_path / "d", "Say hello to Anna", "qwen3:8b", server.host)
    assert output.splitlines()[-1] == "Hello, Anna."


def test_the_test_file_of_the_page_passes() -> None:
    assert "4 passed" in ran(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "examples/test_my_agent.py")


def test_the_page_shows_the_programs_as_they_are() -> None:
    programs = [path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")]
    shown = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "embedding.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    assert [block for block in shown if not any(block in program for program in programs)] == []
