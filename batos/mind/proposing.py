"""What a mission of the system's own proposes when it has been thought through; who makes proposals is another layer's business."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from batos.objects import UvmObject

Propose = Callable[[Any, UvmObject, UvmObject], Awaitable[dict[str, Any]]]
"""From the image's root, the mission and its cycle: facts for the mission's result. It may ask the current attempt's model."""


async def nothing_proposed(root: Any, mission: UvmObject, cycle: UvmObject) -> dict[str, Any]:
    """What there is to add where nobody makes proposals."""
    return {}
