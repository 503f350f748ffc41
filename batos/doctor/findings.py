"""A finding of `batos doctor`, and what several checks need to make one."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]
REINSTALL = "run `make install`, or `pip install batos` in a fresh virtual environment"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `remedy` says what to do about a warning or a failure; it is empty where all is well."""

    name: str
    state: State
    finding: str
    remedy: str = ""


def version_of(name: str) -> str | None:
    """The version of an installed distribution; None where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def gib(count: int) -> str:
    """A number of bytes, in words."""
    return f"{count / 1024**3:.1f} GiB"
