"""Start of the daemon without typer: the same options as the whole command line has, and nothing of typer and rich in memory."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from batos.cli.app import app, register
from batos.cli.start import CONSOLE_ON, StartFlags, flags_of

HEAVY = ("typer", "click", "rich", "pygments")
LOADED = "import json, sys; print(json.dumps([name for name in {names} if name in sys.modules]))"


def test_every_option_of_run_is_read_without_typer() -> None:
    register("run")
    command = get_command(app).commands["run"]  # type: ignore[attr-defined]
    for option in command.params:
        (name,) = (one for one in option.opts if one.startswith("--"))
        words = [name] if option.is_flag else [name, "x"]
        if name == "--supervise":
            assert flags_of(words) is None
        elif name not in ("--help",):
            assert flags_of(words) not in (None, StartFlags(listen=[], model=[], set=[])), name


def test_the_flags_are_those_that_were_given() -> None:
    words = ["--data", "d", "--image=file:///i", "--listen", "a", "--listen=b", "--profile", "p", "--model", "m", "--config", "c", "--json"]
    found = flags_of([*words, "--set", "wire.listen=x", "--console"])
    assert found == StartFlags("d", "file:///i", ["a", "b"], "p", ["m"], "c", ["wire.listen=x", CONSOLE_ON], True)
    assert flags_of(found.words()) == found


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["--supervise"], ["--data"], ["--dat", "x"], ["--nonsense"], ["word"], ["--listen", "--json"]]
)
def test_what_is_not_read_here_is_left_to_the_whole_command_line(words: list[str]) -> None:
    assert flags_of(words) is None


def _loaded(code: str, folder: Path, names: tuple[str, ...] = HEAVY) -> list[str]:
    code = f"{code}\n{LOADED.format(names=names)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, cwd=folder)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


_START = """
from batos.cli import process, start
from batos.errors import BatosError
process.own_process("run")
try:
    start.start(start.flags_of(["--data", "file"]))
except BatosError as e:
    assert "file" in str(e), e
else:
    raise AssertionError("it ran")
"""


def test_a_daemon_that_starts_loads_neither_typer_nor_rich(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # a data folder that is a file ends the start after all imports, before anything runs
    assert _loaded(_START, tmp_path) == []
    assert _loaded("import batos.app.kernel, httpx, ollama", tmp_path) == []  # as it asks Ollama for the first time


def test_rich_can_be_imported_after_the_log(tmp_path: Path) -> None:
    assert _loaded("import batos.logs; import rich.console", tmp_path) == ["rich"]


_CONNECT = """
import sys
from batos.bridge import addresses
addresses.transport(addresses.parse("127.0.0.1"), [])
assert "httpcore" in sys.modules
"""


def test_a_daemon_that_asks_an_ollama_does_without_trio(tmp_path: Path) -> None:
    assert importlib.util.find_spec("trio") is not None  # else there is nothing to keep out
    assert _loaded(_CONNECT, tmp_path, ("trio",)) == []
    assert _loaded(f"{_CONNECT}import trio", tmp_path, ("trio",)) == ["trio"]
