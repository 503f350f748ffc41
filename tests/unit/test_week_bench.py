"""A short week of the bench: what lies in memory is answered from there, whatever the model invents."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def week(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("week")


def test_the_same_seed_is_the_same_week_of_the_size_that_is_asked_for(week: Any) -> None:
    whole = week.week()
    assert whole == week.week()
    assert (len(whole.notes), len(whole.statements), sum(bool(one.key) for one in whole.asked)) == (200, 60, 100)
    assert len({Path(name).suffix for name, _ in whole.notes}) >= 5
    assert len(dict(whole.notes)) == 200, "each a file of its own"


@pytest.mark.parametrize("matter", ["week.jsonl", "week_kept_back.jsonl"])
async def test_answers_come_from_memory_and_inventions_are_no_sources(tmp_path: Path, week: Any, matter: str) -> None:
    figures = week.figures(await week.played(tmp_path, week.week(notes=60, questions=10, matter=BENCH / matter)))
    assert figures["questions"] == 20
    assert figures["answered"] >= 0.9
    assert (figures["invented"], figures["out_of_nothing"]) == (0, 0)
