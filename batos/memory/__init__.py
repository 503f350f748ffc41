"""Memory: documents that the image remembers, and the search that finds them again.

Persistent classes are written into every record under the name `batos.memory.<Class>`. That name never changes, whichever file the
class lives in. The classes are imported on first access, because most of them need numpy.
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
"""Name of a persistent class -> module that defines it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
