"""`batos service`: the units, what systemd thinks of them, and what the command writes, keeps and takes away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from batos.cli import main
from batos.cli.service import MARK, NAME, quoted, unit
from tests.support import walled

ROOT = Path(__file__).parents[2]
ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith(("BATOS_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl that writes down what it was told, and says that all is active."""
    folder = tmp_path / "bin"
    folder.mkdir()
    told = tmp_path / "told"
    (folder / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {told}\ncase "$*" in *is-*) echo active;; esac\n')
    (folder / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return told


@pytest.mark.parametrize("user", [True, False])
@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed (Debian: systemd)")
def test_systemd_takes_the_units(tmp_path: Path, user: bool) -> None:
    (tmp_path / NAME).write_text(unit(Path("/var/lib/batos"), Path("/etc/a b/batos.toml"), user=user))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(["--user"] if user else []), str(tmp_path / NAME)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed (Debian: systemd)")
def test_the_unit_of_the_machine_is_no_open_door(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(unit(Path("/var/lib/batos"), None, user=False))
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(tmp_path / NAME)]
    assert subprocess.run(words, capture_output=True, timeout=60).returncode == 0, "an exposure of at most 3.0 of 10"


@pytest.mark.skipif(ANALYZE is None or walled.LIBRARY is None, reason="systemd-analyze or libseccomp is not installed")
def test_the_walls_of_generated_methods_stand_behind_those_of_the_unit() -> None:
    """A worker gives up its rights, and runs, under the filter that systemd would have put on the daemon."""
    words = [
        "-m",
        "tests.support.walled",
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/unit/test_sandbox_jail.py",
    ]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[-2000:]


def test_what_a_unit_must_say() -> None:
    text = unit(Path("/data"), Path("/etc/x.toml"), user=True, python="/opt/a b/python")
    assert 'ExecStart="/opt/a b/python" -m batos run --data /data --config /etc/x.toml' in text
    for line in (
        "Type=notify",
        "WatchdogSec=60",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "NotifyAccess=main",
        "Restart=on-failure",
        "RestartPreventExitStatus=2",  # and neither 62, a loop that stood, nor 70, a storage that failed
        "NoNewPrivileges=yes",
    ):
        assert f"\n{line}\n" in text
    assert "Protect" not in text, "a user's manager may not"
    machine = unit(Path("/var/lib/batos"), None, user=False)
    for line in ("DynamicUser=yes", "StateDirectory=batos", "ProtectSystem=strict", "CapabilityBoundingSet="):
        assert f"\n{line}\n" in machine
    assert "MemoryDenyWriteExecute" not in machine, "models are computed by code that is made at run time"
    assert "PrivateDevices" not in machine, "a GPU is a device"


@pytest.mark.parametrize(
    ("word", "written"),
    [("/a", "/a"), ("/a b", '"/a b"'), ("50%", "50%%"), ("$x", "$$x"), ('a"b', '"a\\"b"'), ("", '""'), ("a\\b", '"a\\\\b"')],
)
def test_words_of_a_command_line(word: str, written: str) -> None:
    assert quoted(word) == written


def test_install_status_and_uninstall_for_a_user(tmp_path: Path, systemctl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".config" / "systemd" / "user" / NAME
    assert main(["service", "install", "--user", "--data", str(tmp_path / "my data"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["type"], told["unit"], told["systemd"]) == ("service", str(path), "done")
    assert f'--data "{tmp_path}/my data"' in path.read_text()
    assert systemctl.read_text().splitlines() == ["--user daemon-reload", f"--user enable {NAME}", f"--user restart --no-block {NAME}"]
    assert main(["service", "install", "--user"]) == 0, "again, with other words"
    assert "my data" not in path.read_text()
    assert main(["service", "status", "--user", "--json"]) == 0
    capsys.readouterr()
    assert main(["service", "uninstall", "--user"]) == 0
    assert not path.exists()
    assert "kept" in capsys.readouterr().out
    assert f"--user disable --now {NAME}" in systemctl.read_text()


@pytest.mark.parametrize("user", [[], ["--user"]])
@pytest.mark.parametrize("flag", ["--data", "--config"])
def test_an_empty_name_is_not_left_out_silently(flag: str, user: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["service", "show", *user, flag, ""]) == 2
    assert "'' names no" in capsys.readouterr().err


def test_a_unit_of_somebody_s_own_is_left_alone(tmp_path: Path, systemctl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".config" / "systemd" / "user" / NAME
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\n")
    for action in ("install", "uninstall"):
        assert main(["service", action, "--user"]) == 2
        assert path.read_text() == "[Service]\n"
    assert "move it away" in capsys.readouterr().err
    assert not systemctl.exists()


def test_where_no_systemd_runs_the_unit_is_written_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert main(["service", "install", "--user"]) == 0
    assert "systemctl is not installed" in capsys.readouterr().out
    assert main(["service", "status", "--user", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["active"] == "unknown"


@pytest.mark.parametrize("place", ["closed", "tmp"])
def test_a_unit_of_the_machine_is_not_installed_where_its_user_could_not_run_it(
    tmp_path: Path, place: str, systemctl: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("batos.cli.service.MACHINE", tmp_path / "units")
    monkeypatch.setattr("batos.cli.service._OWN", (tmp_path,) if place == "tmp" else ())
    python = tmp_path / "rooms" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    (tmp_path / "rooms").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    assert main(["service", "install"]) == 2
    told = capsys.readouterr().err
    assert "cannot reach" in told
    assert "--user" in told
    assert not systemctl.exists()
    assert not (tmp_path / "units").exists()


def test_a_unit_of_the_machine_needs_root_and_var_lib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["service", "install"]) == 2
    assert "--user" in capsys.readouterr().err
    assert main(["service", "show", "--data", "/home/x"]) == 2
    assert "/var/lib" in capsys.readouterr().err
    assert main(["service", "show", "--data", "/var/lib/mine", "--json"]) == 0
    assert "StateDirectory=mine" in json.loads(capsys.readouterr().out)["text"]
    assert main(["service", "show"]) == 0
    assert capsys.readouterr().out.startswith(MARK)
    assert main(["service", "instal"]) == 2
    assert "install" in capsys.readouterr().err
