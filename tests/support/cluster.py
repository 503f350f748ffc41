"""Whole kernels of one image in one process, each with a scripted Ollama of its own: `async with member(folder, uri, server, "a")`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.bridge.modelfile import tagged
from batos.testing import ScriptedOllama
from tests.support.daemon import note_built, provisioned
from tests.support.missions import settings

LEASE_S, LOOK_S = 5.0, 0.05


def ollama() -> ScriptedOllama:
    """A scripted Ollama with the models of the profile `embedded`."""
    server = ScriptedOllama()
    server.start()
    provisioned(server)
    return server


def other_manifest(server: ScriptedOllama, model: str) -> None:
    """Let a model have another digest, as if its files had come from another path."""
    server.models[model] = dataclasses.replace(server.models[tagged(model)], parent=f"/elsewhere/{server.host}")


@contextlib.asynccontextmanager
async def member(folder: Path, uri: str, server: ScriptedOllama, name: str, **more: Any) -> AsyncIterator[Kernel]:
    """A kernel without endpoints, under that name; it is stopped with the block."""
    note_built(server.host, folder / "ollama")
    image = {"uri": uri, "kernels": "many", "kernel_name": name, "lease_s": LEASE_S, "look_s": LOOK_S}
    given = {**more, "image": image, "inference": {"host": server.host, **more.get("inference", {})}}
    kernel = await Kernel.start(settings(folder, **given), listen=False)
    try:
        yield kernel
    finally:
        await kernel.stop()


def looks_anew(kernel: Kernel) -> None:
    """Let a kernel ask its Ollama for its models now, and not when what it knows is old."""
    for place in kernel.substrate.places:
        place.provisioner.changed()
