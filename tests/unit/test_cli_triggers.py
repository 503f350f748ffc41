"""The verbs `hooks` and `folders`, as people read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.__main__ import main
from tests.support.cli import Script, daemon

HOOK: dict[str, Any] = {
    "name": "issues",
    "path": "/hooks/issues",
    "brief": "Label {issue.title}",
    "fields": ["issue.title"],
    "persona": None,
    "depth": "direct",
    "priority": 0,
    "rate": 60,
    "hosts": ["hooks.example.org"],
    "when": ["action=opened"],
    "paused": False,
    "has_secret": True,
    "last": {"id": "hook-issues-1-5f", "at": 1.0, "state": "COMPLETE"},
    "runs": [{"id": "hook-issues-1-5f", "at": 1.0, "state": "COMPLETE"}],
}
FOLDER: dict[str, Any] = {
    "name": "inbox",
    "folder": "/home/you/inbox",
    "brief": "Summarise {path}",
    "persona": None,
    "depth": None,
    "priority": 0,
    "stop_after": 5,
    "watched": True,
    "waiting": 3,
    "last": None,
    "failures": 0,
    "paused": False,
    "runs": [],
}


def told(capsys: pytest.CaptureFixture[str], script: Script, *words: str, code: int = 0) -> str:
    with daemon(script) as scripted:
        assert main([*words, "--connect", scripted.endpoint]) == code
    said = capsys.readouterr()
    return said.out + said.err


def test_a_new_hook_says_its_address_its_secret_and_how_to_call_it(capsys: pytest.CaptureFixture[str]) -> None:
    script: Script = {
        "hook_add": {"type": "hooks", "hooks": [{**HOOK, "runs": []}], "secret": "whsec_abc"},
        "info": {"type": "info", "doors": "http://127.0.0.1:5999"},
    }
    text = told(capsys, script, "hooks", "add", "issues", "Label {issue.title}", "--when", "action=opened", "--host", "hooks.example.org")
    for part in (
        "http://127.0.0.1:5999/hooks/issues?token=whsec_abc",
        "action=opened",
        "issue.title",
        "hooks.example.org",
        "Bearer whsec_abc",
    ):
        assert part in text


def test_a_daemon_without_doors_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    script: Script = {
        "hook_roll": {"type": "hooks", "hooks": [HOOK], "secret": "whsec_abc"}, "info": {"type": "info", "doors": None},
    }  # fmt: skip
    assert "no doors" in told(capsys, script, "hooks", "roll", "issues")


def test_lists_and_pages(capsys: pytest.CaptureFixture[str]) -> None:
    hooks: Script = {"hooks": {"type": "hooks", "hooks": [{**HOOK, "has_secret": False}]}}
    assert "no secret" in told(capsys, hooks, "hooks")
    assert "batos hooks roll issues" in told(capsys, hooks, "hooks", "show", "issues")
    folders: Script = {
        "folders": {"type": "folders", "folders": [FOLDER, {**FOLDER, "name": "two", "paused": True, "why": "its last 5 failed"}]}
    }
    text = told(capsys, folders, "folders")
    assert ("inbox" in text, "stopped" in text) == (True, True)
    added: Script = {"folder_add": {"type": "folders", "folders": [FOLDER], "present": 214}}
    assert "214 files are in /home/you/inbox already: they become no missions" in told(
        capsys, added, "folders", "add", "inbox", "Summarise {path}"
    )
    assert "become missions, a few" in told(capsys, added, "folders", "add", "inbox", "Summarise {path}", "--existing")
    ran: Script = {"folder_run": {"type": "folders", "folders": [FOLDER], "reopened": 7}}
    assert "7 files become missions" in told(capsys, ran, "folders", "run", "inbox")


def test_a_folder_is_watched_and_made_missions_of_in_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked: list[Any] = []

    def ingest(request: Any) -> list[dict[str, Any]]:
        asked.append(request)
        return [{"type": "ingest", "watching": True}, {"type": "ingest", "queued": 0}]

    def add(request: Any) -> dict[str, Any]:
        asked.append(request)
        return {"type": "folders", "folders": [FOLDER], "present": 0}

    told(capsys, {"ingest": ingest, "folder_add": add}, "ingest", "--watch", str(tmp_path), "--each", "Summarise {path}")
    assert [one.op for one in asked] == ["folder_add", "ingest"], "what is there is noted before the memory reads it"
    assert "--watch" in told(capsys, {}, "ingest", "a.txt", "--each", "Summarise {path}", code=2)


@pytest.mark.parametrize(
    "words",
    [
        ("hooks", "ad"), ("hooks", "add", "issues"), ("hooks", "show"), ("hooks", "show", "x", "--rate", "3"),
        ("folders", "ad"), ("folders", "add", "inbox"), ("folders", "run"), ("folders", "run", "x", "--existing"),
    ],
)  # fmt: skip
def test_wrong_words_are_told(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert words[0] in told(capsys, {}, *words, code=2)
