"""What must be there before a change can be tried: a model that is to be pulled. Where the change is refused, it goes again.

What is brought about is noted in the change's record before anything is done, so that a kill leaves nothing behind that nobody knows of.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import structlog

from batos.autotelic.proposals import Proposal
from batos.bridge.pulling import TOO_LARGE
from batos.bridge.wants import ModelStatus
from batos.errors import ProvisioningFailed
from batos.image.living import LivingImage
from batos.objects import UvmObject

log = structlog.get_logger("batos.autotelic")

Facts = dict[str, Any]
Keep = Callable[[Facts], Awaitable[Any]]


class NotYet(Exception):
    """A change cannot be tried now, and may be later: why."""


class Preparation(Protocol):
    """Brings about what changes of one kind need to be tried."""

    async def prepare(self, number: int, proposal: Proposal, held: Facts, keep: Keep) -> Facts:
        """What was brought about for a change, as facts of its record.

        :param number: of the change.
        :param held: those that were kept before, by an attempt that a restart interrupted.
        :param keep: makes facts durable.
        :raises NotYet: where it may be had later.
        :raises BatosError: where it cannot be had; the change is refused then.
        """

    def made(self, proposal: Proposal, held: Mapping[str, Any]) -> Proposal:
        """The proposal as it is to be tried and made, with what was brought about."""

    async def clear(self, held: Mapping[str, Any]) -> None:
        """Do away with what was brought about for a change that was refused; may be repeated.

        :raises BatosError: where that cannot be done now.
        """


class Pulls(Protocol):
    """`budget.Budget`, as a pull needs it."""

    @property
    def pull_limit(self) -> int:
        """Bytes that may be pulled in 24 hours."""

    async def may_pull(self) -> int:
        """Bytes that may be pulled now."""

    async def pulled(self, size: int) -> None:
        """Count what was pulled."""

    def came(self, size: int) -> None:
        """The same in the middle of a pull, without waiting for it to be durable."""


class Store(Protocol):
    """`bridge.models.Models`, as a pull needs it."""

    async def has(self, name: str) -> bool:
        """Whether a model is there."""

    async def fetch(self, name: str, most: int, whole: Callable[[int], object]) -> tuple[ModelStatus, int]:
        """Pull a model of at most so many bytes; how it stands with it then, and how many bytes came.

        :param whole: hears at once of the bytes of each layer that has come.
        """

    async def discard(self, name: str) -> None:
        """Delete a model."""


class Fetching:
    """Models that a persona may be given. Facts: the `model` that was not there before, the `bytes` that came, whether it is `there`."""

    def __init__(self, image: LivingImage, models: Store, pulls: Pulls) -> None:
        self._image, self._models, self._pulls = image, models, pulls

    async def prepare(self, number: int, proposal: Proposal, held: Facts, keep: Keep) -> Facts:
        """See `Preparation`."""
        name = str(proposal.content).strip()
        if held.get("there") or (not held and await self._models.has(name)):
            return held
        most = await self._pulls.may_pull()
        if not most:
            raise NotYet(f"the loop has pulled all that it may in 24 hours ({self._pulls.pull_limit} bytes, setting loop_pull_bytes)")
        held = {"model": name, "bytes": held.get("bytes", 0), "there": False}
        await keep(held)
        counted = 0

        def whole(size: int) -> None:  # at once: a stop or a kill may cut the pull off, and the next one finds the layer there
            nonlocal counted
            counted += size
            self._pulls.came(size)

        status, came = await self._models.fetch(name, most, whole)
        await self._pulls.pulled(came - counted)
        held = {**held, "bytes": held["bytes"] + came, "there": status.ready}
        await keep(held)
        log.info("model_fetched", change=number, model=name, bytes=came, there=status.ready, why=status.detail)
        if status.ready:
            return held
        if status.state != "failed" or (status.cause == TOO_LARGE and most < self._pulls.pull_limit):
            raise NotYet(status.detail)
        raise ProvisioningFailed(
            f"the model {name} could not be had: {status.detail}",
            cause=status.cause, model=name, detail=status.detail, remedy=status.remedy,
        )  # fmt: skip

    def made(self, proposal: Proposal, held: Mapping[str, Any]) -> Proposal:
        """See `Preparation`."""
        return proposal

    async def clear(self, held: Mapping[str, Any]) -> None:
        """See `Preparation`."""
        name = held.get("model")
        if name and not self._image.read(_is_spoken, name):
            await self._models.discard(name)
            log.info("model_discarded", model=name)


def _is_spoken(root: Any, model: str) -> bool:
    """Whether a persona speaks with a model."""
    lobby = root["lobby"]
    return any(isinstance(one := lobby._slots.get(name), UvmObject) and one.model == model for name in lobby.personas)
