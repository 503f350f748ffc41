"""Kernels whose missions reach one place through a connector of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from batos.app.kernel import Kernel
from batos.image import grants as image_grants
from batos.image.grants import ALLOW, GrantRecord
from batos.tools.definitions import ConnectionSpec, Connector, ConnectorServices
from batos.tools.toolbox import Toolbox
from tests.support.missions import FakeInference, give, mind


@asynccontextmanager
async def connected(folder: Path, inference: FakeInference, connector: Connector, name: str = "shop") -> AsyncIterator[Kernel]:
    """Run a kernel with one connection."""
    async with mind(folder, inference) as kernel:
        held = kernel.attempt_services.toolbox
        assert held is not None
        toolbox = Toolbox(kernel.image, ConnectorServices(secret=str, folder=folder), held.state, lambda spec, services: connector)
        await toolbox.add(ConnectionSpec(name, "http", "https://shop.example"))
        give(kernel, toolbox=toolbox)
        yield kernel


async def allow(kernel: Kernel, pattern: str = "*") -> None:
    """Add a grant for the tools of a pattern."""
    await kernel.image.system(image_grants.add, GrantRecord(0, ALLOW, pattern), 1.0)
