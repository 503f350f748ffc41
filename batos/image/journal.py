"""The journal: the durable record of inferences.

Each inference is keyed by its content and an occurrence number, and is durable before it is used; a resumed, retried or
replayed cycle takes from here what was paid for. By content, not by step: after a conflict the inputs may differ, and
then a new call is rightly paid. One record an inference, since a record that grows is rewritten whole at each change.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from persistent import Persistent

_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=list)


class Inference(NamedTuple):
    """One finished inference, as plain values."""

    key: bytes
    occurrence: int
    text: str
    model: str
    digest: str
    prompt_tokens: int
    answer_tokens: int
    load_ms: float
    total_ms: float
    done_reason: str
    at: float


class JournalEntry(Persistent):
    """The record of one inference."""

    __module__ = "batos.image"

    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(self.inference)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.inference = Inference(*state)


class Journal(Persistent):
    """The inferences of one mission, in the order in which they ended."""

    __module__ = "batos.image"
    entries: tuple[JournalEntry, ...] = ()


def key_of(request: Mapping[str, Any]) -> bytes:
    """The content key of an inference: 16 bytes of SHA-256 over model digest, messages, format and options."""
    return hashlib.sha256(_CANONICAL.encode(request).encode("utf-8", "surrogatepass")).digest()[:16]


def add(root: Any, mission: str, inference: Inference) -> None:
    """System transaction: record an inference of a mission."""
    journal = root["ledger"].missions[mission].journal
    journal.entries += (JournalEntry(inference),)


def load(root: Any, mission: str) -> list[Inference]:
    """All recorded inferences of a mission, in the order in which they ended."""
    found = root["ledger"].missions.get(mission)
    return [] if found is None else [entry.inference for entry in found.journal.entries]


def now() -> float:
    """The time that an entry carries, in seconds since the epoch."""
    return round(time.time(), 3)
