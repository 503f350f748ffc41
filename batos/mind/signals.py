"""Define what ends an attempt early, so that it begins anew with what it lacks, and how an inference is named: its place, and who asks."""

from __future__ import annotations

from typing import NamedTuple

from batos.bridge.types import ChatRequest
from batos.errors import BatosError, BatosSignal, InferenceFailed
from batos.image import unwritten


class Place(NamedTuple):
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

    def __init__(self, request: ChatRequest, place: Place, label: str) -> None:
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
    made = unwritten.refusal(error) or BatosError(f"{type(error).__name__}: {error}")
    made.__cause__ = error
    return made
