"""Find what a mission has paid for: its inferences, by content and occurrence, and what became of one.

Define what ends an attempt early, so that it begins anew with what it lacks, and how an inference is named: its place, and who asks.

What a mission's thought has asked, numbered and written so far.

Answers that have begun: kept every few seconds while they come, and gone on with after a restart or a broken stream.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from batos.bridge.inference import ChatRequest
from batos.errors import BatosError, BatosSignal, InferenceFailed
from batos.image import journal, storage
from batos.image.journal import InferenceRecord
from batos.image.living_image import LivingImage
from batos.objects import UvmObject


class JournalPlace(NamedTuple):
    """Where in the journal an inference belongs: its content key, the how-manieth of that content, checksums of its parts."""

    key: bytes
    occurrence: int
    parts: bytes


class By(NamedTuple):
    """Who asks: the number of the cycle (`1`, `1.2` for the second one inside it), its state and persona."""

    cycle: str = ""
    state: str = ""
    persona: str = ""

    def label(self, part: str | None) -> str:
        """The four words that the journal keeps of it."""
        return " ".join((self.cycle or "-", self.state or "-", self.persona or "-", part or "-"))


class NeedInference(BatosSignal):
    """A cycle under the gate needs an inference that the journal does not have."""

    def __init__(self, request: ChatRequest, place: JournalPlace, label: str) -> None:
        super().__init__(request.model)
        self.request, self.place, self.label = request, place, label


class PromptTooLong(BatosSignal):
    """A prompt, or it and its answer, does not fit the model's context: less is to be told."""

    def __init__(self, told: int, cause: InferenceFailed) -> None:
        """
        :param told: characters of the prompt.
        """
        super().__init__(cause.message)
        self.told, self.cause = told, cause


class NeedAnswer(BatosSignal):
    """A mission has a question for its user, and goes on when it is answered."""

    def __init__(self, question: str, occurrence: int, grant: bool = False) -> None:
        """
        :param grant: whether a yes lets a method do what changes more than its receiver: only an operator may say it.
        """
        super().__init__(question)
        self.question, self.occurrence, self.grant = question, occurrence, grant


def as_error(error: Exception) -> BatosError:
    """An exception that ended an attempt, as its mission's error."""
    if isinstance(error, BatosError):
        return error
    made = storage.disk_full_error(error) or BatosError(f"{type(error).__name__}: {error}")
    made.__cause__ = error
    return made


class AttemptTally:
    """The counts of an attempt, or of a trial inside it. A trial has its own, which end with it: what is thought beside it meanwhile, by
    another facet, say, counts in the attempt's."""

    def __init__(self) -> None:
        self.asked: Counter[bytes] = Counter()
        """How often each content was asked."""
        self.taken: set[tuple[bytes, int]] = set()
        """Of these which one it was, each time: the content, and its occurrence in the journal."""
        self.cycles: Counter[str] = Counter()
        self.questions: Counter[str] = Counter()
        self.agreed: dict[str, bool] = {}
        """By question, whether the user said yes."""
        self.used: list[InferenceRecord] = []
        self.replayed = 0
        self.forged: list[UvmObject] = []
        """The cycles in which methods were written."""

    def aside(self) -> AttemptTally:
        """One that goes on from here, and leaves this one as it is."""
        new = AttemptTally()
        new.asked, new.cycles, new.questions = Counter(self.asked), Counter(self.cycles), Counter(self.questions)
        new.taken, new.agreed = set(self.taken), dict(self.agreed)
        new.used, new.replayed, new.forged = list(self.used), self.replayed, list(self.forged)
        return new


_aside: contextvars.ContextVar[AttemptTally | None] = contextvars.ContextVar("batos_aside", default=None)


def counting(whole: AttemptTally) -> AttemptTally:
    """What counts here: an attempt's own, or that of the trial in which this is asked."""
    return _aside.get() or whole


def in_trial() -> bool:
    """Whether this is asked in a trial, of which nothing is kept."""
    return _aside.get() is not None


@contextlib.contextmanager
def apart(tally: AttemptTally) -> Iterator[None]:
    """Count what is done inside in one that goes on from this, and leave this as it is."""
    token = _aside.set(tally.aside())
    try:
        yield
    finally:
        _aside.reset(token)


class Paid(dict[tuple[bytes, int], InferenceRecord]):
    """The inferences that are in a mission's journal, by content and occurrence."""

    def __init__(self, entries: Iterable[InferenceRecord] = ()) -> None:
        super().__init__()
        self._last: dict[bytes, int] = {}  # of each content the last occurrence
        for entry in entries:
            self.add(entry)

    def add(self, entry: InferenceRecord) -> None:
        """Take one more in."""
        self[entry.key, entry.occurrence] = entry
        self._last[entry.key] = max(entry.occurrence, self._last.get(entry.key, 0))

    def occurrence(self, key: bytes, label: str, tally: AttemptTally) -> int:
        """Which of the inferences of one content the next one is: that which the same part of the same cycle had, where it is paid for.
        Several who ask for the same at once come in another order each time, and what follows goes by who said what.

        :param label: who asks (`By.label`).
        """
        free = [n for n in range(max(self._last.get(key, -1), tally.asked[key]) + 1) if (key, n) not in tally.taken]
        own = (n for n in free if (held := self.get((key, n))) is not None and held.label == label)
        return next(own, free[0])


def is_full(reply: InferenceRecord, options: Mapping[str, Any]) -> bool:
    """Whether an answer ended because the context was full, before it came to its own longest."""
    context, longest = options.get("num_ctx") or 0, options.get("num_predict") or 0
    full = bool(context) and reply.prompt_tokens + reply.answer_tokens >= context
    return reply.done_reason == "length" and full and reply.answer_tokens < longest


def spent(paid: InferenceRecord) -> str:
    """Why there is no answer, where a model spent all of it on its thought: neither another persona nor another try mends that."""
    if paid.text.strip() or not (paid.done_reason == "length" or (paid.done_reason == "cut" and paid.thinking.strip())):
        return ""
    went = f"all {paid.answer_tokens} tokens that it may write went into its thought"
    how = went if paid.done_reason == "length" else "its thought went in circles, and was ended"
    return (
        f"{paid.model} came to no answer: {how}. Let it answer at once (setting inference.think, off), let it "
        "write more (setting inference.answer_tokens), or "
        "take another model (`batos models use NAME`)"
    )


class Begun:
    """The unfinished answers of one mission."""

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
        """Load what earlier daemons kept."""
        self._texts = self._image.read(journal.load_partials, self._mission)

    def of(self, key: journal.Key) -> tuple[str, int]:
        """What is there of an answer, and the tokens it took."""
        return self._texts.get(key, ("", 0))

    def listener(self, key: journal.Key, hear: Callable[[str], None] | None) -> Callable[[str], None]:
        """What hears the pieces of an answer, notes them, and passes them on to `hear`."""
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
        """Forget what is there: the answer is whole, or the model begins again."""
        self._texts.pop(key, None)
