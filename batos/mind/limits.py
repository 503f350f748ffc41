"""Limits of one attempt's thinking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from batos.config.limits import Limits, limit


@dataclass(frozen=True, slots=True)
class ThinkingLimits(Limits):
    """Limits of one attempt's thinking."""

    images: int = limit(8, ge=0, le=64)
    """Greatest number of images of one brief, and of images that one inference shows; 0: no images are taken."""
    facets: int = limit(3, ge=1, le=16)
    """Facets that one cycle delegates to."""
    depth: int = limit(2, ge=1, le=8)
    """Cycles inside cycles: 1 lets one persona think alone."""
    method_depth: int = limit(4, ge=1, le=16)
    """Nesting of methods that are written while methods are written: their trials may send messages."""
    voices: int = limit(3, ge=1, le=8)
    """Personas that one brief is shared out to."""
    question_chars: int = limit(2000, ge=1, le=100_000)
    """Longest question to a mission's user, and longest answer."""
    call_methods: Literal["on", "off"] = "on"
    """On: a brief that states exactly what a method of the lobby or a persona is for, with its arguments, is answered by it."""
    token_batch_s: float = limit(0.05, gt=0, le=10)
    """Seconds over which pieces of an answer are gathered into one event."""
    repairs: int = limit(2, ge=0, le=10)
    """Times that a model is asked again after an answer of the wrong form."""
    malformed_chars: int = limit(2000, ge=0, le=100_000)
    """Characters kept of each answer of the wrong form."""
    thinking_chars: int = limit(4000, ge=0, le=1_000_000)
    """Characters of a model's reasoning that the journal keeps."""
    partial_s: float = limit(2.0, gt=0, le=3600)
    """Seconds between two commits of an unfinished answer."""
    partial_tokens: int = limit(24, ge=1, le=100_000)
    """Tokens between two commits of an unfinished answer, where that is sooner."""
