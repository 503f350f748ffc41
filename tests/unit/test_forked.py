"""Programs of the tests that are forked from a template: each is as one that `subprocess` starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked

TELLS = """
import json, os, random, signal, subprocess, sys, threading
from pathlib import Path

heard = []
thread = threading.Thread(target=lambda: heard.append(threading.current_thread() is not threading.main_thread()))
thread.start()
thread.join()
status = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({
    "words": sys.argv, "name": __name__, "main": sys.modules["__main__"].__dict__ is globals(), "path": sys.path, "folder": os.getcwd(),
    "environment": dict(os.environ), "parent": os.getppid(), "session": os.getsid(0) == os.getpid(),
    "group": os.getpgrp() == os.getpid(), "descriptors": sorted(os.listdir("/proc/self/fd"))[:3] and len(os.listdir("/proc/self/fd")),
    "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt")}, "thread": heard,
    "main thread": threading.main_thread() is threading.current_thread(), "native": threading.get_native_id() == os.getpid(),
    "input": sys.stdin.read(), "encoding": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering, sys.stderr.errors],
    "child": subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, text=True).stdout, "umask": status["Umask"],
}))
print("noise", file=sys.stderr)
sys.exit(7)
"""
RANDOM = "import random, uuid; print(random.random(), uuid.uuid4())"

Start = Callable[..., Any]


def _told(run: Start, words: list[str], **more: Any) -> tuple[int, dict[str, Any], str]:
    done = run([sys.executable, *words], input="a line\n", capture_output=True, text=True, timeout=60, **more)
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("how", ["a file", "a module", "code"])
@pytest.mark.parametrize("session", [False, True])
def test_it_finds_what_a_program_finds_that_is_executed(tmp_path: Path, how: str, session: bool) -> None:
    (tmp_path / "tells.py").write_text(TELLS)
    words = {"a file": [str(tmp_path / "tells.py")], "a module": ["-m", "tells"], "code": ["-c", TELLS]}[how]
    more = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(forked.ROOT), "WORLD": "w\udcff"}, "start_new_session": session}
    forks, executes = (_told(run, [*words, "a", "--b=c"], **more) for run in (forked.run, subprocess.run))
    assert {name: told for name, told in forks[1].items() if told != executes[1][name]} == {}, executes[1]
    assert (forks[0], forks[2]) == (executes[0], executes[2]) == (7, "noise\n")
    assert forks[1]["parent"] == os.getpid(), "who started it waits for it"


def test_it_is_forked(tmp_path: Path) -> None:
    loaded = "import sys; print('batos.app.kernel' in sys.modules)"
    assert forked.run([sys.executable, "-c", loaded], capture_output=True, text=True).stdout == "True\n"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True).stdout == "False\n"


def test_no_two_draw_the_same() -> None:
    drawn = {forked.run([sys.executable, "-c", RANDOM], capture_output=True, text=True, check=True).stdout for _ in range(3)}
    assert len(drawn) == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_of_a_signal_and_its_stream_ends(number: signal.Signals) -> None:
    waits = "import sys, time; print('up', flush=True); time.sleep(600)"
    with forked.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        assert child.poll() is None
        child.send_signal(number)
        assert child.stdout.read() == ""
        assert child.wait(60) == -number


def test_an_error_nobody_caught_is_told_and_so_is_a_missing_folder(tmp_path: Path) -> None:
    failed = forked.run([sys.executable, "-c", "raise ValueError('so')"], capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "ValueError: so"
    with pytest.raises(FileNotFoundError):
        forked.run([sys.executable, "-c", "pass"], cwd=tmp_path / "gone")
    with pytest.raises(subprocess.CalledProcessError):
        forked.run([sys.executable, "-c", "raise SystemExit(3)"], check=True)
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run([sys.executable, "-c", "import time; time.sleep(600)"], timeout=0.5)
