"""Memory: what the image remembers, and how it is found again.

Its persistent classes are written into every record under the name `batos.memory.<Class>`; that name never changes, whatever
file the class lives in. They are imported when first asked for: most of them bring numpy.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Block": "part_log",
    "Catalogue": "records",
    "Change": "records",
    "Counts": "records",
    "Epoch": "records",
    "GrowingTree": "records",
    "Library": "store",
    "OkapiText": "text_index",
    "SegmentedText": "text_index",
    "StoredSegment": "segments",
    "Tail": "part_log",
    "VectorLog": "part_log",
    "Words": "text_index",
}
"""Persistent class -> the module in which it lives."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
