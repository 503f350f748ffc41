"""Other words for the same: composed families say things one way each, and people do not (`wordings.txt`)."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "wordings.txt"
_SHARE = 0.6  # of what could be said in other words


def reworded(words: str, rng: random.Random) -> str:
    """The purpose in words drawn from those that say the same; holes (`SLOT`, `K`) stay as they are."""
    for there, others in _rules():
        if rng.random() < _SHARE:
            words = there.sub(rng.choice(others), words)
    return re.sub(r" ,", ",", words)


@cache
def _rules() -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    lines = [line for line in _FILE.read_text("utf-8").split("\n") if line.strip() and not line.startswith("#")]
    return tuple((_pattern(there), tuple(others)) for there, *others in (line.split(" | ") for line in lines))


def _pattern(there: str) -> re.Pattern[str]:
    """Whole words only."""
    before, after = ("" if there[0] in "^,(" else r"\b"), ("" if there.endswith("$") else r"\b")
    return re.compile(before + there + after)
