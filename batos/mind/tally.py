"""What a mission's thought has asked, numbered and written so far."""

from __future__ import annotations

import contextlib
import contextvars
from collections import Counter
from collections.abc import Iterator

from batos.image.journal import Inference
from batos.objects import UvmObject


class Tally:
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
        self.used: list[Inference] = []
        self.replayed = 0
        self.forged: list[UvmObject] = []
        """The cycles in which methods were written."""

    def aside(self) -> Tally:
        """One that goes on from here, and leaves this one as it is."""
        new = Tally()
        new.asked, new.cycles, new.questions = Counter(self.asked), Counter(self.cycles), Counter(self.questions)
        new.taken, new.agreed = set(self.taken), dict(self.agreed)
        new.used, new.replayed, new.forged = list(self.used), self.replayed, list(self.forged)
        return new


_aside: contextvars.ContextVar[Tally | None] = contextvars.ContextVar("batos_aside", default=None)


def counting(whole: Tally) -> Tally:
    """What counts here: an attempt's own, or that of the trial in which this is asked."""
    return _aside.get() or whole


def in_trial() -> bool:
    """Whether this is asked in a trial, of which nothing is kept."""
    return _aside.get() is not None


@contextlib.contextmanager
def apart(tally: Tally) -> Iterator[None]:
    """Count what is done inside in one that goes on from this, and leave this as it is."""
    token = _aside.set(tally.aside())
    try:
        yield
    finally:
        _aside.reset(token)
