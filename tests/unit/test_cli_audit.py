"""`batos audit`: the guardian's verdict on a file."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from batos.cli import main

GOOD = "def add(self, x):\n    self.items.append(x)\n    self._p_changed = True\n    return x\n"
BAD = "def add(self, x):\n    self.items.append(x)\n    return x\n"


@pytest.fixture
def method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BATOS_CONFIG", raising=False)
    return tmp_path / "method.py"


def test_accepted(method: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method.write_text(GOOD)
    assert main(["audit", str(method)]) == 0
    out = capsys.readouterr().out
    assert "accepted" in out
    assert "items" in out


def test_refused_with_the_finding(method: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method.write_text(BAD)
    assert main(["audit", str(method)]) == 4
    out = capsys.readouterr().out
    assert "error: line 3:" in out
    assert "[covenant]" in out
    assert "refused" in out


def test_as_json(method: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method.write_text(BAD)
    assert main(["audit", str(method), "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["type"], document["accepted"], document["selector"]) == ("audit", False, "add")
    assert document["findings"][0]["rule"] == "covenant"
    assert document["contract"]["writes"] == ["items"]


def test_standard_input_selector_and_policy(method: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def given(text: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))

    source = b"def pack(self):\n    import json\n    return json.dumps(1)\n"
    given(source)
    assert main(["audit", "-"]) == 0
    given(source)
    assert main(["audit", "-", "--policy", "strict"]) == 4
    given(source)
    assert main(["audit", "-", "--selector", "other"]) == 4
    given(b"\xff\xfe")
    assert main(["audit", "-"]) == 4
    assert "[text]" in capsys.readouterr().out


def test_repair(method: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method.write_text(f"Here:\n```python\n{BAD}```\n")
    assert main(["audit", str(method), "--repair", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["source"] == GOOD
    assert document["repairs"] == ["took the code out of its fence", "added the covenant"]
    assert main(["audit", str(method), "--repair"]) == 0
    shown = capsys.readouterr()
    assert "repair: added the covenant" in shown.err
    assert GOOD.strip() in shown.out


def test_the_limits_are_settings(method: Path) -> None:
    method.write_text(GOOD + "#" * 300)
    assert main(["audit", str(method)]) == 0
    assert main(["audit", str(method), "--set", "method_bytes=256"]) == 4


@pytest.mark.parametrize("words", [["nowhere.py"], ["method.py", "--policy", "lenient"], [], ["method.py", "--policy", "default+root"]])
def test_wrong_usage(method: Path, words: list[str]) -> None:
    method.write_text(GOOD)
    assert main(["audit", *words]) == 2
