"""The jail by itself: Python in the place of the worker, which asks for everything."""

# ruff: noqa: E501  the sources of methods

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from batos.sandbox import jail, workers

pytestmark = pytest.mark.skipif(not all(workers.standing_walls().values()), reason="this kernel lacks a wall")

PYTHON = Path(sys.executable).resolve()
FORBIDDEN = {
    "open('/etc/passwd').read()": "Permission denied",
    "open(path, 'w')": "Operation not permitted",
    "os.open(path, os.O_RDWR)": "Operation not permitted",
    "os.unlink(path)": "Operation not permitted",
    "os.rename(path, path + 'x')": "Operation not permitted",
    "os.mkdir(path + 'd')": "Operation not permitted",
    "os.chmod(path, 0o777)": "Operation not permitted",
    "os.symlink('/', path + 'l')": "Operation not permitted",
    "os.listdir('/home')": "Permission denied",
    "socket.socket()": "Operation not permitted",
    "socket.socketpair()": "Operation not permitted",
    "os.fork()": "Operation not permitted",
    "subprocess.run(['/bin/true'])": "Operation not permitted",
    "os.execv('/bin/sh', ['sh'])": "Permission denied",
    "os.kill(os.getppid(), 0)": "Operation not permitted",
    "os.setuid(1)": "Operation not permitted",
    "os.pidfd_open(1)": "Operation not permitted",
    "os.memfd_create('x')": "Operation not permitted",
    "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))": "",
    "ctypes.CDLL(None).syscall(425, 8, 0) < 0 and 1 / 0": "division by zero",
    "ctypes.CDLL(None).ptrace(0, 0, 0, 0) < 0 and 1 / 0": "division by zero",
}


def jailed(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    libraries = [word for place in {str(PYTHON.parent.parent), sys.base_prefix, sys.prefix} for word in ("--read", place)]
    command = [sys.executable, "-I", "-S", jail.__file__, *options, *libraries, str(PYTHON), "-I", "-S", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("attempt", FORBIDDEN)
def test_a_jailed_process_may_not(attempt: str, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("here")
    done = jailed(f"import os, socket, subprocess, resource, ctypes\npath = {str(target)!r}\n{attempt}")
    assert done.returncode != 0
    assert FORBIDDEN[attempt] in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert target.read_text() == "here"


def test_it_may_compute_use_threads_and_its_pipes() -> None:
    done = jailed(
        "import threading, os, time\nt = threading.Thread(target=print, args=(6 * 7,))\nt.start()\nt.join()\nprint(dict(os.environ).get('HOME'), time.time() > 0)"
    )
    assert (done.returncode, done.stdout) == (0, "42\nNone True\n"), done.stderr


@pytest.mark.parametrize("wall", ["seccomp", "landlock"])
def test_each_wall_stands_without_the_other(wall: str) -> None:
    done = jailed("import os\nos.unlink('/etc/passwd-that-is-not-there')", "--without", wall)
    assert "Operation not permitted" in done.stderr or "Permission denied" in done.stderr or "No such file" in done.stderr
    assert "Permission" in jailed("open('/etc/hostname', 'a')", "--without", wall).stderr or wall == "landlock"
    assert jailed("open('/etc/hostname', 'w')", "--without", wall).returncode != 0


def test_the_launcher_takes_a_path_with_a_space_and_quotes(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a "folder"'
    folder.mkdir()
    program = folder / "prog ram"
    shutil.copy("/bin/echo", program)
    script = workers.worker_launcher(folder, str(program))
    done = subprocess.run([script, "a b"], capture_output=True, text=True, timeout=60, env={})
    assert (done.returncode, done.stdout) == (0, "a b\n")


def test_the_probe_names_every_wall() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", jail.__file__, "--probe"], capture_output=True, text=True, timeout=60)
    assert list(json.loads(done.stdout)) == list(jail.WALLS)
