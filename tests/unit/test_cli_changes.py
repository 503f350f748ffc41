"""The verb changes: the list, one of them, its undo; and on a file without a daemon."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import changes, schema
from batos.cli import main
from batos.errors import UndoConflict, UnknownChange
from batos.image import LivingImage
from tests.support.autonomy import EVIDENCE, Proposal
from tests.support.cli import Script, daemon

ROW: dict[str, Any] = {
    "number": 7, "kind": "facet", "target": "robin.surprise_facet_", "why": "to surprise", "evidence": {"words": "a rut", "share": 0.9},
    "source": "measurement", "mission": "self_improvement-3", "state": "promoted", "reason": "",
    "proposed": 1.7e9, "decided": 1.7e9 + 100, "ended": None,
}  # fmt: skip
WHOLE = {
    **ROW, "content": "Think of what would surprise.", "digest": "d", "missions": 40, "state": "undone", "reason": "worse since then",
    "comparison": {
        "missions": 8, "better": ["entropy is 0.5"], "worse": [],
        "without": {"failures": 1, "cem": 0.4}, "changed": {"failures": 0, "cem": 0.5},
    },
    "effect": {"client brief": {"missions": [48, 4], "failed": [0, 4]}},
}  # fmt: skip
DONE = {"type": "undo_change", "number": 7, "dry": False, "objects": [{"oid": "oid:1f", "parts": ["surprise_facet_"]}]}


def batos(script: Script, *words: str) -> tuple[int, list[Any]]:
    with daemon(script) as scripted:
        return main([*words, "--connect", scripted.endpoint]), scripted.requests


def listed(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"type": "changes", "changes": list(rows)}


def test_the_list_says_what_became_of_each_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    row = {**ROW, "decided": time.time() - 7200}  # of now: the module may have been read an hour before
    refused = {**row, "number": 6, "state": "refused", "reason": "worse: missions that fail: 0 before, 2 with it"}
    code, [asked] = batos({"changes": listed(row, refused)}, "changes", "--state", "refused", "--limit", "9")
    assert (code, asked.number, asked.state, asked.limit) == (0, None, "refused", 9)
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first.split() == ["7", "promoted", "facet", "robin.surprise_facet_", "2", "h", "a", "rut"]
    assert "worse: missions that fail: 0 before, 2 with it" in second


def test_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({"changes": listed()}, "changes")[0] == 0
    assert "no changes so far" in capsys.readouterr().err


def test_one_is_shown_with_its_evidence_its_rehearsal_and_its_watch(capsys: pytest.CaptureFixture[str]) -> None:
    code, [asked] = batos({"changes": listed(WHOLE)}, "changes", "7")
    assert (code, asked.number) == (0, 7)
    out = capsys.readouterr().out
    for words in ("change 7: undone", "Think of what would surprise.", "a rut", "0.9", "entropy is 0.5", "worse since then"):
        assert words in out
    rows = [line.split("  ") for line in out.splitlines()]
    assert [cell.strip() for row in rows if row[0] == "failures" for cell in row if cell] == ["failures", "1", "0"]
    assert [cell.strip() for row in rows if row[0] == "client brief: failed" for cell in row if cell] == ["client brief: failed", "0", "4"]


def test_json_is_the_reply(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({"changes": listed(WHOLE)}, "changes", "7", "--json")[0] == 0
    assert json.loads(capsys.readouterr().out) == listed(WHOLE)
    assert batos({"undo_change": DONE}, "changes", "undo", "7", "--json")[0] == 0
    assert json.loads(capsys.readouterr().out) == DONE


def test_undo(capsys: pytest.CaptureFixture[str]) -> None:
    code, [asked] = batos({"undo_change": DONE}, "changes", "undo", "7", "--why", "reads worse")
    assert (code, asked.number, asked.why, asked.dry) == (0, 7, "reads worse", False)
    assert "oid:1f surprise_facet_" in capsys.readouterr().out
    _, [asked] = batos({"undo_change": {**DONE, "dry": True}}, "changes", "undo", "7", "--dry-run")
    assert asked.dry
    assert "would be undone" in capsys.readouterr().out
    batos({"undo_change": {**DONE, "objects": [], "already": True}}, "changes", "undo", "7")
    assert "undone already" in capsys.readouterr().out


def test_what_stands_in_the_way_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    conflict = UndoConflict("surprise_facet_ of oid:1f was changed since, by m9. undo that first", conflicts=[], missions=["m9"])
    assert batos({"undo_change": conflict}, "changes", "undo", "7")[0] == 4
    assert "undo_conflict: surprise_facet_ of oid:1f was changed since, by m9" in capsys.readouterr().err
    assert batos({"changes": UnknownChange("no change 99 in this image")}, "changes", "99")[0] == 4
    assert "unknown_change" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("seven",), ("0",), ("undo",), ("7", "8"), ("7", "--dry-run"), ("--state", "odd"), ("undo", "7", "--image", "x.fs")]
)
def test_what_makes_no_sense_is_wrong_usage(words: tuple[str, ...]) -> None:
    assert batos({}, "changes", *words) == (2, [])


async def test_a_file_is_looked_into_without_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "image.fs"
    image = await LivingImage.open(f"file://{file}", steps=(schema.install,))
    await image.system(changes.propose, Proposal(), EVIDENCE, "")
    await image.close()
    before = file.read_bytes()
    capsys.readouterr()
    assert main(["changes", "--image", str(file), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["changes"]
    assert (row["number"], row["state"], row["evidence"]) == (1, "proposed", EVIDENCE)
    assert "content" not in row
    assert main(["changes", "1", "--image", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"][0]["content"] == Proposal().content
    assert main(["changes", "2", "--image", str(file)]) == 4
    assert file.read_bytes() == before


async def test_an_image_of_an_earlier_version_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "image.fs"
    await (await LivingImage.open(f"file://{file}")).close()
    assert main(["changes", "--image", str(file)]) == 0
    assert "no changes so far" in capsys.readouterr().err
