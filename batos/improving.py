"""The part of the composition root by which the loop changes what it is: proposals, their rehearsal on stages of their own, promotion."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from batos.autotelic import expertise, training
from batos.autotelic.audit import AUDIT, IMPROVEMENT, Audits
from batos.autotelic.budget import Budget
from batos.autotelic.improver import Improver
from batos.autotelic.kinds import Ground
from batos.autotelic.preparing import Fetching, Preparation
from batos.autotelic.rehearsal import Rehearsals, Rehearsing, Stage
from batos.bridge.experts import staging_folder
from batos.bridge.types import Inference
from batos.config import Settings
from batos.image.living import LivingImage
from batos.mind import forge, incarnation, learning
from batos.mind.codex import Codex
from batos.mind.events import Event, Events
from batos.mind.handbook.nearest import handbook
from batos.mind.likeness import Likeness
from batos.mind.messages import deliver
from batos.mind.methods import Methods
from batos.mind.proposing import Propose, Ruled, nothing_proposed, nothing_ruled
from batos.mind.router import Router
from batos.mind.scheduler import Scheduler
from batos.substrate import Substrate

TASKS_SEED = 1
Host = Callable[[LivingImage, Methods, Router], dict[str, Any]]
"""What every attempt is given (see `Thinking`), for one that is thought in that image."""
Curate = Callable[[], Awaitable[Mapping[str, Any]]]


class Improving:
    """Proposals and what they come to. With `autotelic = "off"` there are none."""

    def __init__(
        self,
        settings: Settings,
        image: LivingImage,
        inference: Inference,
        embedder: str,
        codex: Codex,
        *,
        host: Host,
        audit: Callable[[str, str], Any],
        substrate: Substrate,
        curate: Curate | None = None,
    ) -> None:
        """
        :param embedder: the model by which briefs are routed.
        :param audit: the guardian's verdict of a source and its selector.
        :param substrate: knows the models.
        :param curate: runs the memory's curator.
        """
        self._settings, self._image, self._inference, self._embedder, self._codex = settings, image, inference, embedder, codex
        self._host, self._curate, self._substrate = host, curate, substrate
        self._ground = Ground(
            settings,
            audit,
            lambda: substrate.models.there(),
            curates=curate is not None,
            trains=lambda: training.why_not(settings, substrate.profile),
        )
        self._audits, off = Audits(self._ground, substrate.why_unfit), settings.autotelic == "off"
        self.propose: Propose = nothing_proposed if off else self._audits.propose
        self.ruled: Ruled = nothing_ruled if off else self._audits.ruled
        self.improver: Improver | None = None

    def begin(self, scheduler: Scheduler, events: Events, leash: Budget, background: Callable[[Any, str], None]) -> None:
        """Look after proposals until the daemon ends.

        :param background: runs something until then.
        """
        if self._settings.autotelic == "off":
            return
        settings, image = self._settings, self._image
        rehearsals = Rehearsals(image, self._inference, settings, self._stage, self._ground, self._tasks)
        staging = staging_folder(settings.lora_staging, settings.data)
        preparations: dict[str, Preparation] = {
            "model": Fetching(image, self._substrate.models, leash),
            expertise.KIND: training.Training(image, settings, leash, lambda: self._substrate.factory, staging),
        }
        improver = self.improver = Improver(
            self._image, self._inference, self._ground, self._audits, rehearsals, leash, quiet=scheduler.quiet, curate=self._curate,
            preparations=preparations,
        )  # fmt: skip

        def hear(event: Event) -> None:
            if event["id"].startswith((AUDIT, IMPROVEMENT)):
                improver.look()

        events.listen("result", hear)
        background(improver.run(), "improver")

    @contextlib.asynccontextmanager
    async def _tasks(self, count: int) -> AsyncIterator[Sequence[expertise.Task]]:
        """Tasks of families that no training sees, spread over them."""
        from batos.training.dataset import generate  # late: they are many, and only who trains needs them
        from batos.training.proof import Prover

        found = await asyncio.to_thread(generate, "validation", TASKS_SEED, each=1)
        async with Prover(self._settings) as prover:

            def right(task: Any) -> Callable[[str], Awaitable[bool]]:
                async def is_right(source: str) -> bool:
                    return (await prover.judge(task, source)).right

                return is_right

            chosen = found[:: max(1, len(found) // count)][:count]
            book = await asyncio.to_thread(handbook)
            yield [expertise.Task(task.selector, task.prompt(example=True, book=book), right(task)) for task in chosen]

    @contextlib.asynccontextmanager
    async def _stage(self, image: LivingImage, names: Inference) -> AsyncIterator[Stage]:
        """What it takes to think in a mirror: methods, a router and a sandbox of its own.

        :param names: knows the digests of models.
        """
        settings, limit_s = self._settings, self._settings.inference_deadline_s
        likeness = Likeness(image, self._inference, self._embedder, limit_s=limit_s, pause_s=0, deadline_s=limit_s)
        methods = Methods(image, settings, forge=forge.forge, deliver=deliver)

        def examples(root: Any) -> dict[str, learning.Exemplars]:
            return {name: learning.exemplars_of(one) for name, one in incarnation.present(root["lobby"], self._codex).items()}

        router = Router(self._codex, lambda: image.read(examples), likeness, chars=settings.routing_chars)

        def thinking(mission: dict[str, Any]) -> Rehearsing:
            return Rehearsing(mission, inference=names, events=Events(), **self._host(image, methods, router))

        try:
            yield Stage(image, methods, thinking)
        finally:
            await likeness.stop()
            await methods.close()
