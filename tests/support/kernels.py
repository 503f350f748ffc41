"""Several kernels in one process, each with an image of its own on one server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.cluster.membership import Membership
from batos.cluster.presence import SessionPresence
from batos.image import ledger
from batos.image.kernels import KernelTerms
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from tests.support.missions import FakeInference, mind

TERMS = KernelTerms("codex", "1.0", 6)
LEASE_S, LOOK_S = 2.0, 0.03
WAIT_S = 90


@contextlib.asynccontextmanager
async def kernel(uri: str, host: str = "k", terms: KernelTerms = TERMS, *, lease_s: float = LEASE_S, **options: Any) -> AsyncIterator[Any]:
    """A kernel that looks: its image and its membership."""
    membership = Membership(host, terms, lease_s=lease_s, look_s=LOOK_S)
    image = await LivingImage.open(uri, join=membership.join, lease_s=lease_s, **options)
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


@contextlib.asynccontextmanager
async def daemon(
    folder: Path, uri: str, inference: FakeInference, name: str = "k", *, lease_s: float = LEASE_S, **more: Any
) -> AsyncIterator[Kernel]:
    """A whole kernel among others, with an inference of its own."""
    image = {"uri": uri, "kernels": "many", "kernel_name": name, "lease_s": lease_s, "look_s": LOOK_S}
    folder = folder / name
    folder.mkdir(exist_ok=True)
    async with mind(folder, inference, image=image, **{"remember": "off", "shutdown_s": 0.1, **more}) as kernel:
        yield kernel


async def acts(*kernels: Kernel) -> None:
    """Return when kernels have the right to act, and take up missions: one that joined leaves them to the others before."""
    for kernel in kernels:
        toolbox = kernel.attempt_services.toolbox
        assert toolbox is not None
        await until(lambda box=toolbox: not box.tied(), "the right to act")
        await kernel.fitness.look()  # else it is fit at its next look
        assert not kernel.fitness.reasons


async def looked(*kernels: Kernel) -> None:
    """Return when kernels have looked once more at what the others committed."""
    for kernel in kernels:
        looks = asyncio.Event()
        end = kernel.membership.on_look(lambda root, looks=looks: looks.set())  # called after those of the kernel's own parts
        async with asyncio.timeout(WAIT_S):
            await looks.wait()
        end()


class Standstill:
    """A kernel that gives no signs of life and looks at nothing, while the block runs; what its missions do goes on."""

    def __init__(self, membership: Membership, *, killed: bool = False) -> None:
        """
        :param killed: True to end its session with the server, too, as a kill does.
        """
        self._membership, self._killed = membership, killed
        self._go_on = asyncio.Event()

    async def __aenter__(self) -> Standstill:
        membership, presence = self._membership, self._membership.presence
        self._survey, self._beat = presence.survey, presence.beat
        stood = asyncio.Event()

        async def still(*args: Any, **more: Any) -> Any:
            stood.set()
            await self._go_on.wait()
            return await self._survey(*args, **more)

        async def silent() -> None:
            await self._go_on.wait()

        presence.survey, presence.beat = still, silent  # type: ignore[method-assign]
        await stood.wait()
        if self._killed and isinstance(presence, SessionPresence):
            await presence.disconnect()
        assert membership.name
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._membership.presence.survey = self._survey  # type: ignore[method-assign]
        self._membership.presence.beat = self._beat  # type: ignore[method-assign]
        self._go_on.set()


def record(kernel: Kernel, id: str) -> MissionRecord:
    """A mission as a kernel finds it now."""
    return kernel.image.read(lambda root: ledger.record_of(root, id))
