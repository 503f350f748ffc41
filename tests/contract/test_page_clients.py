"""Programs of other makers that the pages name, run by the words of these pages: Claude Code finds the tools, Open WebUI chats.

They take 7 GB: `make page-clients` installs them and runs this file; otherwise it is left out.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.daemon import ROOT, until
from tests.support.servers import free_port
from tests.support.shown_pages import Machine, commands_of, machine, shared_daemon

THERE = ROOT / "build" / "page-clients"
pytestmark = [
    pytest.mark.skipif(os.environ.get("PAGE_CLIENTS") != "yes", reason="7 GB of other people's programs: `make page-clients` runs them"),
    pytest.mark.timeout(600),
]
QUIET = {"DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
OFFLINE = {"OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1", "WEBUI_SECRET_KEY": "secret", "ENABLE_OLLAMA_API": "False"}
START_S = 300


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("you")) as made, shared_daemon(made) as running:
        made.environment |= {"PATH": f"{THERE / 'npm/node_modules/.bin'}:{THERE / 'open-webui/bin'}:{made.environment['PATH']}"}
        yield running


@pytest.mark.parametrize("at", [0, 1])
def test_claude_code_finds_the_tools(here: Machine, at: int) -> None:
    """By HTTP with the token, and by the standard streams of `batos mcp`."""
    commands = commands_of("docs/doors.md", "tests/contract/test_page_clients.py")
    folder = here.home / f"project-{at}"
    folder.mkdir()

    def run(words: str) -> str:
        done = subprocess.run(
            ["sh", "-c", words], cwd=folder, env=here.environment | QUIET, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done
        return done.stdout

    run(here.usual(commands[at]))
    (line,) = [line for line in run("claude mcp list").splitlines() if line.startswith("batos:")]
    assert line.endswith("✔ Connected"), line


def test_open_webui_chats(here: Machine) -> None:
    """It lists the models, and a turn of its chat is a mission."""
    (serve,) = commands_of("README.md", "tests/contract/test_page_clients.py")
    words = (ROOT / "README.md").read_text()
    (settings,) = [line.removeprefix("$ ") for line in words.splitlines() if line.startswith("$ export OPENAI_API_BASE_URL=")]
    port = free_port()
    shell = f"{here.usual(settings)}\nexec {serve} --host 127.0.0.1 --port {port}"
    log = here.home / "open-webui.log"
    with log.open("wb") as out:
        environment = here.environment | OFFLINE | {"DATA_DIR": str(here.home / "webui")}
        child = subprocess.Popen(["sh", "-c", shell], env=environment, cwd=here.home, stdout=out, stderr=out, start_new_session=True)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            until(lambda: _is_up(client, child), "Open WebUI is up", START_S)
            user = {"name": "Ann", "email": "ann@example.com", "password": "correct horse battery"}
            client.headers["Authorization"] = f"Bearer {_told(client.post('/api/v1/auths/signup', json=user))['token']}"
            models = {one["id"] for one in _told(client.get("/api/models"))["data"]}
            assert {"batos", "batos:robin", "batos:plain"} <= models
            asked = {"model": "batos", "messages": [{"role": "user", "content": "I feel stuck"}], "stream": False}
            answer = _told(client.post("/api/chat/completions", json=asked))
            assert answer["choices"][0]["message"]["content"].strip(), answer
    finally:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(60)
    done = subprocess.run(["batos", "missions"], env=here.environment, capture_output=True, text=True, timeout=60, check=True)
    assert "I feel stuck" in done.stdout


def _is_up(client: httpx.Client, child: subprocess.Popen[bytes]) -> bool:
    assert child.poll() is None, "it ended"
    try:
        return bool(client.get("/health").json()["status"])
    except (httpx.HTTPError, ValueError):
        return False


def _told(reply: httpx.Response) -> Any:
    assert reply.status_code == 200, reply.text
    return reply.json()
