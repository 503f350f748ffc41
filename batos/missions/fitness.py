"""Fitness of a kernel: which missions it may take up, where several kernels serve one image.

A kernel is *unfit* while a model of the profile is missing or differs from the other kernels' model, or its Ollama does not answer. It
serves clients and takes up nothing; its record says why. A fit kernel leaves a mission to another one that can do more. The models of that
one have the abilities that the mission needs, or its machine has the connection that the mission calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import structlog

from batos.bridge.capabilities import Needs
from batos.bridge.modelfile import tagged
from batos.errors import BatosError, InferenceFailed
from batos.image import kernels, shared_models
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.image.shared_models import SharedModel
from batos.tools import machines

log = structlog.get_logger("batos.cluster")
LOOK_S = 1.0
"""Seconds between two looks at the own models."""
EMBEDS = "embedder"
"""Purpose of the model that embeds."""
EMBEDDER = "(embedder)"
"""Name under which the identity of the embedder is published among the models."""
_NOT_LOOKED = "its models are not looked at yet"
_AWAY = ("unreachable", "breaker", "timeout")


class NeededModels(NamedTuple):
    """Models that a kernel must have, and what they are able to do.

    :ivar named: returns the models by name, each with what it is for, in words: the personas that speak with it, or `EMBEDS`.
    :ivar digest: asks for a model as the image knows it (`batos.bridge.shared_digests`); raises InferenceFailed where it cannot be used.
    :ivar embedder: returns the identity of the embedder of memory.
    :ivar able: returns what all models that speak for personas are able to do; everything, where nothing says otherwise.
    """

    named: Callable[[], Mapping[str, str]]
    digest: Callable[[str], Awaitable[str]]
    embedder: Callable[[], Awaitable[str]]
    able: Callable[[], Needs]


class MissionLoads(NamedTuple):
    """Weights that are in the memory of this kernel's Ollamas, by the names of their files, and those that a mission needs.

    :ivar of: returns "" where that is not known.
    """

    resident: Callable[[], frozenset[str]]
    of: Callable[[MissionRecord], str]


HERE, NOWHERE, ELSEWHERE = 0, 1, 2
"""Places of the weights that a mission needs: in the memory of this kernel, of none, of another one only."""
Tell = Callable[..., Awaitable[None]]


class Fitness:
    """Fitness of this kernel; see the module."""

    def __init__(self, image: LivingImage, models: NeededModels | None, tell: Tell) -> None:
        """
        :param models: None: no Ollama infers, and there is nothing to lack.
        :param tell: publishes facts of this kernel (`batos.cluster.membership.Membership.describe`).
        """
        self._image, self._models, self._tell = image, models, tell
        self.name = image.read(kernels.me)
        """Name of this kernel; empty where one daemon has the image to itself: then it is fit for all."""
        self.reasons: tuple[str, ...] = (_NOT_LOOKED,) if self.name and models is not None else ()
        """Why it takes up nothing now; empty where it does."""
        self._able = Needs()
        self._others: tuple[tuple[Needs, frozenset[str]], ...] = ()  # abilities of each other kernel that is fit, and what it has loaded
        self.loads: MissionLoads | None = None
        """Loads of the missions; None: they are not grouped by model."""
        self.hindrance: Callable[[], str] = str
        """Returns another reason in words, "" without one."""
        self.changed: Callable[[], object] = lambda: None
        """Called when it has become fit, or others can do less: missions may be taken up that were not."""
        self._looks = asyncio.Lock()  # one look at a time: an older one that waits for a server must not overwrite what a newer one found

    # --- looks

    async def watch(self, settled: Callable[[], Awaitable[None]], every_s: float = LOOK_S) -> None:
        """Look again and again until cancelled.

        :param settled: returns when the own models are there, or have failed. The first look waits for it, at most as long as between two.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await settled()
        while True:
            try:
                await self.look()
            except Exception as e:  # a server that is away, say: the next look may find it
                log.warning("fitness_not_looked_at", error=f"{type(e).__name__}: {e}"[:200])
            await asyncio.sleep(every_s)

    async def look(self) -> None:
        """Look at the own models and at the other kernels' records, and publish what changed."""
        if not self.name:
            return
        async with self._looks:
            await self._look()

    async def _look(self) -> None:
        reasons, able = await self._looked()
        reasons += (why,) if (why := self.hindrance()) else ()
        loaded = tuple(sorted(self.loads.resident())) if self.loads is not None else ()
        self.name = self._image.read(kernels.me)
        known = {one.name: one for one in self._image.read(kernels.listed)}
        mine = known.get(self.name)
        words = tuple(able.words())
        if mine is not None and (mine.unfit, mine.abilities, mine.loaded) != (reasons, words, loaded):
            await self._tell(unfit=reasons, abilities=words, loaded=loaded)
        if mine is not None and mine.unfit != reasons:
            (log.warning if reasons else log.info)("kernel_unfit" if reasons else "kernel_fit", kernel=self.name, why=reasons)
        before = (self.reasons, self._able, self._others)
        self._able = able
        fit = [one for one in known.values() if one is not mine and not (one.gone or one.unfit or one.draining)]
        self._others = tuple((Needs.parse(one.abilities), frozenset(one.loaded)) for one in fit)
        self.reasons = reasons
        if (self.reasons, self._able, self._others) != before:
            self.changed()

    async def _looked(self) -> tuple[tuple[str, ...], Needs]:
        if self._models is None:
            return (), Needs()
        reasons: dict[str, list[str]] = {}
        for model, purpose in self._models.named().items():
            try:
                await self._models.digest(model)
            except InferenceFailed as e:
                if e.cause == "model_missing":
                    if self._image.read(shared_models.is_published, tagged(model)):
                        await self._image.system(shared_models.withdraw, tagged(model))
                    if purpose == EMBEDS:  # searches go by words meanwhile
                        continue
                reasons.setdefault(_why(e, model), []).append(purpose)
        if EMBEDS not in itertools.chain.from_iterable(reasons.values()) and (why := await self._other_embedder(self._models)):
            reasons[why] = ["memory"]
        told = tuple(f"{why} ({', '.join(of)})" for why, of in reasons.items())
        return told, Needs() if told else self._models.able()

    async def _other_embedder(self, models: NeededModels) -> str:
        """Return that memory is embedded otherwise here than at other kernels, in words; "" if it is not."""
        try:
            identity = await models.embedder()
        except BatosError as e:
            return f"its embedder fails: {e.message}"
        held = await shared_models.publish_once(self._image, SharedModel(EMBEDDER, identity, identity))
        if held.content == identity:
            return ""
        return f"it embeds with {identity}, the other kernels with {held.content}: give it their settings"

    # --- decisions

    def may_claim(self, mission: MissionRecord) -> bool:
        """Return True if this kernel may take up a mission now."""
        return not self.name or not self.why_not(mission)

    def why_not(self, mission: MissionRecord) -> str:
        """Return in words why this kernel does not take up a mission now; "" if it may."""
        if not self.name:
            return ""
        if self.reasons:
            return f"this kernel is unfit: {'; '.join(self.reasons)}"
        if there := self._image.read(machines.machine_of, mission):
            return f"it needs a connection of {there}, and is thought there"
        needs = needs_of(mission)
        if not needs or self._able.covers(needs) or not any(able.covers(needs) for able, _ in self._others):
            return ""
        return f"it needs a model that {needs.told()}, which another kernel has"

    def nearness(self, mission: MissionRecord) -> int:
        """Return where the weights are loaded that a mission needs. It is `HERE` (or that is not known), `NOWHERE`, or only `ELSEWHERE`, at
        a kernel that is fit."""
        if not self.name or self.loads is None:
            return HERE
        weights = self.loads.of(mission)
        if not weights or weights in self.loads.resident():
            return HERE
        return ELSEWHERE if any(weights in loaded for _, loaded in self._others) else NOWHERE

    def waits(self, mission: MissionRecord) -> str:
        """Return why no living kernel takes up a mission, in words; "" if one may."""
        if not self.name or not (mine := self.why_not(mission)):
            return ""
        if there := self._image.read(machines.machine_of, mission):
            known = [one for one in self._image.read(kernels.listed) if one.host == there and not one.gone]
            if not known:
                return f"it needs a connection of {there}, and no kernel runs there: start it, or `batos tools remove` the connection"
            unfit = next((one for one in known if not one.unfit), None) is None
            return f"it needs a connection of {there}, whose kernel is unfit: {'; '.join(known[0].unfit)}" if unfit else ""
        return "" if self._others else mine

    def facts(self) -> dict[str, Any]:
        """Return what `info` tells of it; empty where one daemon has the image to itself."""
        return {"fit": not self.reasons, "why_not": list(self.reasons)} if self.name else {}


def needs_of(mission: MissionRecord) -> Needs:
    """Return the abilities that a mission's model must have, as far as they are known before it is thought about."""
    return Needs.parse(mission.needs or ()) | Needs(vision=mission.has_own_pictures)


def _why(failure: InferenceFailed, model: str) -> str:
    """Return why a model cannot be used, with the remedy."""
    if failure.cause in _AWAY:
        return "its Ollama does not answer; `batos doctor` there says more"  # no figure that changes: it would be published at each look
    if failure.cause == "model_missing" and not failure.context.get("lacks"):
        return f"its Ollama has no {model}: `ollama pull {model}` there, or wait until it is built"
    return failure.message
