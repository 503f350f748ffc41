"""Inferences of one mission: taken from its journal where they were paid for, else asked of a source, and journaled before they are used.

An inference is named by its content and by its occurrence among those of the same content (`JournalPlace`). The counters of an attempt
(`AttemptTally`) number the occurrences. A source (`InferenceSource`) answers an inference that the journal does not have: `LiveSource` asks
a model. While a cycle is replayed under the gate it may not wait for a model. Then `NeedInference` ends the attempt, the inference is paid
for outside, and the cycle is replayed again. It is one of the signals here that end an attempt early, so that it begins anew with what it
lacks.

Answers that have begun are kept every few seconds while they come (`PartialAnswers`). So a model goes on with them after a restart or a
broken stream.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from batos.bridge.inference import ChatReply, ChatRequest, Inference
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import BatosError, BatosSignal, InferenceFailed
from batos.image import blobs, journal, ownership, storage
from batos.image.journal import InferenceRecord
from batos.image.living_image import LivingImage
from batos.image.method_doubts import Refusal
from batos.image.server import away_error
from batos.mind.events import TextBatch
from batos.objects import UvmObject


@dataclass(frozen=True, slots=True)
class ThinkingLimits(Limits):
    """Limits of one attempt's thinking."""

    images: int = limit(8, ge=0, le=64)
    """Greatest number of images of one brief, and of one inference; 0: briefs with images are refused."""
    facets: int = limit(3, ge=1, le=16)
    """Greatest number of facets that one cycle delegates to."""
    depth: int = limit(2, ge=1, le=8)
    """Greatest depth of cycles within cycles; 1: one persona thinks alone."""
    method_depth: int = limit(4, ge=1, le=16)
    """Greatest nesting of syntheses: the trial of a new method may send messages that need further methods."""
    voices: int = limit(3, ge=1, le=8)
    """Greatest number of personas that share one brief."""
    question_chars: int = limit(2000, ge=1, le=100_000)
    """Greatest number of characters of a question to the user, and of the answer."""
    call_methods: Literal["on", "off"] = "on"
    """`on`: if a brief exactly states the purpose of a method of the lobby or a persona, with its arguments, that method answers it."""
    token_batch_s: float = limit(0.05, gt=0, le=10)
    """Seconds for which pieces of an answer are collected into one event."""
    repairs: int = limit(2, ge=0, le=10)
    """Greatest number of further requests after an answer of a wrong form."""
    malformed_chars: int = limit(2000, ge=0, le=100_000)
    """Number of characters that are kept of each answer of a wrong form."""
    thinking_chars: int = limit(4000, ge=0, le=1_000_000)
    """Greatest number of characters of a model's reasoning that the journal keeps."""
    partial_s: float = limit(2.0, gt=0, le=3600)
    """Greatest number of seconds between two commits of an unfinished answer."""
    partial_tokens: int = limit(24, ge=1, le=100_000)
    """Greatest number of tokens between two commits of an unfinished answer."""


class JournalPlace(NamedTuple):
    """Place of an inference in the journal: the key of its content, its number among those of that content, a checksum of each part."""

    key: bytes
    occurrence: int
    parts: bytes


class InferenceAsker(NamedTuple):
    """InferenceAsker of an inference: the number of its cycle (`1`, `1.2` for the second one inside it), its state and persona."""

    cycle: str = ""
    state: str = ""
    persona: str = ""

    @property
    def is_own(self) -> bool:
        """Return True if the cycle is the mission's own, inside no other."""
        return "." not in self.cycle

    def label(self, part: str | None) -> str:
        """Return the four words that the journal keeps of it."""
        return " ".join((self.cycle or "-", self.state or "-", self.persona or "-", part or "-"))


class NeedInference(BatosSignal):
    """Signal of a cycle under the gate that needs an inference which the journal does not have."""

    def __init__(self, request: ChatRequest, place: JournalPlace, label: str) -> None:
        super().__init__(request.model)
        self.request, self.place, self.label = request, place, label


class PromptTooLong(BatosSignal):
    """Signal that a prompt, alone or with its answer, exceeds the model's context: the next prompt must be shorter."""

    def __init__(self, told: int, cause: InferenceFailed) -> None:
        """
        :param told: characters of the prompt.
        """
        super().__init__(cause.message)
        self.told, self.cause = told, cause


class NeedAnswer(BatosSignal):
    """Signal of a mission that has a question for its user, and goes on when it is answered."""

    def __init__(self, question: str, occurrence: int, grant: bool = False) -> None:
        """
        :param grant: True if a yes permits a method to change more than its receiver: only an operator may answer so.
        """
        super().__init__(question)
        self.question, self.occurrence, self.grant = question, occurrence, grant


