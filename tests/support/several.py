"""Several whole kernels in one process on one image, each with a data folder, an endpoint and an inference of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.bus import MissionEnded
from batos.console.api_client import Asker
from batos.image import ledger
from batos.image.mission_record import MissionRecord
from batos.wire.client import Client
from batos.wire.keys import ClientKeys
from tests.support.missions import WAIT_S, FakeInference, settings

LEASE_S, LOOK_S = 5.0, 0.03


class Member:
    """One kernel: the daemon, a client of it, its inference, and the ends that were published there."""

    def __init__(self, kernel: Kernel, client: Client, inference: FakeInference) -> None:
        self.kernel, self.client, self.inference = kernel, client, inference
        self.ends: list[MissionEnded] = []
        kernel.bus.subscribe(MissionEnded, self.ends.append)

    @property
    def name(self) -> str:
        return self.kernel.membership.name

    def record(self, id: str) -> MissionRecord:
        return self.kernel.image.read(ledger.record_of, id)

    def ended(self, id: str) -> list[MissionEnded]:
        return [one for one in self.ends if one.mission == id]

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        return await Asker(self.kernel.transport.dispatcher, self.kernel.settings).ask(op, **fields)


@contextlib.asynccontextmanager
async def member(
    uri: str,
    folder: Path,
    host: str,
    *,
    listen: str = "",
    inference: Callable[[], FakeInference] = FakeInference,
    keys: ClientKeys | None = None,
    **more: Any,
) -> AsyncIterator[Member]:
    """A kernel of an image.

    :param listen: its endpoint; default: a socket in its folder.
    :param keys: those of its client.
    """
    data, thinks = folder / host, inference()
    data.mkdir(exist_ok=True)
    image = {"uri": uri, "kernels": "many", "kernel_name": host, "look_s": LOOK_S, "lease_s": LEASE_S}
    endpoint = listen or f"ipc://{folder}/{host}.sock"
    given = {"listen": (endpoint,), "linger_s": 0.5, "remember": "off", "depth": "direct", **more}
    kernel = await Kernel.start(settings(data, image=image, **given), inference=thinks)
    try:
        async with Client(kernel.endpoints[0], timeout_s=WAIT_S, keys=keys) as client:
            yield Member(kernel, client, thinks)
    finally:
        thinks.release()
        await kernel.stop()


@contextlib.asynccontextmanager
async def pair(uri: str, folder: Path, **more: Any) -> AsyncIterator[tuple[Member, Member]]:
    """Two kernels that know each other. The second takes up no missions by itself."""
    async with member(uri, folder, "a", **more) as one, member(uri, folder, "b", **more) as other:
        await met(one, other)
        yield one, other


async def met(*members: Member) -> None:
    """Return when each knows the others and where they answer, and takes up missions: one that joined leaves them to the others before."""
    async with asyncio.timeout(WAIT_S):
        while any(len([k for k in one.kernel.membership.others() if k.endpoint]) < len(members) - 1 for one in members):
            await asyncio.sleep(0.01)
        for one in members:
            await one.kernel.fitness.look()
            while one.kernel.fitness.reasons:
                await asyncio.sleep(0.01)
                await one.kernel.fitness.look()


async def until(condition: Any, what: str = "") -> None:
    """Wait until a condition holds."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never came: {what}") from None
