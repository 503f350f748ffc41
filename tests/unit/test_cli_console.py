"""The verb console: the link, and what is said where there is none; and what the start prints of it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from batos.cli import main
from batos.cli.output import Output
from batos.cli.start import report
from batos.console.access import token_of
from tests.support.cli import daemon

ADDRESS = "http://127.0.0.1:5780"
LINK = f"{ADDRESS}/?token=abc"


def test_the_link_holds_the_token_of_the_daemons_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with daemon({"info": {"type": "info", "console": ADDRESS, "data": str(tmp_path)}}) as scripted:
        assert main(["console", "--connect", scripted.endpoint]) == 0
        link = f"{ADDRESS}/?token={token_of(tmp_path)}"
        assert capsys.readouterr().out.strip() == link
        assert main(["console", "--json", "--connect", scripted.endpoint]) == 0
    assert json.loads(capsys.readouterr().out) == {"type": "console", "console": ADDRESS, "link": link}


def test_a_daemon_without_a_console_is_told_how_to_have_one(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon({"info": {"type": "info", "console": None, "data": "/nowhere"}}) as scripted:
        assert main(["console", "--connect", scripted.endpoint]) == 2
    assert "batos run --console" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_is_shown_the_token(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    output, stream = Output(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    report({"version": "1", "pid": 1, "console": ADDRESS}, output, LINK)
    assert ("token=abc" in stream.getvalue()) is terminal
    assert ADDRESS in stream.getvalue()
