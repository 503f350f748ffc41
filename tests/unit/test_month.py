"""The tasks of the simulated month: reproducible, of families that no training sees, and none that measures is ever put."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def month(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("month")


def drawn(month: Any, seed: int) -> Any:
    return month.Month(Path("nowhere"), argparse.Namespace(seed=seed, days=6, tasks_a_day=3, kinds=4, others=5, each=2, json=True))


def test_the_same_seed_is_the_same_month(month: Any) -> None:
    one, other, another = drawn(month, 7), drawn(month, 7), drawn(month, 8)
    assert (one.put, one.mine, one.theirs) == (other.put, other.mine, other.theirs)
    assert one.put != another.put


def test_what_measures_was_never_put_and_others_kinds_are_nobodys(month: Any) -> None:
    found = drawn(month, 7)
    assert {task.part for task in (*found.put, *found.mine, *found.theirs)} == {"test"}
    assert {task.family for task in found.put} <= {task.family for task in found.mine}
    assert len({task.family for task in found.mine}) == 4
    assert not {task.family for task in found.theirs} & {task.family for task in found.mine}
    assert not {task.prompt(example=True) for task in found.put} & {task.prompt(example=True) for task in found.mine}
    assert len(found.theirs) == 5
