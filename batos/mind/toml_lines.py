"""Where in a TOML text a key is: `tomllib` names lines for bad syntax only, and a schema is checked after it."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line (from 1) on which the value at `path` begins, or the nearest thing around it that is there.

    A key and what is under it come to be at the line by which the text, cut off there, has it. So the text is parsed
    again for each line: slow, and only for a message about an error.

    :param text: valid TOML.
    :param path: keys and places in arrays, as pydantic gives them.
    """
    lines = text.splitlines(keepends=True)
    whole = tomllib.loads(text)
    steps = list(path)
    while steps and not _has(whole, steps):
        steps.pop()
    if not steps:
        return None
    after = 0  # the last line by which all was whole and the value not there
    for number in range(1, len(lines) + 1):
        cut = "".join(lines[:number])
        if _within(cut, steps):
            return _first_with_text(lines, after, number)
        if _parsed(cut) is not None or _parsed(cut + "]") is not None:
            after = number
    return None


def _within(cut: str, steps: list[str | int]) -> bool:
    # With a bracket at its end, a text that stops in the middle of an array has the items so far.
    return any((found := _parsed(cut + end)) is not None and _has(found, steps) for end in ("", "]"))


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _has(value: Any, steps: list[str | int]) -> bool:
    for step in steps:
        if not (step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int) and step < len(value)):
            return False
        value = value[step]
    return True


def _first_with_text(lines: list[str], after: int, upto: int) -> int:
    for number in range(after + 1, upto):
        if lines[number - 1].strip() and not lines[number - 1].lstrip().startswith("#"):
            return number
    return upto
