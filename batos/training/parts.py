"""The parts of composed families, from `parts.txt`, which says what a part's columns are."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

NUMBER, TEXT, RECORD = "number", "text", "record"
_FILE = Path(__file__).parent / "parts.txt"


class Part(NamedTuple):
    """One part of a composed family.

    :ivar needs: kinds of arguments, and holes with their kinds (`SLOT:number`).
    """

    name: str
    words: str
    code: str
    needs: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The kinds of the arguments that it needs."""
        return tuple(one for one in self.needs if ":" not in one)

    @property
    def holes(self) -> dict[str, str]:
        """Of each hole that it needs its kind."""
        return dict(one.split(":") for one in self.needs if ":" in one)


@cache
def parts(section: str) -> tuple[Part, ...]:
    """The parts of a section: `ends: number`."""
    return _sections()[section]


@cache
def changed_kinds(kind: str) -> tuple[str, ...]:
    """What things of a kind can be changed to."""
    return tuple(name.rpartition(" ")[2] for name in _sections() if name.startswith(f"changes: {kind} to "))


@cache
def _sections() -> dict[str, tuple[Part, ...]]:
    found = re.findall(r"^\[([^\]]+)\]\n(.*?)(?=^\[|\Z)", _FILE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {title: tuple(map(_part, filter(_is_part, body.split("\n")))) for title, body in found}


def _is_part(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _part(line: str) -> Part:
    name, words, code, *needs = (cell.strip() for cell in line.split(" | "))
    return Part(name, words, code, tuple(" ".join(needs).split()))
