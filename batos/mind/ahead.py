"""What the first lesson would wait for, read ahead while nothing is under way: the handbook, the idioms, and what words come of them.

It is the same for each lesson, and kept for as long as the process lives.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from batos.allocator import give_back
from batos.config import Settings
from batos.image.turns import in_helper
from batos.mind import channel, handbook, pricing

log = structlog.get_logger(__name__)
KNOWN: Sequence[Callable[[], Any]] = (handbook.handbook, channel.channel)
PARTS: Sequence[Callable[[], Any]] = (pricing.all_idioms, pricing.reserved)
"""What is read for methods that are known, and for those put together of parts: each some tenths of a second to some seconds of a
processor, which nothing interrupts."""


async def read(settings: Settings, quiet: Callable[[], Awaitable[None]]) -> None:
    """Read what lessons will ask for, a step at a time, `synthesis_ahead_s` from now.

    :param quiet: returns when no mission is under way or waits.
    """
    steps = (*(KNOWN if settings.synthesis_reuse or settings.synthesis_parts else ()), *(PARTS if settings.synthesis_parts else ()))
    if not (settings.synthesis_ahead_s and steps):
        return
    await asyncio.sleep(settings.synthesis_ahead_s)
    for step in steps:
        await quiet()
        await in_helper(step)
    gc.freeze()  # it stays: to look through it would stop the loop for a tenth of a second, each time
    await in_helper(give_back)  # reading takes twice what is kept
    log.debug("handbook_read")
