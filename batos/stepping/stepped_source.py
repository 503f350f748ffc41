"""Inferences of a mission that is stepped through: as recorded, as its user changed them, and new ones within an allowance.

A recorded inference counts as the same if what was asked is the same. The model's digest and options may differ, which belong to the
machine and not to the thought. What the journal lacks fails as the mission failed then, unless the allowance pays for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from batos.bridge.inference import ChatRequest, Inference
from batos.errors import BatosError, InferenceFailed, from_wire
from batos.image import journal
from batos.image.journal import InferenceRecord
from batos.image.living_image import LivingImage
from batos.mind.events import TextBatch
from batos.mind.inference import JournaledAnswers, JournalPlace, NeedAnswer, with_pictures
from batos.missions.replay import OfflineInference

RECORDED, EDITED, NEW, MISSING = "recorded", "edited", "new", "missing"
_OF_THE_MACHINE = frozenset({"digest", "options"})
OnPaid = Callable[[InferenceRecord], Awaitable[None]]
"""Hears of an inference that a session has paid for."""


@dataclass
class StepMemory:
    """Knowledge that a session has of its mission's inferences; each thinking again begins with it."""

    paid: list[InferenceRecord] = field(default_factory=list)
    """Inferences that the session has paid for."""
    edited: dict[journal.Key, str] = field(default_factory=dict)
    """Texts that the user put in the place of answers, also of such as never came."""
    answered: dict[journal.Key, AskedInference] = field(default_factory=dict)
    """Inferences that those texts answer, also where the mission is not thought up to there again."""
    allowance: int = 0
    """Number of inferences that may still be paid for."""
    error: dict[str, Any] | None = None
    """Error of the mission's last attempt, as the wire shows it: what was asked last has failed so."""
    on_paid: OnPaid | None = None
    """Counts an inference that was paid for, also where the session is dropped."""


class StepInference(OfflineInference):
    """Inference that names digests and pays nothing by itself. Digests never decide whether an answer is the recorded one."""

    def __init__(self, inference: Inference, patience_s: float) -> None:
        super().__init__(inference, patience_s)
        self.real = inference


@dataclass(frozen=True)
class AskedInference:
    """An inference that a mission asked for while it was thought again."""

    request: ChatRequest
    place: JournalPlace
    label: str
    """Words of the journal: cycle, state, persona, part."""
    answer: InferenceRecord | None
    """None: it failed, or may not be paid for."""
    source: str
    """Origin of the answer: `RECORDED`, `EDITED`, `NEW`, or `MISSING`."""
    changed: tuple[str, ...] = ()
    """Of a missing one: the parts in which it differs from the nearest recorded inference that nothing has asked for."""


class SteppedSource:
    """Source of inferences of one thinking again. `asked` holds them in the order in which they were asked for."""

    def __init__(self, mission: str, image: LivingImage, inference: StepInference, memory: StepMemory, deadline_s: float) -> None:
        """
        :param mission: its id.
        :param deadline_s: longest time for a new inference.
        """
        self._mission, self._image, self._inference, self._memory = mission, image, inference, memory
        self._deadline_s = deadline_s
        self.recorded = JournaledAnswers()
        self.unused: dict[journal.Key, InferenceRecord] = {}
        """Inferences of the journal that nothing has asked for."""
        self.asked: list[AskedInference] = []

    def recall(self) -> None:
        """See `InferenceSource`."""
        entries = self._image.read(journal.load, self._mission)
        self.recorded = JournaledAnswers([*entries, *self._memory.paid])
        self.unused = {(one.key, one.occurrence): one for one in entries}

    def known(self, request: ChatRequest, place: JournalPlace, label: str) -> InferenceRecord | None:
        """See `InferenceSource`."""
        key = place[:2]
        found = self.recorded.get(key) or self._like(place, label)
        source = NEW if any((one.key, one.occurrence) == key for one in self._memory.paid) else RECORDED
        if key in self._memory.edited:
            found, source = edited_record(found, request, place, label, self._memory.edited[key]), EDITED
        if found is not None:
            self.unused.pop((found.key, found.occurrence), None)
            self.asked.append(AskedInference(request, place, label, found, source))
        return found

    def _like(self, place: JournalPlace, label: str) -> InferenceRecord | None:
        """Return the recorded inference that was asked the same of another model or with other options; the same part's first."""
        fitting = [
            one for one in self.unused.values() if one.parts and not set(journal.changed_parts(one.parts, place.parts)) - _OF_THE_MACHINE
        ]
        return next((one for one in fitting if one.label == label), next(iter(fitting), None))

    async def pay(self, request: ChatRequest, place: JournalPlace, label: str, heard: TextBatch | None) -> InferenceRecord:
        """Pay for an inference that the journal does not have, if there is an allowance.

        :raises InferenceFailed: with the mission's own failure where it failed for want of an answer, else with the cause `not_in_journal`.
        """
        if self._memory.allowance <= 0:
            self.asked.append(AskedInference(request, place, label, None, MISSING, self._differs(place)))
            raise self._failure(request)
        self._memory.allowance -= 1
        try:
            reply = await self._inference.real.chat(await with_pictures(request, self._image), deadline_s=self._deadline_s, on_text=None)
        except BatosError:
            self.asked.append(AskedInference(request, place, label, None, MISSING))
            raise
        paid = InferenceRecord(
            place.key, place.occurrence, reply.text, reply.model, reply.digest[:16], reply.prompt_tokens, reply.answer_tokens,
            round(reply.load_ms, 1), round(reply.total_ms, 1), reply.done_reason, journal.now(), place.parts, label,
            round(reply.prompt_eval_ms, 1), round(reply.eval_ms, 1), dict(request.options).get("seed"), reply.thinking, reply.calls,
        )  # fmt: skip
        self._memory.paid.append(paid)
        self.recorded.add(paid)
        self.asked.append(AskedInference(request, place, label, paid, NEW))
        if self._memory.on_paid is not None:
            await self._memory.on_paid(paid)
        return paid

    def _failure(self, request: ChatRequest) -> InferenceFailed:
        if self._memory.error is not None and isinstance(known := from_wire(self._memory.error), InferenceFailed):
            return known
        why = f"the journal does not have this inference of {request.model}, and nothing was allowed to pay for it (`inferences`)"
        return InferenceFailed(why, cause="not_in_journal", retryable=False)

    def _differs(self, place: JournalPlace) -> tuple[str, ...]:
        near = [tuple(journal.changed_parts(one.parts, place.parts)) for one in self.unused.values() if one.parts]
        return min(near, key=len) if near else ()

    def unanswered(self, need: NeedAnswer) -> BaseException:
        """Return the need itself: the mission waits here, as it does in the image."""
        return need


def edited_record(found: InferenceRecord | None, request: ChatRequest, place: JournalPlace, label: str, text: str) -> InferenceRecord:
    """Return an inference with another answer; what it cost stays, and one that never came has cost nothing."""
    if found is not None:
        return found._replace(key=place.key, occurrence=place.occurrence, text=text, done_reason="stop", calls=())
    return InferenceRecord(
        place.key, place.occurrence, text, request.model, request.digest[:16], 0, 0, 0.0, 0.0, "stop", journal.now(), place.parts, label
    )
