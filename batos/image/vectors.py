"""Vectors of the few texts that are compared with again and again, kept so that a restart need not embed them anew.

A cache: what is missing is computed again. Each is keyed by text and embedder, and stored as half-precision numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from BTrees.OOBTree import OOBTree


def key_of(embedder: str, text: str) -> bytes:
    """The key of a text's vector: 16 bytes of SHA-256 over the embedder's digest and the text."""
    return hashlib.sha256(f"{embedder}\0{text}".encode("utf-8", "surrogatepass")).digest()[:16]


def load(root: Any, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Those of the vectors that are kept."""
    kept = root.get("vectors", {})
    return {key: kept[key] for key in keys if key in kept}


def save(root: Any, new: Mapping[bytes, bytes], wanted: Collection[bytes]) -> None:
    """System transaction: keep the new ones, let go of all that are not wanted any more."""
    if "vectors" not in root:
        root["vectors"] = OOBTree()
    for key in [key for key in root["vectors"] if key not in wanted]:
        del root["vectors"][key]
    root["vectors"].update(new)
