"""What the first lesson would wait for, read ahead while nothing is under way: the handbook, the idioms, and what words come of them.

It is the same for each lesson, and kept for as long as the process lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from batos.allocator import give_back
from batos.config import Settings
from batos.image.turns import in_helper
from batos.mind import channel, handbook, pricing

log = structlog.get_logger(__name__)
STEPS: Sequence[Callable[[], Any]] = (handbook.handbook, pricing.all_idioms, channel.channel, pricing.reserved)
"""What is read, each some tenths of a second to some seconds of a processor."""


async def read(settings: Settings, quiet: Callable[[], Awaitable[None]]) -> None:
    """Read it, a step at a time, `synthesis_ahead_s` from now; nothing where methods are not put together of parts.

    :param quiet: returns when no mission is under way or waits.
    """
    if not (settings.synthesis_ahead_s and settings.synthesis_parts):
        return
    await asyncio.sleep(settings.synthesis_ahead_s)
    for step in STEPS:
        await quiet()
        await in_helper(step)
    await in_helper(give_back)  # reading takes twice what is kept
    log.debug("handbook_read")
