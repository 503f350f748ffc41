"""The models as a client sees them: a list, a way to ask for them, and news while they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from batos.bridge.client import tagged

if TYPE_CHECKING:
    from batos.bridge.provision import Provisioner
    from batos.bridge.residency import Residency
    from batos.bridge.wants import ModelStatus

Reply = dict[str, Any]


class Models:
    """The models of a profile. Without a provisioner, where something else infers in Ollama's place, there are none."""

    def __init__(self, profile: str, provisioner: Provisioner | None = None, residency: Residency | None = None) -> None:
        self._profile, self._provisioner, self._residency = profile, provisioner, residency

    def listed(self) -> list[Reply]:
        """How it stands with each model, and what is known of its place in memory."""
        return [self._told(status) for status in self._provisioner.status()] if self._provisioner is not None else []

    async def refresh(self) -> None:
        """Ask Ollama what it has in memory now."""
        if self._residency is not None:
            await self._residency.refresh()

    def _told(self, status: ModelStatus) -> Reply:
        return {**status.to_wire(), **(self._residency.about(status.name) if self._residency is not None else {})}

    def describe(self, names: Sequence[str] = ()) -> Reply:
        """How it stands with these models, or all, and whether they are being looked after now."""
        wanted = {tagged(name) for name in names}
        models = [model for model in self.listed() if not wanted or model["name"] in wanted]
        under_way = self._provisioner is not None and self._provisioner.under_way
        return {"profile": self._profile, "models": models, "under_way": under_way}

    async def ensure(self, names: Sequence[str] = ()) -> Reply:
        """Make or pull what is missing of these, or of all; when each is there or has failed, how it stands with them, as `describe`
        says it. Cancelled, the work goes on."""
        found = [self._told(status) for status in await self._provisioner.ensure(names)] if self._provisioner is not None else []
        return {**self.describe(), "models": found}

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        if self._provisioner is not None:
            await self._provisioner.settled()

    def watch(self, hear: Callable[[Reply], None]) -> Callable[[], None]:
        """See `Provisioner.watch`."""
        return self._provisioner.watch(hear) if self._provisioner is not None else lambda: None
