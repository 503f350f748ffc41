"""Sight: which models look at the pictures of a mission, and what follows where the one that would think does not see.

Ollama does not say so itself: a model that does not see is given `[img-0]` for a picture, and answers all the same. So it is looked at
before any thought.

What a mission needs of its model, and what it was provided with where no model that thinks here can do it.

A mission names its needs (`needs`), its brief may be longer than a model takes, and its plan may name some. What meets them is found,
asked for and brought about by another layer (`batos.app.model_choice`); here is what a mission goes by, and how it is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from batos.bridge.capabilities import AUTO_NEEDS, Needs
from batos.bridge.modelfile import tagged
from batos.config import nearest
from batos.errors import BatosSignal, ModelBlind

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

        :param attempt: the mission's `batos.mind.attempt.Attempt`, of which nothing is known here.
        :param may_do_without: whether the mission goes on as it is where there is none, or it may not be had; that is recorded, too.

        :raises NeedAnswer: where its user is asked first.
        :raises ModelNeeded: where there is none, or it may not be had; the message says which, of what size, and the command that gets it.
        :raises InferenceFailed: where it cannot be had now.
        """


def needs_named(mission: Mapping[str, Any]) -> Needs:
    """What a mission needs of its model, as its record (`ledger.describe`) names it."""
    return Needs.parse(mission["needs"] or ())


def names_needs_itself(mission: Mapping[str, Any]) -> bool:
    """Whether a mission's plan may name needs."""
    return AUTO_NEEDS in (mission["needs"] or ())


def needed_context(brief: str, context: int, answer: int) -> Needs:
    """The context that a brief needs, where it surely does not fit the one that it is given: else a part of it would be left out.

    :param context: tokens that it is given, `answer` those of an answer at most.
    """
    tokens = len(brief.encode("utf-8", "replace")) // BYTES_A_TOKEN
    if tokens <= max(context - answer, context // 2):
        return Needs()
    return Needs(context=-(-(tokens + BESIDE + max(STEP, tokens // 4)) // STEP) * STEP)


_ASKED = "Which model shall look at them? "
_TOLD = 12  # models that a question or an error names
Shown = tuple[tuple[str, ...], ...]
"""Digests of the pictures that an inference shows: of each turn of the conversation, and at the end those that go with its own prompt."""


class Sight(NamedTuple):
    """What is known of the models here.

    :ivar model_of: from a persona's name to the model that speaks for it now.
    :ivar sees: whether a model sees, after a look at it where that is not known; None where nobody can say.
    :ivar known: the same from memory, at once.
    :ivar seeing: the names of models here that see and could think.
    """

    model_of: Callable[[str], str] = str
    sees: Callable[[str], Awaitable[bool | None]] | None = None
    known: Callable[[str], bool | None] = lambda model: None
    seeing: Callable[[], Awaitable[Sequence[str]]] | None = None

    async def personas(self, names: Sequence[str], within_s: float) -> Collection[str] | None:
        """Those of the personas whose models see, or may; None where that makes no difference.

        :param within_s: how long those are asked about that are not known: one may be on its way for hours, and is none of this mission's.
        """
        models = {name: self.model_of(name) for name in names}
        unknown = {model for model in models.values() if self.known(model) is None}
        if unknown and self.sees is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await asyncio.gather(*map(self.sees, unknown), return_exceptions=True)
        found = [name for name, model in models.items() if self.known(model) is not False]
        return found if 0 < len(found) < len(names) else None

    async def look(self, persona: str, lent: str, ask: Callable[[str], str] | None) -> None:
        """See that the model which will think about pictures sees them.

        :param lent: the model that its user has named for it; "" where he has not.
        :param ask: asks the user; None where he may not be asked.
        :raises ModelBlind: where it does not, and nobody can be asked.
        :raises NeedAnswer: where its user is asked which model shall.
        """
        if self.sees is None or self.seeing is None:
            return
        model = lent or self.model_of(persona)
        if not lent and await self.sees(model) is not False:
            return
        models = list(await self.seeing())
        if lent and tagged(lent) in models:
            return
        which = f"{lent!r}, which was named for them," if lent else f"{persona.upper()} thinks with {model}, which"
        told = f"{', '.join(models[:_TOLD])}{' and more' if len(models) > _TOLD else ''}"
        if models and ask is not None and not lent:
            ask(f"{which} does not see images; here see: {told}. {_ASKED}Answer with its name.")
        blind = f"this mission has images, and {which} is no model here that sees{nearest(lent, models)}"
        if not lent:
            blind = f"this mission has images, and {which} does not see"
        if models:
            one = models[0]
            how = (
                f"here see: {told}; `batos models use {one}` lets it think from now on, `batos models use {persona}={one}` for this persona"
            )
        else:
            how = "no model here does; `batos models --ensure NAME` pulls one, such as gemma3:4b, and `batos models use NAME` has it think"
        raise ModelBlind(
            f"{blind}; {how}; then send the mission again with another id", persona=persona, model=model, models=models[:_TOLD]
        )


def model_named_for_pictures(questions: Sequence[Mapping[str, Any]]) -> str:
    """The model that a mission's user has named for its pictures; "" where he was not asked, or has not answered."""
    return next((one["answer"].strip() for one in questions if _ASKED in one["question"] and one["answer"]), "")


def pictures_shown(images: Sequence[Mapping[str, Any]], mission: str, told: Sequence[str], limit: int) -> Shown:
    """The pictures of a mission as its prompts show them; empty where there are none.

    :param images: of the mission, its own first, then those of the ones before it, the last one's first.
    :param told: ids of the missions whose turns are told, the oldest first.
    :param limit: how many at most: its own go first, then the newest.
    """
    by: dict[str, list[str]] = {}
    for one in images[:limit]:
        by.setdefault(str(one.get("of", mission)), []).append(str(one["digest"]))
    found = tuple(tuple(by.get(id, ())) for id in (*told, mission))
    return found if any(found) else ()


def pictures_together(found: Shown) -> Shown:
    """The same where the conversation is told as a text: all go with the prompt, in the order in which they came."""
    every = dict.fromkeys(digest for turn in found for digest in turn)
    return (tuple(every),) if every else ()