def as_error(error: Exception) -> BatosError:
    """Return an exception that ended an attempt as the error of its mission."""
    if isinstance(error, BatosError):
        return error
    made = storage.disk_full_error(error) or away_error(error) or BatosError(f"{type(error).__name__}: {error}")
    made.__cause__ = error
    return made


class AttemptTally:
    """Counters of an attempt, or of a trial inside it. A trial has its own, which end with it; inferences of other facets meanwhile count
    in the attempt's."""

    def __init__(self) -> None:
        self.asked: Counter[bytes] = Counter()
        """Content -> number of requests."""
        self.taken: set[tuple[bytes, int]] = set()
        """Key of the content and occurrence in the journal, for each inference of the attempt."""
        self.cycles: Counter[str] = Counter()
        self.questions: Counter[str] = Counter()
        self.agreed: dict[str, bool] = {}
        """Question -> True if the user agreed."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """Calls of tools so far, by tool and arguments."""
        self.used: list[InferenceRecord] = []
        self.replayed = 0
        self.forged: list[UvmObject] = []
        """Cycles that wrote methods."""
        self.doubled = False
        """True in a trial from its first call on that a double of the tool answered. What is answered from then on is not a fact."""
        self.recorded: Mapping[str, Any] = {}
        """Answers of tools (`CONNECTION.TOOL`) for a trial, in the place of doubles: as they were recorded before."""
        self.refused: Mapping[tuple[str, str], Refusal] = {}
        """Calls of tools, by tool and arguments, that fail in a trial as they failed before."""
        self.unread: set[str] = set()
        """Tools (`CONNECTION.TOOL`), and connections, that trials do not read: their user is not asked yet if a method may reach them."""
        self.exchanges: Mapping[tuple[str, str], Sequence[Any]] | None = None
        """In a trial of a recorded call: what each tool answered to these arguments, in order. No other call is known there."""

    def copy(self) -> AttemptTally:
        """Return counters that go on from here, and leave these as they are."""
        new = AttemptTally()
        new.asked, new.cycles, new.questions = Counter(self.asked), Counter(self.cycles), Counter(self.questions)
        new.taken, new.agreed, new.calls = set(self.taken), dict(self.agreed), Counter(self.calls)
        new.unread = set(self.unread)
        new.used, new.replayed, new.forged = list(self.used), self.replayed, list(self.forged)
        new.doubled, new.recorded, new.refused, new.exchanges = self.doubled, self.recorded, self.refused, self.exchanges
        return new


class JournaledAnswers(dict[tuple[bytes, int], InferenceRecord]):
    """Inferences in a mission's journal, by content and occurrence."""

    def __init__(self, entries: Iterable[InferenceRecord] = ()) -> None:
        super().__init__()
        self._last: dict[bytes, int] = {}  # content -> its last occurrence
        for entry in entries:
            self.add(entry)

    def add(self, entry: InferenceRecord) -> None:
        """Add an inference."""
        self[entry.key, entry.occurrence] = entry
        self._last[entry.key] = max(entry.occurrence, self._last.get(entry.key, 0))

    def occurrence(self, key: bytes, label: str, tally: AttemptTally) -> int:
        """Return the number of the next inference of one content. It is the number that the same part of the same cycle had, if that
        inference is paid for.

        :param label: label of the asking part (`By.label`).
        """
        free = [n for n in range(max(self._last.get(key, -1), tally.asked[key]) + 1) if (key, n) not in tally.taken]
        own = (n for n in free if (held := self.get((key, n))) is not None and held.label == label)
        return next(own, free[0])


def is_full(reply: InferenceRecord | ChatReply, options: Mapping[str, Any]) -> bool:
    """Return True if an answer ended because the context was full, before it had as many tokens as it may."""
    context, longest = options.get("num_ctx") or 0, options.get("num_predict") or 0
    full = bool(context) and reply.prompt_tokens + reply.answer_tokens >= context
    return reply.done_reason == "length" and full and reply.answer_tokens < longest


def why_no_answer(paid: InferenceRecord) -> str:
    """Return the reason if a model spent all its tokens on its thought, else "". Neither another persona nor a retry helps."""
    if paid.text.strip() or not (paid.done_reason == "length" or (paid.done_reason == "cut" and paid.thinking.strip())):
        return ""
    went = f"all {paid.answer_tokens} tokens that it may write went into its thought"
    how = went if paid.done_reason == "length" else "its thought went in circles, and was ended"
    return (
        f"{paid.model} came to no answer: {how}. Let it answer at once (setting inference.think, off), let it "
        "write more (setting inference.answer_tokens), or "
        "take another model (`batos models use NAME`)"
    )


