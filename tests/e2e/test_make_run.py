"""`make run`, in the checkout and as a user who has nothing yet: the daemon comes up with models of its own and thinks a mission."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.daemon import END_S, ROOT, until
from tests.support.servers import free_port
from tests.support.shown_pages import commands_of

pytestmark = pytest.mark.timeout(600)

START_S = 300
CLIENT = ROOT / ".venv" / "bin" / "batos"
CLOCK = ROOT / "build" / "mcp" / "servers" / "bin" / "mcp-server-time"


@pytest.mark.skipif(not CLIENT.exists(), reason="the checkout has no .venv of its own: `make test` makes one")
def test_a_newcomer_starts_it_and_asks(tmp_path: Path) -> None:
    words, add, ask = commands_of("README.md", "tests/e2e/test_make_run.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_", "XDG_", "MAKE"))}
    environment |= {"HOME": str(tmp_path), "BATOS_DOORS_LISTEN": f"127.0.0.1:{free_port()}"}
    environment["BATOS_INFERENCE_HOST"] = f"127.0.0.1:{free_port()}"  # an Ollama of this machine's user is not asked
    log = tmp_path / "log"
    with log.open("wb") as out:
        daemon = subprocess.Popen(words.split(), cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        until(lambda: b"Give it a mission" in log.read_bytes() or daemon.poll() is not None, "it has started", START_S)
        assert daemon.poll() is None, log.read_text()
        asked = [str(CLIENT), "send", "What is the capital of Australia?", "--watch"]
        answer = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=START_S, check=True)
        assert "Australia" in answer.stdout, answer.stdout  # a model of this size may name another city
        for command, told in ((add, "time is added, with 2 tools"), (ask, "[1] the tool time.get_current_time")):
            given = [str(ROOT / shlex.split(command)[0]), *shlex.split(command.replace("uvx mcp-server-time", str(CLOCK)))[1:]]
            answer = subprocess.run(given, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=START_S, check=True)
            assert told in answer.stdout, answer
        assert "Asia/Tokyo" in answer.stdout
        os.killpg(daemon.pid, signal.SIGINT)  # as Ctrl-C: `make` ends with its own word for that
        daemon.wait(END_S)
        assert '"stopped"' in log.read_text(), "it ended in good order"
    finally:
        if daemon.poll() is None:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait(END_S)
    assert (tmp_path / ".local" / "share" / "batos" / "live_image.fs").exists()
