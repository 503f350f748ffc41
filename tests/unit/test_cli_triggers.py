"""The verbs `hooks`, `folders` and `notices`, as people read them; tables on terminals of any width."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from batos.__main__ import main
from batos.cli.output import Output
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
    away: Script = {"folders": {"type": "folders", "folders": [{**FOLDER, "away": "the folder /home/you/inbox is away"}]}}
    assert " away " in told(capsys, away, "folders")
    assert "the folder /home/you/inbox is away" in told(capsys, away, "folders", "show", "inbox")
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


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Give words that are wrong usage, which no daemon is asked about. Return what is said."""
    with daemon({}) as running:
        assert main([*words, "--connect", running.endpoint]) == 2
        assert running.requests == []
    return " ".join(capsys.readouterr().err.split())


def test_an_empty_text_is_refused_where_it_would_mean_something_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for typed in ("", "\n", " \r\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert "the apprise URL is empty" in refusal(capsys, "notices", "add", "phone", "--apprise", "-")
    assert "--on names no fact" in refusal(capsys, "notices", "add", "phone", "--hook", "https://example.org/x", "--on", " ,")
    assert "the working folder is ." in refusal(capsys, "folders", "add", "", "Summarise {path}")


def test_messages_that_may_not_have_arrived_are_settled(capsys: pytest.CaptureFixture[str]) -> None:
    settled: Script = {"notice_settle": {"type": "notices", "channels": [], "untold": 0, "tied": "", "settled": 3}}
    for words, name in ((["settle"], None), (["settle", "phone"], "phone")):
        with daemon(settled) as running:
            assert main(["notices", *words, "--connect", running.endpoint]) == 0
        assert [request.name for request in running.requests] == [name]  # type: ignore[attr-defined]
        assert "3 messages are settled" in capsys.readouterr().out
    listed: Script = {"notices": {"type": "notices", "channels": [], "untold": 3, "tied": ""}}
    assert "settle says that you have seen them" in " ".join(told(capsys, listed, "notices").split())


def test_a_misspelled_field_of_a_schedules_brief_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    page = {"name": "s", "when": "hourly", "zone": "UTC", "brief": "b", "missed": "once", "overlap": "all", "paused": False, "times": []}
    page |= {"runs": [], "last": None, "failures": 0, "stop_after": None, "persona": None, "depth": None, "priority": 0}
    added: Script = {"schedule_add": {"type": "schedules", "schedules": [page]}}
    for brief, hint in (("News since {lats}?", True), ("Of {last} and {date}", False), ('Reply as {"json": 1} or {name}', False)):
        text = " ".join(told(capsys, added, "schedule", "add", "hourly", brief).split())
        assert ("{lats} is not a field (did you mean 'last'?) and stays as it is" in text) is hint


HEADINGS = ("id", "state", "brief")
ROWS = (
    ("296a8229-271b-4b96-bd34-32caa9e81443", "COMPLETE", "Write a story about bats"),
    ("b805cbd9-81cd-4cbe-adca-cf959e286cd0", "FAILED", "🦇🦇"),
)


@pytest.mark.parametrize("width", [20, 40, 59, 60, 80])
def test_a_table_loses_nothing_on_a_narrow_terminal(width: int) -> None:
    stream, output = io.StringIO(), Output()
    output.console = Console(file=stream, force_terminal=True, no_color=True, width=width, markup=False, emoji=False)
    output.rows(HEADINGS, ROWS)
    output.pairs([("a name of thirty characters ...", "its value")])
    told = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    for part in (*HEADINGS, *(word for row in ROWS for cell in row for word in cell.split()), "a name of thirty characters ..."):
        assert part in told, part
    assert "…" not in told
    assert (told.count("state") == len(ROWS)) is (width < 60), "a row is a block of lines where the table does not fit"
