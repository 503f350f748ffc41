"""Several kernels in one process, each with an image of its own on one server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from batos.cluster.membership import Membership
from batos.image.kernels import KernelTerms
from batos.image.living_image import LivingImage

TERMS = KernelTerms("codex", "1.0", 6)
LEASE_S, LOOK_S = 1.0, 0.03
WAIT_S = 40


@contextlib.asynccontextmanager
async def kernel(uri: str, host: str = "k", terms: KernelTerms = TERMS, *, lease_s: float = LEASE_S, **options: Any) -> AsyncIterator[Any]:
    """A kernel that looks: its image and its membership."""
    membership = Membership(host, terms, lease_s=lease_s, look_s=LOOK_S)
    image = await LivingImage.open(uri, join=membership.join, idle_s=lease_s, **options)
    try:
        async with membership.running():
            yield image, membership
    finally:
        await image.close()


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        await asyncio.sleep(0.01)
