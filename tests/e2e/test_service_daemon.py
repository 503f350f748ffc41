"""A whole daemon under a service manager: a real NOTIFY_SOCKET, a watchdog, SIGHUP, and the log as the journal takes it."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batos.testing import ScriptedOllama
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned

WATCHDOG_S = 2.0


class Manager:
    """What a service manager hears from its service."""

    def __init__(self, path: Path) -> None:
        self.path, self.heard = path, []  # type: ignore[var-annotated]
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ear.bind(str(path))

    def until(self, wanted: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """The next message that is wanted."""
        deadline = time.monotonic() + END_S
        while True:
            self._ear.settimeout(max(0.01, deadline - time.monotonic()))
            message = dict(line.partition("=")[::2] for line in self._ear.recv(8192).decode().split("\n"))
            self.heard.append(message)
            if wanted(message):
                return message

    def falls_silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long, but what was on its way."""
        self._ear.settimeout(seconds)
        try:
            for _ in range(100):
                self._ear.recv(8192)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self._ear.close()


@pytest.fixture
def hang_up_heard() -> Iterator[None]:
    """SIGHUP as it is by default: under nohup it is ignored, and so would it be by the daemon."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hang_up_heard: None) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(made.path))
    monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG_S * 1e6)))
    yield made
    made.close()


def test_ready_then_alive_then_reloading_then_stopping(tmp_path: Path, manager: Manager) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "batos.toml").write_text("queue_limit = 5\n")
    with ScriptedOllama() as server, daemon(data, ollama_host=provisioned(server).host) as running, Peer(running.endpoint) as peer:
        ready = manager.until(lambda message: "READY" in message)
        assert any("EXTEND_TIMEOUT_USEC" in message for message in manager.heard), "time was asked for while it started"
        assert running.endpoint in ready["STATUS"]
        begun = time.monotonic()
        for _ in range(4):
            manager.until(lambda message: "WATCHDOG" in message)
        assert time.monotonic() - begun < 4 * WATCHDOG_S, "more often than the watchdog bites"

        (data / "batos.toml").write_text("queue_limit = 6\nhistory_days = 3\nconcurrent_missions = 9\n")
        running.process.send_signal(signal.SIGHUP)
        manager.until(lambda message: "RELOADING" in message)
        told = manager.until(lambda message: "READY" in message)
        assert "missions.concurrent" in told["STATUS"]
        reloaded = peer.ask("info")["reloaded"]
        assert (reloaded["applied"], reloaded["restart"]) == (["image.history_days", "missions.queue"], ["missions.concurrent"])

        (data / "batos.toml").write_text("queue_limit = 'many'\n")
        running.process.send_signal(signal.SIGHUP)
        assert "not reloaded" in manager.until(lambda message: "READY" in message)["STATUS"]
        assert running.logged("reload_failed")["code"] == "config"
        assert peer.ask("info")["reloaded"] == reloaded, "the daemon goes on as it was"

        running.process.send_signal(signal.SIGTERM)
        manager.until(lambda message: "STOPPING" in message)
        assert running.ended() == 0


def test_a_loop_that_hangs_lets_the_watchdog_bite(tmp_path: Path, manager: Manager) -> None:
    with ScriptedOllama() as server, daemon(tmp_path / "data", ollama_host=provisioned(server).host) as running:
        manager.until(lambda message: "WATCHDOG" in message)
        running.process.send_signal(signal.SIGSTOP)
        assert manager.falls_silent(2 * WATCHDOG_S)
        running.process.send_signal(signal.SIGCONT)
        manager.until(lambda message: "WATCHDOG" in message)
        assert running.terminate() == 0


def test_the_journal_gets_lines_with_their_priority(tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        running = Daemon(tmp_path / "data", ollama_host=provisioned(server).host, log_format="journal", metrics="127.0.0.1:nowhere")
        try:
            assert running.ended() == 4
        finally:
            running.process.kill()
    lines = [line for line in running.noise if line.startswith("<")]
    assert lines
    assert all(line[:3] in ("<6>", "<4>", "<3>") and json.loads(line[3:])["event"] for line in lines)


def test_nohup_is_heeded(tmp_path: Path) -> None:
    """A daemon that was started with SIGHUP ignored goes on ignoring it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with (
            ScriptedOllama() as server,
            daemon(tmp_path / "data", ollama_host=provisioned(server).host) as running,
            Peer(running.endpoint) as peer,
        ):
            os.kill(running.process.pid, signal.SIGHUP)
            assert "reloaded" not in peer.ask("info")
            assert running.terminate() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.long
@pytest.mark.usefixtures("hang_up_heard")
def test_supervised_it_is_the_same_daemon(tmp_path: Path) -> None:
    """`batos run --supervise`: flags reach the daemon, and so do signals."""
    supervised = "import sys; from batos.cli import main; sys.exit(main([*sys.argv[1:], '--supervise', '--json']))"
    data = tmp_path / "data"
    with (
        ScriptedOllama() as server,
        daemon(data, program=("-c", supervised), ollama_host=provisioned(server).host, queue_limit=7) as running,
        Peer(running.endpoint) as peer,
    ):
        info = peer.ask("info")
        assert (info["data"], info["pid"] == running.process.pid) == (str(data), False)
        (data / "batos.toml").write_text("history_days = 3\n")
        running.process.send_signal(signal.SIGHUP)
        assert running.logged("reloaded")["applied"] == ["image.history_days"]
        running.process.send_signal(signal.SIGINT)
        assert running.ended() == 0
        assert running.logged("stopped")["event"] == "stopped"
        assert json.loads(running.report.splitlines()[0])["pid"] == info["pid"]
