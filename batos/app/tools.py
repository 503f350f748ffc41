"""Stage of the tools: the daemon's connections, their secrets, and the image's right to act."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import structlog

from batos import private_files
from batos.concurrency import Lifetime
from batos.config import Settings
from batos.errors import InvalidInput
from batos.image import effects, identity
from batos.image.living_image import LivingImage
from batos.tools.definitions import ConnectorServices, ToolLimits
from batos.tools.secrets import SECRETS_FILE, SecretStore
from batos.tools.toolbox import Toolbox

log = structlog.get_logger("batos.tools")
FOLDER = "tools"
"""Folder in the data folder for what connectors keep."""


@dataclasses.dataclass(frozen=True)
class ToolStage:
    """The daemon's connections, and the image's right to act through them."""

    image: LivingImage
    toolbox: Toolbox
    file: Path | None
    """the file beside the image, as `identity.epoch_path` names it"""

    async def resume(self) -> None:
        """Let the image act again; what had not ended is in doubt from then on. Nothing happens where it may act already.

        :raises InvalidInput: if the file beside the image cannot be written; the image stays suspended.
        """
        if not self.toolbox.tied():
            return
        try:
            self.toolbox.state = await identity.resume(self.image, self.file)
        except OSError as e:
            why = e.strerror or e
            raise InvalidInput(f"{self.file} cannot be written ({why}); make room or repair its folder, then try again") from None

    def facts(self) -> dict[str, Any]:
        """Return what `info` tells of tools."""
        held = self.toolbox.connections()
        return {
            "connections": len(held),
            "tools": sum(len(one.tools) for one in held.values()),
            "suspended": sorted(name for name, one in held.items() if one.changes),
            "open": sorted(self.toolbox.open_names()),
            "in_doubt": len(self.image.read(effects.in_doubt)),
            "tied": self.toolbox.tied(),
        }


@contextlib.asynccontextmanager
async def open_tools(settings: Settings, image: LivingImage) -> AsyncIterator[ToolStage]:
    """Begin the image's epoch, and make the toolbox. A connector opens when a mission first uses it."""
    async with Lifetime() as life:
        # Among several kernels no folder is the image's home; each of them may act.
        file = None if image.kernel else identity.epoch_path(settings.image_uri, settings.data)
        state = await identity.begin(image, file)
        doubted: asyncio.Queue[str] = asyncio.Queue()
        services = ConnectorServices(
            secret=SecretStore(settings.data / SECRETS_FILE).get,
            folder=private_files.folder(settings.data / FOLDER),
            limits=dataclasses.replace(ToolLimits.of(settings), call_s=settings.tools.call_s),
            changed=doubted.put_nowait,
        )
        toolbox = Toolbox(image, services, state)
        life.push_async_callback(toolbox.close)
        life.background(_looked_at(toolbox, doubted), "changed tools")
        yield ToolStage(image, toolbox, file)


async def _looked_at(toolbox: Toolbox, doubted: asyncio.Queue[str]) -> None:
    """Ask each connection whose tools may have changed for them anew, so that what changed is suspended."""
    while True:
        name = await doubted.get()
        try:
            await toolbox.test(name)
        except Exception as e:  # a server's answer, whatever it is, does not end the looking at others
            log.warning("connection_not_looked_at", name=name, error=str(e)[:200])
