"""Limits of comparisons, and the budget of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from batos.config.limits import Limits, limit


@dataclass(frozen=True, slots=True)
class CompareLimits(Limits):
    """Limits of comparisons side by side."""

    kept: int = limit(50, ge=1, le=10_000)
    """Number of comparisons that the image keeps, the newest; one that is under way is kept, too."""
    missions: int = limit(8, ge=1, le=200)
    """Number of recorded missions in a comparison that names no other number."""
    looked_at: int = limit(2000, ge=1, le=1_000_000)
    """Greatest number of missions among which recorded ones are looked for, the newest first."""
    briefs: int = limit(200, ge=1, le=1000)
    """Greatest number of missions or briefs in one comparison."""
    inferences: int = limit(200, ge=0, le=100_000)
    """Number of inferences that a comparison may pay for, if it names no other number."""
    tokens: int = limit(200_000, ge=0, le=1_000_000_000)
    """Likewise, tokens read and written."""
    minutes: float = limit(60.0, gt=0, le=7 * 1440)
    """Likewise, minutes of model time."""
    large: int = limit(40, ge=0, le=100_000)
    """Number of estimated inferences from which a user is asked before a comparison begins."""
    large_minutes: float = limit(10.0, gt=0, le=7 * 1440)
    """Likewise, estimated minutes of model time."""
    text_chars: int = limit(20_000, ge=100, le=1_000_000)
    """Greatest number of characters of an answer that is kept, and judged."""
    judged_chars: int = limit(3000, ge=100, le=100_000)
    """Greatest number of characters of an answer that a persona is shown as the judge."""


class CompareBudget(NamedTuple):
    """Greatest cost of a comparison over all its starts."""

    inferences: int
    tokens: int
    """Read and written."""
    minutes: float
    """Minutes of model time, without loads."""

    @classmethod
    def of(cls, limits: CompareLimits, inferences: int | None, tokens: int | None, minutes: float | None) -> CompareBudget:
        """Return the budget with these limits in the place of what is None."""
        return cls(
            limits.inferences if inferences is None else inferences,
            limits.tokens if tokens is None else tokens,
            limits.minutes if minutes is None else minutes,
        )

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object."""
        return self._asdict()
