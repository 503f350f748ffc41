"""Sight: which models look at the pictures of a mission, and what follows where the one that would think does not see.

Ollama does not say so itself: a model that does not see is given `[img-0]` for a picture, and answers all the same. So it is looked at
before any thought.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from batos.bridge.names import tagged
from batos.config import nearest
from batos.errors import ModelBlind

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


def lent(questions: Sequence[Mapping[str, Any]]) -> str:
    """The model that a mission's user has named for its pictures; "" where he was not asked, or has not answered."""
    return next((one["answer"].strip() for one in questions if _ASKED in one["question"] and one["answer"]), "")


def shown(images: Sequence[Mapping[str, Any]], mission: str, told: Sequence[str], limit: int) -> Shown:
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


def together(found: Shown) -> Shown:
    """The same where the conversation is told as a text: all go with the prompt, in the order in which they came."""
    every = dict.fromkeys(digest for turn in found for digest in turn)
    return (tuple(every),) if every else ()
