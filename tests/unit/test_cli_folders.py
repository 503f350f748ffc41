"""Which data folder is meant where none is named: one for `make run`, `batos run`, `service` and `doctor`, or it is asked and told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batos.cli import main
from batos.cli.output import Output
from batos.cli.settings import IMAGE_FILE, chosen_folder, settings_from
from tests.support.cli import daemon

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, in a checkout of an earlier version's with an image in it."""
    for name in ("DATA", "IMAGE", "CONFIG", "LISTEN"):
        monkeypatch.delenv(f"BATOS_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    checkout = tmp_path / "checkout"
    (checkout / "var").mkdir(parents=True)
    (checkout / "var" / IMAGE_FILE).write_bytes(b"FS21")
    monkeypatch.chdir(checkout)
    return tmp_path


def own(home: Path) -> Path:
    return home / ".local" / "share" / "batos"


def asked(*said: str, terminal: bool = True, **flags: Any) -> str | None:
    answers = iter(said)
    given = {"data": None, "image": None, "listen": None, "profile": None, "file": None, "more": None, **flags}
    return chosen_folder(*settings_from(**given), Output(), lambda question: next(answers), terminal=terminal)


def test_one_image_in_another_place_is_asked_about(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = str(home / "checkout" / "var")
    assert [asked(word) for word in ("", "Y", "yes")] == [other] * 3
    assert asked("what", "n") == str(own(home))
    told = capsys.readouterr().err
    assert str(own(home)) in told
    assert other in told


def test_without_somebody_to_ask_it_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(terminal=False) is None
    assert f"a new image is made in {own(home)}" in capsys.readouterr().err
    own(home).mkdir(parents=True)
    (own(home) / IMAGE_FILE).write_bytes(b"FS21")
    assert asked() is None, "its own image is the one; there is nothing to ask"
    told = capsys.readouterr().err
    assert f"the image is the one in {own(home)}" in told
    assert "--data ./var" in told


def test_who_names_one_is_not_asked(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(data=str(home / "x")) is None
    assert asked(image="file:///elsewhere.fs") is None
    assert asked(more=["data=/elsewhere"]) is None
    monkeypatch.setenv("BATOS_DATA", str(home / "y"))
    assert asked() is None
    monkeypatch.delenv("BATOS_DATA")
    (home / "checkout" / "batos.toml").write_text('data = "/elsewhere"\n')
    assert asked() is None
    (home / "checkout" / "batos.toml").unlink()
    (home / "checkout" / "var" / IMAGE_FILE).unlink()
    assert asked() is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [("service", "show", "--user"), ("models", "--remove", "--dry"), ("keys", "list"), ("doctor",)])
def test_every_verb_that_means_a_data_folder_says_so(home: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    main(list(words))
    assert "--data ./var" in capsys.readouterr().err


def test_doctor_says_that_the_daemon_has_another_image(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = {"type": "info", "version": "1", "image": {"uri": "file:///elsewhere/live_image.fs"}, "ollama": {"host": "127.0.0.1:9"}}
    with daemon({"info": info}) as scripted:
        main(["doctor", "--data", str(home / "x"), "--listen", scripted.endpoint])
    assert "the daemon that answers has file:///elsewhere/live_image.fs" in " ".join(capsys.readouterr().out.split())


def test_make_run_means_the_same_folder_unless_an_earlier_version_had_another(tmp_path: Path) -> None:
    def said() -> str:
        done = subprocess.run(
            ["make", "-n", "-f", str(ROOT / "Makefile"), "run", "PYTHON=" + sys.executable], cwd=tmp_path, capture_output=True, text=True
        )
        return next(line for line in done.stdout.splitlines() if "batos run" in line)

    for name in ("pyproject.toml", "locks"):
        (tmp_path / name).symlink_to(ROOT / name)
    assert "--data" not in said()
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / IMAGE_FILE).write_bytes(b"FS21")
    assert "--data ./var" in said()
