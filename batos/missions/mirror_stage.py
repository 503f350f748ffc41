"""Stage: missions are thought through in a mirror of the image, where nothing is kept of them and nothing acts outside.

Inferences come from the missions' journals. One that is not there is paid for from a purse (`batos.missions.purse`); beyond its allowance
the mission's outcome is unknown. Nothing that is thought in a mirror reaches the image: neither records, nor journals, nor what missions
cost. Rehearsals and comparisons both think on two stages, which begin as the same image.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import structlog
from transaction.interfaces import TransientError

from batos.bridge.inference import ChatRequest, Inference
from batos.errors import BatosError, ToolsTied
from batos.image import journal, ledger
from batos.image.living_image import LivingImage, mirror
from batos.mind.attempt import Attempt
from batos.mind.attempt_services import REPLAYED, AttemptPolicy, AttemptServices
from batos.mind.events import TextBatch
from batos.mind.inference import JournaledAnswers, JournalPlace, NeedAnswer, with_pictures
from batos.mind.router import CHOSEN, Route
from batos.missions.execution import Attempts
from batos.missions.purse import Purse, Unknown
from batos.missions.replay import JournalOnlySource
from batos.objects import UvmObject

log = structlog.get_logger("batos.missions")


class BudgetedSource:
    """Source of inferences: the journal, then inferences that the rehearsal has paid for, then a model, within the budget."""

    def __init__(self, mission: str, image: LivingImage, purse: Purse) -> None:
        """
        :param mission: its id.
        """
        self._mission, self._image, self._purse = mission, image, purse
        self._journal = JournalOnlySource(mission, image)

    @property
    def recorded(self) -> JournaledAnswers:
        """See `InferenceSource`."""
        return self._journal.recorded

    def recall(self) -> None:
        """See `InferenceSource`."""
        self._journal.recall()

    def known(self, request: ChatRequest, place: JournalPlace, label: str) -> journal.InferenceRecord | None:
        """See `InferenceSource`."""
        return self._journal.known(request, place, label)

    async def pay(self, request: ChatRequest, place: JournalPlace, label: str, heard: TextBatch | None) -> journal.InferenceRecord:
        """Pay from the budget for an inference that the journal lacks.

        :raises Unknown: if the inference is not available.
        """
        return await self._purse.pay(self._mission, await with_pictures(request, self._image), place, label)

    def unanswered(self, need: NeedAnswer) -> BaseException:
        """Return `Unknown`: the user was never asked this."""
        return Unknown(f"the question {need.question[:60]!r} was not answered")


class _Names:
    """Inference that only names digests. Where it cannot, it is unknown if the journal has an answer."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._digests: dict[str, str] = {}

    async def digest(self, model: str) -> str:
        if model not in self._digests:
            try:
                self._digests[model] = await self._inference.digest(model)
            except BatosError as e:
                raise Unknown(e.message, passes=True) from e
        return self._digests[model]

    async def continues(self, model: str) -> bool:
        return False

    async def chat(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("only the purse asks a model")

    embed = chat


class MirroredThought(NamedTuple):
    """Outcome of a mission that was thought through in a mirror."""

    attempt: Attempt
    result: dict[str, Any] | None = None
    """Its result; None if it failed, or if its outcome is unknown."""
    error: BaseException | None = None
    """Exception that it failed with. Any exception makes the mission fail, as in a live mission."""
    unknown: str = ""
    """Reason why its outcome is unknown; empty if it is known."""
    passes: bool = False
    """True if the outcome is unknown for a reason that may pass (`Unknown.passes`)."""

    @property
    def failed(self) -> str:
        """Return the code of the error; empty if there is none."""
        return "" if self.error is None else self.error.code if isinstance(self.error, BatosError) else BatosError.code


class Stage(NamedTuple):
    """One side of a comparison: a mirror, and the services of attempts in it."""

    image: LivingImage
    services: AttemptServices

    def attempt(self, mission: str, purse: Purse, policy: AttemptPolicy = REPLAYED, persona: str | None = None) -> Attempt:
        """Make an attempt at a mission in this mirror. It loads the decisions and the paid inferences of the mission's own attempts.

        :param persona: the persona that thinks about it, in place of the one that did or would; None: as the mission has it.
        """
        record = self.image.read(lambda root: ledger.describe(ledger.mission_of(root, mission)))
        if persona is not None:
            record = replace(record, persona=persona)
        attempt = Attempt(record, self.services, BudgetedSource(mission, self.image, purse), policy)
        attempt.recall()
        if persona is not None:
            attempt.decisions.route = Route(persona, "chosen by the comparison", by=CHOSEN)
        return attempt

    async def think(self, attempt: Attempt, see: Callable[[dict[str, Any], UvmObject | None], None] | None = None) -> MirroredThought:
        """Think a mission through in this mirror, where nothing is kept of it and nothing acts outside.

        :param see: receives the result and the cycle while they exist.
        """
        try:
            result = await Attempts(self.image, conflict_retries=1).rehearse(attempt, see)
        except (Unknown, TransientError, ToolsTied) as e:  # a call that the mission never made: its result is unknown
            log.info("outcome_unknown", mission=attempt.id, why=str(e)[:200])
            return MirroredThought(attempt, unknown=str(e) or type(e).__name__, passes=isinstance(e, Unknown) and e.passes)
        except Exception as e:
            return MirroredThought(attempt, error=e)
        if attempt.tools.was_tied:
            return MirroredThought(attempt, unknown="it would have called a tool that the mission never called")
        return MirroredThought(attempt, result)


Staging = Callable[[LivingImage, Inference], contextlib.AbstractAsyncContextManager[Stage]]
"""Makes the stage of a mirror; the inference gives the models. The composition root knows how."""


@contextlib.asynccontextmanager
async def two_stages(image: LivingImage, inference: Inference, staging: Staging, cache: int) -> AsyncIterator[tuple[Stage, Stage]]:
    """Give two mirrors of an image, which begin as the same.

    :param inference: asked for the digests of models only.
    :param cache: objects in the cache of each mirror.
    """
    names = _Names(inference)
    async with (
        mirror(image, cache_size=cache) as one,
        mirror(image, cache_size=cache, of=one) as other,
        staging(one, names) as without,
        staging(other, names) as changed,
    ):
        yield without, changed
