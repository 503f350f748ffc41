"""`batos run --supervise`: what is started again and what is not, how often, and which signals reach whom."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from batos.cli import daemon
from batos.errors import EXIT_IMAGE_FAILED, EXIT_STALLED

ROOT = Path(__file__).parents[2]
WAIT_S = 60

DAEMON = """
import os, pathlib, signal, sys
note, *codes = sys.argv[1:]
pathlib.Path(note).open("a").write(f"{os.getpid()}\\n")
times = len(pathlib.Path(note).read_text().split())
code = codes[min(times, len(codes)) - 1]
if code == "waits":
    def hear(number, frame):
        print(f"heard {signal.Signals(number).name}", flush=True)
        if number != signal.SIGHUP:
            sys.exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, hear)
    print("waits", flush=True)
    while True:
        signal.pause()
if code.startswith("-"):
    os.kill(os.getpid(), -int(code))
sys.exit(int(code))
"""
"""Notes that it was started, and ends with the code that is its turn."""

SUPERVISES = """
import sys
from batos import logs
from batos.cli import daemon
daemon.PAUSE_S = 0.0 if sys.argv[1] == "at once" else 3600.0
logs.configure("info", "json")
sys.exit(daemon.run_supervised(sys.argv[2:]))
"""


def begun(note: Path, *codes: object, pause: str = "at once", **options: Any) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", SUPERVISES, pause, sys.executable, "-c", DAEMON, str(note), *map(str, codes)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, **options)


def ended(note: Path, *codes: object) -> tuple[int, int, list[dict[str, Any]]]:
    """Its exit code, how often the daemon was started, and the log."""
    process = begun(note, *codes)
    _, log = process.communicate(timeout=WAIT_S)
    return process.returncode, len(note.read_text().split()), [json.loads(line) for line in log.splitlines()]


@pytest.mark.parametrize("code", [0, 1, 2, 4, 130])
def test_what_would_come_again_or_was_asked_for_is_passed_on(tmp_path: Path, code: int) -> None:
    assert ended(tmp_path / "note", code) == (code, 1, [])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_that_ended_it_is_told_as_a_shell_does(tmp_path: Path, number: int) -> None:
    assert ended(tmp_path / "note", -number) == (128 + number, 1, [])


def test_what_a_start_mends_is_started_again(tmp_path: Path) -> None:
    code, starts, log = ended(tmp_path / "note", EXIT_STALLED, EXIT_IMAGE_FAILED, 0)
    assert (code, starts) == (0, 3)
    assert [(line["event"], line["code"]) for line in log] == [("daemon_restarts", 62), ("daemon_restarts", 70)]


def test_again_and_again_within_a_minute_it_is_given_up(tmp_path: Path) -> None:
    code, starts, log = ended(tmp_path / "note", EXIT_STALLED)
    assert (code, starts) == (EXIT_STALLED, 1 + daemon.RESTARTS)
    assert [line["event"] for line in log] == ["daemon_restarts"] * daemon.RESTARTS + ["daemon_given_up"]
    assert log[-1]["restarts"] == daemon.RESTARTS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_ends_is_passed_on_once(tmp_path: Path, number: signal.Signals) -> None:
    process = begun(tmp_path / "note", "waits")
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGHUP)
    assert process.stdout.readline() == "heard SIGHUP\n"
    process.send_signal(number)
    assert process.communicate(timeout=WAIT_S)[0] == f"heard {number.name}\n"
    assert process.returncode == 0


def test_ctrl_c_at_a_terminal_is_heard_once(tmp_path: Path) -> None:
    """The terminal sends it to its whole foreground group: heard twice, it would cut short what missions get for their end."""
    master, slave = pty.openpty()
    process = begun(
        tmp_path / "note",
        "waits",
        stdin=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # the terminal is its own
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    os.write(master, b"\x03")
    assert process.communicate(timeout=WAIT_S)[0] == "heard SIGINT\n"
    assert process.returncode == 0
    os.close(master)
    os.close(slave)


def test_in_the_pause_before_a_start_it_ends_at_once(tmp_path: Path) -> None:
    process = begun(tmp_path / "note", EXIT_STALLED, pause="long")
    assert process.stderr is not None
    assert json.loads(process.stderr.readline())["event"] == "daemon_restarts"
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 0
    process.communicate()
    assert len((tmp_path / "note").read_text().split()) == 1


def test_make_and_the_container_run_it_supervised() -> None:
    assert "batos run --supervise " in (ROOT / "Makefile").read_text()
    assert 'CMD ["run", "--supervise"]' in (ROOT / "Containerfile").read_text()
