"""What the user tells in a brief is found by rule, word for word, and nothing that he only asks, wishes, supposes or quotes."""

from __future__ import annotations

from pathlib import Path

import pytest

from batos.missions.memory_writer import LONGEST, statements_of

LABELLED = [tuple(line.split("\t")) for line in (Path(__file__).parents[1] / "data" / "statements.tsv").read_text("utf-8").splitlines()]


@pytest.mark.parametrize(("brief", "told"), LABELLED, ids=[brief[:40] for brief, _ in LABELLED])
def test_what_a_brief_tells(brief: str, told: str) -> None:
    assert (" ".join(statements_of(brief)) or "-") == told


def test_what_is_told_once_is_a_statement_once_and_code_tells_nothing() -> None:
    assert statements_of("My dog is Bruno. My dog is Bruno.") == ["My dog is Bruno."]
    assert statements_of("What does it do?\n```\nmy = 'I am Kim'\nI am Kim.\n```") == []


@pytest.mark.parametrize("char", list("a .,:'’\"“I\n-é私"))
def test_a_run_of_one_character_tells_nothing(char: str) -> None:
    for beginning in ("", "the ", "note ", "le ", "My\n"):
        assert statements_of((beginning + char * LONGEST)[:LONGEST]) in ([], [beginning.strip()])
