"""The verb undo: what it asks of the daemon, what it shows, and when it asks the user."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from batos.cli import main
from batos.errors import UndoConflict
from tests.support.cli import Script, daemon

DONE: dict[str, Any] = {
    "type": "undo", "redo": False, "dry": False, "missions": [{"id": "m1", "brief": "teach robin", "finished": 1.0}],
    "objects": [{"oid": "oid:1f", "parts": ["mood", "way"]}], "documents": {"gone": ["Keys"], "back": []},
}  # fmt: skip
LOT: dict[str, Any] = {**DONE, "missions": [{"id": "m2", "brief": "later", "finished": 2.0}, *DONE["missions"]]}


def batos(script: Script, *words: str) -> tuple[int, list[Any]]:
    with daemon(script) as scripted:
        return main([*words, "--connect", scripted.endpoint]), scripted.requests


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    code, [asked] = batos({"undo": DONE}, "undo", "m1")
    assert (code, asked.cascade, asked.dry, asked.expect) == (0, False, False, None)
    out, err = capsys.readouterr()
    assert out.startswith("undone:\n")
    for words in ("m1", "teach robin", "oid:1f mood, way", "Keys (gone)"):
        assert words in out
    assert "batos undo m1 --redo" in err


def test_redo_and_dry_run_and_what_is_so_already(capsys: pytest.CaptureFixture[str]) -> None:
    _, [asked] = batos({"undo": {**DONE, "redo": True, "documents": {"gone": [], "back": ["Keys"]}}}, "undo", "m1", "--redo")
    assert asked.redo
    assert "done again:" in (out := capsys.readouterr().out)
    assert "Keys (back)" in out
    _, [asked] = batos({"undo": {**DONE, "dry": True}}, "undo", "m1", "--dry-run")
    assert asked.dry
    assert "would be undone:" in capsys.readouterr().out
    batos({"undo": {**DONE, "missions": [], "already": True}}, "undo", "m1")
    assert "m1 is undone already" in capsys.readouterr().out
    assert batos({"undo": DONE}, "undo", "m1", "--redo", "--cascade")[0] == 2


def test_json_is_the_reply(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({"undo": DONE}, "undo", "m1", "--json")[0] == 0
    assert json.loads(capsys.readouterr().out) == {**DONE, "id": "m1"}


@pytest.mark.parametrize(
    ("answer", "code", "asked"), [("y\n", 0, 2), ("what?\n YES\n", 0, 2), ("n\n", 1, 1), ("\n", 1, 1), ("", 1, 1), (None, 130, 1)]
)
def test_a_cascade_shows_the_lot_and_asks(
    answer: str | None, code: int, asked: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer or ""))
    if answer is None:
        monkeypatch.setattr("builtins.input", interrupted)
    ended, requests = batos({"undo": LOT}, "undo", "m1", "--cascade")
    assert (ended, len(requests)) == (code, asked)
    told = capsys.readouterr()
    assert "later" in told.out
    assert ("nothing was done" in told.err) is (code != 0)
    assert requests[0].dry
    if asked == 2:
        assert (requests[1].dry, requests[1].expect) == (False, ["m2", "m1"])


def interrupted(prompt: str) -> str:
    """Press Ctrl-C at a question."""
    raise KeyboardInterrupt


def test_a_cascade_of_one_does_not_ask_and_yes_does_not_either() -> None:
    code, requests = batos({"undo": DONE}, "undo", "m1", "--cascade")
    assert (code, [request.dry for request in requests]) == (0, [True, False])
    code, requests = batos({"undo": LOT}, "undo", "m1", "--cascade", "--yes")
    assert (code, [request.dry for request in requests]) == (0, [False])


def test_a_cascade_without_anybody_to_ask_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, requests = batos({"undo": LOT}, "undo", "m1", "--cascade")
    assert (code, len(requests)) == (4, 1)
    assert "m2, m1; --yes" in capsys.readouterr().err


def test_a_conflict_names_what_depends_on_it(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = UndoConflict("undo of 'm1': a of oid:d was changed since, by m2", conflicts=[], missions=["m2"])
    assert batos({"undo": refusal}, "undo", "m1")[0] == 4
    assert "undo_conflict: undo of 'm1'" in capsys.readouterr().err


def test_status_and_list_say_that_a_mission_is_undone(capsys: pytest.CaptureFixture[str]) -> None:
    status = {"type": "status", "state": "COMPLETE", "brief": "teach", "undone": {"at": 0.0, "with": "m0", "missions": 2}}
    batos({"status": status}, "status", "m1")
    assert ", with m0" in capsys.readouterr().out
    listed = [{"id": "m1", "state": "COMPLETE", "brief": "teach", "origin": "client", "accepted": 1.0, "finished": 2.0, "undone": True}]
    batos({"missions": {"type": "missions", "missions": listed}}, "missions")
    assert "(undone) teach" in capsys.readouterr().out
