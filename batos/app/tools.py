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
from batos.cluster.membership import Membership
from batos.concurrency import Background, Lifetime
from batos.config import Settings
from batos.errors import InvalidInput
from batos.image import effects, identity, kernels
from batos.image.living_image import LivingImage
from batos.objects import Root
from batos.tools import machines
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
    membership: Membership
    tasks: Background = dataclasses.field(default_factory=Background)
    """tasks that a look begins"""

    async def resume(self) -> None:
        """Let the image act again; what had not ended is in doubt from then on. Nothing happens where it may act already.

        :raises InvalidInput: if the file beside the image cannot be written; the image stays suspended.
        """
        if not self.toolbox.tied():
            return
        try:
            resumed, marks = await identity.resume(self.image, self.file), self.toolbox.state.marks
            if marks is not None:
                await marks.forget()
            self.toolbox.state = resumed._replace(marks=marks)
        except OSError as e:
            why = e.strerror or e
            raise InvalidInput(f"{self.file} cannot be written ({why}); make room or repair its folder, then try again") from None
        await self.membership.describe(acts=True)

    async def joined(self) -> None:
        """Let the image act here as soon as another kernel that serves it does: then the image is not a copy. It goes on: an image that was
        suspended may be resumed at another kernel."""
        while True:
            if self.toolbox.tied() and self._may_join():
                try:
                    joined, marks = await identity.join(self.image, self.file), self.toolbox.state.marks
                    if marks is not None:
                        await marks.forget()
                    self.toolbox.state = joined._replace(marks=marks)
                except OSError as e:
                    log.warning("tools_not_joined", file=str(self.file), error=e.strerror or str(e))
                else:
                    await self.membership.describe(acts=True)
            await asyncio.sleep(self.membership.look_s)

    def _may_join(self) -> bool:
        marks = self.toolbox.state.marks
        older = self.image.read(identity.suspension) or (marks is not None and self.image.read(marks.put_back))
        return not older and any(one.acts for one in self.membership.alive())

    def look(self, root: Root) -> None:
        """See that the image is not an older one than that in which this kernel and the others acted, and keep how often they did."""
        state = self.toolbox.state
        if (marks := state.marks) is None or state.suspended:
            return
        if why := identity.suspension(root) or marks.put_back(root):
            log.warning("tools_suspended", why=why)
            self.toolbox.state = state._replace(suspended=f"{why}; {identity.RESUME}")
            self.tasks.start(self._suspended(marks), "suspension of tools", "tools")
        elif not marks.are_of(root):
            self.tasks.start(marks.note(), "acts of other kernels", "tools")

    async def _suspended(self, marks: identity.ActMarks) -> None:
        await self.image.system(marks.suspend)
        await self.membership.describe(acts=not self.toolbox.tied())  # it may have been resumed meanwhile

    def hindrance(self) -> str:
        """Return why missions had better not be taken up here at this moment, in words; "" if they may."""
        if self.toolbox.tied() and any(one.acts for one in self.membership.others()):
            return "it waits for a sign of life of another kernel before it acts outside"
        return ""

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
async def open_tools(settings: Settings, image: LivingImage, membership: Membership) -> AsyncIterator[ToolStage]:
    """Begin the image's epoch, and make the toolbox. A connector opens when a mission first uses it."""
    machine = kernels.host_of(image.read(kernels.me))
    async with Lifetime() as life:
        file = identity.epoch_path(settings.image_uri, settings.data)
        state = await identity.begin(image, file)
        doubted: asyncio.Queue[str] = asyncio.Queue()
        services = ConnectorServices(
            secret=SecretStore(settings.data / SECRETS_FILE).get,
            folder=private_files.folder(settings.data / FOLDER),
            limits=dataclasses.replace(ToolLimits.of(settings), call_s=settings.tools.call_s),
            changed=doubted.put_nowait,
        )
        toolbox = Toolbox(image, services, state, machine=machine)
        life.push_async_callback(toolbox.close)
        life.background(_looked_at(toolbox, doubted), "changed tools")
        stage = ToolStage(image, toolbox, file, membership)
        if machine:
            for name in await image.system(machines.adopt, machine):
                log.info("connection_adopted", name=name, machine=machine)
            await membership.describe(network=machines.network(), acts=not state.suspended)
            life.background(stage.joined(), "right to act")
            life.callback(membership.on_look(stage.look))
            life.push_async_callback(stage.tasks.stop)
        yield stage


async def _looked_at(toolbox: Toolbox, doubted: asyncio.Queue[str]) -> None:
    """Ask each connection whose tools may have changed for them anew, so that what changed is suspended."""
    while True:
        name = await doubted.get()
        try:
            await toolbox.test(name)
        except Exception as e:  # a server's answer, whatever it is, does not end the looking at others
            log.warning("connection_not_looked_at", name=name, error=str(e)[:200])
