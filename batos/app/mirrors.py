"""Part of the composition root for thoughts in mirrors of the image: each mirror gets methods, router and sandbox of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

from batos.app.inference import ModelRuntime
from batos.bridge.inference import Inference
from batos.config import Settings
from batos.forge import machine
from batos.image.living_image import LivingImage
from batos.methods.runtime import MethodRuntime
from batos.mind import incarnation
from batos.mind.attempt_services import AttemptServices
from batos.mind.codex import Codex
from batos.mind.messages import deliver
from batos.mind.router import Likeness, Router, RoutingLimits
from batos.missions.mirror_stage import Stage, Staging
from batos.missions.replay import replay_services
from batos.objects import Root


class MirrorParts:
    """Parts of the daemon that the stages of mirrors are made of."""

    def __init__(self, settings: Settings, inference: Inference, codex: Codex, substrate: ModelRuntime) -> None:
        """
        :param inference: asked for embeddings only.
        """
        self._settings, self._inference, self._codex, self._substrate = settings, inference, codex, substrate

    def staging(self, services: AttemptServices) -> Staging:
        """Return the maker of stages.

        :param services: the services of live attempts.
        """
        return partial(self._stage, services)

    @contextlib.asynccontextmanager
    async def _stage(self, services: AttemptServices, image: LivingImage, names: Inference) -> AsyncIterator[Stage]:
        """Make the parts for thinking in a mirror: own methods, router and sandbox.

        :param names: knows the digests of models.
        """
        settings, limit_s = self._settings, self._settings.inference.deadline_s
        likeness = Likeness(image, self._inference, self._substrate.profile.embedder, limit_s=limit_s, pause_s=0, deadline_s=limit_s)
        methods = MethodRuntime(image, settings, forge=machine.forge, deliver=deliver)

        def examples(root: Root) -> dict[str, incarnation.Exemplars]:
            return {name: incarnation.exemplars_of(one) for name, one in incarnation.present(root["lobby"], self._codex).items()}

        router = Router(self._codex, lambda: image.read(examples), likeness, chars=RoutingLimits.of(settings).chars)

        try:
            yield Stage(image, replay_services(services, names, image=image, methods=methods, router=router))
        finally:
            await likeness.stop()
            await methods.close()
