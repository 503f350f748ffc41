"""The models as a client sees them: a list, a way to ask for them, and news while they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from batos.bridge.names import tagged
from batos.errors import InferenceFailed, InvalidInput

if TYPE_CHECKING:
    from batos.bridge.place import Place
    from batos.bridge.wants import ModelStatus

Reply = dict[str, Any]
Use = Callable[[str], Awaitable[Reply]]
Fit = Callable[[Sequence[str]], Awaitable[Reply]]


class Models:
    """The models of a profile. Without a place, where something else infers in Ollama's place, there are none.

    Where there are several places, all that is told says of which one it is: its `host`.
    """

    def __init__(self, profile: Callable[[], str], places: Sequence[Place] = (), *, use: Use | None = None, fit: Fit | None = None) -> None:
        """
        :param profile: the name of the one in force.
        :param use: lets another model think from now on.
        :param fit: says what there is to think with.
        """
        self._profile, self._places, self._use, self._fit = profile, places, use, fit

    async def use(self, name: str) -> Reply:
        """Let a model think from now on, also after a restart.

        :param name: of a model, of a profile, or `robin=NAME` for one persona.
        :raises InvalidInput: where it cannot.
        """
        if self._use is None:
            raise InvalidInput("there is no Ollama here that could think with it")
        return await self._use(name)

    async def fit(self, names: Sequence[str]) -> Reply:
        """What the first Ollama has, what each can do and takes, and whether it fits the memory budget.

        :param names: models that are tried first, so that it is known what is only claimed of others, and how fast they are.
        :raises InferenceFailed: where there is no Ollama, or it does not say.
        """
        if self._fit is None:
            raise InferenceFailed("there is no Ollama that could have models", cause="unreachable")
        return await self._fit(names)

    def listed(self) -> list[Reply]:
        """How it stands with each model, and what is known of its place in memory."""
        return [self._told(place, status) for place in self._places for status in place.provisioner.status()]

    def there(self) -> set[str]:
        """The names of those that can be asked now."""
        return {status.name for place in self._places for status in place.provisioner.status() if status.ready}

    async def refresh(self) -> None:
        """Ask each Ollama what it has in memory now."""
        await asyncio.gather(*(place.residency.refresh() for place in self._places))

    def _told(self, place: Place, status: ModelStatus) -> Reply:
        return {**status.to_wire(), **place.residency.about(status.name), **self._where(place)}

    def _where(self, place: Place) -> Reply:
        return {"host": place.host} if len(self._places) > 1 else {}

    def describe(self, names: Sequence[str] = ()) -> Reply:
        """How it stands with these models, or all, and whether they are being looked after now."""
        wanted = {tagged(name) for name in names}
        models = [model for model in self.listed() if not wanted or model["name"] in wanted]
        under_way = any(place.provisioner.under_way for place in self._places)
        return {"profile": self._profile(), "models": models, "under_way": under_way}

    async def ensure(self, names: Sequence[str] = ()) -> Reply:
        """Make or pull what is missing of these, or of all; when each is there or has failed, how it stands with them, as `describe`
        says it. Cancelled, the work goes on."""
        found = await asyncio.gather(*(place.provisioner.ensure(names) for place in self._places))
        told = [self._told(place, status) for place, statuses in zip(self._places, found, strict=True) for status in statuses]
        return {**self.describe(), "models": told}

    async def has(self, name: str) -> bool:
        """Whether an Ollama has a model now, of the profile or not."""
        return any(await asyncio.gather(*(place.has(name) for place in self._places)))

    async def fetch(
        self, name: str, most: int | None, whole: Callable[[int], object], begins: Callable[[str], object] = lambda layer: None
    ) -> tuple[ModelStatus, int]:
        """See `Provisioner.fetch`; on the first Ollama.

        :raises InferenceFailed: where there is none.
        """
        if not self._places:
            raise InferenceFailed(f"there is no Ollama that could have the model {name}", cause="unreachable", model=name)
        return await self._places[0].provisioner.fetch(name, most, whole, begins)

    async def discard(self, name: str) -> None:
        """See `Provisioner.discard`; on the first Ollama."""
        if self._places:
            await self._places[0].provisioner.discard(name)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await asyncio.gather(*(place.provisioner.settled() for place in self._places))

    def watch(self, hear: Callable[[Reply], None]) -> Callable[[], None]:
        """See `Provisioner.watch`."""

        def at(place: Place) -> Callable[[Reply], None]:
            return lambda event: hear({**event, **self._where(place)})

        ends = [place.provisioner.watch(at(place)) for place in self._places]

        def end() -> None:
            for one in ends:
                one()

        return end
