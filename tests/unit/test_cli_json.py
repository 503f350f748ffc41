"""`--json`: every verb has it, and prints what docs/cli.md says."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from batos.cli import main
from batos.cli.app import app, register
from batos.errors import DaemonUnavailable
from batos.wire.fields import Request
from batos.wire.schemas import OPS
from tests.support.cli import Script, daemon

ROOT = Path(__file__).parents[2]
ID = "m1"
ACCEPTED: dict[str, Any] = {"type": "accepted", "state": "ACCEPTED"}
RESULT = {"type": "result", "state": "COMPLETE", "result": {"text": "Cake."}}
WORDS: dict[str, list[str]] = {
    "allow": ["notes.*"], "ask": ["notes.*"], "deny": ["notes.*"],
    "answer": [ID, "twelve"], "at": ["2h"], "cancel": [ID], "diff": ["robin", "2h"], "fork": ["somewhere"],
    "grant": ["robin", "koan_", "forget_"], "history": ["robin"], "ingest": ["a.txt"], "method": ["robin", "koan_"], "pause": [ID],
    "rate": [ID, "+1"], "replay": [ID], "result": [ID], "resume": [ID], "revert": ["robin", "koan_"], "search": ["where", "is", "it"],
    "send": ["Plan", "a", "party"], "send-to": ["robin", "koan_"], "show": ["robin"], "status": [ID],
    "step": [ID],
    "teach": ["robin", "koan_", "-e", "[2] -> 4"], "undo": [ID], "watch": [ID],
}  # fmt: skip
"""Of the verbs that need words."""
LOCAL = {"audit", "config", "console", "copy", "doctor", "doors", "keys", "mcp", "restore", "run", "secrets", "service", "train"}
"""Verbs without a daemon to ask: their documents are tested where those verbs are, and their types below."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("BATOS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def verbs() -> dict[str, Any]:
    register()
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def documented() -> dict[str, str]:
    """The type that each verb prints, out of the table in docs/cli.md."""
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \| (`\w+`|–) \|", text, re.MULTILINE)
    return {verb: kind.strip("`") for names, kind in rows for verb in re.findall(r"`([\w-]+)`", names)}


def answer(request: Request) -> Any:
    """A reply of the op's own type, with what the verbs look at beside it."""
    more: dict[str, Any] = {"missions": [], "entries": [], "metrics": [], "hits": [], "changes": [{}], "outcome": "same"}
    match request.op:
        case "submit" | "send" | "teach" | "revert" | "grant":
            return ACCEPTED
        case "watch":
            return [{"type": "status", "state": "IDLE"}, RESULT]
        case "result":
            return RESULT
        case "ingest":
            return [{"type": "ingest", "watching": True}, {"type": "ingest", "added": 1}]
        case "pause" | "resume" | "cancel" | "answer" | "rate":
            return {"type": "status", "state": "PAUSED"}
        case "step.open":
            return {"type": "step", "session": "s", "at": {"number": 0, "state": "IDLE"}}
        case "compare.list":
            return {"type": "comparisons", "comparisons": []}
        case "step.close":
            return {"type": "steps", "sessions": []}
        case "tool_grant":
            return {"type": "tool_grants", "grants": []}
        case "schedules":
            return {"type": "schedules", "schedules": []}
        case "hooks":
            return {"type": "hooks", "hooks": []}
        case "folders":
            return {"type": "folders", "folders": []}
        case "info":
            return {"type": "info", "console": "http://127.0.0.1:1", "data": "data", "personas": []}
        case op:
            return {"type": op, **more}


SCRIPT: Script = dict.fromkeys(OPS, answer)


def test_every_verb_has_the_flag_and_a_row_in_the_documents() -> None:
    assert [name for name, verb in verbs().items() if not any("--json" in parameter.opts for parameter in verb.params)] == []
    assert sorted(documented()) == sorted(verbs())


@pytest.mark.parametrize("verb", sorted(set(documented()) - LOCAL))
def test_a_verb_prints_the_document_that_is_documented(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(SCRIPT) as scripted:
        code = main([verb, *WORDS.get(verb, ()), "--json", "--connect", scripted.endpoint])
    out = capsys.readouterr().out
    assert code in (0, 1), out  # 1 is what some say of what they found: nothing
    try:
        last = json.loads(out)
    except ValueError:
        last = json.loads(out.splitlines()[-1])
    assert last["type"] == documented()[verb]


def test_verbs_without_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.py").write_text("def twice_(self, n):\n    return n * 2\n")
    for words in (["audit", "m.py"], ["doctor"]):
        main([*words, "--json"])
        assert json.loads(capsys.readouterr().out)["type"] == documented()[words[0]]
    assert main(["mcp", "--json", "--connect", "tcp://127.0.0.1:1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["type"], Path(told["command"]).name, told["args"]) == ("mcp", "batos", ["mcp", "--connect", "tcp://127.0.0.1:1"])
    assert main(["config", "--json"]) == 0
    assert {"name", "value", "source", "type", "limits", "help"} == set(json.loads(capsys.readouterr().out)[0])


@pytest.mark.parametrize("verb", sorted(set(documented()) - LOCAL))
def test_without_a_daemon_every_verb_says_so_as_a_document(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *WORDS.get(verb, ()), "--json", "--connect", "tcp://127.0.0.1:9"]) == 3
    assert json.loads(capsys.readouterr().out)["code"] == DaemonUnavailable.code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missions", "--state", "foo"), "no state 'foo'"),
        (("train", "foo"), "'methods', 'persona'"),
        (("missions", "--limit", "0"), "--limit"),
        (("mission",), "missions"),
        (("status",), "see `batos status --help`"),
        (("missions", "--nonsense"), "--nonsense"),
        (("at", "2h", "missions", "--state", "foo"), "no state 'foo'"),
        (("at", "2h", "send"), "not 'send'"),
    ],
)
def test_wrong_usage_is_a_document_too(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--json"]) == 2
    told = capsys.readouterr()
    error = json.loads(told.out)
    assert (error["type"], error["code"], told.err) == ("error", "config", "")
    assert said in error["message"]
    assert main([*words]) == 2
    assert capsys.readouterr().out == "", "without it, it is said on standard error"


def test_metrics_that_are_not_there_are_1_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"name": "batos_units", "samples": [{"name": "batos_units_total", "labels": {}, "value": 3.0}]}
    with daemon({"metrics": {"type": "metrics", "metrics": [found]}}) as scripted:
        for name, code in (("nope", 1), ("batos_u", 0)):
            assert main(["metrics", name, "--connect", scripted.endpoint]) == code
            assert ("batos_units_total" in capsys.readouterr().out) is (code == 0)
            assert main(["metrics", name, "--json", "--connect", scripted.endpoint]) == code
            assert json.loads(capsys.readouterr().out)["metrics"] == ([] if code else [found])


def test_help_is_help_also_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["missions", "--json", "--help"]) == 0
    assert "--state" in capsys.readouterr().out


def test_every_verb_of_the_operators_seat_exists() -> None:
    promised = (
        "run send send-to missions result status watch cancel answer show ls history diff undo at fork search ingest memory methods method "
        "revert models experts personas changes metrics info doctor backup restore pack config audit replay"
    )
    assert set(promised.split()) - set(verbs()) == set()


@pytest.mark.parametrize(("given", "hint"), [("mehtods", "methods"), ("bakcup", "backup")])
def test_a_verb_that_is_not_there_is_answered_with_the_nearest(given: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([given]) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_the_verbs(shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_BATOS_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", "batos met")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "batos met")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    main([])
    out = capsys.readouterr().out
    assert "methods" in out
    assert "metrics" in out
