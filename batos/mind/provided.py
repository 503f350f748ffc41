"""What a mission needs of its model, and what it was provided with where no model that thinks here can do it.

A mission names its needs (`needs`), its brief may be longer than a model takes, and its plan may name some. What meets them is found,
asked for and brought about by another layer (`batos.providing`); here is what a mission goes by, and how it is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from batos.bridge.needs import AUTO, Needs
from batos.errors import BatosSignal

CHOSEN, BEGUN, READY, DECLINED = "chosen", "begun", "ready", "declined"
"""How far it is: a model was chosen; it is being brought about, as a change of that number; the mission thinks with it; it does without."""
PROVISIONING = "PROVISIONING"
"""The state of a mission that waits for its model."""
BYTES_A_TOKEN = 4
"""Bytes of a brief that are a token at least: a text of more is surely too long."""
BESIDE = 512
"""Tokens that a prompt has beside brief and answer."""
STEP = 1024
"""A context is a multiple of so many tokens."""


class NeedModel(BatosSignal):
    """A mission needs a model that can do more, and goes on when it is provided."""

    def __init__(self, needs: Needs, *, may_do_without: bool = False) -> None:
        """
        :param may_do_without: whether the mission goes on as it is where none may be had.
        """
        super().__init__(needs.told())
        self.needs, self.may_do_without = needs, may_do_without


_NONE = Needs()


@dataclass(frozen=True, slots=True)
class Provision:
    """What a mission thinks with in place of what it would have; falsy where it thinks with that.

    :ivar model: empty: the models are those that think anyway, with other options.
    :ivar voices: by persona's role, the model that is its own on `model`.
    :ivar options: of every inference; `direct` of one that is the whole thought.
    :ivar change: the number of the change that brought it about.
    :ivar declined: what the mission does without, since none may be had; `why_not` says of the last of it why.
    """

    needs: Needs = _NONE
    model: str = ""
    voices: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    direct: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    change: int | None = None
    declined: Needs = _NONE
    why_not: str = ""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Provision:
        """What a record in the journal says; nothing where it is not ready."""
        declined = Needs.parse(record.get("declined", ()))
        without: dict[str, Any] = {"declined": declined, "why_not": str(record.get("why_not", record.get("why", ""))) if declined else ""}
        if record.get("state") != READY:
            return cls(**without)
        plain = {name: record[name] for name in ("model", "voices", "options", "direct", "why", "change") if name in record}
        return cls(needs=Needs.parse(record["needs"]), **without, **plain)

    def __bool__(self) -> bool:
        return bool(self.needs)

    def facts(self) -> dict[str, Any]:
        """What a mission's result tells of it."""
        told = {"needs": self.needs.words(), "model": self.model or None, "num_ctx": self.options.get("num_ctx"), "why": self.why}
        return {**told, **({"change": self.change} if self.change is not None else {})}


class Provider(Protocol):
    """Provides missions with models."""

    async def met(self, needs: Needs) -> bool:
        """Whether what thinks here anyway meets needs."""

    async def stands(self, provision: Provision) -> bool:
        """Whether what a mission was provided with is there still; what can be made anew of it is."""

    async def provide(self, attempt: Any, needs: Needs, *, may_do_without: bool) -> Provision:
        """Find what meets the needs of a mission, and bring it about; it is in the mission's journal then. May be repeated after a kill at
        any point, and pays for nothing twice.

        :param attempt: the mission's `batos.mind.thinking.Thinking`, of which nothing is known here.
        :param may_do_without: whether the mission goes on as it is where there is none, or it may not be had; that is recorded, too.

        :raises NeedAnswer: where its user is asked first.
        :raises ModelNeeded: where there is none, or it may not be had; the message says which, of what size, and the command that gets it.
        :raises InferenceFailed: where it cannot be had now.
        """


def named(mission: Mapping[str, Any]) -> Needs:
    """What a mission needs of its model, as its record (`ledger.describe`) names it."""
    return Needs.parse(mission["needs"] or ())


def names_more(mission: Mapping[str, Any]) -> bool:
    """Whether a mission's plan may name needs."""
    return AUTO in (mission["needs"] or ())


def length_of(brief: str, context: int, answer: int) -> Needs:
    """The context that a brief needs, where it surely does not fit the one that it is given: else a part of it would be left out.

    :param context: tokens that it is given, `answer` those of an answer at most.
    """
    tokens = len(brief.encode("utf-8", "replace")) // BYTES_A_TOKEN
    if tokens <= max(context - answer, context // 2):
        return Needs()
    return Needs(context=-(-(tokens + BESIDE + max(STEP, tokens // 4)) // STEP) * STEP)
