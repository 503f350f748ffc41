"""The limits that a run looks at, read once from the settings: each look at those costs a microsecond after a rest."""

from __future__ import annotations

from dataclasses import dataclass

from batos.config import Settings


@dataclass(frozen=True, slots=True)
class Limits:
    """As the settings `sandbox_…` of these names."""

    nodes: int
    text_bytes: int
    host_calls: int
    sends: int
    depth: int
    time_s: float
    total_s: float

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Those of some settings."""
        return cls(**{name: getattr(settings, f"sandbox_{name}") for name in cls.__slots__})