class PartialAnswers:
    """Unfinished answers of one mission, kept so that a model can go on with them."""

    def __init__(
        self, mission: str, image: LivingImage, *, every_s: float, every_tokens: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        :param every_s: seconds after which what has come is kept.
        :param every_tokens: tokens after which it is, if that is sooner.
        """
        self._mission, self._image = mission, image
        self._every_s, self._every_tokens, self._clock = every_s, every_tokens, clock
        self._texts: dict[journal.Key, tuple[str, int]] = {}

    def recall(self) -> None:
        """Load the answers that earlier daemons kept."""
        self._texts = self._image.read(journal.load_partials, self._mission)

    def of(self, key: journal.Key) -> tuple[str, int]:
        """Return the text of an answer so far, and the tokens that it took."""
        return self._texts.get(key, ("", 0))

    def listener(self, key: journal.Key, hear: Callable[[str], None] | None) -> Callable[[str], None]:
        """Return a function that receives the pieces of an answer, stores them, and passes them on to `hear`."""
        kept_at, kept_tokens = self._clock(), self.of(key)[1]

        def listen(piece: str) -> None:
            nonlocal kept_at, kept_tokens
            text, tokens = self.of(key)
            text, tokens = text + piece, tokens + 1
            self._texts[key] = text, tokens
            now = self._clock()
            if tokens - kept_tokens >= self._every_tokens or now - kept_at >= self._every_s:
                kept_at, kept_tokens = now, tokens
                self._image.later(journal.keep_partial, self._mission, key, text, tokens)
            if hear is not None:
                hear(piece)

        return listen

    def drop(self, key: journal.Key) -> None:
        """Forget a partial answer: the answer is complete, or the model starts again."""
        self._texts.pop(key, None)


class InferenceSource(Protocol):
    """Source of the inferences of one attempt that are not known, and of what follows where its user has not answered."""

    @property
    def recorded(self) -> JournaledAnswers:
        """Return the inferences in the mission's journal, as far as they were loaded or have been added since."""
        ...

    def recall(self) -> None:
        """Load what earlier attempts paid for."""
        ...

    def known(self, request: ChatRequest, place: JournalPlace, label: str) -> InferenceRecord | None:
        """Return the inference if it was paid for already, else None.

        :param label: label of the asking part (`By.label`).
        """
        ...

    async def pay(self, request: ChatRequest, place: JournalPlace, label: str, heard: TextBatch | None) -> InferenceRecord:
        """Return the answer to an inference that the journal does not have, journaled if the source keeps a journal.

        :param heard: gets the text as it comes.
        :raises InferenceFailed: with its cause.
        """
        ...

    def unanswered(self, need: NeedAnswer) -> BaseException:
        """Return what to raise for a question that the user has not answered."""
        ...


class LiveSource:
    """Source that asks a model and journals its answer: of a mission that is really thought through."""

    def __init__(
        self, mission: str, image: LivingImage, inference: Inference, settings: Settings, on_paid: Callable[[InferenceRecord], None]
    ) -> None:
        """
        :param mission: its id.
        :param on_paid: hears of each inference that a model was asked for.
        """
        self._mission, self._image, self._inference, self._settings, self._on_paid = mission, image, inference, settings, on_paid
        self._partial = PartialAnswers(
            mission, image, every_s=ThinkingLimits.of(settings).partial_s, every_tokens=ThinkingLimits.of(settings).partial_tokens
        )
        self.recorded = JournaledAnswers()

    def recall(self) -> None:
        """See `InferenceSource`."""
        self._partial.recall()
        self.recorded = JournaledAnswers(self._image.read(journal.load, self._mission))

    def known(self, request: ChatRequest, place: JournalPlace, label: str) -> InferenceRecord | None:
        """See `InferenceSource`."""
        return self.recorded.get(place[:2])

    async def pay(self, request: ChatRequest, place: JournalPlace, label: str, heard: TextBatch | None) -> InferenceRecord:
        """Ask the model and journal its answer. Return the answer when it is durable."""
        hear: Callable[[str], None] | None = None if heard is None else heard.add
        begun, tokens = self._partial.of(place[:2])
        if begun and not await self._inference.continues(request.model):
            self._partial.drop(place[:2])
            begun = ""
        if begun:
            request = dataclasses.replace(request, begun=begun, begun_tokens=tokens)
            if hear is not None:
                hear(begun)
        if request.schema is None:  # the grammar of a schema starts at the beginning of an answer
            hear = self._partial.listener(place[:2], hear)
        request = await with_pictures(request, self._image)
        if self._image.kernel:  # a kernel that stood still may have been taken for gone meanwhile: it pays for nothing more
            request = dataclasses.replace(request, before_sent=lambda: self._image.read(ownership.still_own, self._mission))
        try:
            reply = await self._inference.chat(request, deadline_s=self._settings.inference.deadline_s, on_text=hear)
        finally:
            if heard is not None:
                heard.flush()
        self._partial.drop(place[:2])
        paid = InferenceRecord(
            place.key, place.occurrence, reply.text, reply.model, reply.digest[:16], reply.prompt_tokens, reply.answer_tokens + tokens,
            round(reply.load_ms, 1), round(reply.total_ms, 1), reply.done_reason, journal.now(), place.parts, label,
            round(reply.prompt_eval_ms, 1), round(reply.eval_ms, 1), dict(request.options).get("seed"),
            reply.thinking[: ThinkingLimits.of(self._settings).thinking_chars], reply.calls,
        )  # fmt: skip
        self.recorded.add(paid)
        self._on_paid(paid)
        await self._image.system(journal.add, self._mission, paid, mission=self._mission)
        return paid

    def unanswered(self, need: NeedAnswer) -> BaseException:
        """Return the need itself: the attempt ends, and the mission waits for its user."""
        return need


class JournaledInference:
    """Inferences of one attempt, each taken from the journal or from a source, and numbered."""

    def __init__(self, source: InferenceSource) -> None:
        self.source = source
        self.gated = False
        """True under the gate: no code may wait for a model."""
        self.paid = 0
        """Number of inferences that this attempt has paid for."""
        self._failed: dict[tuple[bytes, int], InferenceFailed] = {}

    @property
    def recorded(self) -> JournaledAnswers:
        """Return the inferences in the mission's journal."""
        return self.source.recorded

    def restart(self, *, gated: bool) -> None:
        """Begin anew; outside of the gate what failed is asked once more."""
        self.gated = gated
        if not gated:
            self._failed.clear()

    async def infer(self, request: ChatRequest, label: str, tally: AttemptTally, heard: TextBatch | None) -> InferenceRecord:
        """Return the inference that a request asks for.

        :param request: names the model by its digest, too: the inference is keyed by that.
        :param label: label of the asking part (`By.label`).
        :param tally: numbers it, and counts it.
        :param heard: gets its text as it comes, unless it is in the journal.
        :raises NeedInference: under the gate, where it is not in the journal.
        :raises InferenceFailed: with its cause.
        """
        content = journal.content_of(
            request.digest, request.system, request.user, request.schema, dict(request.options), request.turns, request.shown, request.tools
        )
        key = journal.key_of(content)
        place = JournalPlace(key, self.recorded.occurrence(key, label, tally), journal.parts_of(content))
        tally.asked[key] += 1
        tally.taken.add(place[:2])
        found = self.source.known(request, place, label)
        if found is not None:
            tally.replayed += 1
        elif self.gated:
            raise self._failed.get(place[:2]) or NeedInference(request, place, label)
        else:
            found = await self._pay(request, place, label, heard)
        tally.used.append(found)
        return found

    async def settle(self, need: NeedInference) -> None:
        """Pay for the inferences that a replay under the gate needs. After a failure the replay fails in the same place: a cycle may go
        on without them.
        """
        try:
            await self._pay(need.request, need.place, need.label, None)
        except InferenceFailed as e:
            self._failed[need.place[:2]] = e

    async def _pay(self, request: ChatRequest, place: JournalPlace, label: str, heard: TextBatch | None) -> InferenceRecord:
        found = await self.source.pay(request, place, label, heard)
        self.paid += 1
        return found


async def with_pictures(request: ChatRequest, image: LivingImage) -> ChatRequest:
    """Return a request with the bytes of its pictures. They are read on demand and not cached.

    :raises ImageDamaged: if their bytes differ from the upload.
    """
    if not request.shown:
        return request

    def read(digest: str) -> str:
        return base64.b64encode(image.read(blobs.read_picture, digest)).decode()

    every = dict.fromkeys(digest for turn in request.shown for digest in turn)
    found = {digest: await asyncio.to_thread(read, digest) for digest in every}
    return dataclasses.replace(request, images=tuple(tuple(found[digest] for digest in turn) for turn in request.shown))
