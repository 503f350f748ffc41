"""A task that is cancelled at a chosen turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

WAIT_S = 90


async def cancelled_after(turns: int, work: Awaitable[Any]) -> bool:
    """Whether the work was cancelled in time; a failure of its own is raised."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
        if task.done():
            await task
            return False
    task.cancel()
    await asyncio.wait([task], timeout=WAIT_S)
    assert task.done(), "it is stuck after its cancellation"
    if not task.cancelled():
        await task
    return task.cancelled()
