"""What was found out of models, kept in the image: one small record, whatever becomes of their Ollama."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from persistent import Persistent

_KEY = "known_models"


class KnownModels(Persistent):
    """By making of a model (see `batos.bridge.capabilities`), what was found out of it, as JSON: the one found out last at the end."""

    __module__ = "batos.image"
    records: tuple[tuple[str, str], ...] = ()


def recalled(root: Any) -> list[tuple[str, dict[str, Any]]]:
    """What was found out, by making."""
    held: KnownModels | None = root.get(_KEY)
    return [] if held is None else [(making, json.loads(record)) for making, record in held.records]


def keep(root: Any, making: str, record: Mapping[str, Any], limit: int) -> None:
    """System transaction: keep what was found out of a making, and of the `limit` last ones."""
    if _KEY not in root:
        root[_KEY] = KnownModels()
    held: KnownModels = root[_KEY]
    others = tuple(one for one in held.records if one[0] != making)
    held.records = (*others, (making, json.dumps(dict(record), sort_keys=True)))[-limit:]
