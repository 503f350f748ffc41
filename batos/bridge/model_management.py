"""Model management for clients: list the models, request them, follow their progress, and remove what BAT OS made.

Removal deletes only models that BAT OS made in the user's Ollama. It recognises them by three signs: the prefix of personas' models, the
mark in an expert's licence, and the records of builds with their digests. Builds for a profile are recorded in `ollama/built*.json` in the
data folder. A model that a user has changed since belongs to the user and stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from batos.bridge.client import connect
from batos.bridge.installed_models import show_model
from batos.bridge.lora.expert_model import delete_model, failing, model_digests
from batos.bridge.model_builder import BuiltModels, built_models_file
from batos.bridge.modelfile import tagged
from batos.bridge.ollama_server import DEFAULT_HOST, version_at
from batos.bridge.profiles import EXPERT_MARK, PERSONA_PREFIX
from batos.config import Settings
from batos.errors import InferenceFailed, InvalidInput, OllamaUnavailable

if TYPE_CHECKING:
    from ollama import AsyncClient

    from batos.bridge.hosts import ManagedHost
    from batos.bridge.model_status import ModelStatus

Reply = dict[str, Any]
Use = Callable[[str], Awaitable[Reply]]
Fit = Callable[[Sequence[str]], Awaitable[Reply]]


class ModelManager:
    """Models of a profile. There are none without a managed host, when another service does the inferences.

    With several hosts, each reply names the `host` that it is about.
    """

    def __init__(
        self, profile: Callable[[], str], places: Sequence[ManagedHost] = (), *, use: Use | None = None, fit: Fit | None = None
    ) -> None:
        """
        :param profile: the name of the one in force.
        :param use: lets another model think from now on.
        :param fit: says what there is to think with.
        """
        self._profile, self._places, self._use, self._fit = profile, places, use, fit

    async def use(self, name: str) -> Reply:
        """Select a model, also after a restart.

        :param name: name of a model or a profile, or `robin=NAME` for one persona.
        :raises InvalidInput: if it cannot.
        """
        if self._use is None:
            raise InvalidInput("no Ollama here can run it")
        return await self._use(name)

    async def fit(self, names: Sequence[str]) -> Reply:
        """Return the models of the first Ollama, with capabilities and sizes, and whether each fits the memory budget.

        :param names: models to try first, so that their claimed capabilities and their speed are measured.
        :raises InferenceFailed: if there is no Ollama, or it does not answer.
        """
        if self._fit is None:
            raise InferenceFailed("no Ollama is available to list models", cause="unreachable")
        return await self._fit(names)

    def listed(self) -> list[Reply]:
        """Return the state of each model, and its known share of memory."""
        return [self._told(place, status) for place in self._places for status in place.provisioner.status()]

    def there(self) -> set[str]:
        """Return the names of the models that can be asked now."""
        return {status.name for place in self._places for status in place.provisioner.status() if status.ready}

    async def refresh(self) -> None:
        """Ask each Ollama which models are in memory."""
        await asyncio.gather(*(place.residency.refresh() for place in self._places))

    def _told(self, place: ManagedHost, status: ModelStatus) -> Reply:
        return {**status.to_wire(), **place.residency.about(status.name), **self._where(place)}

    def _where(self, place: ManagedHost) -> Reply:
        return {"host": place.host} if len(self._places) > 1 else {}

    def describe(self, names: Sequence[str] = ()) -> Reply:
        """Return the state of these models, or of all, and whether provisioning is under way."""
        wanted = {tagged(name) for name in names}
        models = [model for model in self.listed() if not wanted or model["name"] in wanted]
        under_way = any(place.provisioner.under_way for place in self._places)
        return {"profile": self._profile(), "models": models, "under_way": under_way}

    async def ensure(self, names: Sequence[str] = ()) -> Reply:
        """Build or pull the missing ones of these models, or of all. Return `describe` when each is ready or has failed.

        If the call is cancelled, the work goes on.
        """
        found = await asyncio.gather(*(place.provisioner.ensure(names) for place in self._places))
        told = [self._told(place, status) for place, statuses in zip(self._places, found, strict=True) for status in statuses]
        return {**self.describe(), "models": told}

    async def has(self, name: str) -> bool:
        """Return True if an Ollama has a model now, in the profile or not."""
        return any(await asyncio.gather(*(place.has(name) for place in self._places)))

    async def fetch(
        self, name: str, most: int | None, whole: Callable[[int], object], begins: Callable[[str], object] = lambda layer: None
    ) -> tuple[ModelStatus, int]:
        """See `Provisioner.fetch`; on the first Ollama.

        :raises InferenceFailed: if there is none.
        """
        if not self._places:
            raise InferenceFailed(f"no Ollama is available for the model {name}", cause="unreachable", model=name)
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

        def at(place: ManagedHost) -> Callable[[Reply], None]:
            return lambda event: hear({**event, **self._where(place)})

        ends = [place.provisioner.watch(at(place)) for place in self._places]

        def end() -> None:
            for one in ends:
                one()

        return end


class RemovedModel(NamedTuple):
    """A model that was deleted, and the address of its Ollama."""

    name: str
    host: str


async def remove_own_models(settings: Settings, *, dry: bool = False) -> list[RemovedModel]:
    """Delete the models that BAT OS made, in each Ollama of the settings, or in the one at the default port.

    :param dry: delete nothing, and answer the same.
    :raises OllamaUnavailable: if none of them answers.
    """
    hosts = dict.fromkeys((settings.inference.host or DEFAULT_HOST, *settings.inference.hosts))
    answering = [host for host in hosts if await version_at(host) is not None]
    if not answering:
        raise OllamaUnavailable(f"no Ollama answers at {', '.join(hosts)}; name one in inference.host or OLLAMA_HOST")
    removed = []
    for host in answering:
        notes = [BuiltModels(path) for path in _notes(settings, host)]
        async with connect(host) as client:
            for name, digest in sorted((await model_digests(client)).items()):
                if await _made_here(client, name, digest, notes):
                    if not dry:
                        await delete_model(client, name)
                    removed.append(RemovedModel(name, host))
    return removed


async def _made_here(client: AsyncClient, name: str, digest: str, notes: list[BuiltModels]) -> bool:
    if name.startswith(PERSONA_PREFIX) or any(built.knows(name, digest) for built in notes):
        return True
    with failing(f"cannot look at {name}"):
        shown = await show_model(client, name)
    found = EXPERT_MARK.search(str((shown or {}).get("license") or ""))
    return found is not None and tagged(found[1]) == name


def _notes(settings: Settings, host: str) -> list[Path]:
    """Return the notes about models built in an Ollama, whether it was the first one of a daemon or a further one."""
    folder = settings.data / "ollama"
    return [folder / "built.json", built_models_file(folder, host)]
