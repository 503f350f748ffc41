"""Whatever two kernels do to the memory of one image at once, each collection equals one that is loaded anew, and searches agree."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from tests.support.following import LIMITS, STEPS, Step, happen
from tests.support.memory import shared_memories


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_each_kernel_follows_what_both_commit(steps: list[Step]) -> None:
    async def done(folder: Path) -> None:
        async with shared_memories(folder, **LIMITS) as both:
            await happen(both, folder, steps)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(done(Path(folder)))
