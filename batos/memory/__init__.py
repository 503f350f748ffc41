"""Memory: what the image remembers, and how it is found again.

Its persistent classes are written into every record under the name `batos.memory.<Class>`; that name never changes, whatever
file the class lives in. They are imported when first asked for: most of them bring numpy.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Block": "vectorlog",
    "Catalogue": "catalogue",
    "Change": "sections",
    "Counts": "counts",
    "Epoch": "numbers",
    "GrowingTree": "growing",
    "Library": "library",
    "OkapiText": "textindex",
    "SegmentedText": "textindex",
    "StoredSegment": "segments",
    "Tail": "tail",
    "VectorLog": "vectorlog",
    "Words": "textindex",
}
"""Persistent class -> the module in which it lives."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
