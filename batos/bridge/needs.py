"""Tells what a mission needs of its model: to see images, to use tools, to think first, to read so many tokens at once. Pure values.

In words a need is `vision`, `tools`, `thinking` or `context:32k` (k is 1,024 tokens). `auto` beside them names none: it lets the mission's
own plan name some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from batos.bridge.capabilities import Capabilities
from batos.errors import InvalidInput

AUTO = "auto"
Ability = Literal["vision", "tools", "thinking"]
ABILITIES: dict[Ability, str] = {"vision": "sees images", "tools": "can use tools", "thinking": "thinks before it answers"}
"""Each ability, and what a model does that has it."""
PROBES: dict[Ability, str] = {"vision": "images", "tools": "tools", "thinking": "think"}
"""By ability, the probe that finds it out."""
CONTEXT = re.compile(r"context:([1-9][0-9]{0,8})(k?)", re.IGNORECASE)
CONTEXT_LIMIT = 2**24
"""Tokens that a need may name at most: no model reads as many."""
_KILO = 1024


@dataclass(frozen=True, slots=True)
class Needs:
    """What is needed. Falsy where that is nothing.

    :ivar context: tokens that it has to read and write at once; 0: as many as it is given anyway.
    """

    vision: bool = False
    tools: bool = False
    thinking: bool = False
    context: int = 0

    @classmethod
    def parse(cls, words: Iterable[str]) -> Needs:
        """Read needs in words; `auto` among them counts as none.

        :raises InvalidInput: for a word that is none.
        """
        abilities, context = set(), 0
        for word in words:
            if (found := CONTEXT.fullmatch(word)) is not None:
                context = max(context, int(found[1]) * (_KILO if found[2] else 1))
            elif word in ABILITIES:
                abilities.add(word)
            elif word != AUTO:
                known = f"{', '.join(ABILITIES)}, context:TOKENS (such as context:32k), {AUTO}"
                raise InvalidInput(f"{word[:64]!r} is no need; there are: {known}")
        if context > CONTEXT_LIMIT:
            raise InvalidInput(f"a context of {context} tokens; at most {CONTEXT_LIMIT} may be asked for")
        return cls(**dict.fromkeys(abilities, True), context=context)

    def __or__(self, other: Needs) -> Needs:
        """Both together."""
        abilities = {name: getattr(self, name) or getattr(other, name) for name in ABILITIES}
        return Needs(**abilities, context=max(self.context, other.context))

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in ABILITIES) or self.context > 0

    @property
    def abilities(self) -> list[Ability]:
        """The abilities that are needed."""
        return [name for name in ABILITIES if getattr(self, name)]

    def words(self) -> list[str]:
        """As `parse` reads them."""
        return [*self.abilities, *([f"context:{self.context}"] if self.context else [])]

    def told(self) -> str:
        """What a model does that meets them, in words."""
        parts = [ABILITIES[name] for name in self.abilities]
        parts += [f"reads {self.context:,} tokens at once"] if self.context else []
        return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))

    def covers(self, other: Needs) -> bool:
        """Whether whoever meets these meets the other ones, too."""
        return self | other == self

    def lacking(self, can: Capabilities) -> Needs:
        """What of it a model cannot. What is not known of its context is taken to be enough."""
        has = {"vision": can.vision, "tools": can.tools, "thinking": can.thinks}
        lacks = {name: True for name in self.abilities if not has[name]}
        return Needs(**lacks, context=self.context if can.context is not None and can.context < self.context else 0)

    @property
    def probes(self) -> set[str]:
        """The probes that find out whether a model meets them; its context is found out by loading it."""
        return {PROBES[name] for name in self.abilities}
