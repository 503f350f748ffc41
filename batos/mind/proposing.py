"""What a mission of the system's own proposes when it has been thought through; who makes proposals is another layer's business."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from batos.objects import UvmObject

Propose = Callable[[Any, UvmObject, UvmObject], Awaitable[dict[str, Any]]]
"""From the image's root, the mission and its cycle: facts for the mission's result. It may ask the current attempt's model."""

Ruled = Callable[[Any, UvmObject, UvmObject], Awaitable[dict[str, Any] | None]]
"""From the image's root, a mission of the system's own and the persona that has it: its whole result, `text` and what else there is, where
no model is to think it through; else None."""


async def nothing_ruled(root: Any, mission: UvmObject, persona: UvmObject) -> dict[str, Any] | None:
    """Where nobody knows a rule, a model thinks."""
    return None


async def nothing_proposed(root: Any, mission: UvmObject, cycle: UvmObject) -> dict[str, Any]:
    """What there is to add where nobody makes proposals."""
    return {}
