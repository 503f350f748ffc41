"""A daemon whose loop stands: it ends by itself with its own exit code and tells where it stood, and its missions go on when it is started
again, by a supervisor or by whoever does. One that was only stopped for a while is left alone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from batos.errors import EXIT_STALLED
from batos.supervision import HEAD_START_S
from batos.testing import ScriptedOllama
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned
from tests.support.stalled_child import BRIEF

CHILD = str(Path(__file__).parents[1] / "support" / "stalled_child.py")
LIMIT_S = 1
STEADY_S, LENIENT_S = 3, 60
"""Limits for daemons that are to go on: the loop of one that is well may have no turn for a second on a busy machine."""


def watcher_of(pid: int) -> int:
    """The process beside a daemon that has started."""
    (found,) = watchers_of(pid)
    return found


def watchers_of(pid: int) -> list[int]:
    """The processes beside a daemon."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:  # it has just ended
            continue
        if any(word.endswith(b"/watcher.py") for word in words) and str(pid).encode() in words:
            found.append(int(entry.name))
    return found


def told(ended: Daemon) -> str:
    """Where it stood, by its log and by what stands beside that on standard error."""
    return "".join(line["stacks"] for line in ended.log if line["event"] == "loop_stalled") + "".join(ended.noise)


@pytest.mark.parametrize(
    ("how", "where"),
    [("busy", "stand_busy"), ("asleep", "stand_asleep"), ("in C", "stand_in_c"), ("another thread in C", "stand_in_c")],
)
def test_it_ends_with_its_own_code_tells_where_it_stood_and_goes_on(tmp_path: Path, how: str, where: str) -> None:
    with ScriptedOllama() as server:
        settings = {"ollama_host": provisioned(server).host, "loop_stall_s": LIMIT_S}
        with daemon(tmp_path, program=(CHILD, how), **settings) as running:
            with Peer(running.endpoint) as peer:
                peer.send("submit", id="m1", brief=f"{BRIEF} 1")  # it is durable before it stands, and may not be told any more
                assert running.ended() == EXIT_STALLED
            assert where in told(running)
            assert watchers_of(running.process.pid) == []
        with daemon(tmp_path, program=(CHILD, how), **{**settings, "loop_stall_s": LENIENT_S}) as running, Peer(running.endpoint) as peer:
            assert peer.result("m1")["state"] == "COMPLETE", "the attempt that stood was counted, and the next one went well"
            assert running.terminate() == 0


def test_it_is_watched_before_the_first_mission_begins(tmp_path: Path) -> None:
    """Else one that goes on after a restart, and makes the loop stand at once, would be the end of it."""
    with ScriptedOllama() as server:
        running = Daemon(tmp_path, program=(CHILD, "at once"), ollama_host=provisioned(server).host, loop_stall_s=LIMIT_S)
        try:
            assert running.ended() == EXIT_STALLED
        finally:
            running.kill()
    assert "stand_busy" in told(running)


def test_a_daemon_that_was_stopped_for_a_while_goes_on(tmp_path: Path) -> None:
    with (
        ScriptedOllama() as server,
        daemon(tmp_path, ollama_host=provisioned(server).host, loop_stall_s=STEADY_S) as running,
        Peer(running.endpoint) as peer,
    ):
        for _ in range(2):
            running.process.send_signal(signal.SIGSTOP)
            time.sleep(1.5 * (STEADY_S + HEAD_START_S))  # this is what is tried, and nothing is waited for
            running.process.send_signal(signal.SIGCONT)
            assert peer.ask("info")["type"] == "info"
        beside = watcher_of(running.process.pid)
        assert running.terminate() == 0
        assert not Path(f"/proc/{beside}").exists()


def test_the_process_beside_it_ends_with_a_daemon_that_is_killed(tmp_path: Path) -> None:
    with ScriptedOllama() as server, daemon(tmp_path, ollama_host=provisioned(server).host) as running:
        beside = watcher_of(running.process.pid)
        running.kill()
        deadline = time.monotonic() + END_S
        while Path(f"/proc/{beside}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("how", ["busy", "in C"])
def test_a_supervisor_starts_it_again_and_its_missions_go_on(tmp_path: Path, how: str) -> None:
    with ScriptedOllama() as server:
        settings = {"ollama_host": provisioned(server).host, "loop_stall_s": STEADY_S}
        with daemon(tmp_path, program=(CHILD, "--supervised", how), **settings) as running:
            with Peer(running.endpoint) as peer:
                peer.send("submit", id="m1", brief=f"{BRIEF} 1")
                again = running.started()
            with Peer(again.endpoint) as peer:
                assert peer.result("m1")["state"] == "COMPLETE"
                pid = peer.ask("info")["pid"]
            assert pid != running.process.pid
            assert running.terminate() == 0, "SIGTERM is passed on, and ends both"
            assert not Path(f"/proc/{pid}").exists()
        assert [line["code"] for line in running.log if line["event"] == "daemon_restarts"] == [EXIT_STALLED]


def test_a_daemon_ends_with_the_supervisor_that_is_killed(tmp_path: Path) -> None:
    with (
        ScriptedOllama() as server,
        daemon(tmp_path, program=(CHILD, "--supervised", "never"), ollama_host=provisioned(server).host) as running,
    ):
        with Peer(running.endpoint) as peer:
            pid = peer.ask("info")["pid"]
        os.kill(running.process.pid, signal.SIGKILL)
        assert running.logged("stopped")["event"] == "stopped", "in good order"
        deadline = time.monotonic() + END_S
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
