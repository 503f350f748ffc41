"""The guardian's own cases, from tests/data: `### RULE what it is` or `### what it is`, then a source."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"


def blocks(file: str) -> list[tuple[str, str]]:
    """Headings and sources of a file."""
    parts = (DATA / file).read_text("utf-8").split("\n### ")[1:]
    return [(head, source.rstrip("\n") + "\n") for head, _, source in (part.partition("\n") for part in parts)]


def corpus() -> list[dict[str, Any]]:
    """The methods written for the project: see `expect` and `policy` in each."""
    return [json.loads(line) for line in (DATA / "methods.jsonl").read_text("utf-8").splitlines()]


def name_of(source: str) -> str:
    """The name of the first function that a source defines."""
    found = re.search(r"def (\w+)", source)
    return found[1] if found else "m"
