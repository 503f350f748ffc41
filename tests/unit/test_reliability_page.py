"""docs/reliability.md names tests: they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), f"{path} has no {name}"


def test_every_row_names_its_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| fault", "|---"))]
    assert len(rows) > 25
    assert [row for row in rows if "::" not in row] == []
