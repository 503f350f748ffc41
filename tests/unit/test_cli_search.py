"""The verb `search`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from batos.cli import main
from tests.support import cli

HIT: dict[str, Any] = {
    "text": "We planted\nthe apple tree on 3 April.", "score": 5.1, "source": "/notes/garden.md", "title": "Garden", "section": "Trees",
    "kind": "markdown", "speaker": "", "day": "2026-04-05", "oid": "oid:5d",
}  # fmt: skip
REPLY = {"type": "search", "question": "When?", "hits": [HIT], "by_vectors": True, "why": "", "took_ms": 3.0}
EXPLAINED = {
    **REPLY,
    "hits": [{**HIT, "signals": {"words": 1.9, "when": 3.2}, "path": ["oid:5c", "oid:5d"]}],
    "understood": {
        "words": ["appl"],
        "cleaned": "apple",
        "names_speakers": 0,
        "days": [["2026-04-01", "2026-04-30"]],
        "wants": [],
        "bridges": True,
    },
}


def batos(reply: dict[str, Any], *words: str) -> tuple[int, list[Any]]:
    with cli.daemon({"search": reply}) as daemon:
        return main(["search", *words, "--connect", daemon.endpoint]), daemon.requests


def test_passages_with_where_they_are_from(capsys: pytest.CaptureFixture[str]) -> None:
    code, [request] = batos(REPLY, "When", "was it", "-k", "3", "--kind", "markdown", "--since", "2026-01-01")
    assert code == 0
    assert (request.question, request.k, request.kind, request.since, request.explain) == (
        "When was it",
        3,
        "markdown",
        "2026-01-01",
        False,
    )
    told = capsys.readouterr()
    assert "[1] /notes/garden.md, Trees, 2026-04-05\n    We planted the apple tree on 3 April." in told.out
    assert told.err == ""


def test_why_they_were_found(capsys: pytest.CaptureFixture[str]) -> None:
    code, [request] = batos(EXPLAINED, "When?", "--explain")
    assert (code, request.explain) == (0, True)
    out = capsys.readouterr().out
    assert "5.10 = when +3.20, words +1.90" in out
    assert "by way of oid:5c -> oid:5d" in out
    assert re.search(r"days +2026-04-01 to 2026-04-30\n", out)
    assert re.search(r"bridges +yes\n", out)


def test_that_meaning_did_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    batos({**REPLY, "by_vectors": False, "why": "the embedder is away"}, "When?")
    assert "by words, names and days alone: the embedder is away" in capsys.readouterr().err


def test_nothing_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({**REPLY, "hits": []}, "When?")[0] == 1
    assert "nothing in the memory fits" in capsys.readouterr().out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos(EXPLAINED, "When?", "--json")[0] == 0
    assert json.loads(capsys.readouterr().out) == EXPLAINED


def test_a_source_is_a_path_of_here(capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert batos(REPLY, "When?", "--source", "notes")[1][0].source == str(tmp_path / "notes")
    assert batos(REPLY, "When?", "--source", "mission:m1")[1][0].source == "mission:m1"


def test_a_summary_says_what_it_is_of_and_how_to_get_that(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos(
        {**EXPLAINED, "hits": [{**EXPLAINED["hits"][0], "archive": 77, "of": ["/notes/garden.md", "/notes/trees.md"]}]}, "When?"
    )
    assert code == 0
    assert "a summary of garden.md, trees.md: `batos memory restore 77` brings it back" in capsys.readouterr().out


def test_where_nothing_fits_well_it_is_said_and_who_says_a_passage(capsys: pytest.CaptureFixture[str]) -> None:
    hits = [{**HIT, "fits": True, "origin": "user"}, {**HIT, "fits": False, "origin": "self"}]
    assert batos({**REPLY, "fits": True, "hits": hits}, "When?")[0] == 0
    out = capsys.readouterr().out
    assert "nothing fits well" not in out
    assert "Trees, 2026-04-05, you said so\n" in out
    assert "it said so itself, fits less well\n" in out
    assert batos({**REPLY, "fits": False, "hits": hits[1:]}, "When?")[0] == 0
    assert capsys.readouterr().out.startswith("nothing fits well; the nearest:\n[1] ")
