"""Needs of a mission: which model can meet them, the provision that a mission got, and sight for its pictures.

A mission names its needs (`needs`), its brief may be longer than a model's context, and its plan may name some. Another layer
(`batos.app.model_provision`) finds, requests and installs a model that meets them; this module holds the result that a mission uses,
and its record.

Ollama does not report that a model cannot see: such a model gets `[img-0]` for a picture, and answers
anyway. So sight is checked before any thought.
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
from batos.image.mission_record import MissionRecord

CHOSEN, BEGUN, READY, DECLINED = "chosen", "begun", "ready", "declined"
"""States of a need: a model was chosen; a change is providing it; the mission uses it; the mission goes on without it."""
PROVISIONING = "PROVISIONING"
"""State of a mission that waits for its model."""
BYTES_A_TOKEN = 4
"""Number of bytes of a brief that make at least one token. It shows which briefs certainly exceed a context."""
BESIDE = 512
"""Tokens of a prompt besides the brief and the answer."""
STEP = 1024
"""The size of a context is a multiple of this number of tokens."""


class NeedModel(BatosSignal):
    """A mission needs a model that can do more, and goes on when it is provided."""

    def __init__(self, needs: Needs, *, may_do_without: bool = False) -> None:
        """:param may_do_without: True if the mission goes on without such a model when none is available."""
        super().__init__(needs.told())
        self.needs, self.may_do_without = needs, may_do_without


_NONE = Needs()


@dataclass(frozen=True, slots=True)
class Provision:
    """Substitute for the model or options that a mission would otherwise use; falsy if there is none.

    :ivar model: empty: the usual models, with other options.
    :ivar voices: role of a persona -> its own model on `model`.
    :ivar options: options of every inference; `direct` those of one that is the whole thought.
    :ivar change: number of the change that installed it.
    :ivar declined: needs that the mission goes without, since no model is available; `why_not` is the reason for the last of them.
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
        """Return the provision in a record of the journal; an empty one if it is not ready."""
        declined = Needs.parse(record.get("declined", ()))
        without: dict[str, Any] = {"declined": declined, "why_not": str(record.get("why_not", record.get("why", ""))) if declined else ""}
        if record.get("state") != READY:
            return cls(**without)
        plain = {name: record[name] for name in ("model", "voices", "options", "direct", "why", "change") if name in record}
        return cls(needs=Needs.parse(record["needs"]), **without, **plain)

    def __bool__(self) -> bool:
        return bool(self.needs)

    def facts(self) -> dict[str, Any]:
        """Return the facts for a mission's result."""
        told = {"needs": self.needs.words(), "model": self.model or None, "num_ctx": self.options.get("num_ctx"), "why": self.why}
        return {**told, **({"change": self.change} if self.change is not None else {})}


class Provider(Protocol):
    """Provides missions with models."""

    async def is_met(self, needs: Needs) -> bool:
        """Return True if the usual models meet the needs."""

    async def is_installed(self, provision: Provision) -> bool:
        """Return True if a mission's provision is still installed. Parts that can be rebuilt are rebuilt."""

    async def provide(self, attempt: Any, needs: Needs, *, may_do_without: bool) -> Provision:
        """Find and install a model that meets the needs of a mission, and record it in the mission's journal.

        It may be repeated after a kill at any point, and pays for nothing twice.

        :param attempt: the mission's `batos.mind.attempt.Attempt`, of which nothing is known here.
        :param may_do_without: True if the mission goes on without a model when none is available; the journal records that.

        :raises NeedAnswer: where its user is asked first.
        :raises ModelNeeded: if no model is available or permitted; the message names a model, its size, and the command that installs it.
        :raises InferenceFailed: if the model is not available now.
        """


def needs_named(mission: MissionRecord) -> Needs:
    """Return the needs that a mission's record (`ledger.describe`) names."""
    return Needs.parse(mission.needs or ())


def names_needs_itself(mission: MissionRecord) -> bool:
    """Return True if a mission's plan may name needs."""
    return AUTO_NEEDS in (mission.needs or ())


def needed_context(brief: str, context: int, answer: int) -> Needs:
    """Return the context that a brief needs, if the brief certainly exceeds its present context and would be shortened.

    :param context: tokens that it is given, `answer` those of an answer at most.
    """
    tokens = len(brief.encode("utf-8", "replace")) // BYTES_A_TOKEN
    if tokens <= max(context - answer, context // 2):
        return Needs()
    return Needs(context=-(-(tokens + BESIDE + max(STEP, tokens // 4)) // STEP) * STEP)


_ASKED = "Which model shall look at them? "
_TOLD = 12  # greatest number of models that a question or an error names
Shown = tuple[tuple[str, ...], ...]
"""Digests of the pictures of an inference: those of each turn of the conversation, and last those of its own prompt."""


class Sight(NamedTuple):
    """Knowledge about models that see.

    :ivar model_of: returns the current model of a persona, by name.
    :ivar sees: returns True if a model sees, after a probe if that is unknown; None if it stays unknown.
    :ivar known: returns the same from memory, at once.
    :ivar seeing: returns the names of installed models that see and could think.
    """

    model_of: Callable[[str], str] = str
    sees: Callable[[str], Awaitable[bool | None]] | None = None
    known: Callable[[str], bool | None] = lambda model: None
    seeing: Callable[[], Awaitable[Sequence[str]]] | None = None

    async def personas(self, names: Sequence[str], within_s: float) -> Collection[str] | None:
        """Return the personas whose models see, or may see; None if that makes no difference.

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

    async def check(self, persona: str, lent: str, ask: Callable[[str], str] | None) -> None:
        """Check that the model that thinks about pictures sees them.

        :param lent: model that the user named for it; "" if none.
        :param ask: asks the user; None if that is not allowed.
        :raises ModelBlind: if it does not see, and the user cannot be asked.
        :raises NeedAnswer: if the user is asked to choose a model.
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
        blind = f"this mission has images, and {which} is not one of the models here that see{nearest(lent, models)}"
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
    """Return the model that a mission's user has named for its pictures; "" if he was not asked, or has not answered."""
    return next((one["answer"].strip() for one in questions if _ASKED in one["question"] and one["answer"]), "")


def pictures_shown(images: Sequence[Mapping[str, Any]], mission: str, told: Sequence[str], limit: int) -> Shown:
    """Return the pictures of a mission for its prompts; empty if there are none.

    :param images: pictures of the mission first, then those of earlier missions, the last one's first.
    :param told: ids of the missions whose turns are shown, the oldest first.
    :param limit: maximum number: the mission's own first, then the newest.
    """
    by: dict[str, list[str]] = {}
    for one in images[:limit]:
        by.setdefault(str(one.get("of", mission)), []).append(str(one["digest"]))
    found = tuple(tuple(by.get(id, ())) for id in (*told, mission))
    return found if any(found) else ()


def pictures_left_out(images: Sequence[Mapping[str, Any]], shown: Shown) -> int:
    """Return the number of pictures of earlier missions that no prompt shows. The reason: all was too long, the prompts leave out their
    turns, or there are more than the setting `thinking.images` allows.

    :param shown: as of `pictures_shown`; empty if only the mission's own are.
    """
    return sum("of" in one for one in images) - sum(map(len, shown[:-1]))


def pictures_together(found: Shown) -> Shown:
    """Return the pictures for a prompt that has the conversation as a text: all go with the prompt, in their order."""
    every = dict.fromkeys(digest for turn in found for digest in turn)
    return (tuple(every),) if every else ()
