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
from batos.image import experts
from batos.image.turns import in_helper

log = structlog.get_logger(__name__)


def _handbook() -> None:
    from batos.mind.handbook.nearest import handbook  # late, as the others here: whoever has no expert for methods pays for none of it

    handbook()


def _channel() -> None:
    from batos.mind.channel import channel

    channel()


def _idioms() -> None:
    from batos.mind.pricing import all_idioms

    all_idioms()


def _reserved() -> None:
    from batos.mind.pricing import reserved

    reserved()


KNOWN: Sequence[Callable[[], Any]] = (_handbook, _channel)
PARTS: Sequence[Callable[[], Any]] = (_idioms, _reserved)
"""What is read for methods that are known, and for those put together of parts: each some tenths of a second to some seconds of a
processor, which nothing interrupts."""


def wanted(root: Any, writer: str) -> bool:
    """Whether lessons will ask for it: only those of an expert for methods do.

    :param writer: the setting `synthesis_model`.
    """
    return bool(experts.speaks_methods(root)) if writer == "expert" else experts.writes_methods(root, writer)


async def read(settings: Settings, quiet: Callable[[], Awaitable[None]], asked_for: Callable[[], Awaitable[bool]]) -> None:
    """Read what lessons will ask for, a step at a time, `synthesis_ahead_s` from now.

    :param quiet: returns when no mission is under way or waits.
    :param asked_for: whether any will; returns once that is known.
    """
    steps = (*(KNOWN if settings.synthesis_reuse or settings.synthesis_parts else ()), *(PARTS if settings.synthesis_parts else ()))
    if not (settings.synthesis_ahead_s and steps):
        return
    await asyncio.sleep(settings.synthesis_ahead_s)
    if not await asked_for():
        return  # it is read when it is first needed
    for step in steps:
        await quiet()
        await in_helper(step)
    gc.freeze()  # it stays: to look through it would stop the loop for a tenth of a second, each time
    await in_helper(give_back)  # reading takes twice what is kept
    log.debug("handbook_read")
