"""The verb step: what its lines ask of the daemon, and what they show."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from batos.cli import main
from batos.cli.step_lines import HELP
from batos.errors import UnknownSession
from batos.wire.fields import Request
from tests.support.cli import Script, daemon

PLACE: dict[str, Any] = {
    "type": "step", "session": "s", "id": "party", "brief": "Plan a party", "state": "FAILED", "moment": "the image as it is now",
    "at": {"number": 4, "cycle": "1", "state": "SYNTHESIZING", "persona": "ROBIN"}, "ended": True, "changed": False,
    "rail": [{"number": 0, "cycle": "", "state": "IDLE", "persona": None},
             {"number": 4, "cycle": "1", "state": "SYNTHESIZING", "persona": "ROBIN"}],
    "slots": {"brief": "Plan a party", "plan": [["sage_facet_", "why"]]}, "edits": [], "notes": ["a note"],
    "inferences": [{"number": 1, "cycle": "1", "state": "SYNTHESIZING", "persona": "ROBIN", "part": None, "model": "m", "source": "missing",
                    "said": None, "asked": "Plan"}],
    "tools": [{"tool": "shop.order", "arguments": {"sku": "tea"}, "state": "DONE", "result": {"id": 7}}],
    "runs": [{"number": 1, "selector": "twice_", "object": "BRICK", "args": [2], "line": 3, "value": 4}],
    "counts": {"recorded": 1, "new": 0, "missing": 1}, "error": {"code": "inference_failed", "message": "away"}, "recorded": True,
}  # fmt: skip
DIFF = {
    "type": "step_continued", "session": "s", "id": "party", "dry": True, "conflicts": [
        {"target": "robin.x", "before": 1, "now": 2, "yours": 3, "mission": "other"}
    ], "diff": [{"number": 1, "kind": "slot", "target": "robin.x", "before": 1, "after": 3}],
}  # fmt: skip


def shown(request: Request) -> dict[str, Any]:
    more: dict[str, Any] = {}
    given: Any = request
    if given.inference:
        more["inference"] = {"system": "You are", "user": "Plan a party", "said": "Cake.", "source": "recorded"}
    if given.run:
        run = {**PLACE["runs"][0], "version": 2, "source": "def twice_(self, n):\n    m = n\n    return 2 * m\n"}
        more["method"] = {**run, "steps": [2, 3], "step": 2, "locals": {"m": "2"}}
    if given.target:
        more["object"] = {"slots": {"meta_prompt": "Request: $brief", "core_mission": "To be kind."}}
    return {**PLACE, **more}


SCRIPT: Script = {
    "step.open": PLACE,
    "step.show": shown,
    "step.go": {**PLACE, "at": {"number": 5, "cycle": "1", "state": "COMPLETE", "persona": "ROBIN"}},
    "step.edit": {**PLACE, "changed": True},
    "step.eval": {"type": "step_value", "session": "s", "value": [1, 2]},
    "step.continue": lambda request: DIFF if request.dry else {**DIFF, "dry": False, "with": "party.step1"},
    "step.close": {"type": "steps", "sessions": []},
}


def step(*lines: str, script: Script = SCRIPT, words: tuple[str, ...] = ("party",)) -> tuple[int, list[Any]]:
    with daemon(script) as scripted:
        code = main(["step", *words, *(word for line in lines for word in ("--do", line)), "--connect", scripted.endpoint])
        return code, scripted.requests


def test_it_shows_where_it_stands_and_closes_its_session(capsys: pytest.CaptureFixture[str]) -> None:
    code, requests = step("rail", "slots", "prompts", "tools", "runs", "error", "where", "help")
    out = capsys.readouterr().out
    assert (code, [one.op for one in requests]) == (0, ["step.open", "step.close"])
    for words in (
        "4 of 4  SYNTHESIZING",
        "inference_failed: away",
        "1 recorded, 1 missing",
        "shop.order",
        '{"id": 7}',
        "BRICK.twice_",
        "sage_facet_",
    ):
        assert words in out
    assert all(line.split()[0] in out for line in HELP)


@pytest.mark.parametrize(
    ("line", "op", "fields"),
    [
        ("next", "step.go", {"to": 5, "inferences": 0}),
        ("next 2", "step.go", {"to": 5, "inferences": 2}),
        ("go 3", "step.go", {"to": 3}),
        ("go DELEGATING 1", "step.go", {"to": "DELEGATING", "inferences": 1}),
        ("end", "step.go", {"to": "end"}),
        ("failure", "step.go", {"to": "failure"}),
        ("prompt 1", "step.show", {"inference": 1}),
        ("run 1", "step.show", {"run": 1, "line": None}),
        ("run 1 2", "step.show", {"run": 1, "line": 2}),
        ("show robin", "step.show", {"target": "robin"}),
        ("eval cycle.plan", "step.eval", {"expression": "cycle.plan"}),
        ('send brick twice_ 2 "a b"', "step.eval", {"target": "brick", "selector": "twice_", "args": [2, "a b"]}),
        ('set robin.core_mission "To be kind."', "step.edit", {"kind": "slot", "target": "robin.core_mission", "value": "To be kind."}),
        ("set robin.core_mission To be kind.", "step.edit", {"value": "To be kind."}),
        ("set cycle.plan []", "step.edit", {"kind": "cycle", "target": "plan", "value": []}),
        ("unset robin.mood", "step.edit", {"kind": "slot", "remove": True}),
        ("edit answer 1 Cake.", "step.edit", {"kind": "answer", "target": "1", "value": "Cake."}),
        ("reply Twelve", "step.edit", {"kind": "reply", "value": "Twelve"}),
        ("drop 2", "step.edit", {"drop": 2}),
        ("diff", "step.continue", {"dry": True}),
        ("continue! it was too much", "step.continue", {"dry": False, "anyway": False, "note": "it was too much"}),
        ("continue! anyway it was too much", "step.continue", {"anyway": True, "note": "it was too much"}),
    ],
)
def test_a_line_asks_the_daemon(line: str, op: str, fields: dict[str, Any]) -> None:
    code, requests = step(line)
    assert (code, requests[1].op) == (0, op)
    assert {name: getattr(requests[1], name) for name in fields} == fields
    assert [one.op for one in requests[2:]] == ([] if line.startswith("continue") else ["step.close"])


def test_a_text_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text("def twice_(self, n):\n    return n\n")
    _, requests = step(f"edit method brick.twice_ @{path}")
    assert (requests[1].kind, requests[1].value) == ("method", path.read_text())
    assert step(f"edit method brick.twice_ @{path}.no")[0] == 4


@pytest.mark.parametrize(
    "line", ["dance", "go", "prompt x", "edit nothing x y", "edit prompt", "set robin.x", "send brick", "continue note", 'send "']
)
def test_a_line_that_says_nothing_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, requests = step(line)
    assert (code, requests[-1].op) == (4, "step.close")
    assert capsys.readouterr().err


def test_the_run_of_a_method_shows_the_line_and_the_local_values(capsys: pytest.CaptureFixture[str]) -> None:
    step("run 1")
    out = capsys.readouterr().out
    for words in ("=>   3     return 2 * m", "m  2", "2 of 2 lines", "it answered 4"):
        assert words in out


def test_the_diff_names_what_others_changed(capsys: pytest.CaptureFixture[str]) -> None:
    step("diff")
    out = capsys.readouterr().out
    for words in ("slot robin.x", "- 1", "+ 3", "changed meanwhile: robin.x, by other; now 2"):
        assert words in out


def test_a_method_alone_is_sent_with_its_arguments() -> None:
    _, requests = step("runs", words=("--method", "brick", "count_words_", '"a b"', "-3"))
    assert (requests[0].target, requests[0].selector, requests[0].args, requests[0].id) == ("brick", "count_words_", ["a b", -3], None)
    assert main(["step", "one", "two"]) == 2


def test_lines_come_out_of_a_pipe_until_one_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("# a remark\n\nprompts\nend\nquit\nnext\n")
    with lines.open() as file:
        monkeypatch.setattr("os.read", _reading(file.fileno()))
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        code, requests = step()
    assert (code, [one.op for one in requests]) == (0, ["step.open", "step.go", "step.close"])


def _reading(descriptor: int) -> Any:
    import os

    read = os.read
    return lambda given, size: read(descriptor if given == 0 else given, size)


def test_json_is_the_place_after_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert step("end", words=("party", "--at", "3", "--inferences", "2", "--json"))[0] == 0
    assert json.loads(capsys.readouterr().out)["at"]["number"] == 5


def test_the_status_of_a_mission_says_that_it_was_continued(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"code": "deadline", "message": "late"}
    fact = {"at": 1795789799.0, "with": "m1.step1", "note": "too short", "state": "FAILED", "error": error, "attempts": 1}
    with daemon({"status": {"type": "status", "id": "m1", "state": "COMPLETE", "brief": "b", "continued": [fact]}}) as scripted:
        assert main(["status", "m1", "--connect", scripted.endpoint]) == 0
    assert "it was FAILED (deadline), changes m1.step1: too short" in " ".join(capsys.readouterr().out.split())


def test_a_session_that_is_gone_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert step("end", script={**SCRIPT, "step.go": UnknownSession("there is no session 's'")})[0] == 4
    assert "there is no session" in capsys.readouterr().err
